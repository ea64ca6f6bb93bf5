package kubernetes

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/pflag"

	"inferplan/export"
	"inferplan/formats/usage"
)

// Variants of the deployment.
const (
	variantWorkers = "workers"
	variantPod     = "pod"
	variantKServe  = "kserve"
)

var variants = []string{variantWorkers, variantPod, variantKServe}

// options are the flags of the target.
type options struct {
	name, namespace, image     string
	variant                    string
	copies, maxCopies          int
	scaleAt                    float64
	prometheus                 string
	podMonitor                 bool
	nodeSelectors, resources   []string
	devicesPerPod              []string
	servers                    []string
	members                    string
	queue                      string
	serverCPUs                 int
	serverMemory, workerMemory string
	storage                    string
	drain, drainDelay          time.Duration

	isSet func(flag string) bool // the user gave the flag
}

// Target returns the target.
func Target() *export.Target {
	o := &options{}
	return &export.Target{
		Name:    "kubernetes",
		Summary: "manifests for Kubernetes: server, workers, secrets, image",
		Description: `Write manifests for Kubernetes as a kustomize base with an overlay: a StatefulSet of the server, one of
workers for each kind of device, Services, PodDisruptionBudgets, NetworkPolicies, a PodMonitor and, with
--max-copies, ScaledObjects of KEDA; a recipe for the image, and a script that makes the secrets.

Workers join the server by a token over TLS. The server switches to the plan in the ConfigMap whenever
that is changed. --variant pod keeps a plan whose devices are on one node in one pod, and kserve makes
an InferenceService of it. A plan of language models has no workers: --server names their servers, and
--servers makes a headless Service whose pods are found as they come and go.`,
		Example: `  plan export kubernetes plan.json -o k8s --image registry.example.com/team/inferplan:1 --namespace vision
  plan export kubernetes plan.json -o k8s --node-selector L4=nvidia.com/gpu.product=NVIDIA-L4 --max-copies 4
  plan export kubernetes cascade.json -o k8s --variant kserve
  plan export kubernetes chat.json -o k8s --server http://vllm-0.vllm:8000 --server http://vllm-1.vllm:8000
  plan export kubernetes chat.json -o k8s --servers vllm:8000
  plan export kubernetes chat.json -o k8s --server http://vllm-0.vllm:8000 --server http://vllm-1.vllm:8000 --queue nats://nats:4222 --copies 2`,
		DefineFlags: o.define,
		AddFiles: func(_ context.Context, source *export.Source, folder *export.Folder) error {
			return o.addFiles(source, folder)
		},
	}
}

// define defines the flags.
func (o *options) define(f *pflag.FlagSet) {
	o.isSet = f.Changed
	f.StringVar(&o.name, "name", "inferplan", "beginning of the names of all objects, and the name of the Service")
	f.StringVar(&o.namespace, "namespace", "default", "namespace of all objects")
	f.StringVar(&o.image, "image", "inferplan:latest", "image with plan and the models, as nodes pull it")
	f.StringVar(&o.variant, "variant", variantWorkers, "workers (a pod for each worker), pod (all devices in the server's pod) or kserve (the same as an InferenceService)")
	f.IntVar(&o.copies, "copies", 1, "copies of the plan, each with its own devices")
	f.IntVar(&o.maxCopies, "max-copies", 0, "most copies, which KEDA adds by the rates of the plan (default: no more than --copies)")
	f.Float64Var(&o.scaleAt, "scale-at", .8, "share of the planned rate from which there is another copy")
	f.StringVar(&o.prometheus, "prometheus", "http://prometheus-operated.monitoring.svc:9090", "Prometheus that KEDA asks for the rates")
	f.BoolVar(&o.podMonitor, "pod-monitor", false, "apply the PodMonitor, too, which needs Prometheus Operator")
	f.StringArrayVar(&o.nodeSelectors, "node-selector", nil, "KIND=LABEL=VALUE: label of the nodes with devices of a kind (repeatable; default inferplan/device=KIND)")
	f.StringArrayVar(&o.resources, "resource", nil, "KIND=RESOURCE: what a pod asks for to get a device of a kind (repeatable; default nvidia.com/gpu, of shares nvidia.com/gpu.shared)")
	f.StringArrayVar(&o.devicesPerPod, "devices-per-pod", nil, "KIND=N: devices of a worker's pod (repeatable; default 1)")
	f.StringArrayVar(&o.servers, "server", nil, "server of language models: URL, N=URL or N/MODEL=URL as in plan serve, or dns+http://NAME:PORT for the addresses of a name (repeatable)")
	f.StringVar(&o.members, "servers", "", "NAME:PORT: headless Service that is made for servers of language models that come and go: pods with the label inferplan/servers=NAME take instances without a server")
	f.StringVar(&o.queue, "queue", "", "nats://HOST:PORT[,…]: queue of a plan of language models that several servers share; --copies servers, and an agent for each instance")
	f.IntVar(&o.serverCPUs, "server-cpus", 0, "CPUs of the server (default: those of the plan's front end, or 2)")
	f.StringVar(&o.serverMemory, "server-memory", "4GiB", "memory of the server; requests get a quarter of it")
	f.StringVar(&o.workerMemory, "worker-memory", "", "memory of a worker's device (default: what the plan says of a CPU device, or 4GiB)")
	f.StringVar(&o.storage, "storage", "10GiB", "volume for accepted requests for text")
	f.DurationVar(&o.drain, "drain", 30*time.Second, "how long accepted requests may take when a server ends")
	f.DurationVar(&o.drainDelay, "drain-delay", 10*time.Second, "how long a server that ends still takes requests, until nobody sends any")
}

