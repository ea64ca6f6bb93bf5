package llmserver

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// Options are the flags that all engines have: what a plan does not know.
type Options struct {
	Sources   []string // MODEL=SOURCE
	Adapters  []string // MODEL=BASE,PATH
	Addresses []string // NODE=HOST
	PerNode   int
	Port      int
}

// DefineFlags defines the flags.
func (o *Options) DefineFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.Sources, "model", nil, "where a model of the plan is: MODEL=PATH or MODEL=NAME of Hugging Face (repeatable); a name of the plan with a slash is one of Hugging Face")
	f.StringArrayVar(&o.Adapters, "adapter", nil, "model of the plan that is a LoRA adapter of another one: MODEL=BASE,PATH (repeatable)")
	f.StringArrayVar(&o.Addresses, "address", nil, "host name or address of a node: NODE=HOST (repeatable; default: the node's name, or 127.0.0.1 if there is one node)")
	f.IntVar(&o.PerNode, "per-node", 0, "devices of a node (default: per_node of the plan's pools)")
	f.IntVar(&o.Port, "port", 8100, "port of the first server; the next ones have the ports after it")
}

// Layout says which servers run where.
type Layout struct {
	Nodes     []Node
	Instances []Instance
	// Assumed are lines about what the layout assumes beyond the plan.
	Assumed []string
}

// Node is a machine with devices of one kind.
type Node struct {
	Name    string
	Address string
}

// Instance is an instance of the plan: one server, or one for each of its models.
type Instance struct {
	*formats.QueueInstance
	Index   int
	Node    *Node
	Devices []int // numbers on the node; empty on CPUs
	Threads int   // of a device kind of CPU threads, or else 0
	Port    int   // of its first model; the next ones have the ports after it
	Bases   []Model
	// BackPort is the first of as many ports as the instance has models, for servers behind a server of it. No other server has them.
	BackPort int
}

// Model is a model that an instance loads by itself, with its adapters.
type Model struct {
	Name      string // as requests name it
	Source    string // its files, or its name at Hugging Face
	Port      int
	Sequences int // most sequences at once
	Context   int // largest sum of prompt and answer, in tokens; 0 if not known
	// PlannedTokens is the KV capacity that the plan counts with, or 0 if it knows none. KVTokens is the same if a
	// server stated it or it was measured, or else 0. KVBytes is KVTokens in bytes per device, or 0 if not known.
	PlannedTokens, KVTokens, KVBytes int64
	Adapters                         []Adapter
}

// Adapter is a LoRA adapter of a model.
type Adapter struct {
	Name string // as requests name it
	Path string // its files
	base string
}

// Listen returns the address that the servers of an instance listen on: of this machine alone if clients are there.
func (in *Instance) Listen() string {
	if in.Node.Address == loopback {
		return loopback
	}
	return "0.0.0.0"
}

const loopback = "127.0.0.1"

// leastPortsAbove is the least distance from a port of an instance to the one for a server behind it, so that the latter stays when a plan
// gets a few instances more.
const leastPortsAbove = 1000

// InitialModel returns the model that the instance begins with.
func (in *Instance) InitialModel() *Model {
	return document.First(in.Bases, func(m *Model) bool {
		return m.Name == in.Model || slices.ContainsFunc(m.Adapters, func(a Adapter) bool { return a.Name == in.Model })
	})
}

// IsPath reports whether a source is a folder or a file of the machine, rather than a name of Hugging Face.
func IsPath(source string) bool { return filepath.IsAbs(source) }

// layoutBuilder makes a Layout.
type layoutBuilder struct {
	plan    *formats.Plan
	queue   *formats.QueuePlan
	options *Options
	sources map[string]string
	adapter map[string]Adapter // by the name of the model
	layout  *Layout
	nodes   map[string]*Node
	assumed map[string]bool
}

// NewLayout returns which servers a queue plan needs and where. It returns a UsageError if the plan is of another
// kind or leaves open what the flags do not say.
func NewLayout(plan *formats.Plan, options *Options) (*Layout, error) {
	queue := formats.QueueOf(plan)
	if queue == nil {
		return nil, usage.Errorf("kind: found %q, expected %q: only plans of language models have servers to start", plan.Kind, formats.PlanQueue)
	}
	b := &layoutBuilder{plan: plan, queue: queue, options: options, layout: &Layout{}, nodes: map[string]*Node{}, assumed: map[string]bool{}}
	if err := b.readOptions(); err != nil {
		return nil, err
	}
	if err := b.addNodes(); err != nil {
		return nil, err
	}
	port := options.Port
	for i := range queue.Instances {
		in, err := b.instance(i, &port)
		if err != nil {
			return nil, err
		}
		b.layout.Instances = append(b.layout.Instances, in)
	}

	// The ports for servers behind others are above those of all instances.
	above := max(port-options.Port, leastPortsAbove)
	for i := range b.layout.Instances {
		b.layout.Instances[i].BackPort = b.layout.Instances[i].Port + above
	}
	b.layout.Assumed = slices.Sorted(maps.Keys(b.assumed))
	return b.layout, nil
}

