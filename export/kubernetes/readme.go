package kubernetes

import (
	"fmt"
	"strings"

	"inferplan/export"
	"inferplan/formats/document"
)

// addReadme adds the sections of the README.
func (m *manifests) addReadme(folder *export.Folder) {
	folder.Steps = append(folder.Steps, m.imageStep(), export.Step{
		Title: "Secrets",
		Text:  "Once for each namespace. The script makes the token of clients" + m.ifWorkers(", the token with which workers join and the certificate that they trust") + map[bool]string{true: ", and the key of what the queue keeps"}[m.Queue != ""] + ", anew each time; no file keeps them. Pods read secrets when they start.",
		Commands: fmt.Sprintf("kubectl create namespace %[1]s      # unless it is there\n./secrets.sh | kubectl create -n %[1]s -f -",
			m.Namespace),
	})
	if len(m.kinds()) > 0 {
		folder.Steps = append(folder.Steps, m.nodesStep())
	}
	if m.Members != nil {
		folder.Steps = append(folder.Steps, m.membersStep())
	}
	folder.Steps = append(folder.Steps, m.applyStep(), m.switchStep(), export.Step{
		Title: "Changes of your own",
		Text: "The next export replaces this folder. Keep changes in a kustomization beside it, with `overlay` among its resources. " +
			"`components/monitoring` needs Prometheus Operator (`--pod-monitor` applies it)" + m.ifScaled() + ".",
	})
	m.addNotes(folder)
}

// ifWorkers returns the text if there are workers.
func (m *manifests) ifWorkers(text string) string {
	if len(m.Workers) == 0 {
		return ""
	}
	return text
}

// ifScaled returns what the README says of the component for KEDA, if there is one.
func (m *manifests) ifScaled() string {
	if m.MaxCopies == m.Copies || m.KServe() {
		return ""
	}
	return ", `components/scaling` also KEDA"
}

// kinds returns the kinds of devices, wherever their pods are.
func (m *manifests) kinds() []deviceKind {
	if m.Local != nil {
		return []deviceKind{*m.Local}
	}
	return m.Workers
}

// imageStep says how the image is made.
func (m *manifests) imageStep() export.Step {
	target, folder, arguments, text := "make dist", "inferplan-linux-amd64", " --build-context inferplan=DIST", ""
	if m.UsesGPUs {
		target, folder = "make dist CUDA=1", "inferplan-linux-amd64-cuda"
		arguments += " --build-arg BASE=IMAGE"
		text = "\n- `IMAGE`: a base image with glibc 2.36 or newer and the run-time libraries of CUDA 13 and cuDNN 9"
	}
	if len(m.Models) > 0 {
		arguments += " --build-context models=MODELS"
		text += "\n- `MODELS`: the absolute path of the folder with " + document.List(m.Models) + ", with weights and libraries of operators beside them"
	}
	return export.Step{
		Title: "Image", Text: "Type the commands of this page in its folder. Replace the words in capitals:\n\n" +
			"- `DIST`: the absolute path of `dist/" + folder + "`, which `" + target + "` makes in the source tree of inferplan" + text,
		Commands: "podman build -t " + m.Image + " -f image/Containerfile" + arguments + " image\npodman push " + m.Image,
	}
}

// nodesStep says which nodes pods go to.
func (m *manifests) nodesStep() export.Step {
	var commands []string
	for _, k := range m.kinds() {
		commands = append(commands, fmt.Sprintf("kubectl label node NODE %s=%s      # %s", k.Selector[0], k.Selector[1], m.needs(&k)))
	}
	return export.Step{
		Title: "Nodes", Text: "Times hold on devices like those that were measured. Pods go to nodes with these labels; `--node-selector` takes others, such as those of GPU Feature Discovery.",
		Commands: strings.Join(commands, "\n"),
	}
}

// membersStep says how servers of language models are found.
func (m *manifests) membersStep() export.Step {
	return export.Step{
		Title: "Servers of language models",
		Text: fmt.Sprintf("Every ready pod of the namespace with the label `inferplan/servers: %[1]s`, whose server is at port %[2]d, takes an instance of the plan that has no server. Put the label into the "+
			"template of the pods, with a readiness probe of the server's `/health`: a pod that is not ready has no address in the Service. Pods come and go without a restart of `plan serve`. "+
			"`plan export vllm`, `sglang` and `llamacpp` write the commands of the servers.", m.Members.Name, m.Members.Port),
		Commands: fmt.Sprintf("kubectl get endpointslices -n %s -l kubernetes.io/service-name=%s      # once applied: the servers that are found", m.Namespace, m.Members.Name),
	}
}