//go:embed templates
var templates embed.FS

// file is a file of the folder, made by a template.
type file struct {
	Path     string
	template string // below templates
	script   bool
	data     any
}

// addFiles adds the files of the plan to the folder.
func (o *options) addFiles(source *export.Source, folder *export.Folder) error {
	m, err := o.newManifests(source)
	if err != nil {
		return &usage.Error{Err: err}
	}
	for _, f := range m.files() {
		text, err := fill(f.template, f.data)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if f.script {
			folder.AddScript(f.Path, text)
		} else {
			folder.AddText(f.Path, text)
		}
	}
	folder.AddCopy(m.PlanPath(), source.Path)
	m.addReadme(folder)
	return nil
}

// files lists the files of the folder beside the plan and the README.
func (m *manifests) files() []file {
	list := []file{
		{Path: "image/Containerfile", template: "Containerfile", data: m},
		{Path: "secrets.sh", template: "secrets.tmpl", script: true, data: m},
		{Path: "overlay/kustomization.yaml", template: "overlay.yaml", data: m},
		{Path: "base/kustomization.yaml", template: "base.yaml", data: m},
	}
	for _, r := range m.Resources() {
		list = append(list, file{Path: "base/" + r.Path, template: r.template, data: r.data})
	}
	for _, c := range m.components() {
		list = append(list,
			file{Path: "components/" + c + "/kustomization.yaml", template: c + ".component.yaml", data: m},
			file{Path: "components/" + c + "/" + c + ".yaml", template: c + ".yaml", data: m})
	}
	return list
}

// Resources lists the files of the base with the objects that are always applied.
func (m *manifests) Resources() []file {
	if m.KServe() {
		return []file{{Path: "inferenceservice.yaml", template: "inferenceservice.yaml", data: m}}
	}
	list := []file{{Path: "server.yaml", template: "server.yaml", data: m}}
	for i := range m.Workers {
		list = append(list, file{Path: "workers-" + m.Workers[i].ID + ".yaml", template: "workers.yaml", data: struct {
			*manifests
			Kind     *deviceKind
			Replicas int
		}{m, &m.Workers[i], m.Copies * m.Workers[i].Pods()}})
	}
	if m.Members != nil {
		list = append(list, file{Path: "servers.yaml", template: "members.yaml", data: m})
	}
	if m.Queue != "" {
		list = append(list, file{Path: "agents.yaml", template: "agents.yaml", data: m})
	}
	return append(list, file{Path: "disruption.yaml", template: "disruption.yaml", data: m}, file{Path: "network.yaml", template: "network.yaml", data: m})
}

// components returns the parts beside the base, which need something in the cluster that not every cluster has.
func (m *manifests) components() []string {
	list := []string{"monitoring"}
	if m.MaxCopies > m.Copies && !m.KServe() {
		list = append(list, "scaling")
	}
	return list
}

// Applied returns the components that the overlay applies.
func (m *manifests) Applied() []string {
	return slices.DeleteFunc(m.components(), func(c string) bool { return c == "monitoring" && !m.PodMonitor })
}

// fill returns the text of a template.
func fill(name string, data any) (string, error) {
	t := template.New(name)
	include := func(name string, data any) (string, error) {
		var b bytes.Buffer
		err := t.ExecuteTemplate(&b, name, data)
		return strings.Trim(b.String(), "\n"), err
	}
	indent := func(n int, text string) string {
		return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n))
	}
	t.Funcs(template.FuncMap{"include": include, "indent": indent, "quote": quote, "shell": shellQuote,
		"index0": func(pair [2]string) string { return pair[0] }, "index1": func(pair [2]string) string { return pair[1] }})
	if _, err := t.ParseFS(templates, "templates/*"); err != nil {
		return "", err
	}
	text, err := include(name, data)
	return text + "\n", err
}

// shellQuote returns a text as one word of a shell.
func shellQuote(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// plainWord is a word that a shell leaves as it is.
var plainWord = regexp.MustCompile(`^[-_./:=A-Za-z0-9]+$`)

// quote returns a text as a double-quoted scalar of YAML, of which JSON's strings are a part.
func quote(text string) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(text)
	return strings.TrimSpace(b.String()), err
}
