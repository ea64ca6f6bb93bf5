package flow

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/condition"
	"inferplan/formats/document"
	"inferplan/policy"
)

// WorkflowTables are the tables of plans of workflows beside policy.Tables. Those have a model per application and a
// service per deployed model, which every device may run once it holds the network.
type WorkflowTables struct {
	Apps          []Workflow     // by model
	TransferTimes []TransferTime // by service
	// SessionStates has, by service, what it keeps of a request. Missing elements stand for nothing.
	SessionStates []SessionState
	// LanguageModels has, by service, its language model. It is empty if no service is one.
	LanguageModels []LanguageModel
	// GenerationSteps are the steps that ask language models, by their number.
	GenerationSteps []GenerationStep
	Paths           [][]RecordedPath // by model: paths that requests took, or are expected to take
}

// TransferTime is how long an output takes to a device of the same node, and to one of another node. To its own device
// it takes no time.
type TransferTime struct{ SameNode, OtherNode time.Duration }

// Workflow is an application as segments. Segment 0 is where requests enter.
type Workflow struct {
	Segments []Segment
	Names    []string // of modules; segments share them
}

// Segment is a part of a workflow whose tasks are all revealed at once.
type Segment struct {
	Name             string
	Steps            []Step
	Branches         []formats.Branch        // branches behind it; their segments are in BranchTargets
	BranchTargets    []int32                 // by branch: segment; -1 if the request ends
	BranchConditions []*condition.Expression // by branch; nil if it is taken when no earlier condition holds
	MaxVisits        int32                   // 0 stands for as often as branches lead here
}

// Step is a module in a segment.
type Step struct {
	Name            int32    // index in Workflow.Names
	Service         int32    // -1 if it is one of Routes
	Routes          []int32  // services
	RouteModels     []string // models of the routes
	RouteShares     []float64
	Work            int64                 // millionths of the usual; 0 stands for the usual
	ItemChances     []float64             // chances of 0, 1, 2 … items; nil if it runs once
	CountVaries     bool                  // how often it runs depends on the request
	CountExpression *condition.Expression // how often it runs; nil if CountVaries is false
	RouteExpression *condition.Expression // which route it takes; nil if it has none, or only chances
	FixedCount      int32                 // how often it runs otherwise
	EachOf          int32                 // it runs once for each task of this name; -1 if none
	Reads           []int32               // indexes in Workflow.Names
	GenerationStep  int32                 // number of the generation step, plus one; 0 if it asks no language model
	// Prompt and Output are the distributions of the tokens that it asks a language model for.
	Prompt, Output *formats.Lengths
	TokenSamples   [][2]int // samples of both together, in place of these
}

// Services returns the services that may run the step.
func (s *Step) Services() []int32 {
	if s.Service >= 0 {
		return []int32{s.Service}
	}
	return s.Routes
}

// MaxItems returns how many tasks a step of a request has at most in a visit of its segment: the fixed number, the
// largest that has a chance, or MaxModules if the plan gives no chances.
func (s *Step) MaxItems() int32 {
	switch {
	case !s.CountVaries:
		return s.FixedCount
	case len(s.ItemChances) == 0:
		return formats.MaxModules
	}
	return int32(len(s.ItemChances) - 1)
}

// RecordedPath is a path that `Count` requests took. Its first KnownTasks tasks were known at arrival.
type RecordedPath struct {
	Count, KnownTasks int32
	Tasks             []PathTask
}

// PathTask is a task of a path. Reads are offsets back; if empty, it reads the client's input.
type PathTask struct {
	Service int32
	Work    int64
	Reads   []int32
}

// WorkflowTablesOf returns the tables of a plan of workflows. For other plans it returns nil.
func WorkflowTablesOf(t *policy.Tables) *WorkflowTables {
	tables, _ := t.KindTables.(*WorkflowTables)
	return tables
}

// OutputTransferTime returns how long a service's output takes from one device to another.
func (w *WorkflowTables) OutputTransferTime(t *policy.Tables, service, from, to int32) time.Duration {
	switch {
	case from == to || w == nil || int(service) >= len(w.TransferTimes):
		return 0
	case t.Devices[from].Node == t.Devices[to].Node:
		return w.TransferTimes[service].SameNode
	}
	return w.TransferTimes[service].OtherNode
}

// millionths is the usual work, in the unit of works in events.
const millionths = 1_000_000

// workMillionths returns a task's work in millionths of the usual, as events have it. 0 stands for the usual work.
func workMillionths(work float64) int64 {
	if work == 0 || work == 1 {
		return 0
	}
	return max(1, int64(work*millionths+.5))
}

