package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/export"
	"inferplan/formats"
	"inferplan/formats/document"
)

// manifests has the values of the templates.
type manifests struct {
	Name, Namespace, Image string
	Variant                string
	PodMonitor             bool
	Copies, MaxCopies      int
	Prometheus             string
	Triggers               []trigger
	Drain, DrainDelay      time.Duration

	Text    bool     // the plan's models answer with text: the protocol is OpenAI's, and the server keeps requests on a volume
	Servers []string // of language models, as plan serve takes them; none if agents have them
	Members *members // pods of a headless Service that are servers of language models; nil if there are none
	Queue   string   // that several servers share; empty if there is none
	Agents  []agent  // of that queue
	Workers []deviceKind
	Local   *deviceKind // in the server's pod; nil if there is none
	Models  []string    // files of models that the image holds, without folders

	SwapsModels  bool // devices load models at run time, and hosts keep those that they swap in memory
	ServerCPUs   int
	ServerMemory document.Bytes
	Storage      document.Bytes
	PlanInImage  bool // the plan is too large for a ConfigMap
	UsesGPUs     bool
}

// members are the pods of a headless Service, each of which is a server of language models.
type members struct {
	Name string // of the Service
	Port int
}

// URL returns the members as plan serve takes them: it watches the addresses of the name.
func (m *members) URL() string { return fmt.Sprintf("%shttp://%s:%d", watchedName, m.Name, m.Port) }

// watchedName is the beginning of a URL whose host is a name with an address for each server.
const watchedName = "dns+"

// parseMembers reads NAME:PORT.
func parseMembers(text string) (*members, error) {
	name, portText, _ := strings.Cut(text, ":")
	port, err := strconv.Atoi(portText)
	if err != nil || port < 1 || port > 65535 {
		return nil, fmt.Errorf("--servers: found %q, expected NAME:PORT, the name of a Service and the port of its servers", text)
	}
	return &members{name, port}, checkName("servers", name, maxLabel)
}

// agent is the agent of an instance of a plan of language models, with its servers.
type agent struct {
	Instance int
	Servers  []string // N=URL or N/MODEL=URL
}

// trigger is a rate of the plan, at a share of which there is another copy.
type trigger struct {
	Labels string  // of the series of the model
	RPS    float64 // of a copy
}

// query returns what KEDA asks Prometheus: how many pods of a kind the rate of a model needs, if a copy has n.
func (t *trigger) query(m *manifests, n int) string {
	text := fmt.Sprintf(`ceil(sum(rate(inferplan_requests_total{namespace="%s",pod=~"%s-server-[0-9]+",%s}[2m])) / %s)`, m.Namespace, m.Name, t.Labels, document.FormatFloat(t.RPS))
	if n == 1 {
		return text
	}
	return strconv.Itoa(n) + " * " + text
}

// maxConfigMap is the most that a ConfigMap holds, less what its other fields take, in bytes
// (kubernetes.io/docs/concepts/configuration/configmap: 1 MiB).
const maxConfigMap = 1000 << 10

