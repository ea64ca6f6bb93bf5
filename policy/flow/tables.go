package flow

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// GraphTables are the tables of plans of applications beside policy.Tables. Those have a model per application and a
// service per module.
type Tables struct {
	Apps    []App         // by model
	Modules []Module      // by service
	Lambda  float64       // quantile of the waits for batches (PARD §4.2)
	Window  time.Duration // of the averages of queueing times
	Scaling *Scaling      // nil if all workers serve all the time
}

// Application is the graph of an application. Node 0 is where requests enter.
type App struct {
	Nodes []Node
	Order []int32 // nodes, each behind all that it reads
}

// Node is a step of an application.
type Node struct {
	Name    string
	Service int32
	In      []Edge    // from the nodes that it reads
	Out     []Edge    // to the nodes that read it
	Ways    []float64 // probability of each outcome; nil if there is only one
	// AlwaysReached says that every request comes here. ReachChance is the share of the requests that do: the sum over the
	// edges that lead here, at most 1.
	Always bool
	Chance float64
	// Paths are the paths from here to an end, without the node itself.
	Paths [][]int32
}

// OutcomeAt returns the outcome that a number drawn from [0,1) stands for.
func (n *Node) Way(u float64) int32 {
	way := int32(0)
	for int(way) < len(n.Ways)-1 && u >= n.Ways[way] {
		u -= n.Ways[way]
		way++
	}
	return way
}

// Edge leads from a node to one that reads it.
type Edge struct {
	From, To int32
	Way      int32 // outcome of From with which it is taken; -1 for all outcomes
}

// Module is what a service has besides its pipelines.
type Module struct {
	ColdStart time.Duration
	Workers   []int32   // devices, in the order in which scaling uses them
	Parts     []float64 // by worker: planned share of the device's time; 1 if no other module runs there
}

// Scaling says how many workers of every module serve at which rate at the entry (formats.FlowScaling).
type Scaling struct {
	Every, Window, Hold time.Duration // between decisions; of the mean rate; for which a larger number is kept
	Lookahead           time.Duration // for which a rise is continued
	RiseSigmas          float64       // standard errors above which a rise counts
	Max                 int
	Start               []int
	Above               []float64 // rising; the row applies above its rate
	Workers             [][]int   // [row][module]
}

// WorkersAt returns the numbers of workers by module at a rate.
func (s *Scaling) At(rps float64) []int {
	i, _ := slices.BinarySearchFunc(s.Above, rps, func(a, rps float64) int {
		if a < rps {
			return -1
		}
		return 1
	})
	return s.Workers[max(0, i-1)]
}

// GraphTablesOf returns the graph tables of a plan of applications. For other plans it returns nil.
func Of(t *policy.Tables) *Tables {
	own, _ := t.Own.(*Tables)
	return own
}

// MaxPaths bounds the paths through an application, because estimates follow each of them.
const MaxPaths = 256

// Compile reads the applications of a plan into its tables, which policy.Compile made with a model per module.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	f := formats.FlowOf(plan)
	if f == nil {
		return &document.Error{Path: "flow", Found: "nothing", Expected: "the applications of a plan of kind flow"}
	}
	own := &Tables{Lambda: f.Lambda, Window: f.WindowUS.D()}
	if len(f.Modules) != len(t.Models) || len(f.Applications) == 0 {
		return &document.Error{Path: "flow.modules", Found: fmt.Sprintf("%d modules", len(f.Modules)), Expected: fmt.Sprintf("the %d of the deployment", len(t.Models))}
	}
	if f.Workflow() {
		return compileWorkflows(plan, f, t)
	}

	// Modules become services.
	service := map[string]int32{}
	for i := range t.Models {
		service[t.Models[i].Name] = int32(i)
		own.Modules = append(own.Modules, Module{ColdStart: f.Modules[i].ColdStartUS.D(), Workers: workersOf(t, int32(i))})
	}
	if err := own.share(plan, t); err != nil {
		return err
	}

	// Applications become models.
	var models []policy.Model
	for i := range f.Applications {
		a, at := &f.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		app, err := compileApp(a.Modules, service, at)
		if err != nil {
			return err
		}
		percentile, err := policy.ParsePercentile(a.Percentile)
		if err != nil || a.SLOUS <= 0 {
			return &document.Error{Path: at, Found: fmt.Sprintf("percentile %q, SLO %v", a.Percentile, a.SLOUS.D()), Expected: "a percentile and a positive SLO"}
		}
		own.Apps = append(own.Apps, app)
		models = append(models, policy.Model{Name: a.Model, SLO: a.SLOUS.D(), Percentile: percentile, RPS: a.RPS, NumPipelines: int32(len(t.Pipelines))})
	}
	if err := own.scale(f.Scaling); err != nil {
		return err
	}

	// Pipelines belong to services, not to models.
	for p := range t.Pipelines {
		t.Pipelines[p].Model = -1
	}
	t.Models, t.Own = models, own
	own.load(t)
	return nil
}

