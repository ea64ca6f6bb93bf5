package kubernetes

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	tritonimporter "inferplan/importers/triton"
	"inferplan/planner/kind"
)

// options are the flags of the verb.
type options struct {
	documents     importers.RunningDocuments
	repositories  []string
	nodeSelectors []string
	models        []string
}

// Importer describes the verb import kubernetes, which makes a plan of what runs on Kubernetes.
func Importer() *importers.Importer {
	o := &options{}
	return &importers.Importer{
		Usage:   "kubernetes FILE...",
		Summary: "Manifests of Kubernetes into the plan that runs there",
		Description: `Manifests of Kubernetes into the plan that runs there.

Files are YAML or JSON, folders of them, or what kubectl prints (- is standard input). Of what
'plan export kubernetes' wrote, the plan comes back as it was; if the workers' replicas were changed
so that devices are missing, it is the plan of those that are left. Of pods that run Triton it is a
plan of the models in their repository, which --repository names: a copy of it on this machine. Of
servers of language models (vLLM, SGLang, llama.cpp) it is a plan of queues with these instances, by
the options of their commands, within sh -c too, and variables LLAMA_ARG_*; the profile is one with
llms. The profile says what models cost, the cluster has the devices of all pods, and the workload
says what requests are promised. The plan can be checked, simulated, and solved from (plan solve
--from).

Pods of Triton count by replicas (DaemonSets by status.desiredNumberScheduled), each with the first
free devices of one host: nvidia.com/gpu, amd.com/gpu, or CPUs by cpu. The kind of a GPU is named by
a node label such as nvidia.com/gpu.product, or by --node-selector, else it is the cluster's only
kind. Shares of GPUs are refused: manifests do not have their size. With
--model-control-mode=explicit only models of --load-model count, with the steps of ensembles.`,
		Example: `  kubectl get sts,cm -n vision -o yaml | plan import kubernetes - -o today.json
  kubectl get deploy,sts -o yaml | plan import kubernetes - --repository /srv/models -o today.json
  plan check today.json && plan simulate today.json
  plan solve --from today.json -o better.json`,
		MinArguments: 1, MaxArguments: importers.AnyNumber, DefaultOutput: "plan.json", Kind: formats.KindPlan,
		Recognize: recognize,
		DefineFlags: func(f *pflag.FlagSet) {
			o.documents.DefineFlags(f)
			f.StringArrayVar(&o.repositories, "repository", nil, "DIR or NAME=DIR: folder with the model repository of the pods of Triton, or of the object NAME (repeatable)")
			f.StringArrayVar(&o.models, "model", nil, "NAME=MODEL: model of the profile that a server of language models calls NAME (repeatable; default its served names, or its model)")
			f.StringArrayVar(&o.nodeSelectors, "node-selector", nil, "KIND=LABEL=VALUE: label of the nodes with devices of a kind of the cluster (repeatable; default labels that name the GPU, such as nvidia.com/gpu.product)")
		},
		Import: o.importPlan,
	}
}

// recognize returns what a file is, if it begins like a manifest.
func recognize(head []byte) string {
	for _, field := range []string{"apiVersion", "kind"} {
		if !bytes.HasPrefix(head, []byte(field+":")) && !bytes.Contains(head, []byte("\n"+field+":")) && !bytes.Contains(head, []byte(`"`+field+`":`)) {
			return ""
		}
	}
	return "manifests of Kubernetes"
}

// importPlan reads the files, and saves the plan of what runs.
func (o *options) importPlan(r *importers.Run) error {
	c, err := readFiles(r.Args)
	if err != nil {
		return importers.MarkInput(err)
	}
	workloads, err := c.workloads()
	if err != nil {
		return importers.MarkInput(err)
	}
	byEngine := map[*engine][]*workload{}
	for _, w := range workloads {
		byEngine[w.engine] = append(byEngine[w.engine], w)
	}
	var languageServers []*workload
	for _, w := range workloads {
		if w.engine.program != nil {
			languageServers = append(languageServers, w)
		}
	}
	servers, pods := byEngine[&serveEngine], byEngine[&tritonEngine]
	if len(servers)+len(pods) == 0 && len(languageServers) > 0 {
		return o.importLanguageServers(r, c, languageServers, workloads)
	}
	if err := c.checkEngines(servers, pods, workloads); err != nil {
		return importers.MarkInput(err)
	}
	if len(servers) > 0 {
		return o.importServed(r, c, servers, byEngine[&workerEngine])
	}
	return o.importTriton(r, c, pods)
}