// compileWorkflows reads the workflows of a plan into its tables, which policy.Compile made with a model per
// deployed one: these become services (what tasks ask for), and applications become models (what clients ask for).
func compileWorkflows(plan *formats.Plan, f *formats.FlowPlan, t *policy.Tables) error {
	// Deployed models become services, with their networks.
	serviceOf, names := map[string]int32{}, []string(nil)
	tables := &WorkflowTables{}
	for i := range t.Models {
		m := &f.Modules[i]
		serviceOf[t.Models[i].Name], names = int32(i), append(names, t.Models[i].Name)
		tables.TransferTimes = append(tables.TransferTimes, TransferTime{m.NearUS.D(), m.FarUS.D()})
		tables.SessionStates = append(tables.SessionStates, readSessionState(m.Session))
		tables.addLanguageModel(plan, m.Generation)
		n := &t.Networks[t.Pipelines[t.Services[i].FirstPipeline].Network]
		n.Bytes, n.LoadTimes = m.WeightBytes, nil
		for k := range t.Kinds {
			loadTime := m.CostOn(plan.Pools[k].Device).LoadUS.D()
			n.LoadTimes = append(n.LoadTimes, [2]time.Duration{loadTime, loadTime})
		}
	}

	// Applications become models.
	var models []policy.Model
	for i := range f.Applications {
		a, path := f.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		a.Segments = WithTokenWork(a.Segments, f.Generations())
		w, err := compileWorkflow(&a, serviceOf, path)
		if err != nil {
			return err
		}
		percentile, err := policy.ParsePercentile(a.Percentile)
		if err != nil || a.SLOUS <= 0 {
			return &document.Error{Path: path, Found: fmt.Sprintf("percentile %q, SLO %v", a.Percentile, a.SLOUS.D()), Expected: "a percentile and a positive SLO"}
		}

		// Paths: recorded ones, or else drawn by the chances of the graph.
		tables.Paths = append(tables.Paths, nil)
		for k := range f.Transitions {
			if f.Transitions[k].Application == a.Model {
				tables.Paths[i] = recordedPaths(&f.Transitions[k], serviceOf)
			}
		}
		if len(tables.Paths[i]) == 0 && len(w.Segments) > 0 {
			paths := DrawPaths(w, a.Model, names, DrawnRequests, plan.Seed)
			tables.Paths[i] = recordedPaths(&formats.WaysOf{Paths: paths}, serviceOf)
		}
		tables.numberGenerationSteps(w)
		tables.Apps = append(tables.Apps, *w)
		models = append(models, policy.Model{Name: a.Model, SLO: a.SLOUS.D(), Percentile: percentile, RPS: a.RPS, NumPipelines: int32(len(t.Pipelines))})
	}

	// Pipelines belong to services, not to models.
	for p := range t.Pipelines {
		t.Pipelines[p].Model = -1
	}
	if len(f.Generations()) == 0 {
		tables.LanguageModels = nil
	}
	tables.setResident(plan, f, t)
	t.Models, t.KindTables = models, tables
	return nil
}

// readSessionState reads what a module keeps of a request (its session state): the bytes, and the times to
// recompute or to move it. Without one all are 0.
func readSessionState(s *formats.SessionState) SessionState {
	if s == nil {
		return SessionState{}
	}
	return SessionState{Bytes: s.Bytes, Recompute: s.RecomputeUS.D(), SameNode: s.NearUS.D(), OtherNode: s.FarUS.D()}
}

// setResident sets, for each device, the networks that it holds at the start, and its memory for networks: what the
// pool's devices have less the working memory of batches. Without a memory size it is 2^50 bytes, which is more
// than is ever needed.
func (g *WorkflowTables) setResident(plan *formats.Plan, f *formats.FlowPlan, t *policy.Tables) {
	firstDevice := make([]int, len(plan.Pools)) // by pool: number of its first device, as the plan counts
	for i := 1; i < len(firstDevice); i++ {
		firstDevice[i] = firstDevice[i-1] + plan.Pools[i-1].Count
	}
	workingBytes := make([][]int64, len(plan.Pools))
	for k := range workingBytes {
		workingBytes[k] = f.WorkingBytesByDevice(plan.Deployment, &plan.Pools[k])
	}
	t.Memory = make([]int64, len(t.Devices))
	for d := range t.Devices {
		device := &t.Devices[d]
		number := firstDevice[device.Kind] + int(device.GPU)
		t.Memory[d] = 1 << 50
		if pool := &plan.Pools[device.Kind]; pool.Memory > 0 {
			t.Memory[d] = max(1, int64(pool.Memory)-workingBytes[device.Kind][device.GPU])
		}
		t.Resident[d] = nil
		for i := range f.Modules {
			if slices.Contains(f.Modules[i].Resident, number) {
				t.Resident[d] = append(t.Resident[d], t.Pipelines[t.Services[i].FirstPipeline].Network)
			}
		}
	}
}