// newManifests checks the flags and the plan. What it returns is an error of the user.
func (o *options) newManifests(source *export.Source) (*manifests, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	plan := source.Plan
	m := &manifests{
		Name: o.name, Namespace: o.namespace, Image: o.image, Variant: o.variant, PodMonitor: o.podMonitor,
		Copies: o.copies, MaxCopies: max(o.maxCopies, o.copies), Prometheus: o.prometheus, Drain: o.drain, DrainDelay: o.drainDelay,
		Text: formats.QueueOf(plan) != nil, Servers: o.servers, ServerCPUs: cmp.Or(o.serverCPUs, 2),
	}
	if f := plan.FrontEnd; f != nil && o.serverCPUs == 0 {
		m.ServerCPUs = f.Cores
	}
	if flow := formats.FlowOf(plan); flow != nil {
		m.SwapsModels = flow.Workflow()
	}
	text, err := document.ReadFile(source.Path)
	if err != nil {
		return nil, err
	}
	m.PlanInImage = len(text) > maxConfigMap
	if m.ServerMemory, err = parseSize("server-memory", o.serverMemory, 512<<20); err != nil {
		return nil, err
	}
	if m.Storage, err = parseSize("storage", o.storage, 1<<20); err != nil {
		return nil, err
	}
	if o.members != "" {
		if m.Members, err = parseMembers(o.members); err != nil {
			return nil, err
		}
		if m.Members.Name == m.Name || m.Members.Name == m.Name+"-server" {
			return nil, fmt.Errorf("--servers: found %s, expected another name: the Service of plan serve has it", m.Members.Name)
		}
		m.Servers = append(slices.Clone(m.Servers), m.Members.URL())
	}
	agents, err := parseServers(m.Servers, languageModelDevices(plan), m.Text && o.queue == "")
	if err != nil {
		return nil, err
	}
	if !m.Text && len(agents) > 0 && m.MaxCopies > 1 {
		return nil, fmt.Errorf("--copies %d, --max-copies %d: found a plan with modules of language models, expected one copy: every copy would ask the same servers of --server", m.Copies, m.MaxCopies)
	}
	if m.Queue = o.queue; m.Queue != "" {
		m.Servers, m.Agents = nil, agents
	}
	if err := m.setTriggers(plan, o.scaleAt); err != nil {
		return nil, err
	}
	if err := m.setDevices(o, plan); err != nil {
		return nil, err
	}
	return m, m.checkUse(o.isSet)
}

// checkUse returns an error for a flag that the user gave and that does nothing for the plan.
func (m *manifests) checkUse(isSet func(flag string) bool) error {
	isScaled := m.MaxCopies > m.Copies && !m.KServe()
	for _, f := range []struct {
		name, needs string
		acts        bool
	}{
		{"scale-at", "--max-copies, with pods that KEDA adds", isScaled},
		{"prometheus", "--max-copies, with pods that KEDA adds", isScaled},
		{"storage", "a plan of language models, which keeps requests, without --queue", m.Text && m.Queue == ""},
		{"queue", "a plan of language models, which keeps requests", m.Text},
		{"servers", "a plan of language models, without --queue", m.Text && m.Queue == ""},
		{"worker-memory", "a plan with devices of its own", len(m.kinds()) > 0},
	} {
		if isSet(f.name) && !f.acts {
			return fmt.Errorf("--%s: expected %s; here it does nothing", f.name, f.needs)
		}
	}
	return nil
}

// check returns an error for a flag whose value is wrong whatever the plan.
func (o *options) check() error {
	if err := errors.Join(checkName("name", o.name, maxName), checkName("namespace", o.namespace, maxLabel)); err != nil {
		return err
	}
	switch {
	case !imageName.MatchString(o.image):
		return fmt.Errorf("--image: found %q, expected the name of an image, such as registry.example.com/team/inferplan:1", o.image)
	case !slices.Contains(variants, o.variant):
		return fmt.Errorf("--variant: found %q, expected %s", o.variant, document.List(variants))
	case o.copies < 1:
		return fmt.Errorf("--copies: found %d, expected at least 1", o.copies)
	case o.maxCopies != 0 && o.maxCopies < o.copies:
		return fmt.Errorf("--max-copies: found %d, expected at least the %d of --copies", o.maxCopies, o.copies)
	case !(o.scaleAt > 0 && o.scaleAt <= 1):
		return fmt.Errorf("--scale-at: found %g, expected above 0 and at most 1", o.scaleAt)
	case o.queue != "" && !natsURL.MatchString(o.queue):
		return fmt.Errorf("--queue: found %q, expected nats://HOST:PORT, or several with commas between them", o.queue)
	case o.serverCPUs < 0:
		return fmt.Errorf("--server-cpus: found %d, expected at least 1", o.serverCPUs)
	case o.drain < time.Second || o.drainDelay < 0:
		return fmt.Errorf("--drain %s, --drain-delay %s: expected at least 1s and at least 0s", o.drain, o.drainDelay)
	case o.drainDelay < probePeriod*time.Second:
		return fmt.Errorf("--drain-delay: found %s, expected at least %ds: readiness is looked at that often", o.drainDelay, probePeriod)
	}
	return nil
}

