package formats

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"inferplan/formats/document"
)

// FlowPlan is the section of a plan of kind flow. It says what the applications are and how their modules scale.
// The deployment has one entry per module, which applications may share, and says where each module runs, at which
// batch.
type FlowPlan struct {
	Applications []FlowApplication `json:"applications"`
	Modules      []FlowModule      `json:"modules"` // modules in the order of the deployment
	// Lambda is the quantile of the waits for batches at later modules for which a request gets time (PARD §4.2).
	// WindowUS is the time over which queueing is averaged.
	Lambda   float64         `json:"lambda"`
	WindowUS document.Micros `json:"window_us"`
	Scaling  *FlowScaling    `json:"scaling,omitempty"` // if absent, all replicas always run
	// Transitions are ways that requests of workflows took, or are expected to.
	Transitions []WaysOf `json:"transitions,omitzero"`
}

// FlowApplication is an application with its promise. The model of each of its modules is the name of a deployed
// model.
type FlowApplication struct {
	Served
	Parameters map[string]string `json:"parameters,omitzero"`
	Modules    []Module          `json:"modules,omitzero"`
	Segments   []Segment         `json:"segments,omitzero"`
}

// Workflow reports whether the applications are workflows. Their devices load models at run time, and the
// deployment says which models they hold at the start.
func (f *FlowPlan) Workflow() bool {
	return slices.ContainsFunc(f.Applications, func(a FlowApplication) bool { return len(a.Segments) > 0 })
}

// MeetsAllOpen reports whether the policies of a plan look at all requests that are open
// when one arrives: those of workflows.
func MeetsAllOpen(p *Plan) bool {
	f := FlowOf(p)
	return f != nil && f.Workflow()
}

// application is the application as a workload has it.
func (a *FlowApplication) application() *Application {
	return &Application{Name: a.Model, Parameters: a.Parameters, Modules: a.Modules, Segments: a.Segments}
}

// FlowModule holds what a plan says of a deployed module, besides its pipelines.
type FlowModule struct {
	Model       string          `json:"model"`
	Accuracy    float64         `json:"accuracy,omitempty" check:"share"` // the accuracy of the variant that was chosen
	ColdStartUS document.Micros `json:"cold_start_us,omitempty"`          // time from the decision for a further replica until it serves; in a workflow, the time of a load
	// The fields below are for workflows. A copy takes WeightBytes of a device's memory, and a batch also
	// WorkingBytes. Moving an output takes NearUS to another device of the same node, and FarUS to a device of
	// another node. Resident lists the devices that hold a copy at the start, numbered through all pools.
	WeightBytes  int64           `json:"weight_bytes,omitempty"`
	WorkingBytes int64           `json:"working_bytes,omitempty"`
	NearUS       document.Micros `json:"near_us,omitempty"`
	FarUS        document.Micros `json:"far_us,omitempty"`
	Resident     []int           `json:"resident,omitzero"`
	// Kinds are the kinds of devices that run it, with the load time and the working bytes there, if the plan has
	// several kinds. The figures above are then the largest of them.
	Kinds []FlowKind `json:"kinds,omitzero"`
	// Session is the state that the module keeps of a request from task to task.
	Session *SessionState `json:"session_state,omitempty"`
	// Generation describes how the module makes tokens, if it is a language model of a workflow.
	Generation *FlowGeneration `json:"generation,omitempty"`
}

// FlowKind is the load time and memory of a workflow's module on a kind of device.
type FlowKind struct {
	Device       string          `json:"device"`
	LoadUS       document.Micros `json:"load_us,omitempty"`
	WorkingBytes int64           `json:"working_bytes,omitempty"`
}

// CostOn returns how long a module takes to load on a kind of device, and its working memory. They are 0 where it
// does not run. Modules without figures by kind have the same on all. A module is a model that is a step of an
// application.
func (m *FlowModule) CostOn(device string) FlowKind {
	if k := document.First(m.Kinds, func(k *FlowKind) bool { return k.Device == device }); k != nil {
		return *k
	}
	if len(m.Kinds) > 0 {
		return FlowKind{Device: device} // it does not run there
	}
	return FlowKind{Device: device, LoadUS: m.ColdStartUS, WorkingBytes: m.WorkingBytes}
}

