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
type GraphTables struct {
	Apps         []Application // by model
	Modules      []Module      // by service
	WaitQuantile float64       // quantile of the waits for batches (PARD §4.2)
	Window       time.Duration // of the averages of queueing times
	Scaling      *Scaling      // nil if all workers serve all the time
}

// Application is the graph of an application. Node 0 is where requests enter.
type Application struct {
	Nodes []Node
	Order []int32 // nodes, each behind all that it reads
}

// Node is a step of an application.
type Node struct {
	Name           string
	Service        int32
	Inputs         []Edge    // from the nodes that it reads
	Outputs        []Edge    // to the nodes that read it
	OutcomeChances []float64 // probability of each outcome; nil if there is only one
	// AlwaysReached says that every request comes here. ReachChance is the share of the requests that do: the sum over the
	// edges that lead here, at most 1.
	AlwaysReached bool
	ReachChance   float64
	// Paths are the paths from here to an end, without the node itself.
	Paths [][]int32
}

// OutcomeAt returns the outcome (branch) of a node for a random number from [0,1), by the chances of its outcomes.
func (n *Node) OutcomeAt(u float64) int32 {
	outcome := int32(0)
	for int(outcome) < len(n.OutcomeChances)-1 && u >= n.OutcomeChances[outcome] {
		u -= n.OutcomeChances[outcome]
		outcome++
	}
	return outcome
}

// Edge leads from a node to one that reads it.
type Edge struct {
	From, To int32
	Outcome  int32 // outcome of From with which it is taken; -1 for all outcomes
}

// Module holds the figures of a service besides its pipelines.
type Module struct {
	ColdStart    time.Duration
	Workers      []int32   // devices, in the order in which scaling uses them
	DeviceShares []float64 // by worker: planned share of the device's time; 1 if no other module runs there
}

// Scaling says how many workers of every module serve at which rate at the entry (formats.FlowScaling).
type Scaling struct {
	Interval, Window, Hold time.Duration // between decisions; of the mean rate; for which a larger number is kept
	Lookahead              time.Duration // for which a rise is continued
	RiseSigmas             float64       // standard errors above which a rise counts
	MaxWorkers             int
	StartWorkers           []int
	RatesAbove             []float64 // rising; the row applies above its rate
	Workers                [][]int   // [row][module]
}

// WorkersAt returns how many workers each module has at a rate, by the rows of the scaling table: the last row
// whose rate is below it. The caller must not change the list.
func (s *Scaling) WorkersAt(rps float64) []int {
	i, _ := slices.BinarySearchFunc(s.RatesAbove, rps, func(a, rps float64) int {
		if a < rps {
			return -1
		}
		return 1
	})
	return s.Workers[max(0, i-1)]
}

// GraphTablesOf returns the graph tables of a plan of applications. For other plans it returns nil.
func GraphTablesOf(t *policy.Tables) *GraphTables {
	tables, _ := t.KindTables.(*GraphTables)
	return tables
}

// MaxPaths bounds the paths through an application, because estimates follow each of them.
const MaxPaths = 256

// Compile reads the applications of a plan into its tables, which policy.Compile made with a model per module:
// modules become services (what tasks ask for), and applications become models (what clients ask for). A plan with
// segments becomes one of workflows.
func Compile(plan *formats.Plan, t *policy.Tables) error {
	f := formats.FlowOf(plan)
	if f == nil {
		return &document.Error{Path: "flow", Found: "nothing", Expected: "the applications of a plan of kind flow"}
	}
	tables := &GraphTables{WaitQuantile: f.Lambda, Window: f.WindowUS.D()}
	if len(f.Modules) != len(t.Models) || len(f.Applications) == 0 {
		return &document.Error{Path: "flow.modules", Found: fmt.Sprintf("%d modules", len(f.Modules)), Expected: fmt.Sprintf("the %d of the deployment", len(t.Models))}
	}
	if f.Workflow() {
		return compileWorkflows(plan, f, t)
	}

	// Modules become services.
	serviceOf := map[string]int32{}
	for i := range t.Models {
		serviceOf[t.Models[i].Name] = int32(i)
		tables.Modules = append(tables.Modules, Module{ColdStart: f.Modules[i].ColdStartUS.D(), Workers: devicesOf(t, int32(i))})
	}
	if err := tables.setDeviceShares(plan, t); err != nil {
		return err
	}

	// Applications become models.
	var models []policy.Model
	for i := range f.Applications {
		a, path := &f.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		app, err := compileApplication(a.Modules, serviceOf, path)
		if err != nil {
			return err
		}
		percentile, err := policy.ParsePercentile(a.Percentile)
		if err != nil || a.SLOUS <= 0 {
			return &document.Error{Path: path, Found: fmt.Sprintf("percentile %q, SLO %v", a.Percentile, a.SLOUS.D()), Expected: "a percentile and a positive SLO"}
		}
		tables.Apps = append(tables.Apps, app)
		models = append(models, policy.Model{Name: a.Model, SLO: a.SLOUS.D(), Percentile: percentile, RPS: a.RPS, NumPipelines: int32(len(t.Pipelines))})
	}
	if err := tables.setScaling(f.Scaling); err != nil {
		return err
	}

	// Pipelines belong to services, not to models.
	for p := range t.Pipelines {
		t.Pipelines[p].Model = -1
	}
	t.Models, t.KindTables = models, tables
	tables.setLoads(t)
	return nil
}

