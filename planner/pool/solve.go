package pool

import (
	"context"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

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
	// Progress is called from the solving goroutine; it must return soon.
	Progress func(Progress)
}

// Progress is the state of a solve. Values are in requests/s per weight, or prices.
type Progress struct {
	Phase        string
	Value, Bound float64 // NaN while unknown
	Detail       string
}

// Phase records the work of one phase.
type Phase = kind.Phase

// Outcome is the best plan found, with its proof.
type Outcome struct {
	Pipelines []Pipeline // by model, then by falling rate
	RPS       []float64  // by model
	Value     float64    // of the objective: requests/s per weight, or a price
	Bound     float64    // proven: no plan has a better value
	StoppedBy milp.StoppedBy
	Templates int // possible pipelines that no other one dominates
	Phases    []Phase
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

// Solve plans for the most throughput: the largest least rps / weight of all models, and then, at that value,
// the largest weighted sum of rps. If ctx ends after a plan was found, it returns that plan, with StoppedBy set
// to the interruption.
func Solve(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	return solveAtFloors(p, func(p *Problem) (*Outcome, error) { return solveThroughput(ctx, p, s, o) })
}

// solveThroughput searches for the plan of the most throughput, places it and returns it with its bound. It
// takes the floors (the least rates asked for) as they are: its caller allows for a tolerance.
func solveThroughput(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	x, err := newSearch(ctx, p, s, o, maxThroughputGoal{})
	if err != nil {
		return nil, err
	}
	maxChoices := 1
	if slices.Contains(x.catalogue.tightMemory(indexesBelow(len(x.catalogue.templates))), true) {
		// The relaxation orders the wait choices without regard to memory, so several are tried.
		maxChoices = maxCandidates * x.options.Effort
	}

	// Solve again if the plan moves more whole devices than asked.
	for {
		if err := x.planChoices(ctx, maxChoices); err != nil {
			return nil, err
		}
		if err := x.requirePlan(ctx); err != nil {
			return nil, err
		}
		if !o.NoPolish {
			if err := polishPlan(ctx, x); err != nil {
				return nil, err
			}
		}
		outcome, err := writeOutcome(ctx, x)
		if err != nil || !movedTooMuch(ctx, x, outcome.MovedDevices) {
			return outcome, err
		}
	}
}

// writeOutcome places the best plan on devices and returns the outcome with its bound and, unless the plan is
// only wanted quickly, what limits it.
func writeOutcome(ctx context.Context, search *planSearch) (*Outcome, error) {
	plan, placement, warnings := search.catalogue.placePlan(search.incumbent.plan, search.replan.heldContents())
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: no replica can be left out to make %d pipelines fit", len(search.incumbent.plan.pipelines))
	}
	// A replica that found no place was left out, so the proof is not of this plan.
	if plan.value < search.incumbent.plan.value && search.stoppedBy == milp.StoppedByProof {
		search.stoppedBy = milp.StoppedByWork
	}
	search.incumbent.plan = plan
	written := search.outcome
	written.Warnings = warnings
	written.RPS, written.Value = plan.modelRPS, plan.value
	written.Bound = max(search.catalogue.unitsToRate(search.provenBound()), plan.value)
	written.StoppedBy = search.stoppedBy
	written.Pipelines = search.catalogue.placedPipelines(plan, placement)
	if search.replan != nil {
		written.MovedDevices = search.replan.countLoading(written.Pipelines)
	}
	if !search.options.NoPolish {
		written.Limits = findLimits(ctx, search)
	}
	if ctx.Err() != nil {
		// The proof was complete before the interruption, but what came after it was cut short.
		written.StoppedBy = milp.StoppedByInterrupt
	}
	return written, nil
}