// FlowScaling says how many replicas of every module serve at which rate of
// arrivals at the entry. The replicas of the deployment are the most there are.
//
// Every EveryUS the mean rate of the last WindowUS is looked up in the table. A
// module keeps the most replicas that were looked up within HoldUS, unless all
// modules together then have more than MaxWorkers: then as was looked up last.
type FlowScaling struct {
	EveryUS  document.Micros `json:"every_us"`
	WindowUS document.Micros `json:"window_us"`
	HoldUS   document.Micros `json:"hold_us,omitempty"`
	// LookaheadUS is the time over which a rise within the window is extrapolated, by a least-squares line through its
	// seconds. 0 means that the mean rate is looked up.
	LookaheadUS document.Micros `json:"lookahead_us,omitempty"`
	// RiseSigmas is the number of standard deviations of the arrivals' noise that a rise has to exceed to count. If the last
	// seconds of the window exceed that, only they count. 0 means that every rise counts, over the whole window.
	RiseSigmas float64    `json:"rise_sigmas,omitempty" check:"nonnegative"`
	MaxWorkers int        `json:"max_workers"`
	Start      []int      `json:"start"` // replicas at the beginning, by module
	Table      []FlowRate `json:"table"` // rows by rising rate; the first from 0
}

// FlowRate is a row of the table.
type FlowRate struct {
	AboveRPS float64 `json:"above_rps"` // up to that of the next row
	Replicas []int   `json:"replicas"`  // the number of replicas by module
}

// PlanFlow is the kind of plans of applications.
const PlanFlow = "flow"

var flowKind = planKind{name: PlanFlow, section: (*FlowPlan)(nil), options: flowOptions, schema: schemaFile("plan.flow")}

var flowOptions = []document.Option{
	{Name: "algorithm", Type: document.ChoiceOption, Default: "paths", Choices: []string{"paths", "shares"},
		Help: "paths (the deadline is not split); for workflows also shares (devices in proportion to demand, without loading at run time)"},
	{Name: "objective", Type: document.ChoiceOption, Default: "throughput", Choices: []string{"throughput", "cost", "power", "gpus"},
		Help: "maximise throughput, or minimise cost, power or gpus while the applications' rates are carried"},
	{Name: "margin", Key: "margin", Type: document.NumberOption, Default: 0.1, Recommended: "auto", Max: 1, MaxExcluded: true, Choices: []string{"auto"},
		Help: "fraction of the SLO reserved for queueing beyond the running batch, or auto: simulation chooses it, and the number of devices"},
	{Name: "batch-wait", Key: "batch_wait", Type: document.NumberOption, Default: 1.0, Max: 1,
		Help: "batches that a request waits for in every module before its own: 1 is the worst case of a single replica; with --margin auto, simulation also tries less"},
	{Name: "dedicated", Key: "dedicated", Type: document.TextOption, Recommended: "auto", Choices: []string{"auto"},
		Help: "of workflows: devices that run some models alone, such as chat-7b=6,rewrite-1b+embedder=2, and on several kinds of devices chat-7b=4*A100+2*H100; the other models have the rest. auto: with --margin auto, simulation chooses devices for language models"},
	{Name: "cold-start", Key: "cold_start", Type: document.DurationOption,
		Help: "time that a new replica of a module needs before it serves; replicas then follow a table of request rates, up to those of the plan; 0: all are always there"},
	{Name: "headroom", Key: "headroom", Type: document.NumberOption, Default: 1.05, Min: 1, Max: 10, NeedsOneOf: []string{"cold-start"},
		Help: "with --cold-start, the replicas of a row carry this many times its rate"},
	sloOption,
	maxBatchOption,
	maxMovedOption,
	gapOption,
	timeLimitOption,
}

// FlowOf is the section of a plan of applications; nil for other plans.
func FlowOf(p *Plan) *FlowPlan { return planSection[*FlowPlan](p) }

// ServedModels returns what requests can ask for in a plan of applications: each application, with its promise.
func (f *FlowPlan) ServedModels() []Served {
	return document.Map(f.Applications, func(a *FlowApplication) Served { return a.Served })
}