// probePeriod is the time between two readiness probes, in seconds.
const probePeriod = 2

// languageModelDevices returns how many devices of a plan are servers of language models.
func languageModelDevices(plan *formats.Plan) int {
	if queue := formats.QueueOf(plan); queue != nil {
		return len(queue.Instances)
	}
	generations := generationsOf(plan)
	type device struct {
		kind  string
		index int
	}
	devices := map[device]bool{}
	for s := range plan.Stages() {
		if generations[s.Deployed.Model] == nil {
			continue
		}
		for _, p := range s.Placement {
			for n := range p.DeviceCount() {
				devices[device{s.Device, p.FirstDevice + n}] = true
			}
		}
	}
	return len(devices)
}

// generationsOf returns the models of a plan that are language models behind modules of applications.
func generationsOf(plan *formats.Plan) map[string]*formats.FlowGeneration {
	if flow := formats.FlowOf(plan); flow != nil {
		return flow.Generations()
	}
	return nil
}

// parseServers reads the servers of n instances of language models, as the flag of plan serve names them. Each instance has at least one, or
// may get one that comes: the addresses of a watched name are servers that come and go, if mayWatch allows names.
func parseServers(list []string, n int, mayWatch bool) ([]agent, error) {
	agents, next := make([]agent, n), 0
	mayCome := make([]bool, n) // by instance: a server of a watched name may take it
	for _, text := range list {
		first, last, url, full := next, next, text, strconv.Itoa(next)+"="+text
		isNumbered := false
		if place, rest, ok := strings.Cut(text, "="); ok && !strings.Contains(place, "://") {
			var err error
			if first, last, err = parseNumbers(place); err != nil {
				return nil, fmt.Errorf("--server: found %q, expected URL, N=URL or N/MODEL=URL", text)
			}
			url, full, isNumbered = rest, text, true
		}
		if n == 0 {
			return nil, fmt.Errorf("--server: found %q, expected none: the plan has no servers of language models", text)
		}

		// The addresses of a name may take any instance, or those of its numbers.
		if name, isWatched := strings.CutPrefix(url, watchedName); isWatched {
			if !isNumbered {
				first, last = 0, n-1
			}
			switch {
			case !strings.HasPrefix(name, "http://"):
				return nil, fmt.Errorf("--server: found %q, expected dns+http://NAME:PORT", text)
			case !mayWatch:
				return nil, fmt.Errorf("--server: found %q, expected servers that stay: an agent and a module of an application have one of their own", text)
			case first > last || last >= n:
				return nil, fmt.Errorf("--server: found %q, expected some of the %d instances of language models of the plan, from 0", text, n)
			}
			for i := first; i <= last; i++ {
				mayCome[i] = true
			}
			continue
		}

		// Another server is that of one instance.
		if !isNumbered {
			next++
		}
		if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
			return nil, fmt.Errorf("--server: found %q, expected a URL with http:// or https://", text)
		}
		if first != last {
			return nil, fmt.Errorf("--server: found %q, expected N=URL: a server that stays is that of one instance", text)
		}
		if first < 0 || first >= n {
			return nil, fmt.Errorf("--server: found %q, expected a server of one of the %d instances of language models of the plan, from 0", text, n)
		}
		agents[first].Servers = append(agents[first].Servers, full)
	}
	for i := range agents {
		if agents[i].Instance = i; agents[i].Servers == nil && !mayCome[i] {
			return nil, fmt.Errorf("--server: found no server of instance %d, expected one for each of the %d of the plan: --server http://HOST:PORT, or --servers NAME:PORT for those that come and go", i, n)
		}
	}
	return agents, nil
}

