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
type Workflows struct {
	Apps  []Workflow // by model
	Moves []Move     // by service
	// SessionStates has, by service, what it keeps of a request. Missing elements stand for nothing.
	Sessions []Session
	// LanguageModels has, by service, its language model. It is empty if no service is one.
	Generations []Generation
	// GenerationSteps are the steps that ask language models, by their number.
	Asks []Asking
	Ways [][]Way // by model: paths that requests took, or are expected to take
}

// TransferTime is how long an output takes to a device of the same node, and to one of another node. To its own device
// it takes no time.
type Move struct{ Near, Far time.Duration }

// Workflow is an application as segments. Segment 0 is where requests enter.
type Workflow struct {
	Segments []Segment
	Names    []string // of modules; segments share them
}

// Segment is a part of a workflow whose tasks are all revealed at once.
type Segment struct {
	Name  string
	Steps []Step
	Next  []formats.Branch        // branches behind it; their segments are in To
	To    []int32                 // by branch: segment; -1 if the request ends
	When  []*condition.Expression // by branch; nil if it is taken when no earlier condition holds
	Most  int32                   // 0: as often as branches lead here
}

// Step is a module in a segment.
type Step struct {
	Name    int32    // index in Workflow.Names
	Service int32    // -1 if it is one of Routes
	Routes  []int32  // services
	Names   []string // models of the routes
	Shares  []float64
	Work    int64                 // millionths of the usual; 0 stands for the usual
	Items   []float64             // chances of 0, 1, 2 … items; nil if it runs once
	Counted bool                  // how often it runs depends on the request
	Count   *condition.Expression // how often it runs; nil if CountVaries is false
	Choose  *condition.Expression // which route it takes; nil if it has none, or only chances
	Fixed   int32                 // how often it runs otherwise
	Each    int32                 // it runs once for each task of this name; -1 if none
	Reads   []int32               // indexes in Workflow.Names
	Ask     int32                 // number of the generation step, plus one; 0 if it asks no language model
	// Prompt and Output are the distributions of the tokens that it asks a language model for.
	Prompt, Output *formats.Lengths
	Sample         [][2]int // samples of both together, in place of these
}

// Services returns the services that may run the step.
func (s *Step) Services() []int32 {
	if s.Service >= 0 {
		return []int32{s.Service}
	}
	return s.Routes
}

// MaxItems returns how often a step of a request runs at most in a visit of its segment.
func (s *Step) MostItems() int32 {
	switch {
	case !s.Counted:
		return s.Fixed
	case len(s.Items) == 0:
		return formats.MaxModules
	}
	return int32(len(s.Items) - 1)
}

// RecordedPath is a path that `Count` requests took. Its first KnownTasks tasks were known at arrival.
type Way struct {
	Count, Known int32
	Tasks        []WayTask
}

// PathTask is a task of a path. Reads are offsets back; if empty, it reads the client's input.
type WayTask struct {
	Service int32
	Work    int64
	Reads   []int32
}

// WorkflowTablesOf returns the tables of a plan of workflows. For other plans it returns nil.
func WorkflowsOf(t *policy.Tables) *Workflows {
	own, _ := t.Own.(*Workflows)
	return own
}

// OutputTransferTime returns how long a service's output takes from one device to another.
func (w *Workflows) MoveTime(t *policy.Tables, service, from, to int32) time.Duration {
	switch {
	case from == to || w == nil || int(service) >= len(w.Moves):
		return 0
	case t.Devices[from].Node == t.Devices[to].Node:
		return w.Moves[service].Near
	}
	return w.Moves[service].Far
}

// millionths is the usual work, in the unit of works in events.
const millionths = 1_000_000

// workMillionths returns a task's work as events have it.
func workOf(work float64) int64 {
	if work == 0 || work == 1 {
		return 0
	}
	return max(1, int64(work*millionths+.5))
}

