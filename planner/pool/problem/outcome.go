package problem

import (
	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// DeviceRun puts replicas on consecutive devices of a pool: PerDevice on each device from FirstDevice on.
type DeviceRun = formats.Placement

// RunningPlan is the plan that runs.
type RunningPlan struct {
	Pipelines []RunningPipeline
	MaxMoved  float64 // part of the devices that may have to load something
}

// RunningPipeline is a pipeline that runs: of each stage its blocks, pool, share and placement. A model that is no
// longer planned for has the index -1, and so has a pool that is no longer in the cluster. Devices of a placement
// beyond the pool's count are gone.
type RunningPipeline struct {
	Pipeline
	Network string // of the blocks; it need not be a model of the problem
}

// Options control a solve.
type Options struct {
	Gap    float64 // relative gap at which to stop
	Effort int     // multiplies the work limits; 1 is the default
	Seed   int32
	// NoPolish stops at a plan that is good enough by the objective, and polishes nothing. NoDiagnosis asks only
	// whether there is a plan: if there is none, the reason is not explained.
	NoPolish, NoDiagnosis bool
	// Hurry leaves out phases that take long and mostly serve the proof.
	Hurry bool
	// EnoughRPS is a throughput in requests/s per weight at which the search stops. If it is 0, the search looks
	// for the most. With NoDiagnosis the search also ends once that throughput is proven to be impossible.
	EnoughRPS float64
	// LeastRPS is a throughput below which a plan is of no use: the search ends once none can have that much. 0 is
	// no such limit.
	LeastRPS float64
	// RunningPlan is a plan that runs. Most of it should stay where it is.
	RunningPlan *RunningPlan
	// Progress is called from the solving goroutine; it must return soon. Values are in requests/s per weight, or prices.
	Progress func(kind.Progress)
}

// PhaseRecorder notes a finished phase of a search: its name, the pipelines that took part, and the solver's work.
type PhaseRecorder func(name string, numPipelines int, stats milp.Stats)

// Outcome is the best plan found, with its proof.
type Outcome struct {
	Pipelines []Pipeline // by model, then by falling rate
	RPS       []float64  // by model
	Value     float64    // of the objective: requests/s per weight, or a price
	Bound     float64    // proven: no plan has a better value
	StoppedBy milp.StoppedBy
	Templates int // possible pipelines that no other one dominates
	Phases    []kind.Phase
	Limits    []formats.Limit
	// ExemptModels are the models whose pipelines may wait longer on a time-shared pool than their SLO allows.
	ExemptModels []int
	Warnings     []string
	MovedDevices int // devices that have to load something, if a plan runs already
}

// Pipeline is a template that was chosen, with its rate, replicas and places.
type Pipeline struct {
	stages.Template
	RPS       float64
	Replicas  []int
	Devices   []float64     // by stage: replicas/share, or the devices' worth of the pool's time
	Placement [][]DeviceRun // by stage
}

const (
	// IterationsPerNode is the number of simplex iterations per node of the branch and bound, as a second limit.
	IterationsPerNode = 60
	// HeuristicEffort is the part of the solver's work on integer programs that goes into looking for plans.
	HeuristicEffort = 0.3
)

// WorkLimits returns the solver's limits for one integer program: nodes of branch and bound, multiplied by the effort
// that the user asked for, simplex iterations in proportion, and the seed.
func (o *Options) WorkLimits(nodes int64) milp.Options {
	nodes *= int64(o.Effort)
	return milp.Options{MaxNodes: nodes, MaxIterations: nodes * IterationsPerNode, Seed: o.Seed}
}