// PromiseFor returns the promise that a deployed model has to keep: that of the application with the shortest SLO
// of those that use it.
func (f *FlowPlan) PromiseFor(d *Deployed) Served {
	out := Served{}
	for i := range f.Applications {
		a := &f.Applications[i]
		part := slices.Contains(servicesOf(a.Modules, a.Segments), d.Model)
		if part && (out.SLOUS == 0 || a.SLOUS < out.SLOUS) {
			out = a.Served
		}
	}
	return out
}

// AttainmentGroups implements PlanSection.
func (f *FlowPlan) AttainmentGroups() [][]int { return nil }

// residentDevices implements residentSection: the devices of workflows load models at run time.
func (f *FlowPlan) residentDevices() [][]int {
	if !f.Workflow() {
		return nil
	}
	return document.Map(f.Modules, func(m *FlowModule) []int { return m.Resident })
}

// renumber implements numberedSection: the devices that hold a module at the start have their new numbers.
func (f *FlowPlan) renumber(_ [][]int, newNumber func(int) int) PlanSection {
	changed := *f
	changed.Modules = slices.Clone(f.Modules)
	for i := range changed.Modules {
		m := &changed.Modules[i]
		if m.Resident == nil {
			continue
		}
		m.Resident = document.Map(m.Resident, func(n *int) int { return newNumber(*n) })
		slices.Sort(m.Resident)
	}
	return &changed
}

// Replicas returns the number of a deployed model's replicas in all stages of its pipelines.
func (d *Deployed) Replicas() int {
	n := 0
	for i := range d.Pipelines {
		for k := range d.Pipelines[i].Stages {
			n += d.Pipelines[i].Stages[k].Replicas
		}
	}
	return n
}

// check reports to p what is wrong with a plan's flow section, when a plan is validated. An application is a graph
// of modules; a module is a step that one deployed model serves.
func (f *FlowPlan) check(p *planChecker) {
	// Check the applications: every module runs a deployed model.
	p.FailIf(len(f.Applications) == 0, "flow.applications", "an empty list", "at least one application")
	indexByName, deployedModels, usedModels := map[string]int{}, map[string]bool{}, map[string]bool{}
	for i := range p.plan.Deployment {
		deployedModels[p.plan.Deployment[i].Model] = true
	}
	for i := range f.Applications {
		a, fieldPath := &f.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		p.Name(indexByName, i, a.Model, "%s.model", fieldPath)
		p.checkServed(&a.Served, fieldPath)
		f.checkGraph(p, a, fieldPath)
		for _, name := range servicesOf(nil, a.Segments) {
			if usedModels[name] = true; !deployedModels[name] {
				p.Fail(fieldPath+".segments", "the model "+document.Quote(name), "a deployed model", "")
			}
		}
		for k := range a.Modules {
			m := &a.Modules[k]
			usedModels[m.Model] = true
			p.FailIf(!deployedModels[m.Model] || len(m.Variants) > 0, fmt.Sprintf("%s.modules[%d].model", fieldPath, k), "the model "+document.Quote(m.Model), "one deployed model, without variants")
		}
	}

	// Check the modules, which stand in the deployment's order, and the rest of the section.
	if p.FailIf(len(f.Modules) != len(p.plan.Deployment), "flow.modules", fmt.Sprintf("%d modules", len(f.Modules)), "the %d of the deployment, in order", len(p.plan.Deployment)) {
		return
	}
	for i := range f.Modules {
		f.checkModule(p, i, usedModels)
	}
	p.FailIf(!(f.Lambda > 0 && f.Lambda < 1), "flow.lambda", f.Lambda, "a share above 0 and below 1")
	p.FailIf(f.WindowUS <= 0, "flow.window_us", int64(f.WindowUS), "a positive time")
	if f.Scaling != nil {
		f.checkScaling(p)
	}
	if f.Workflow() {
		f.checkMemory(p)
	}
	f.checkTransitions(p)
}

