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

// LongestTime returns the largest sum of the times of nodes over the paths behind a node.
func (n *Node) LongestTime(timeOf func(node int32) time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, path := range n.Paths {
		sum := time.Duration(0)
		for _, node := range path {
			sum += timeOf(node)
		}
		longest = max(longest, sum)
	}
	return longest
}

// OutcomeAt returns the outcome (the branch that a request takes behind the node) for a random number from [0,1), which
// it uses up, by the chances of the outcomes.
func (n *Node) OutcomeAt(remaining float64) int32 { return indexAt(n.OutcomeChances, remaining) }

// indexAt returns the index that a random number from [0,1) falls to, by the chances of the indexes, which sum to 1.
func indexAt(chances []float64, remaining float64) int32 {
	index := int32(0)
	for int(index) < len(chances)-1 && remaining >= chances[index] {
		remaining -= chances[index]
		index++
	}
	return index
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
	Interval     time.Duration // between two decisions
	Window       time.Duration // over which the mean rate is taken
	Hold         time.Duration // for which a larger number of workers is kept
	Lookahead    time.Duration // for which a rise of the rate is continued
	RiseSigmas   float64       // standard errors above which a rise counts
	MaxWorkers   int           // of all modules together
	StartWorkers []int         // by module: workers at the start
	RatesAbove   []float64     // by row of the table, rising: the rate (requests per second) above which it applies
	Workers      [][]int       // [row][module]: number of workers
}

// WorkersAt returns how many workers (devices that run it) each module has at a rate of requests per second. Row i of
// the scaling table holds for rates above RatesAbove[i]; below all of them the first row holds. The caller must not
// change the list.
func (s *Scaling) WorkersAt(rps float64) []int {
	// Find the first row whose bound is not below the rate; the row before it holds.
	row, _ := slices.BinarySearchFunc(s.RatesAbove, rps, func(rateAbove, rps float64) int {
		if rateAbove < rps {
			return -1
		}
		return 1
	})
	return s.Workers[max(0, row-1)]
}

// GraphTablesOf returns the graph tables of a plan of applications, by the plan's shared tables. For other plans it
// returns nil.
func GraphTablesOf(shared *policy.Tables) *GraphTables {
	tables, _ := shared.KindTables.(*GraphTables)
	return tables
}

// MaxPaths bounds the paths through an application, because estimates follow each of them.
const MaxPaths = 256

// Compile reads the applications of a plan into its tables (shared), which policy.Compile made with a model per module:
// modules become services (what tasks ask for), and applications become models (what clients ask for). What only plans
// of this kind have is put into shared.KindTables. A plan with segments in place of a graph becomes one of workflows. It
// returns an error, which names the field of the plan, for a plan that does not fit.
func Compile(plan *formats.Plan, shared *policy.Tables) error {
	flowPlan := formats.FlowOf(plan)
	if flowPlan == nil {
		return &document.Error{Path: "flow", Found: "nothing", Expected: "the applications of a plan of kind flow"}
	}
	tables := &GraphTables{WaitQuantile: flowPlan.Lambda, Window: flowPlan.WindowUS.D()}
	if len(flowPlan.Modules) != len(shared.Models) || len(flowPlan.Applications) == 0 {
		return &document.Error{Path: "flow.modules", Found: fmt.Sprintf("%d modules", len(flowPlan.Modules)), Expected: fmt.Sprintf("the %d of the deployment", len(shared.Models))}
	}
	if flowPlan.Workflow() {
		return compileWorkflows(plan, flowPlan, shared)
	}

	// Modules become services.
	serviceOf := map[string]int32{}
	for i := range shared.Models {
		serviceOf[shared.Models[i].Name] = int32(i)
		tables.Modules = append(tables.Modules, Module{ColdStart: flowPlan.Modules[i].ColdStartUS.D(), Workers: devicesOf(shared, int32(i))})
	}
	if err := tables.setDeviceShares(plan, shared); err != nil {
		return err
	}

	// Applications become models.
	var models []policy.Model
	for i := range flowPlan.Applications {
		application, path := &flowPlan.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		app, err := compileApplication(application.Modules, serviceOf, path)
		if err != nil {
			return err
		}
		model, err := servedModel(application, shared, path)
		if err != nil {
			return err
		}
		tables.Apps = append(tables.Apps, app)
		models = append(models, model)
	}
	if err := tables.setScaling(flowPlan.Scaling); err != nil {
		return err
	}

	// Pipelines belong to services, not to models.
	for pipeline := range shared.Pipelines {
		shared.Pipelines[pipeline].Model = -1
	}
	shared.Models, shared.KindTables = models, tables
	tables.setLoads(shared)
	return nil
}