// devicesOf returns the devices of a service, pipeline after pipeline.
func workersOf(t *policy.Tables, service int32) []int32 {
	var out []int32
	s := &t.Services[service]
	for p := s.FirstPipeline; p < s.FirstPipeline+s.NumPipelines; p++ {
		out = append(out, t.DevicesOf(t.Pipelines[p].FirstStage)...)
	}
	return out
}

// setDeviceShares sets the share of a device's time that each of its modules has, as the plan does.
func (own *Tables) share(plan *formats.Plan, t *policy.Tables) error {
	modules, taken := make([]int, len(t.Devices)), make([]float64, len(t.Devices))
	for m := range own.Modules {
		d, seen := &plan.Deployment[m], map[int32]bool{}
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			for _, on := range t.DevicesOf(t.Pipelines[t.Services[m].FirstPipeline+int32(k)].FirstStage) {
				at := fmt.Sprintf("deployment[%d].pipelines[%d].stages[0].placement", m, k)
				if seen[on] {
					return &document.Error{Path: at, Found: fmt.Sprintf("device %d of %s a second time", t.Devices[on].GPU, s.Device), Expected: "each device once for every model"}
				}
				seen[on] = true
				part := s.GPUs / float64(s.Replicas)
				own.Modules[m].Parts = append(own.Modules[m].Parts, part)
				modules[on], taken[on] = modules[on]+1, taken[on]+part
			}
		}
	}

	// Scale the shares of a device so that their sum is 1.
	for m := range own.Modules {
		for i, on := range own.Modules[m].Workers {
			part := &own.Modules[m].Parts[i]
			switch {
			case modules[on] == 1:
				*part = 1
			case formats.FlowOf(plan).Scaling != nil:
				return &document.Error{Path: "flow.scaling", Found: "modules that take turns on devices", Expected: "devices of its own for every module"}
			case !(*part > 0):
				return &document.Error{Path: fmt.Sprintf("deployment[%d].pipelines", m), Found: fmt.Sprintf("gpus %v on a device that modules share", *part), Expected: "a part of its time above 0"}
			default:
				*part /= taken[on]
			}
		}
	}
	return nil
}

// compileApplication reads the graph of an application. `at` is the field of the plan that errors name.
func compileApp(list []formats.Module, service map[string]int32, at string) (App, error) {
	place, app := map[string]int32{}, App{}

	// Nodes, by name.
	for i := range list {
		m := &list[i]
		s, ok := service[m.Model]
		if _, twice := place[m.Name]; twice || !ok {
			return App{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d]", at, i), Found: fmt.Sprintf("the module %q of model %q", m.Name, m.Model), Expected: "a module of another name, of a deployed model"}
		}
		place[m.Name] = int32(i)
		app.Nodes = append(app.Nodes, Node{Name: m.Name, Service: s})
	}

	// Edges and outcomes.
	for i := range list {
		for k, name := range list[i].After {
			from, ok := place[name]
			if !ok {
				return App{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d].after[%d]", at, i, k), Found: strconv.Quote(name), Expected: "a module of the application"}
			}
			way := slices.IndexFunc(list[from].Branches, func(b formats.Branch) bool { return slices.Contains(b.To, list[i].Name) })
			e := Edge{From: from, To: int32(i), Way: int32(way)}
			app.Nodes[i].In = append(app.Nodes[i].In, e)
			app.Nodes[from].Out = append(app.Nodes[from].Out, e)
		}
		for k := range list[i].Branches {
			app.Nodes[i].Ways = append(app.Nodes[i].Ways, list[i].Branches[k].Probability)
		}
		if len(list[i].After) == 0 != (i == 0) {
			return App{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d].after", at, i), Found: fmt.Sprintf("%d modules", len(list[i].After)), Expected: "none for the first module, at least one for the others"}
		}
	}
	return app, app.finish(at)
}