// checkEngines returns an error unless the workloads are those of one engine that is read. Others are noted.
func (c *cluster) checkEngines(servers, pods, workloads []*workload) error {
	switch {
	case len(servers) > 0 && len(pods) > 0:
		return pods[0].fail(pods[0].String()+", which runs Triton, beside "+servers[0].String()+", which serves a plan", "one of them", "select the objects: kubectl get -l LABEL=VALUE")
	case len(workloads) == 0:
		found := append([]string{fmt.Sprintf("found no container of a model server in %d objects", len(c.objects))}, c.notes...)
		return usage.Errorf("%s\n  hint: it is known by its image, such as nvcr.io/nvidia/tritonserver, or its command, such as plan serve", strings.Join(found, "; "))
	}
	for _, w := range workloads {
		if slices.Contains([]*engine{&serveEngine, &workerEngine, &tritonEngine}, w.engine) {
			continue
		}
		if len(servers)+len(pods) == 0 {
			return w.container.fail(w.String()+", which runs "+w.engine.name, "plan serve, Triton, vLLM, SGLang or llama.cpp", "the options of others are not read")
		}
		note := " runs " + w.engine.name + ", which is not in a plan beside Triton: it is left out, and its devices are idle in the plan"
		if len(servers) > 0 {
			note = " runs " + w.engine.name + ", which is not compared with the plan"
		}
		c.notes = append(c.notes, w.String()+note)
	}
	if len(servers)+len(pods) == 0 {
		return workloads[0].fail(workloads[0].String()+" without a server", "plan serve, which it joins", "give the manifests of the server, too")
	}
	return nil
}

// importServed saves the plan that plan serve executes, or a plan of its devices that are left.
func (o *options) importServed(r *importers.Run, c *cluster, servers, workers []*workload) error {
	for _, flag := range []string{"repository", "node-selector", "model"} {
		if r.Flags.Changed(flag) {
			return usage.Errorf("--%s: expected pods of Triton or servers of language models; here it does nothing", flag)
		}
	}
	s, err := newServed(c, servers, workers)
	if err != nil {
		return importers.MarkInput(err)
	}
	if !s.isWhole() {
		return o.documents.Import(r, func(*formats.Profile, *formats.Cluster) (*kind.Observed, []string, error) {
			observed, err := s.remaining()
			return &kind.Observed{Deployment: observed}, slices.Concat(c.notes, s.notes, []string{"the devices without workers are the last of their kind"}), err
		})
	}
	if r.Flags.Changed("certify") {
		return usage.Errorf("--certify: expected a deployment that is made a plan; here the plan of %s comes back as it was\n  hint: plan simulate --find-max-load says what it holds", s.server)
	}
	for _, flag := range []string{"profile", "cluster", "workload"} {
		if r.Flags.Changed(flag) {
			s.notes = append(s.notes, "--"+flag+" has no part in a plan whose devices are all there")
		}
	}
	for _, line := range slices.Concat(c.notes, s.notes) {
		r.PrintNote("%s", line)
	}
	return r.SaveAndShow(s.plan, map[string]any{"objective": s.plan.Objective, "models": s.plan.ServedModels(), "copies": s.server.count},
		"wrote %s: the plan that %s serves; next: plan check %s", r.Path, s.server, r.Path)
}

// importTriton saves the plan of pods that run Triton.
func (o *options) importTriton(r *importers.Run, c *cluster, pods []*workload) error {
	t := &tritonReader{}
	var err error
	if t.repositories, err = parseRepositories(o.repositories); err != nil {
		return err
	}
	if len(o.models) > 0 {
		return usage.Errorf("--model: expected servers of language models; here it does nothing")
	}
	if t.devices.kindLabels, err = parseKindLabels(o.nodeSelectors); err != nil {
		return err
	}
	if err := t.repositories.checkUse(pods); err != nil {
		return err
	}
	return o.documents.Import(r, func(profile *formats.Profile, cluster *formats.Cluster) (*kind.Observed, []string, error) {
		t.devices.cluster = cluster
		if err := checkKinds(t.devices.kindLabels, cluster); err != nil {
			return nil, nil, err
		}
		servers, err := t.servers(pods)
		if err != nil {
			return nil, nil, err
		}
		observed, notes, err := tritonimporter.ReadServers(servers, profile, cluster)
		return &kind.Observed{Deployment: observed}, slices.Concat(c.notes, t.notes, notes, []string{
			"pods have the devices of the cluster in the order of the files",
			"queues: what is simulated is plan serve on these places; Triton's own queues and the Service before them wait and refuse otherwise",
		}), err
	})
}

// checkKinds returns an error for a label of a kind that is not in the cluster.
func checkKinds(labels []kindLabel, cluster *formats.Cluster) error {
	kinds := document.Map(cluster.Pools, func(p *formats.Pool) string { return p.Device })
	for _, l := range labels {
		if !slices.Contains(kinds, l.kind) {
			return usage.Errorf("--node-selector: found kind %q, expected a kind of the cluster: %s", l.kind, document.List(kinds))
		}
	}
	return nil
}