// checkMemory reports to p models that devices hold at the start wrongly: one twice on a device, or more than fit
// there beside the working memory of the largest batch. Devices are numbered through all pools, in the order of the
// plan.
func (f *FlowPlan) checkMemory(p *planChecker) {
	// Each device has its memory without the working memory of what it runs.
	var freeBytes []int64 // free bytes by device; -1 where there is no limit
	for i := range p.plan.Pools {
		pool := &p.plan.Pools[i]
		for _, workingBytes := range f.WorkingBytesByDevice(p.plan.Deployment, pool) {
			freeBytesHere := int64(-1)
			if m := int64(pool.Memory); m > 0 {
				freeBytesHere = max(0, m-workingBytes)
			}
			freeBytes = append(freeBytes, freeBytesHere)
		}
	}

	// Take off the weights of the modules that are resident there.
	for i := range f.Modules {
		m, listed := &f.Modules[i], map[int]bool{}
		p.FailIf(m.WeightBytes < 0 || m.WorkingBytes < 0, fmt.Sprintf("flow.modules[%d].weight_bytes", i), min(m.WeightBytes, m.WorkingBytes), "0 or more")
		f.checkKinds(p, i)
		f.checkGeneration(p, i)
		checkSession(p.Checker, m.Session, fmt.Sprintf("flow.modules[%d].session_state", i))
		for k, d := range m.Resident {
			fieldPath := fmt.Sprintf("flow.modules[%d].resident[%d]", i, k)
			if p.FailIf(d < 0 || d >= len(freeBytes) || listed[d], fieldPath, d, "a device below %d, each once", len(freeBytes)) {
				continue
			}
			listed[d] = true
			if freeBytes[d] < 0 {
				continue
			}
			if freeBytes[d] -= m.WeightBytes; freeBytes[d] < 0 {
				p.Fail(fieldPath, fmt.Sprintf("%d bytes too many on device %d", -freeBytes[d], d), "copies that fit its memory beside the largest batch", "")
				freeBytes[d] = 0
			}
		}
	}
}

// WorkingBytesByDevice returns, for each device of a pool, the most working memory that a batch of any module
// there takes, in bytes.
func (f *FlowPlan) WorkingBytesByDevice(deployment []Deployed, pool *Pool) []int64 {
	type span struct {
		first, end int
		bytes      int64
	}
	var spans []span
	maxBytes := make([]int64, max(0, min(pool.Count, maxCount)))
	for i := range min(len(f.Modules), len(deployment)) {
		bytes := f.Modules[i].CostOn(pool.Device).WorkingBytes
		// Collect the devices of each placement, with the working memory of the module there.
		for s := range deployment[i].stagesOn(pool.Device) {
			for _, g := range s.Placement {
				spans = append(spans, span{max(0, g.FirstDevice), min(len(maxBytes), g.FirstDevice+g.DeviceCount()), bytes})
			}
		}
	}
	// Set the devices of the span with the most bytes first, so that each device is set once.
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(b.bytes, a.bytes) })
	nextUnset := make([]int, len(maxBytes)+1) // by device: the first from it on that a span is still to reach
	for d := range nextUnset {
		nextUnset[d] = d
	}
	for _, s := range spans {
		for d := s.first; d < s.end; {
			if nextUnset[d] == d {
				maxBytes[d], nextUnset[d] = s.bytes, d+1
			}
			nextUnset[d] = nextUnset[nextUnset[d]]
			d = nextUnset[d]
		}
	}
	return maxBytes
}

// stagesOn yields the stages of a deployed model that run on a kind of device.
func (d *Deployed) stagesOn(device string) iter.Seq[*Stage] {
	return func(yield func(*Stage) bool) {
		for i := range d.Pipelines {
			for k := range d.Pipelines[i].Stages {
				if s := &d.Pipelines[i].Stages[k]; s.Device == device && !yield(s) {
					return
				}
			}
		}
	}
}

// checkKinds reports to p module i if the device kinds for which it has figures are not those of its pipelines.
func (f *FlowPlan) checkKinds(p *planChecker, i int) {
	m := &f.Modules[i]
	for k := range m.Kinds {
		kind, fieldPath := &m.Kinds[k], fmt.Sprintf("flow.modules[%d].kinds[%d]", i, k)
		p.FailIf(kind.WorkingBytes < 0 || kind.WorkingBytes > m.WorkingBytes || kind.LoadUS > m.ColdStartUS, fieldPath, fmt.Sprintf("a load of %v and %d bytes", kind.LoadUS, kind.WorkingBytes), "no more than cold_start_us and working_bytes of the module")
		runsOnKind := func(l Pipeline) bool { return len(l.Stages) > 0 && l.Stages[0].Device == kind.Device }
		if d := &p.plan.Deployment[i]; len(m.Kinds) != len(d.Pipelines) || !slices.ContainsFunc(d.Pipelines, runsOnKind) {
			p.Fail(fieldPath+".device", document.Quote(kind.Device), "the device of a pipeline of "+d.Model+", each once", "")
		}
	}
}