// CompileGraph reads the graph of an application by itself: every module is a service of its own. Errors name fields
// below `at`.
func Graph(list []formats.Module, at string) (App, error) {
	service, named := map[string]int32{}, slices.Clone(list)
	for i := range named {
		named[i].Model = named[i].Name
		service[named[i].Name] = int32(i)
	}
	return compileApp(named, service, at)
}

// orderNodes orders the nodes, lists the paths behind each, and computes the chances with which they are reached.
func (a *App) finish(at string) error {
	// Order the nodes, inputs first.
	done := make([]bool, len(a.Nodes))
	for more := true; more; {
		more = false
		for i := range a.Nodes {
			if !done[i] && !slices.ContainsFunc(a.Nodes[i].In, func(in Edge) bool { return !done[in.From] }) {
				done[i], more = true, true
				a.Order = append(a.Order, int32(i))
			}
		}
	}
	if len(a.Order) < len(a.Nodes) || len(a.Nodes) == 0 {
		return &document.Error{Path: at + ".modules", Found: "modules that wait for themselves", Expected: "a graph without cycles"}
	}

	// Paths, from the ends on.
	for _, i := range slices.Backward(a.Order) {
		n := &a.Nodes[i]
		for _, e := range n.Out {
			for _, p := range a.Nodes[e.To].Paths {
				n.Paths = append(n.Paths, append([]int32{e.To}, p...))
			}
		}
		if len(n.Out) == 0 {
			n.Paths = [][]int32{{}}
		}
		if len(n.Paths) > MaxPaths {
			return &document.Error{Path: at + ".modules", Found: fmt.Sprintf("%d ways from %s to the end", len(n.Paths), n.Name), Expected: fmt.Sprintf("at most %d", MaxPaths)}
		}
	}

	// Chances, from the entry on.
	for _, i := range a.Order {
		n := &a.Nodes[i]
		n.Always = i == 0
		for _, in := range n.In {
			from := &a.Nodes[in.From]
			n.Always = n.Always || from.Always && in.Way < 0
			if in.Way < 0 {
				n.Chance += from.Chance
			} else {
				n.Chance += from.Chance * from.Ways[in.Way]
			}
		}
		if n.Chance = min(1, n.Chance); n.Always {
			n.Chance = 1
		}
	}
	return nil
}

// setScaling reads and checks the scaling rule.
func (own *Tables) scale(s *formats.FlowScaling) error {
	if s == nil {
		return nil
	}
	out := &Scaling{Every: s.EveryUS.D(), Window: s.WindowUS.D(), Hold: s.HoldUS.D(), Lookahead: s.LookaheadUS.D(), RiseSigmas: s.RiseSigmas, Max: s.MaxWorkers, Start: s.Start}
	if out.Every < time.Second || out.Window < time.Second || out.Every%time.Second != 0 || out.Window%time.Second != 0 || len(s.Table) == 0 {
		return &document.Error{Path: "flow.scaling", Found: fmt.Sprintf("every %v, window %v, %d rows", out.Every, out.Window, len(s.Table)), Expected: "whole seconds, and a row"}
	}
	for i := range s.Table {
		out.Above, out.Workers = append(out.Above, s.Table[i].AboveRPS), append(out.Workers, s.Table[i].Replicas)
	}
	for _, row := range append(slices.Clone(out.Workers), out.Start) {
		for m := range own.Modules {
			if len(row) != len(own.Modules) || row[m] < 1 || row[m] > len(own.Modules[m].Workers) {
				return &document.Error{Path: "flow.scaling", Found: fmt.Sprintf("replicas %v", row), Expected: "1 to the replicas of the deployment, for every module"}
			}
		}
	}
	own.Scaling = out
	return nil
}

// setLoads sets the networks that devices hold at the start, and the times of loads.
func (own *Tables) load(t *policy.Tables) {
	for m := range own.Modules {
		network := t.Pipelines[t.Services[m].FirstPipeline].Network
		load := make([][2]time.Duration, len(t.Kinds))
		for k := range load {
			load[k] = [2]time.Duration{own.Modules[m].ColdStart, own.Modules[m].ColdStart}
		}
		t.Networks[network].Load = load
		if own.Scaling == nil {
			continue
		}
		for i, d := range own.Modules[m].Workers {
			if i >= own.Scaling.Start[m] {
				t.Resident[d] = slices.DeleteFunc(slices.Clone(t.Resident[d]), func(n int32) bool { return n == network })
			}
		}
	}
}