// servedModel returns what the shared tables have of an application in the place of a model. Every pipeline serves it.
func servedModel(application *formats.FlowApplication, shared *policy.Tables, path string) (policy.Model, error) {
	percentile, err := policy.ParsePercentile(application.Percentile)
	if err != nil || application.SLOUS <= 0 {
		return policy.Model{}, &document.Error{Path: path, Found: fmt.Sprintf("percentile %q, SLO %v", application.Percentile, application.SLOUS.D()), Expected: "a percentile and a positive SLO"}
	}
	return policy.Model{Name: application.Model, SLO: application.SLOUS.D(), Percentile: percentile, RPS: application.RPS, NumPipelines: int32(len(shared.Pipelines))}, nil
}

// devicesOf returns the devices on which a service runs, pipeline after pipeline.
func devicesOf(tables *policy.Tables, service int32) []int32 {
	var out []int32
	serviceRow := &tables.Services[service]
	for pipeline := serviceRow.FirstPipeline; pipeline < serviceRow.FirstPipeline+serviceRow.NumPipelines; pipeline++ {
		out = append(out, tables.DevicesOf(tables.Pipelines[pipeline].FirstStage)...)
	}
	return out
}

// setDeviceShares sets, for each module and each of its workers (devices), the share of the device's time that the
// module has. A module alone on a device has all of it; the planned shares of several are scaled to the sum 1. It
// returns an error for a device that a module has twice or without a share, and for shared devices in a plan whose
// number of workers follows the rate.
func (g *GraphTables) setDeviceShares(plan *formats.Plan, shared *policy.Tables) error {
	// Read the planned share of each worker: the devices that a stage needs over the devices that it has. A module's
	// pipelines have one stage each, and list the devices in the order of Workers. Sum by device.
	moduleCounts, plannedShare := make([]int, len(shared.Devices)), make([]float64, len(shared.Devices))
	for module := range g.Modules {
		deployed, seenDevices := &plan.Deployment[module], map[int32]bool{}
		for pipeline := range deployed.Pipelines {
			stage := &deployed.Pipelines[pipeline].Stages[0]
			for _, device := range shared.DevicesOf(shared.Pipelines[shared.Services[module].FirstPipeline+int32(pipeline)].FirstStage) {
				path := fmt.Sprintf("deployment[%d].pipelines[%d].stages[0].placement", module, pipeline)
				if seenDevices[device] {
					return &document.Error{Path: path, Found: fmt.Sprintf("device %d of %s a second time", shared.Devices[device].GPU, stage.Device), Expected: "each device once for every model"}
				}
				seenDevices[device] = true
				share := stage.GPUs / float64(stage.Replicas)
				g.Modules[module].DeviceShares = append(g.Modules[module].DeviceShares, share)
				moduleCounts[device]++
				plannedShare[device] += share
			}
		}
	}

	// Scale the shares of a device so that their sum is 1.
	for module := range g.Modules {
		for i, device := range g.Modules[module].Workers {
			share := &g.Modules[module].DeviceShares[i]
			switch {
			case moduleCounts[device] == 1:
				*share = 1
			case formats.FlowOf(plan).Scaling != nil:
				return &document.Error{Path: "flow.scaling", Found: "modules that take turns on devices", Expected: "devices of its own for every module"}
			case !(*share > 0):
				return &document.Error{Path: fmt.Sprintf("deployment[%d].pipelines", module), Found: fmt.Sprintf("gpus %v on a device that modules share", *share), Expected: "a part of its time above 0"}
			default:
				*share /= plannedShare[device]
			}
		}
	}
	return nil
}