// needs says what a copy of the plan needs of a kind.
func (m *manifests) needs(k *deviceKind) string {
	pods, cpus := k.Pods(), k.CPUs
	if m.Local != nil {
		pods, cpus = 1, k.CPUs*k.Devices
	}
	what := fmt.Sprintf("%d CPUs", cpus)
	if k.Resource != "" {
		what = fmt.Sprintf("%d %s", k.PerPod, k.Resource)
	}
	text := fmt.Sprintf("%s: pods of a copy: %d; each has %s", k.Name, pods, what)
	if k.Share > 1 {
		text += fmt.Sprintf("; NVIDIA's device plugin shares a device %d-fold", k.Share)
	}
	return text
}

// applyStep says how the plan is served and asked.
func (m *manifests) applyStep() export.Step {
	address, path := m.Name, "/v2/models/MODEL/infer"
	if m.Text {
		path = "/v1/completions"
	}
	ready := "kubectl rollout status -n " + m.Namespace + " statefulset/" + m.Name + "-server"
	port := ":8000"
	if m.KServe() {
		address, port, ready = m.Name+"-predictor", "", "kubectl wait -n "+m.Namespace+" --for=condition=Ready --timeout=10m inferenceservice/"+m.Name
	}
	text := fmt.Sprintf("Clients in the cluster ask `http://%s.%s%s%s` with the header `Authorization: Bearer TOKEN`.", address, m.Namespace, port, path)
	switch {
	case m.MaxCopies > 1 && m.KServe():
		text += " Connections of gRPC stay with one server."
	case m.MaxCopies > 1:
		text += " Connections of gRPC stay with one server: give clients the addresses of all, by the name of the headless Service."
	}
	return export.Step{
		Title:    "Run",
		Text:     text,
		Commands: "kubectl apply --server-side -k overlay\n" + ready + "\nkubectl get secret -n " + m.Namespace + " " + m.Name + "-client -o 'jsonpath={.data.token}' | base64 -d      # TOKEN",
	}
}

// switchStep says how another plan comes into force.
func (m *manifests) switchStep() export.Step {
	step := export.Step{Title: "Another plan", Commands: "plan export kubernetes plan.json -o THIS-FOLDER      # with the flags of this export\nkubectl apply --server-side -k overlay"}
	if m.PlanInImage {
		step.Text = "This plan is too large for a ConfigMap, so it is in the image: build another image, and name it with `--image`. Servers are then replaced one after the other."
		return step
	}
	if len(m.Workers) > 0 && m.MaxCopies > 1 {
		step.Text = "If the number of devices stays, nothing restarts; otherwise workers are replaced one after the other. "
	}
	step.Text += "Nodes see the ConfigMap change within about a minute. Each server then loads the new plan beside the old one and switches; no request waits or is lost, and no server restarts. " +
		"Where the new plan has fewer devices, their pods work on until then. A plan that cannot be served leaves the old one in force: `inferplan_plan_file_differs` is 1, and the server's log says why."
	if len(m.Models) > 0 {
		step.Text += " New models need a new image first."
	}
	if len(m.Workers) > 1 {
		step.Text += " The StatefulSet of a kind of device that the new plan lacks stays until it is deleted."
	}
	return step
}

// addNotes adds what the export assumes, and what it does not carry.
func (m *manifests) addNotes(folder *export.Folder) {
	folder.Assumed = append(folder.Assumed, fmt.Sprintf("the server has %d CPUs and %s, for itself%s", m.ServerCPUs, m.ServerMemory, map[bool]string{true: " and for its devices"}[m.Local != nil]))
	for i := range m.Workers {
		k := &m.Workers[i]
		folder.Assumed = append(folder.Assumed, fmt.Sprintf("a pod with %d of %s has %d CPUs and %s", k.PerPod, k.Name, k.CPUs, k.Memory))
	}
	if len(m.Workers) > 0 {
		folder.Assumed = append(folder.Assumed, "tensors between workers go by way of the server, over the network of the pods")
		folder.Lost = append(folder.Lost, "which node a device is on: any worker of a kind takes the place of any device of the kind",
			"a worker that is replaced ends its batches unfinished: they run again on other devices while deadlines allow")
	}
	switch {
	case m.Queue != "":
		folder.Assumed = append(folder.Assumed, "NATS with JetStream keeps the requests at "+m.Queue+", on three nodes with sync_interval: always")
	case m.Text:
		folder.Lost = append(folder.Lost, "service while the server is moved to another node or gets another image: requests that it has accepted wait on its volume, and go on when it is back")
	case m.Copies == 1 && !m.KServe():
		folder.Lost = append(folder.Lost, "service while the only server is moved to another node or gets another image: `--copies 2` has two")
	}
	if m.KServe() {
		folder.Lost = append(folder.Lost, "the rates of the plan: KServe's own autoscaler goes by the CPU between --copies and --max-copies")
	}
}