// compileWorkflows reads the workflows of a plan into its tables, which policy.Compile made with a model per deployed
// one.
func compileWorkflows(plan *formats.Plan, f *formats.FlowPlan, t *policy.Tables) error {
	// Deployed models become services, with their networks.
	service, names := map[string]int32{}, []string(nil)
	own := &Workflows{}
	for i := range t.Models {
		m := &f.Modules[i]
		service[t.Models[i].Name], names = int32(i), append(names, t.Models[i].Name)
		own.Moves = append(own.Moves, Move{m.NearUS.D(), m.FarUS.D()})
		own.Sessions = append(own.Sessions, sessionOf(m.Session))
		own.generate(plan, m.Generation)
		n := &t.Networks[t.Pipelines[t.Services[i].FirstPipeline].Network]
		n.Bytes, n.Load = m.WeightBytes, nil
		for k := range t.Kinds {
			load := m.On(plan.Pools[k].Device).LoadUS.D()
			n.Load = append(n.Load, [2]time.Duration{load, load})
		}
	}

	// Applications become models.
	var models []policy.Model
	for i := range f.Applications {
		a, at := f.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		a.Segments = WithWork(a.Segments, f.Generations())
		w, err := compileWorkflow(&a, service, at)
		if err != nil {
			return err
		}
		percentile, err := policy.ParsePercentile(a.Percentile)
		if err != nil || a.SLOUS <= 0 {
			return &document.Error{Path: at, Found: fmt.Sprintf("percentile %q, SLO %v", a.Percentile, a.SLOUS.D()), Expected: "a percentile and a positive SLO"}
		}

		// Paths: recorded ones, or else drawn by the chances of the graph.
		own.Ways = append(own.Ways, nil)
		for k := range f.Transitions {
			if f.Transitions[k].Application == a.Model {
				own.Ways[i] = waysOf(&f.Transitions[k], service)
			}
		}
		if len(own.Ways[i]) == 0 && len(w.Segments) > 0 {
			ways := DrawWays(w, a.Model, names, DrawnRequests, plan.Seed)
			own.Ways[i] = waysOf(&formats.WaysOf{Ways: ways}, service)
		}
		own.number(w)
		own.Apps = append(own.Apps, *w)
		models = append(models, policy.Model{Name: a.Model, SLO: a.SLOUS.D(), Percentile: percentile, RPS: a.RPS, NumPipelines: int32(len(t.Pipelines))})
	}

	// Pipelines belong to services, not to models.
	for p := range t.Pipelines {
		t.Pipelines[p].Model = -1
	}
	if len(f.Generations()) == 0 {
		own.Generations = nil
	}
	own.hold(plan, f, t)
	t.Models, t.Own = models, own
	return nil
}

// readSessionState reads what a module keeps of a request.
func sessionOf(s *formats.SessionState) Session {
	if s == nil {
		return Session{}
	}
	return Session{Bytes: s.Bytes, Recompute: s.RecomputeUS.D(), Near: s.NearUS.D(), Far: s.FarUS.D()}
}

// setResident sets the networks that devices hold at the start, and their memory for networks.
func (own *Workflows) hold(plan *formats.Plan, f *formats.FlowPlan, t *policy.Tables) {
	first := make([]int, len(plan.Pools)) // by pool: number of its first device, as the plan counts
	for i := 1; i < len(first); i++ {
		first[i] = first[i-1] + plan.Pools[i-1].Count
	}
	working := make([][]int64, len(plan.Pools))
	for k := range working {
		working[k] = f.Working(plan.Deployment, &plan.Pools[k])
	}
	t.Memory = make([]int64, len(t.Devices))
	for d := range t.Devices {
		dev := &t.Devices[d]
		number := first[dev.Kind] + int(dev.GPU)
		t.Memory[d] = 1 << 50
		if pool := &plan.Pools[dev.Kind]; pool.Memory > 0 {
			t.Memory[d] = max(1, int64(pool.Memory)-working[dev.Kind][dev.GPU])
		}
		t.Resident[d] = nil
		for i := range f.Modules {
			if slices.Contains(f.Modules[i].Resident, number) {
				t.Resident[d] = append(t.Resident[d], t.Pipelines[t.Services[i].FirstPipeline].Network)
			}
		}
	}
}