// compileApplication returns an application of a plan as a graph: a node for each module, with the edges from its
// predecessors and the outcomes (branches) that lead to them. serviceOf has the services by model. path is the field
// of the plan that errors name.
func compileApplication(modules []formats.Module, serviceOf map[string]int32, path string) (Application, error) {
	nodeOf, app := map[string]int32{}, Application{}

	// Nodes, by name.
	for i := range modules {
		module := &modules[i]
		service, ok := serviceOf[module.Model]
		if _, isDuplicate := nodeOf[module.Name]; isDuplicate || !ok {
			return Application{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d]", path, i), Found: fmt.Sprintf("the module %q of model %q", module.Name, module.Model), Expected: "a module of another name, of a deployed model"}
		}
		nodeOf[module.Name] = int32(i)
		app.Nodes = append(app.Nodes, Node{Name: module.Name, Service: service})
	}

	// Edges and outcomes. An edge whose target is in no branch of the node before has outcome -1: every request follows it.
	for i := range modules {
		for k, name := range modules[i].Predecessors {
			source, ok := nodeOf[name]
			if !ok {
				return Application{}, &document.Error{Path: fmt.Sprintf("%s.modules[%d].after[%d]", path, i, k), Found: strconv.Quote(name), Expected: "a module of the application"}
			}
			outcome := slices.IndexFunc(modules[source].Branches, func(b formats.Branch) bool { return slices.Contains(b.Targets, modules[i].Name) })
			edge := Edge{From: source, To: int32(i), Outcome: int32(outcome)}
			app.Nodes[i].Inputs = append(app.Nodes[i].Inputs, edge)
			app.Nodes[source].Outputs = append(app.Nodes[source].Outputs, edge)
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

// orderNodes puts the nodes (steps of the graph) into an order with inputs first (Order), lists the paths from each to
// the ends (Paths, the nodes behind it), and computes the chance that a request reaches it and whether that is certain.
// It returns an error, which names the field path, for a cycle or for more than MaxPaths paths.
func (app *Application) orderNodes(path string) error {
	// Order the nodes, inputs first.
	isOrdered := make([]bool, len(app.Nodes))
	for progress := true; progress; {
		progress = false
		for i := range app.Nodes {
			if !isOrdered[i] && !slices.ContainsFunc(app.Nodes[i].Inputs, func(edge Edge) bool { return !isOrdered[edge.From] }) {
				isOrdered[i], progress = true, true
				app.Order = append(app.Order, int32(i))
			}
		}
	}
	if len(app.Order) < len(app.Nodes) || len(app.Nodes) == 0 {
		return &document.Error{Path: path + ".modules", Found: "modules that wait for themselves", Expected: "a graph without cycles"}
	}

	// Paths, from the ends on.
	for _, i := range slices.Backward(app.Order) {
		node := &app.Nodes[i]
		for _, edge := range node.Outputs {
			for _, rest := range app.Nodes[edge.To].Paths {
				node.Paths = append(node.Paths, append([]int32{edge.To}, rest...))
			}
		}
		if len(node.Outputs) == 0 {
			node.Paths = [][]int32{{}}
		}
		if len(node.Paths) > MaxPaths {
			return &document.Error{Path: path + ".modules", Found: fmt.Sprintf("%d ways from %s to the end", len(node.Paths), node.Name), Expected: fmt.Sprintf("at most %d", MaxPaths)}
		}
	}

	// Chances, from the entry on. A node with several inputs is reached with the sum of their chances, at most 1.
	for _, i := range app.Order {
		node := &app.Nodes[i]
		node.AlwaysReached = i == 0
		for _, edge := range node.Inputs {
			source := &app.Nodes[edge.From]
			node.AlwaysReached = node.AlwaysReached || source.AlwaysReached && edge.Outcome < 0
			if edge.Outcome < 0 {
				node.ReachChance += source.ReachChance
			} else {
				node.ReachChance += source.ReachChance * source.OutcomeChances[edge.Outcome]
			}
		}
		node.ReachChance = min(1, node.ReachChance)
		if node.AlwaysReached { // also the entry, which has no inputs
			node.ReachChance = 1
		}
	}
	return nil
}

// setScaling reads and checks a plan's rule by which the number of workers follows the rate: above which rate how
// many each module has. Without a rule (nil) it does nothing. It returns an error for times that are no whole seconds
// or worker counts out of range.
func (g *GraphTables) setScaling(scalingPlan *formats.FlowScaling) error {
	if scalingPlan == nil {
		return nil
	}
	scaling := &Scaling{
		Interval: scalingPlan.EveryUS.D(), Window: scalingPlan.WindowUS.D(), Hold: scalingPlan.HoldUS.D(), Lookahead: scalingPlan.LookaheadUS.D(),
		RiseSigmas: scalingPlan.RiseSigmas, MaxWorkers: scalingPlan.MaxWorkers, StartWorkers: scalingPlan.Start,
	}
	isWholeSeconds := func(span time.Duration) bool { return span >= time.Second && span%time.Second == 0 }
	if !isWholeSeconds(scaling.Interval) || !isWholeSeconds(scaling.Window) || len(scalingPlan.Table) == 0 {
		return &document.Error{Path: "flow.scaling", Found: fmt.Sprintf("every %v, window %v, %d rows", scaling.Interval, scaling.Window, len(scalingPlan.Table)), Expected: "whole seconds, and a row"}
	}
	for i := range scalingPlan.Table {
		scaling.RatesAbove = append(scaling.RatesAbove, scalingPlan.Table[i].AboveRPS)
		scaling.Workers = append(scaling.Workers, scalingPlan.Table[i].Replicas)
	}
	for _, row := range append(slices.Clone(scaling.Workers), scaling.StartWorkers) {
		for module := range g.Modules {
			if len(row) != len(g.Modules) || row[module] < 1 || row[module] > len(g.Modules[module].Workers) {
				return &document.Error{Path: "flow.scaling", Found: fmt.Sprintf("replicas %v", row), Expected: "1 to the replicas of the deployment, for every module"}
			}
		}
	}
	g.Scaling = scaling
	return nil
}

// setLoads sets in the shared tables the times of loads, by kind of device, from the host's memory and from disk: both
// are the module's cold start. It also removes networks from the devices that do not hold them at the start: with
// scaling only the first StartWorkers devices of a module do.
func (g *GraphTables) setLoads(shared *policy.Tables) {
	for module := range g.Modules {
		network := shared.Pipelines[shared.Services[module].FirstPipeline].Network

		// The network of a module loads in the module's cold start on every kind.
		loadTimes := make([][2]time.Duration, len(shared.Kinds))
		for kind := range loadTimes {
			loadTimes[kind] = [2]time.Duration{g.Modules[module].ColdStart, g.Modules[module].ColdStart}
		}
		shared.Networks[network].LoadTimes = loadTimes

		// With scaling, only the first workers hold it at the start.
		if g.Scaling == nil {
			continue
		}
		for worker, device := range g.Modules[module].Workers {
			if worker >= g.Scaling.StartWorkers[module] {
				shared.Resident[device] = slices.DeleteFunc(slices.Clone(shared.Resident[device]), func(resident int32) bool { return resident == network })
			}
		}
	}
}