// devicesOf returns the devices of a service, pipeline after pipeline.
func devicesOf(t *policy.Tables, service int32) []int32 {
	var out []int32
	s := &t.Services[service]
	for p := s.FirstPipeline; p < s.FirstPipeline+s.NumPipelines; p++ {
		out = append(out, t.DevicesOf(t.Pipelines[p].FirstStage)...)
	}
	return out
}

// setDeviceShares sets the share of a device's time that each of its modules has, as the plan does. A module alone
// on a device has all of it; the planned shares of several are scaled to the sum 1. It returns an error for a
// device that a module has twice or without a share.
func (g *GraphTables) setDeviceShares(plan *formats.Plan, t *policy.Tables) error {
	modules, plannedShare := make([]int, len(t.Devices)), make([]float64, len(t.Devices))
	for m := range g.Modules {
		deployed, seenDevices := &plan.Deployment[m], map[int32]bool{}
		for k := range deployed.Pipelines {
			s := &deployed.Pipelines[k].Stages[0]
			for _, device := range t.DevicesOf(t.Pipelines[t.Services[m].FirstPipeline+int32(k)].FirstStage) {
				path := fmt.Sprintf("deployment[%d].pipelines[%d].stages[0].placement", m, k)
				if seenDevices[device] {
					return &document.Error{Path: path, Found: fmt.Sprintf("device %d of %s a second time", t.Devices[device].GPU, s.Device), Expected: "each device once for every model"}
				}
				seenDevices[device] = true
				share := s.GPUs / float64(s.Replicas)
				g.Modules[m].DeviceShares = append(g.Modules[m].DeviceShares, share)
				modules[device], plannedShare[device] = modules[device]+1, plannedShare[device]+share
			}
		}
	}

	// Scale the shares of a device so that their sum is 1.
	for m := range g.Modules {
		for i, device := range g.Modules[m].Workers {
			share := &g.Modules[m].DeviceShares[i]
			switch {
			case modules[device] == 1:
				*share = 1
			case formats.FlowOf(plan).Scaling != nil:
				return &document.Error{Path: "flow.scaling", Found: "modules that take turns on devices", Expected: "devices of its own for every module"}
			case !(*share > 0):
				return &document.Error{Path: fmt.Sprintf("deployment[%d].pipelines", m), Found: fmt.Sprintf("gpus %v on a device that modules share", *share), Expected: "a part of its time above 0"}
			default:
				*share /= plannedShare[device]
			}
		}
	}
	return nil
}

// compileApplication reads an application of a plan as a graph: a node for each module, with the edges from its
// predecessors and the outcomes (branches) that lead to them. path is the field of the plan that errors name.
func compileApplication(modules []formats.Module, serviceOf map[string]int32, path string) (Application, error) {
	nodeOf, app := map[string]int32{}, Application{}

	// Nodes, by name.
	for i := range modules {
		m := &modules[i]
		s, ok := serviceOf[m.Model]
		if _, isDuplicate := nodeOf[m.Name]; isDuplicate || !ok {
			return Application{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d]", path, i), Found: fmt.Sprintf("the module %q of model %q", m.Name, m.Model), Expected: "a module of another name, of a deployed model"}
		}
		nodeOf[m.Name] = int32(i)
		app.Nodes = append(app.Nodes, Node{Name: m.Name, Service: s})
	}

	// Edges and outcomes.
	for i := range modules {
		for k, name := range modules[i].Predecessors {
			source, ok := nodeOf[name]
			if !ok {
				return Application{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d].after[%d]", path, i, k), Found: strconv.Quote(name), Expected: "a module of the application"}
			}
			outcome := slices.IndexFunc(modules[source].Branches, func(b formats.Branch) bool { return slices.Contains(b.Targets, modules[i].Name) })
			e := Edge{From: source, To: int32(i), Outcome: int32(outcome)}
			app.Nodes[i].Inputs = append(app.Nodes[i].Inputs, e)
			app.Nodes[source].Outputs = append(app.Nodes[source].Outputs, e)
		}
		for k := range modules[i].Branches {
			app.Nodes[i].OutcomeChances = append(app.Nodes[i].OutcomeChances, modules[i].Branches[k].Probability)
		}
		if len(modules[i].Predecessors) == 0 != (i == 0) {
			return Application{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d].after", path, i), Found: fmt.Sprintf("%d modules", len(modules[i].Predecessors)), Expected: "none for the first module, at least one for the others"}
		}
	}
	return app, app.orderNodes(path)
}