// compileWorkflow reads an application of a plan as a workflow: segments (parts whose tasks are revealed together)
// with their steps, branches and conditions. It returns an error, with the path of the field, for a condition that
// cannot be parsed or a model that is not deployed.
func compileWorkflow(a *formats.FlowApplication, serviceOf map[string]int32, path string) (*Workflow, error) {
	// Parse all conditions of the application.
	app := &formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: a.Segments}
	conditions, err := app.Conditions()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w := &Workflow{}
	for i := range a.Segments {
		s := &a.Segments[i]
		seg := Segment{Name: s.Name, Branches: s.NextBranches, MaxVisits: int32(s.MaxVisits)}

		// Branches behind the segment.
		for b := range s.NextBranches {
			to := int32(-1)
			for _, name := range s.NextBranches[b].Targets {
				to = int32(slices.IndexFunc(a.Segments, func(o formats.Segment) bool { return o.Name == name }))
			}
			seg.BranchTargets = append(seg.BranchTargets, to)
			seg.BranchConditions = append(seg.BranchConditions, conditions[fmt.Sprintf("segments[%d].next[%d].when", i, b)])
		}

		// Its steps.
		for k := range s.Modules {
			step, err := w.compileStep(conditions, app, i, k, serviceOf)
			if err != nil {
				return nil, &document.Error{Path: fmt.Sprintf("%s.segments[%d].modules[%d]", path, i, k), Found: err.Error(), Expected: "a deployed model"}
			}
			seg.Steps = append(seg.Steps, step)
		}
		w.Segments = append(w.Segments, seg)
	}
	return w, nil
}

// compileStep reads the k-th module of the i-th segment as a step: how many tasks it has, what they read, and which
// service runs them. Service is -1 if a route is chosen for each task. It returns an error if a model is not
// deployed.
func (w *Workflow) compileStep(conditions formats.Conditions, a *formats.Application, i, k int, serviceOf map[string]int32) (Step, error) {
	m := &a.Segments[i].Modules[k]

	// What the module declares.
	s := Step{Name: w.nameIndex(m.Name), Service: -1, Work: workMillionths(m.Work), ItemChances: m.Chances, CountVaries: m.Items != "", FixedCount: 1, EachOf: -1, TokenSamples: m.Sample}
	s.Prompt, s.Output = m.TokenLengths()

	// Conditions; a fixed number of items needs none.
	s.RouteExpression = conditions[fmt.Sprintf("segments[%d].modules[%d].route", i, k)]
	if s.CountExpression = conditions[fmt.Sprintf("segments[%d].modules[%d].items", i, k)]; s.CountExpression != nil {
		if n, ok := s.CountExpression.ConstantItems(); ok {
			s.CountVaries, s.FixedCount, s.ItemChances = false, int32(min(n, formats.MaxTasks)), nil
		}
	}

	// What it reads, and the services that may run it.
	if m.ForEach != "" {
		s.EachOf = w.nameIndex(m.ForEach)
	}
	for _, name := range m.Predecessors {
		s.Reads = append(s.Reads, w.nameIndex(name))
	}
	for r, name := range m.Services() {
		id, ok := serviceOf[name]
		if !ok {
			return s, fmt.Errorf("the model %q", name)
		}
		if len(m.Routes) == 0 {
			s.Service = id
			break
		}
		s.Routes, s.RouteModels, s.RouteShares = append(s.Routes, id), append(s.RouteModels, name), append(s.RouteShares, m.Routes[r].Probability)
	}
	return s, nil
}

// nameIndex returns the index of a module's name, and adds it if it is new.
func (w *Workflow) nameIndex(name string) int32 {
	if i := slices.Index(w.Names, name); i >= 0 {
		return int32(i)
	}
	w.Names = append(w.Names, name)
	return int32(len(w.Names) - 1)
}

// recordedPaths reads the paths that requests took (their tasks in order), with services by number. Paths over
// models that are not deployed are left out.
func recordedPaths(recorded *formats.WaysOf, serviceOf map[string]int32) []RecordedPath {
	var out []RecordedPath
next:
	for i := range recorded.Paths {
		path := RecordedPath{Count: int32(recorded.Paths[i].Count), KnownTasks: int32(recorded.Paths[i].KnownTasks)}
		for k := range recorded.Paths[i].Tasks {
			t := &recorded.Paths[i].Tasks[k]
			id, ok := serviceOf[t.Model]
			if !ok {
				continue next
			}
			task := PathTask{Service: id, Work: workMillionths(t.Work)}
			for _, offset := range t.Reads {
				task.Reads = append(task.Reads, int32(offset))
			}
			path.Tasks = append(path.Tasks, task)
		}
		out = append(out, path)
	}
	return out
}
