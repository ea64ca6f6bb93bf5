package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"inferplan/export"
	"inferplan/export/llmserver"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// Versions of the resources in the Gateway API Inference Extension v1.5.0, and the header by which a request names its
// objective there (pkg/epp/metadata).
const (
	poolVersion      = "inference.networking.k8s.io/v1"
	objectiveVersion = "inference.networking.x-k8s.io/v1alpha2"
	objectiveHeader  = "x-gateway-inference-objective"
	poolLabel        = "inference-pool"
)

// The parts of the resources that are written.
type (
	resource struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metadata `yaml:"metadata"`
		Spec       any      `yaml:"spec"`
	}
	metadata struct {
		Name      string `yaml:"name"`
		Namespace string `yaml:"namespace,omitempty"`
	}
	poolSpec struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		TargetPorts       []port    `yaml:"targetPorts"`
		EndpointPickerRef pickerRef `yaml:"endpointPickerRef"`
	}
	port struct {
		Number int `yaml:"number"`
	}
	pickerRef struct {
		Name string `yaml:"name"`
		Port port   `yaml:"port"`
	}
	objectiveSpec struct {
		Priority int     `yaml:"priority"`
		PoolRef  poolRef `yaml:"poolRef"`
	}
	poolRef struct {
		Name string `yaml:"name"`
	}
)

// options are the flags of the target.
type options struct {
	namespace string
	port      int
}

// Target returns the target.
func Target() *export.Target {
	o := &options{}
	return &export.Target{
		Name: "gateway", Summary: "InferencePools and InferenceObjectives of the Gateway API for a plan of language models",
		Description: `Write an InferencePool for every model that instances of a queue plan begin with, and an InferenceObjective
for every class of requests, with its priority. Pods of model servers join a pool by a label; the README says
how many there are, and of which size.`,
		Example: `  plan export gateway plan.json -o gateway --namespace models`,
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&o.namespace, "namespace", "", "namespace of the resources (default: that of kubectl)")
			f.IntVar(&o.port, "port", 8000, "port of the model servers in their pods")
		},
		AddFiles: func(_ context.Context, source *export.Source, folder *export.Folder) error {
			return o.addFiles(source, folder)
		},
	}
}

// addFiles adds a file of pools and one of objectives.
func (o *options) addFiles(source *export.Source, folder *export.Folder) error {
	queue := formats.QueueOf(source.Plan)
	if queue == nil {
		return usage.Errorf("kind: found %q, expected %q: pools are of servers of language models", source.Plan.Kind, formats.PlanQueue)
	}
	if o.port < 1 || o.port > 65535 {
		return usage.Errorf("--port: found %d, expected 1 to 65535", o.port)
	}
	if o.namespace != "" && (o.namespace != llmserver.Slug(o.namespace) || len(o.namespace) > maxLabel) {
		return usage.Errorf("--namespace: found %q, expected lower-case letters, digits and dashes, at most %d", o.namespace, maxLabel)
	}
	pools, err := o.pools(queue)
	if err != nil {
		return err
	}
	objectives, err := o.objectives(queue)
	if err != nil {
		return err
	}
	for _, file := range []struct {
		path string
		list []resource
	}{{"pools.yaml", pools}, {"objectives.yaml", objectives}} {
		text, err := yamlDocuments(file.list)
		if err != nil {
			return err
		}
		folder.AddText(file.path, text)
	}
	describe(queue, folder)
	return nil
}

// Most characters of a label's value, a namespace and an objective, and of a pool: a release of Helm has its name.
const (
	maxLabel   = 63
	maxRelease = 53
)

// resourceName returns the name of an objective for names of the plan. It returns an error if another one has it: names of
// resources are of lower-case letters, digits and dashes alone.
func resourceName(owners map[string]string, names ...string) (string, error) {
	owner := strings.Join(slices.DeleteFunc(names, func(name string) bool { return name == "" }), ", class ")
	name := llmserver.Slug(strings.ReplaceAll(owner, ", class ", "-"))
	if name == "" || len(name) > maxLabel {
		return "", usage.Errorf("queue: found the name %q, expected one that makes a name of Kubernetes of 1 to %d letters and digits", owner, maxLabel)
	}
	if other, ok := owners[name]; ok && other != owner {
		return "", usage.Errorf("queue: found %q and %q, which both make the name %s of Kubernetes, expected names that differ in letters and digits", other, owner, name)
	}
	owners[name] = owner
	return name, nil
}

// poolName returns the name of a pool for a model, which also names a Service and a release of Helm: these begin with a
// letter.
func poolName(owners map[string]string, model string) (string, error) {
	name, err := resourceName(owners, model)
	if err == nil && (len(name) > maxRelease || name[0] < 'a') {
		err = usage.Errorf("queue: found the model %q, expected a name that makes one of 1 to %d letters and digits, the first a letter: a Service and a release of Helm have it", model, maxRelease)
	}
	return name, err
}

// initialModels returns the models that instances begin with, in the order of the instances.
func initialModels(queue *formats.QueuePlan) []string {
	var models []string
	for _, in := range queue.Instances {
		if !slices.Contains(models, in.Model) {
			models = append(models, in.Model)
		}
	}
	return models
}