// compileWorkflow reads an application.
func compileWorkflow(a *formats.FlowApplication, service map[string]int32, at string) (*Workflow, error) {
	// Parse all conditions of the application.
	app := &formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: a.Segments}
	seen, err := app.Conditions()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	w := &Workflow{}
	for i := range a.Segments {
		s := &a.Segments[i]
		seg := Segment{Name: s.Name, Next: s.Next, Most: int32(s.Most)}

		// Branches behind the segment.
		for b := range s.Next {
			to := int32(-1)
			for _, name := range s.Next[b].To {
				to = int32(slices.IndexFunc(a.Segments, func(o formats.Segment) bool { return o.Name == name }))
			}
			seg.To = append(seg.To, to)
			seg.When = append(seg.When, seen[fmt.Sprintf("segments[%d].next[%d].when", i, b)])
		}

		// Its steps.
		for k := range s.Modules {
			step, err := w.step(seen, app, i, k, service)
			if err != nil {
				return nil, &document.Error{Path: fmt.Sprintf("%s.segments[%d].modules[%d]", at, i, k), Found: err.Error(), Expected: "a deployed model"}
			}
			seg.Steps = append(seg.Steps, step)
		}
		w.Segments = append(w.Segments, seg)
	}
	return w, nil
}

// compileStep reads the k-th module of the i-th segment.
func (w *Workflow) step(seen formats.Conditions, a *formats.Application, i, k int, service map[string]int32) (Step, error) {
	m := &a.Segments[i].Modules[k]

	// What the module declares.
	s := Step{Name: w.name(m.Name), Service: -1, Work: workOf(m.Work), Items: m.Chances, Counted: m.Items != "", Fixed: 1, Each: -1, Sample: m.Sample}
	s.Prompt, s.Output = m.Tokens()

	// Conditions; a fixed number of items needs none.
	s.Choose = seen[fmt.Sprintf("segments[%d].modules[%d].route", i, k)]
	if s.Count = seen[fmt.Sprintf("segments[%d].modules[%d].items", i, k)]; s.Count != nil {
		if n, ok := s.Count.Fixed(); ok {
			s.Counted, s.Fixed, s.Items = false, int32(min(n, formats.MaxTasks)), nil
		}
	}

	// What it reads, and the services that may run it.
	if m.Each != "" {
		s.Each = w.name(m.Each)
	}
	for _, name := range m.After {
		s.Reads = append(s.Reads, w.name(name))
	}
	for r, name := range m.Services() {
		id, ok := service[name]
		if !ok {
			return s, fmt.Errorf("the model %q", name)
		}
		if len(m.Routes) == 0 {
			s.Service = id
			break
		}
		s.Routes, s.Names, s.Shares = append(s.Routes, id), append(s.Names, name), append(s.Shares, m.Routes[r].Probability)
	}
	return s, nil
}

// nameIndex returns the index of a module's name, and adds it if it is new.
func (w *Workflow) name(name string) int32 {
	if i := slices.Index(w.Names, name); i >= 0 {
		return int32(i)
	}
	w.Names = append(w.Names, name)
	return int32(len(w.Names) - 1)
}

// recordedPaths reads recorded paths, with services by number. Paths over models that are not deployed are left out.
func waysOf(w *formats.WaysOf, service map[string]int32) []Way {
	var out []Way
next:
	for i := range w.Ways {
		way := Way{Count: int32(w.Ways[i].Count), Known: int32(w.Ways[i].Known)}
		for k := range w.Ways[i].Tasks {
			t := &w.Ways[i].Tasks[k]
			id, ok := service[t.Model]
			if !ok {
				continue next
			}
			task := WayTask{Service: id, Work: workOf(t.Work)}
			for _, back := range t.Reads {
				task.Reads = append(task.Reads, int32(back))
			}
			way.Tasks = append(way.Tasks, task)
		}
		out = append(out, way)
	}
	return out
}
