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

// Services returns the services that may run a task of the step: its only one, or its routes.
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

// WorkflowTablesOf returns the tables of a plan of workflows, by the plan's shared tables. For other plans it returns nil.
func WorkflowTablesOf(shared *policy.Tables) *WorkflowTables {
	tables, _ := shared.KindTables.(*WorkflowTables)
	return tables
}

// OutputTransferTime returns how long the output of a service's task takes from one device to another: the plan's time
// within a node, or between nodes. On the same device, or without a plan of workflows (nil), it returns 0.
func (workflows *WorkflowTables) OutputTransferTime(shared *policy.Tables, service, from, to int32) time.Duration {
	switch {
	case from == to || workflows == nil || int(service) >= len(workflows.TransferTimes):
		return 0
	case shared.Devices[from].Node == shared.Devices[to].Node:
		return workflows.TransferTimes[service].SameNode
	}
	return workflows.TransferTimes[service].OtherNode
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

// compileWorkflows reads the workflows of a plan into its tables (shared). policy.Compile made these with a model and a
// service for each module of the plan (a model that is deployed), in the same order. The services stay: they are what
// tasks ask for. The models are replaced by the applications, which are what clients ask for. What only workflows have
// is put into shared.KindTables.
func compileWorkflows(plan *formats.Plan, flowPlan *formats.FlowPlan, shared *policy.Tables) error {
	// Read what the plan says of each module: service i is module i. A load takes the same time whether it is warm or
	// cold.
	serviceOf, names := map[string]int32{}, []string(nil)
	tables := &WorkflowTables{}
	for i := range shared.Models {
		module := &flowPlan.Modules[i]
		serviceOf[shared.Models[i].Name] = int32(i)
		names = append(names, shared.Models[i].Name)
		tables.TransferTimes = append(tables.TransferTimes, TransferTime{module.NearUS.D(), module.FarUS.D()})
		tables.SessionStates = append(tables.SessionStates, readSessionState(module.Session))
		tables.addLanguageModel(plan, module.Generation)
		network := &shared.Networks[shared.Pipelines[shared.Services[i].FirstPipeline].Network]
		network.Bytes, network.LoadTimes = module.WeightBytes, nil
		for k := range shared.Kinds {
			loadTime := module.CostOn(plan.Pools[k].Device).LoadUS.D()
			network.LoadTimes = append(network.LoadTimes, [2]time.Duration{loadTime, loadTime})
		}
	}

	// Applications become models.
	var models []policy.Model
	for i := range flowPlan.Applications {
		application, path := flowPlan.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		application.Segments = WithTokenWork(application.Segments, flowPlan.Generations())
		workflow, err := compileWorkflow(&application, serviceOf, path)
		if err != nil {
			return err
		}
		model, err := servedModel(&application, shared, path)
		if err != nil {
			return err
		}

		// Paths: recorded ones, or else drawn by the chances of the graph. recordedPaths replaces the names of models by
		// services.
		tables.Paths = append(tables.Paths, nil)
		for k := range flowPlan.Transitions {
			if flowPlan.Transitions[k].Application == application.Model {
				tables.Paths[i] = recordedPaths(&flowPlan.Transitions[k], serviceOf)
			}
		}
		if len(tables.Paths[i]) == 0 && len(workflow.Segments) > 0 {
			paths := DrawPaths(workflow, application.Model, names, DrawnRequests, plan.Seed)
			tables.Paths[i] = recordedPaths(&formats.WaysOf{Paths: paths}, serviceOf)
		}
		tables.numberGenerationSteps(workflow)
		tables.Apps = append(tables.Apps, *workflow)
		models = append(models, model)
	}

	// Applications share all pipelines: a pipeline belongs to a service, and to no model (-1). If no module is a language
	// model, the list of these is empty.
	for pipeline := range shared.Pipelines {
		shared.Pipelines[pipeline].Model = -1
	}
	if len(flowPlan.Generations()) == 0 {
		tables.LanguageModels = nil
	}
	tables.setResident(plan, flowPlan, shared)
	shared.Models, shared.KindTables = models, tables
	return nil
}

// readSessionState returns what a module keeps of a request (its session state): the bytes, and the times to
// recompute or to move it. Without one all are 0.
func readSessionState(session *formats.SessionState) SessionState {
	if session == nil {
		return SessionState{}
	}
	return SessionState{Bytes: session.Bytes, Recompute: session.RecomputeUS.D(), SameNode: session.NearUS.D(), OtherNode: session.FarUS.D()}
}

// unlimitedMemory is the memory of a device, in bytes, whose size the plan does not give: more than is ever needed.
const unlimitedMemory = 1 << 50

// setResident sets in the shared tables, for each device, the networks that it holds at the start, and its memory for
// networks in bytes: that of the pool's devices less the working memory of batches, or unlimitedMemory if the plan does
// not give the pool's.
func (workflows *WorkflowTables) setResident(plan *formats.Plan, flowPlan *formats.FlowPlan, shared *policy.Tables) {
	firstDevice := make([]int, len(plan.Pools)) // by pool: number of its first device, as the plan counts
	for i := 1; i < len(firstDevice); i++ {
		firstDevice[i] = firstDevice[i-1] + plan.Pools[i-1].Count
	}

	// Compute the working memory of batches, by pool and device.
	workingBytes := make([][]int64, len(plan.Pools))
	for k := range workingBytes {
		workingBytes[k] = flowPlan.WorkingBytesByDevice(plan.Deployment, &plan.Pools[k])
	}

	// Set the memory and the networks of each device.
	shared.Memory = make([]int64, len(shared.Devices))
	for deviceIndex := range shared.Devices {
		device := &shared.Devices[deviceIndex]
		number := firstDevice[device.Kind] + int(device.GPU)
		shared.Memory[deviceIndex] = unlimitedMemory
		if pool := &plan.Pools[device.Kind]; pool.Memory > 0 {
			shared.Memory[deviceIndex] = max(1, int64(pool.Memory)-workingBytes[device.Kind][device.GPU])
		}
		shared.Resident[deviceIndex] = nil
		for i := range flowPlan.Modules {
			if slices.Contains(flowPlan.Modules[i].Resident, number) {
				shared.Resident[deviceIndex] = append(shared.Resident[deviceIndex], shared.Pipelines[shared.Services[i].FirstPipeline].Network)
			}
		}
	}
}

// compileWorkflow returns an application of a plan as a workflow: segments (parts whose tasks are revealed together)
// with their steps, branches and conditions. serviceOf has the services by model. It returns an error, with the path of
// the field, for a condition that cannot be parsed or a model that is not deployed. In a plan the name of an
// application is its Model, because clients ask for it as for a model.
func compileWorkflow(application *formats.FlowApplication, serviceOf map[string]int32, path string) (*Workflow, error) {
	// Parse all conditions of the application. They are parsed for the type of the workload, formats.Application, and come
	// by the path of their field.
	app := &formats.Application{Name: application.Model, Parameters: application.Parameters, Segments: application.Segments}
	conditions, err := app.Conditions()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	workflow := &Workflow{}
	for i := range application.Segments {
		segment := &application.Segments[i]
		segmentRow := Segment{Name: segment.Name, Branches: segment.NextBranches, MaxVisits: int32(segment.MaxVisits)}

		// Branches behind the segment. A branch leads to one segment (formats allows no more), or to none: then the request
		// ends (-1).
		for branch := range segment.NextBranches {
			target := int32(-1)
			for _, name := range segment.NextBranches[branch].Targets {
				target = int32(slices.IndexFunc(application.Segments, func(o formats.Segment) bool { return o.Name == name }))
			}
			segmentRow.BranchTargets = append(segmentRow.BranchTargets, target)
			conditionPath := fmt.Sprintf("segments[%d].next[%d].when", i, branch)
			segmentRow.BranchConditions = append(segmentRow.BranchConditions, conditions[conditionPath])
		}

		// Its steps.
		for k := range segment.Modules {
			step, err := workflow.compileStep(conditions, app, i, k, serviceOf)
			if err != nil {
				return nil, &document.Error{Path: fmt.Sprintf("%s.segments[%d].modules[%d]", path, i, k), Found: err.Error(), Expected: "a deployed model"}
			}
			segmentRow.Steps = append(segmentRow.Steps, step)
		}
		workflow.Segments = append(workflow.Segments, segmentRow)
	}
	return workflow, nil
}

// compileStep returns a module of a segment (by their indexes) as a step: how many tasks it has, what they read, and
// which service runs them. Service is -1 if a route is chosen for each task. It returns an error if a model is not
// deployed. Names of modules become indexes of w.Names.
func (w *Workflow) compileStep(conditions formats.Conditions, application *formats.Application, segment, moduleIndex int, serviceOf map[string]int32) (Step, error) {
	module := &application.Segments[segment].Modules[moduleIndex]

	// What the module declares.
	step := Step{
		Name: w.nameIndex(module.Name), Service: -1, Work: workMillionths(module.Work),
		ItemChances: module.Chances, CountVaries: module.Items != "", FixedCount: 1, EachOf: -1, TokenSamples: module.Sample,
	}
	step.Prompt, step.Output = module.TokenLengths()

	// Conditions; a fixed number of items needs none.
	step.RouteExpression = conditions[fmt.Sprintf("segments[%d].modules[%d].route", segment, moduleIndex)]
	step.CountExpression = conditions[fmt.Sprintf("segments[%d].modules[%d].items", segment, moduleIndex)]
	if step.CountExpression != nil {
		if items, ok := step.CountExpression.ConstantItems(); ok {
			step.CountVaries, step.FixedCount, step.ItemChances = false, int32(min(items, formats.MaxTasks)), nil
		}
	}

	// What it reads, and the services that may run it.
	if module.ForEach != "" {
		step.EachOf = w.nameIndex(module.ForEach)
	}
	for _, name := range module.Predecessors {
		step.Reads = append(step.Reads, w.nameIndex(name))
	}
	for route, name := range module.Services() {
		service, ok := serviceOf[name]
		if !ok {
			return step, fmt.Errorf("the model %q", name)
		}
		if len(module.Routes) == 0 {
			step.Service = service
			break
		}
		step.Routes = append(step.Routes, service)
		step.RouteModels = append(step.RouteModels, name)
		step.RouteShares = append(step.RouteShares, module.Routes[route].Probability)
	}
	return step, nil
}

// nameIndex returns the index of a module's name in Names, and adds the name if it is new.
func (w *Workflow) nameIndex(name string) int32 {
	if i := slices.Index(w.Names, name); i >= 0 {
		return int32(i)
	}
	w.Names = append(w.Names, name)
	return int32(len(w.Names) - 1)
}

// recordedPaths returns the paths that requests took (their tasks in order), with services by number. Paths over
// models that are not deployed are left out.
func recordedPaths(recorded *formats.WaysOf, serviceOf map[string]int32) []RecordedPath {
	var out []RecordedPath
next:
	for i := range recorded.Paths {
		// Read the tasks of the path, with services by number.
		path := RecordedPath{Count: int32(recorded.Paths[i].Count), KnownTasks: int32(recorded.Paths[i].KnownTasks)}
		for k := range recorded.Paths[i].Tasks {
			recordedTask := &recorded.Paths[i].Tasks[k]
			service, ok := serviceOf[recordedTask.Model]
			if !ok {
				continue next
			}
			task := PathTask{Service: service, Work: workMillionths(recordedTask.Work)}
			for _, offset := range recordedTask.Reads {
				task.Reads = append(task.Reads, int32(offset))
			}
			path.Tasks = append(path.Tasks, task)
		}
		out = append(out, path)
	}
	return out
}