// CompileGraph reads the graph of an application by itself: every module is a service of its own. Errors name fields
// below path.
func CompileGraph(modules []formats.Module, path string) (Application, error) {
	serviceOf, copies := map[string]int32{}, slices.Clone(modules)
	for i := range copies {
		copies[i].Model = copies[i].Name
		serviceOf[copies[i].Name] = int32(i)
	}
	return compileApplication(copies, serviceOf, path)
}

// orderNodes puts the nodes (steps of the graph) into an order with inputs first, lists the paths behind each, and
// computes the chance that a request reaches it. It returns an error for a cycle, or for more than MaxPaths paths.
func (a *Application) orderNodes(path string) error {
	// Order the nodes, inputs first.
	isOrdered := make([]bool, len(a.Nodes))
	for progress := true; progress; {
		progress = false
		for i := range a.Nodes {
			if !isOrdered[i] && !slices.ContainsFunc(a.Nodes[i].Inputs, func(in Edge) bool { return !isOrdered[in.From] }) {
				isOrdered[i], progress = true, true
				a.Order = append(a.Order, int32(i))
			}
		}
	}
	if len(a.Order) < len(a.Nodes) || len(a.Nodes) == 0 {
		return &document.Error{Path: path + ".modules", Found: "modules that wait for themselves", Expected: "a graph without cycles"}
	}

	// Paths, from the ends on.
	for _, i := range slices.Backward(a.Order) {
		n := &a.Nodes[i]
		for _, e := range n.Outputs {
			for _, p := range a.Nodes[e.To].Paths {
				n.Paths = append(n.Paths, append([]int32{e.To}, p...))
			}
		}
		if len(n.Outputs) == 0 {
			n.Paths = [][]int32{{}}
		}
		if len(n.Paths) > MaxPaths {
			return &document.Error{Path: path + ".modules", Found: fmt.Sprintf("%d ways from %s to the end", len(n.Paths), n.Name), Expected: fmt.Sprintf("at most %d", MaxPaths)}
		}
	}

	// Chances, from the entry on.
	for _, i := range a.Order {
		n := &a.Nodes[i]
		n.AlwaysReached = i == 0
		for _, in := range n.Inputs {
			source := &a.Nodes[in.From]
			n.AlwaysReached = n.AlwaysReached || source.AlwaysReached && in.Outcome < 0
			if in.Outcome < 0 {
				n.ReachChance += source.ReachChance
			} else {
				n.ReachChance += source.ReachChance * source.OutcomeChances[in.Outcome]
			}
		}
		if n.ReachChance = min(1, n.ReachChance); n.AlwaysReached {
			n.ReachChance = 1
		}
	}
	return nil
}

// setScaling reads and checks the rule by which the number of workers follows the rate: above which rate how many
// each module has. Without a rule in the plan it does nothing. It returns an error for times that are no whole
// seconds or worker counts out of range.
func (g *GraphTables) setScaling(s *formats.FlowScaling) error {
	if s == nil {
		return nil
	}
	out := &Scaling{Interval: s.EveryUS.D(), Window: s.WindowUS.D(), Hold: s.HoldUS.D(), Lookahead: s.LookaheadUS.D(), RiseSigmas: s.RiseSigmas, MaxWorkers: s.MaxWorkers, StartWorkers: s.Start}
	if out.Interval < time.Second || out.Window < time.Second || out.Interval%time.Second != 0 || out.Window%time.Second != 0 || len(s.Table) == 0 {
		return &document.Error{Path: "flow.scaling", Found: fmt.Sprintf("every %v, window %v, %d rows", out.Interval, out.Window, len(s.Table)), Expected: "whole seconds, and a row"}
	}
	for i := range s.Table {
		out.RatesAbove, out.Workers = append(out.RatesAbove, s.Table[i].AboveRPS), append(out.Workers, s.Table[i].Replicas)
	}
	for _, row := range append(slices.Clone(out.Workers), out.StartWorkers) {
		for m := range g.Modules {
			if len(row) != len(g.Modules) || row[m] < 1 || row[m] > len(g.Modules[m].Workers) {
				return &document.Error{Path: "flow.scaling", Found: fmt.Sprintf("replicas %v", row), Expected: "1 to the replicas of the deployment, for every module"}
			}
		}
	}
	g.Scaling = out
	return nil
}

// setLoads sets the times of loads, which are the module's cold start on every kind of device, and the networks
// that devices hold at the start: with scaling only the first StartWorkers of a module.
func (g *GraphTables) setLoads(t *policy.Tables) {
	for m := range g.Modules {
		network := t.Pipelines[t.Services[m].FirstPipeline].Network
		loadTimes := make([][2]time.Duration, len(t.Kinds))
		for k := range loadTimes {
			loadTimes[k] = [2]time.Duration{g.Modules[m].ColdStart, g.Modules[m].ColdStart}
		}
		t.Networks[network].LoadTimes = loadTimes
		if g.Scaling == nil {
			continue
		}
		for i, d := range g.Modules[m].Workers {
			if i >= g.Scaling.StartWorkers[m] {
				t.Resident[d] = slices.DeleteFunc(slices.Clone(t.Resident[d]), func(n int32) bool { return n == network })
			}
		}
	}
}