// readOptions reads the flags that have the form KEY=VALUE, and refuses those that name nothing of the plan.
func (b *layoutBuilder) readOptions() error {
	if b.options.PerNode < 0 {
		return usage.Errorf("--per-node: found %d, expected 1 or more devices", b.options.PerNode)
	}
	if last := b.options.Port + len(b.queue.Instances)*len(b.queue.Models); b.options.Port < 1 || last > 65535 {
		return usage.Errorf("--port: found %d, expected 1 to %d, so that every server has a port", b.options.Port, 65535-last+b.options.Port)
	}
	b.adapter = map[string]Adapter{}
	texts, err := pairs("adapter", b.options.Adapters, "MODEL=BASE,PATH")
	if err != nil {
		return err
	}
	for _, model := range slices.Sorted(maps.Keys(texts)) {
		text := texts[model]
		base, path, _ := strings.Cut(text, ",")
		if base == "" || !IsPath(path) {
			return usage.Errorf("--adapter: found %q, expected MODEL=BASE,PATH with an absolute path: the server is started with the adapter's files", model+"="+text)
		}
		b.adapter[model] = Adapter{Name: model, Path: path, base: base}
	}
	for _, model := range slices.Sorted(maps.Keys(b.adapter)) {
		base := b.adapter[model].base
		if _, isAdapter := b.adapter[base]; isAdapter {
			return usage.Errorf("--adapter %s: its base %s is an adapter, too, expected a model that the server loads by itself", model, base)
		}
		if !b.isModel(model) {
			return usage.Errorf("--adapter %s: found no such model in the plan, expected one of %s", model, b.modelNames())
		}
	}
	if b.sources, err = pairs("model", b.options.Sources, "MODEL=PATH"); err != nil {
		return err
	}
	for _, model := range slices.Sorted(maps.Keys(b.sources)) {
		_, isAdapter := b.adapter[model]
		isBase := slices.ContainsFunc(slices.Collect(maps.Values(b.adapter)), func(a Adapter) bool { return a.base == model })
		if isAdapter || !isBase && !b.isModel(model) {
			return usage.Errorf("--model %s: found no such model in the plan that is loaded by itself, expected one of %s", model, b.modelNames())
		}
	}
	return nil
}

func (b *layoutBuilder) isModel(name string) bool {
	return slices.ContainsFunc(b.queue.Models, func(m formats.LLMProfile) bool { return m.Model == name })
}

func (b *layoutBuilder) modelNames() string {
	return strings.Join(document.Map(b.queue.Models, func(m *formats.LLMProfile) string { return m.Model }), ", ")
}

// perNode returns how many devices of a pool are on a node.
func (b *layoutBuilder) perNode(pool *formats.Pool) int {
	return cmp.Or(b.options.PerNode, pool.WithDefaults().PerNode)
}

// addNodes adds the nodes that have an instance, in the order of the pools, with their addresses.
func (b *layoutBuilder) addNodes() error {
	hasInstance := map[string]bool{}
	kinds := map[string]string{} // by their slug
	for i := range b.queue.Instances {
		kind := b.queue.Instances[i].Device
		slug := Slug(kind)
		if slug == "" {
			return usage.Errorf("queue.instances[%d].device: found %q, expected a kind with letters or digits, which name its nodes", i, kind)
		}
		if other := cmp.Or(kinds[slug], kind); other != kind {
			return usage.Errorf("queue.instances[%d].device: found kinds %q and %q, whose nodes would be called %s, expected kinds that differ in letters and digits", i, other, kind, nodeName(kind, 0))
		}
		kinds[slug] = kind
		name, err := b.nodeName(i)
		if err != nil {
			return err
		}
		hasInstance[name] = true
	}
	addresses, err := pairs("address", b.options.Addresses, "NODE=HOST")
	if err != nil {
		return err
	}
	for i := range b.plan.Pools {
		pool := &b.plan.Pools[i]
		for n := range (pool.Count + b.perNode(pool) - 1) / b.perNode(pool) {
			name := nodeName(pool.Device, n)
			if !hasInstance[name] {
				continue
			}
			address := name
			if len(hasInstance) == 1 {
				address = loopback
			}
			b.layout.Nodes = append(b.layout.Nodes, Node{name, cmp.Or(addresses[name], address)})
			delete(addresses, name)
		}
	}
	for i := range b.layout.Nodes {
		b.nodes[b.layout.Nodes[i].Name] = &b.layout.Nodes[i]
	}
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		return usage.Errorf("--address %s: found no such node with an instance, expected one of %s", name, strings.Join(slices.Sorted(maps.Keys(hasInstance)), ", "))
	}
	return nil
}

// nodeName returns the name of the n-th node of a device kind, which may stand in the name of a host and of a file.
func nodeName(device string, n int) string { return fmt.Sprintf("%s-%d", Slug(device), n) }

// Slug returns a name with lower-case letters, digits and dashes alone.
func Slug(name string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, name)
	return strings.Trim(slug, "-")
}