// parseNumbers reads N, N-M, N/MODEL and N-M/MODEL.
func parseNumbers(place string) (first, last int, err error) {
	numbers, _, _ := strings.Cut(place, "/")
	firstText, lastText, isRange := strings.Cut(numbers, "-")
	if first, err = strconv.Atoi(firstText); err != nil || !isRange {
		return first, first, err
	}
	last, err = strconv.Atoi(lastText)
	return first, last, err
}

// setTriggers sets the rates of the plan, of each model or class.
func (m *manifests) setTriggers(plan *formats.Plan, share float64) error {
	served := plan.ServedModels()
	hasClasses := slices.ContainsFunc(served, func(s formats.Served) bool { return s.Class != "" })
	for _, s := range served {
		labels := fmt.Sprintf("model=%q", s.Model)
		if hasClasses {
			labels += fmt.Sprintf(",class=%q", s.Class)
		}
		if s.RPS > 0 {
			m.Triggers = append(m.Triggers, trigger{labels, math.Round(1e6*share*s.RPS) / 1e6})
		}
	}
	switch {
	case m.MaxCopies == m.Copies:
		return nil
	case m.Text:
		return fmt.Errorf("--max-copies: found %d, expected no more than one copy: the servers of a plan of language models are given by --server", m.MaxCopies)
	case m.Triggers == nil:
		return errors.New("--max-copies: found a plan without rates, expected rates by which copies are added")
	}
	return nil
}

// setDevices sets the pods of the plan's devices, and what the image holds.
func (m *manifests) setDevices(o *options, plan *formats.Plan) error {
	kinds, err := o.newKinds(plan)
	if err != nil {
		return err
	}
	m.UsesGPUs = slices.ContainsFunc(kinds, func(k deviceKind) bool { return !formats.IsCPU(k.Name) })
	if m.Text && m.Queue == "" && m.Copies > 1 {
		return fmt.Errorf("--copies: found %d, expected 1: one server keeps the requests for language models\n  hint: --queue nats://HOST:PORT has several servers share them", m.Copies)
	}
	generations := generationsOf(plan)
	for i := range plan.Deployment {
		if d := &plan.Deployment[i]; len(d.Pipelines) > 0 && generations[d.Model] == nil {
			m.addModel(d)
		}
	}
	switch {
	case m.Variant == variantWorkers:
		m.Workers = kinds
		return nil
	case len(kinds) == 0:
		return fmt.Errorf("--variant: found %s, expected %s: all devices of the plan are servers of language models, given by --server", m.Variant, variantWorkers)
	}

	// All devices are in the server's pod.
	if len(kinds) > 1 {
		return fmt.Errorf("--variant %s: found %d kinds of devices, expected one: a pod is on one node", m.Variant, len(kinds))
	}
	if len(o.devicesPerPod) > 0 {
		return fmt.Errorf("--devices-per-pod: expected no --variant %s, which has all devices in a pod", m.Variant)
	}
	if m.Local = &kinds[0]; m.Local.Share > 1 {
		return fmt.Errorf("--variant %s: found shares 1/%d of %s, expected whole devices\n  hint: plan with max_shares: 1 in the cluster's pool", m.Variant, m.Local.Share, m.Local.Name)
	}
	m.Local.PerPod = m.Local.Devices
	m.ServerCPUs += m.Local.CPUs * m.Local.Devices
	m.ServerMemory += m.localMemory()
	return nil
}

// addModel adds the file of a deployed model.
func (m *manifests) addModel(d *formats.Deployed) {
	name := d.Model
	if d.Bucket != nil {
		name = d.Bucket.BaseModel
	}
	if name += ".onnx"; !slices.Contains(m.Models, name) {
		m.Models = append(m.Models, name)
	}
}