// poolOf returns the model whose pool serves a model: its own, or that of the first instance that may run it.
func poolOf(queue *formats.QueuePlan, model string) string {
	in := document.First(queue.Instances, func(in *formats.QueueInstance) bool { return in.Model == model })
	if in == nil {
		in = document.First(queue.Instances, func(in *formats.QueueInstance) bool { return slices.Contains(in.Models, model) })
	}
	if in == nil {
		return ""
	}
	return in.Model
}

// pools returns a pool for each model that instances begin with.
func (o *options) pools(queue *formats.QueuePlan) ([]resource, error) {
	if len(queue.Instances) == 0 {
		return nil, usage.Errorf("queue.instances: found none, expected at least one: a pool is of servers of a model")
	}
	var list []resource
	owners := map[string]string{}
	for _, model := range initialModels(queue) {
		name, err := poolName(owners, model)
		if err != nil {
			return nil, err
		}
		spec := poolSpec{TargetPorts: []port{{o.port}}, EndpointPickerRef: pickerRef{name + "-epp", port{9002}}}
		spec.Selector.MatchLabels = map[string]string{poolLabel: name}
		list = append(list, resource{poolVersion, "InferencePool", metadata{name, o.namespace}, spec})
	}
	return list, nil
}

// objectives returns an objective for each class. Lower goes first in a plan, and higher there.
func (o *options) objectives(queue *formats.QueuePlan) ([]resource, error) {
	var list []resource
	owners := map[string]string{}
	for _, class := range queue.Classes {
		name, err := resourceName(owners, class.Model, class.Class)
		if err != nil {
			return nil, err
		}
		pool := poolOf(queue, class.Model)
		if pool == "" {
			continue
		}
		list = append(list, resource{objectiveVersion, "InferenceObjective", metadata{name, o.namespace}, objectiveSpec{-class.Priority, poolRef{llmserver.Slug(pool)}}})
	}
	if len(list) == 0 {
		return nil, usage.Errorf("queue.classes: found no class of a model that an instance runs, expected at least one: an InferenceObjective is of a class")
	}
	return list, nil
}

// yamlDocuments returns resources as documents of YAML.
func yamlDocuments(list []resource) (string, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	for _, r := range list {
		if err := encoder.Encode(r); err != nil {
			return "", err
		}
	}
	return b.String(), encoder.Close()
}

// describe adds to the README the commands to run and the parts of the plan that the target cannot carry.
func describe(queue *formats.QueuePlan, folder *export.Folder) {
	var pods, charts strings.Builder
	pods.WriteString("Pods of model servers join a pool by its label. `plan export vllm` writes their commands.\n\n| label | pods | devices of each | sequences |\n|---|---|---|---|\n")
	for _, model := range initialModels(queue) {
		counts := map[string]int{}
		var sizes []string
		for _, in := range queue.Instances {
			if in.Model == model {
				size := fmt.Sprintf("%d x %s | %d", in.TensorParallel, in.Device, in.Sequences[slices.Index(in.Models, model)])
				if counts[size]++; counts[size] == 1 {
					sizes = append(sizes, size)
				}
			}
		}
		name := llmserver.Slug(model)
		for _, size := range sizes {
			fmt.Fprintf(&pods, "| `%s: %s` | %d | %s |\n", poolLabel, name, counts[size], size)
		}
		fmt.Fprintf(&charts, "helm install %s oci://registry.k8s.io/gateway-api-inference-extension/charts/inferencepool --version v1.5.0 --set inferencePool.modelServers.matchLabels.%s=%[1]s\n", name, poolLabel)
	}
	var objectives strings.Builder
	fmt.Fprintf(&objectives, "A request names its objective in the header `%s`.\n\n| model, class | objective | priority |\n|---|---|---|\n", objectiveHeader)
	for _, class := range queue.Classes {
		fmt.Fprintf(&objectives, "| %s | %s | %d |\n", cmp.Or(strings.TrimSuffix(class.Model+", "+class.Class, ", "), "-"), llmserver.Slug(strings.Trim(class.Model+"-"+class.Class, "-")), -class.Priority)
	}
	folder.Steps = append(folder.Steps,
		export.Step{Title: "Label the pods", Text: strings.TrimRight(pods.String(), "\n")},
		export.Step{Title: "Install a picker for each pool", Text: "The chart of the extension makes the pool and its picker, the service `POOL-epp`. The pool of `pools.yaml` then takes its place.", Commands: charts.String()},
		export.Step{Title: "Apply", Text: strings.TrimRight(objectives.String(), "\n"), Commands: "kubectl apply -f pools.yaml -f objectives.yaml"})
	folder.Lost = append(folder.Lost,
		"The picker orders requests by priority and by the load of the servers. The plan was simulated with the policy of `plan serve`, which keeps deadlines.",
		"The limits of classes on instances are not carried.")
	for i, in := range queue.Instances {
		if len(in.Models) > 1 {
			folder.Lost = append(folder.Lost, fmt.Sprintf("Instance %d runs %s, one at a time. Nobody changes its model here, unless they are adapters of one base: it is in the pool of %s.", i, strings.Join(in.Models, ", "), in.Model))
		}
	}
}