// nodeName returns the name of the node of the i-th instance. It returns an error if its devices are on several.
func (b *layoutBuilder) nodeName(i int) (string, error) {
	in := &b.queue.Instances[i]
	pool := document.First(b.plan.Pools, func(p *formats.Pool) bool { return p.Device == in.Device })
	perNode := b.perNode(pool)
	first, last := in.FirstDevice/perNode, (in.FirstDevice+in.TensorParallel-1)/perNode
	if first != last {
		return "", usage.Errorf("queue.instances[%d]: found devices %d to %d of %s, which are on nodes of %d devices, expected all on one node\n  hint: --per-node says how many devices a node has",
			i, in.FirstDevice, in.FirstDevice+in.TensorParallel-1, in.Device, perNode)
	}
	return nodeName(in.Device, first), nil
}

// instance returns the i-th instance with its models, and gives them the next ports.
func (b *layoutBuilder) instance(i int, port *int) (Instance, error) {
	q := &b.queue.Instances[i]
	name, err := b.nodeName(i)
	if err != nil {
		return Instance{}, err
	}
	in := Instance{QueueInstance: q, Index: i, Node: b.nodes[name], Port: *port}
	in.Threads, _ = formats.CPUThreads(q.Device)
	if !formats.IsCPU(q.Device) {
		pool := document.First(b.plan.Pools, func(p *formats.Pool) bool { return p.Device == q.Device })
		for n := range q.TensorParallel {
			in.Devices = append(in.Devices, q.FirstDevice%b.perNode(pool)+n)
		}
	}

	// Group the models by the one that is loaded: an adapter is with its base.
	for k, model := range q.Models {
		base, adapter := model, b.adapter[model]
		if adapter.base != "" {
			base = adapter.base
		}
		m := document.First(in.Bases, func(m *Model) bool { return m.Name == base })
		if m == nil {
			source, err := b.source(base)
			if err != nil {
				return Instance{}, err
			}
			in.Bases = append(in.Bases, Model{Name: base, Source: source, Port: *port})
			m = &in.Bases[len(in.Bases)-1]
			*port++
		}
		if adapter.base != "" {
			m.Adapters = append(m.Adapters, adapter)
		}
		m.Sequences = max(m.Sequences, q.Sequences[k])
		b.setCosts(m, model, q)
	}
	if len(in.Bases) > 1 {
		for _, m := range in.Bases {
			if !slices.Contains(q.Models, m.Name) {
				return Instance{}, usage.Errorf("--adapter: found the base %s, which is no model of instance %d, expected one of %s: plan serve has a server for each model of an instance with several", m.Name, i, strings.Join(q.Models, ", "))
			}
		}
	}
	return in, nil
}

// source returns where the model's files are.
func (b *layoutBuilder) source(model string) (string, error) {
	source := b.sources[model]
	switch {
	case strings.HasPrefix(source, ".") || filepath.Ext(source) == ".gguf" && !IsPath(source):
		return "", usage.Errorf("--model %s: found %q, expected an absolute path: scripts and containers run in folders of their own", model, source)
	case source != "":
		return source, nil
	}
	if strings.Contains(model, "/") {
		return model, nil
	}
	return "", usage.Errorf("--model: found no files of the model %s, expected --model %s=PATH, or its name at Hugging Face", model, model)
}

// setCosts sets what the plan knows of the model's memory on the devices of an instance.
func (b *layoutBuilder) setCosts(m *Model, model string, q *formats.QueueInstance) {
	profile := formats.Profile{LLMs: b.queue.Models}
	facts, costs := profile.LLMOn(model, q.Device, q.TensorParallel)
	if facts == nil {
		return
	}
	m.Context = max(m.Context, facts.ContextTokens)
	if costs.Engine != "" {
		b.assumed[fmt.Sprintf("The times of %s on %d x %s were measured with %s.", model, q.TensorParallel, q.Device, costs.Engine)] = true
	}
	m.PlannedTokens = max(m.PlannedTokens, costs.KVTokens)
	switch {
	case costs.KVTokens == 0:
		b.assumed[fmt.Sprintf("The plan does not know how many tokens %s holds on %d x %s.", model, q.TensorParallel, q.Device)] = true
	case costs.KVSource == formats.KVComputed:
		b.assumed[fmt.Sprintf("%s is taken to hold %d tokens on %d x %s, which nobody measured. Compare with what the server prints at its start.", model, costs.KVTokens, q.TensorParallel, q.Device)] = true
	default:
		m.KVTokens = max(m.KVTokens, costs.KVTokens)
		// The heads are divided among the devices.
		m.KVBytes = max(m.KVBytes, (costs.KVTokens*facts.KVBytesPerToken+int64(q.TensorParallel)-1)/int64(q.TensorParallel))
	}
}

// pairs returns the values of a repeatable flag KEY=VALUE by key.
func pairs(flag string, texts []string, form string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		if key == "" || value == "" {
			return nil, usage.Errorf("--%s: found %q, expected %s", flag, text, form)
		}
		if _, ok := out[key]; ok {
			return nil, usage.Errorf("--%s: found %s twice, expected it once", flag, key)
		}
		out[key] = value
	}
	return out, nil
}