// KServe reports whether the variant is an InferenceService.
func (m *manifests) KServe() bool { return m.Variant == variantKServe }

// PlanPath returns the place of the plan's file in the folder.
func (m *manifests) PlanPath() string {
	if m.PlanInImage {
		return "image/plan.json"
	}
	return "base/plan.json"
}

// HealthPath returns where the server says that it is ready.
func (m *manifests) HealthPath() string {
	if m.Text {
		return "/health"
	}
	return "/v2/health/ready"
}

// ProbePeriod returns how often readiness is looked at, in seconds.
func (m *manifests) ProbePeriod() int { return probePeriod }

// MemoryLimit returns what the server is told of its memory: half, as Go's collector and tensors in flight take the rest.
func (m *manifests) MemoryLimit() document.Bytes {
	return (m.ServerMemory - m.localMemory()) / 2
}

// localMemory returns the memory of the devices in the server's pod.
func (m *manifests) localMemory() document.Bytes {
	if m.Local == nil {
		return 0
	}
	return m.Local.Memory * document.Bytes(m.Local.Devices)
}

// LocalCache returns the memory for models that the devices in the server's pod swap.
func (m *manifests) LocalCache() document.Bytes { return m.localMemory() / 2 }

// MemoryQuantity and StorageQuantity return sizes as Kubernetes writes them.
func (m *manifests) MemoryQuantity() string  { return quantity(m.ServerMemory) }
func (m *manifests) StorageQuantity() string { return quantity(m.Storage) }

// answerSeconds bounds the time that a server takes at the end beyond its drain, in seconds: to write answers, and to end.
const answerSeconds = 15

// ServerGrace returns the time that a server's pod has to end, in seconds.
func (m *manifests) ServerGrace() int {
	return int(math.Ceil((m.Drain + m.DrainDelay).Seconds())) + answerSeconds
}

// leastWorkerDelay is how long a worker's pod that ends still works, in seconds: nodes may see a new plan in the ConfigMap
// a minute later (kubelet's syncFrequency), and until then the old plan needs the pod.
const leastWorkerDelay = 120

// WorkerDelay returns how long a worker's pod that ends still works, in seconds: until a server that ends with it has
// drained, and until a new plan is in force.
func (m *manifests) WorkerDelay() int { return max(m.ServerGrace(), leastWorkerDelay) }

// WorkerGrace returns the time that a worker's pod has to end, in seconds.
func (m *manifests) WorkerGrace() int { return m.WorkerDelay() + answerSeconds }

// scaled is a StatefulSet that KEDA scales.
type scaled struct {
	Name     string
	Min, Max int
	Queries  []string
}

// Scaled lists the StatefulSets that KEDA scales, which all follow the same rates.
func (m *manifests) Scaled() []scaled {
	var list []scaled
	add := func(name string, pods int) {
		s := scaled{Name: name, Min: m.Copies * pods, Max: m.MaxCopies * pods}
		for i := range m.Triggers {
			s.Queries = append(s.Queries, m.Triggers[i].query(m, pods))
		}
		list = append(list, s)
	}
	add(m.Name+"-server", 1)
	for i := range m.Workers {
		add(m.Name+"-"+m.Workers[i].ID, m.Workers[i].Pods())
	}
	return list
}

// ImageName returns the image's name without its tag and digest.
func (m *manifests) ImageName() string {
	name, _, _ := strings.Cut(m.Image, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name = name[:i]
	}
	return name
}

// ImageTag returns the image's tag, or "" if it has a digest.
func (m *manifests) ImageTag() string {
	rest := strings.TrimPrefix(m.Image, m.ImageName())
	if strings.HasPrefix(rest, "@") {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "@")
	return cmp.Or(strings.TrimPrefix(rest, ":"), "latest")
}

// ImageDigest returns the image's digest, or "".
func (m *manifests) ImageDigest() string {
	_, digest, _ := strings.Cut(m.Image, "@")
	return digest
}