// checkGraph reports to p what is wrong with the graph of an application: either modules, or segments if the plan
// is one of workflows.
func (f *FlowPlan) checkGraph(p *planChecker, a *FlowApplication, fieldPath string) {
	switch {
	case f.Workflow() && (len(a.Segments) == 0 || len(a.Modules) > 0 || f.Scaling != nil):
		p.Fail(fieldPath, "modules or a scaling table beside segments", "segments alone, of all applications", "")
	case len(a.Segments) > 0:
		checkSegments(p.Checker, a.Segments, fieldPath+".segments")
	default:
		checkModules(p.Checker, a.Modules, fieldPath+".modules")
	}
	a.application().checkConditions(p.Checker, fieldPath)
}

// checkModule reports to p what is wrong with the deployment of module i: it runs whole, in one pipeline for each
// kind of device, and some application uses it.
func (f *FlowPlan) checkModule(p *planChecker, i int, usedModels map[string]bool) {
	m, d, fieldPath := &f.Modules[i], &p.plan.Deployment[i], fmt.Sprintf("deployment[%d]", i)
	if p.FailIf(m.Model != d.Model || d.Class != "", fmt.Sprintf("flow.modules[%d].model", i), document.Quote(m.Model), "the model at the same place of the deployment, "+document.Quote(d.Model)+", without a class") {
		return
	}
	p.FailIf(!usedModels[d.Model], fieldPath+".model", document.Quote(d.Model), "a model of some application's module")
	p.FailIf(len(d.Pipelines) == 0, fieldPath+".pipelines", "nothing", "a pipeline for each device kind that the module is on")
	promised := f.PromiseFor(d)
	for k := range d.Pipelines {
		l := &d.Pipelines[k]
		p.checkLimits(l, &promised, fmt.Sprintf("%s.pipelines[%d]", fieldPath, k))
		p.FailIf(len(l.Stages) > 1, fmt.Sprintf("%s.pipelines[%d].stages", fieldPath, k), fmt.Sprintf("%d stages", len(l.Stages)), "one: a module runs whole")
	}
}

// checkScaling reports to p what is wrong with the scaling rule of a plan: how often it measures the load, over
// which window, and a table that gives the replicas of each module for request rates above AboveRPS. The table
// begins at rate 0 and its rates rise. f.Scaling is not nil.
func (f *FlowPlan) checkScaling(p *planChecker) {
	s := f.Scaling
	p.FailIf(s.EveryUS <= 0 || s.WindowUS <= 0 || s.MaxWorkers < 1, "flow.scaling", fmt.Sprintf("every_us %v, window_us %v, max_workers %d", s.EveryUS, s.WindowUS, s.MaxWorkers), "positive times and at least one worker")
	f.checkReplicas(p, s.Start, "flow.scaling.start")
	p.FailIf(len(s.Table) == 0 || s.Table[0].AboveRPS != 0, "flow.scaling.table", fmt.Sprintf("%d rows", len(s.Table)), "rows from the rate 0 on")
	for i := range s.Table {
		fieldPath := fmt.Sprintf("flow.scaling.table[%d]", i)
		p.FailIf(i > 0 && !(s.Table[i].AboveRPS > s.Table[i-1].AboveRPS), fieldPath+".above_rps", s.Table[i].AboveRPS, "more than that of the row before")
		f.checkReplicas(p, s.Table[i].Replicas, fieldPath+".replicas")
	}
}

// checkReplicas reports to p a list of replica counts that does not have a valid one for every module.
func (f *FlowPlan) checkReplicas(p *planChecker, list []int, fieldPath string) {
	if p.FailIf(len(list) != len(f.Modules), fieldPath, fmt.Sprintf("%d numbers", len(list)), "one per module, %d", len(f.Modules)) {
		return
	}
	for i, n := range list {
		if maxReplicas := p.plan.Deployment[i].Replicas(); n < 1 || n > maxReplicas {
			p.Failf(document.FormatWhole(n), fmt.Sprintf("1 to the replicas of the deployment, %d", maxReplicas), "", "%s[%d]", fieldPath, i)
		}
	}
}
