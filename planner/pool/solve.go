package pool

import (
	"context"
	"fmt"
	"slices"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Options steer a solve.
type Options struct {
	Gap    float64 // relative gap at which to stop
	Effort int     // multiplies the work limits; 1 is the default
	Seed   int32
	// Any asks for a plan that is good enough by the objective: nothing is polished.
	// Untold asks only whether there is one: that there is none is not explained.
	Any, Untold bool
	// Hurry leaves out what takes long and mostly proves.
	Hurry bool
	// Enough is a throughput, in requests/s per weight, of which more is not looked
	// for; 0: the most. Untold, the search ends where so much is proven to be impossible.
	Enough float64
	// Least is a throughput below which a plan is of no use: the search ends where none
	// can have so much. 0: none.
	Least float64
	// Running is a plan that runs; most of it is to go on where it is.
	Running *Running
	// Progress is called from the solving goroutine; it must return soon.
	Progress func(Progress)
}

// Progress is the state of a solve: values are in requests/s per weight.
type Progress struct {
	Phase        string
	Value, Bound float64 // NaN while unknown
	Incumbent    bool    // Value has just improved
	Detail       string
}

// Phase is the work of one phase.
type Phase = kind.Phase

// Outcome is the best plan found, with its proof.
type Outcome struct {
	Pipelines []Pipeline // by model, then by falling rate
	RPS       []float64  // per model
	Value     float64
	Bound     float64
	StoppedBy milp.StoppedBy
	Templates int // possible pipelines, less the dominated ones
	Phases    []Phase
	Limits    []Limit
	// Exempt are the models whose pipelines may wait longer on a time-shared
	// pool than their SLO allows.
	Exempt   []int
	Warnings []string
	Moved    int // devices that have to load something, where a plan runs already
}

// Pipeline is a chosen template.
type Pipeline struct {
	stages.Template
	RPS      float64
	Replicas []int
	Devices  []float64 // per stage: replicas/share, or the share of the pool's time
	Placed   [][]Run
}

// Solve plans for throughput: max min over models of rps / weight, and then,
// at that value, the largest weighted sum of rps. When ctx ends after a plan
// was found, it returns that plan; StoppedBy tells.
func Solve(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	return atFloors(p, func(p *Problem) (*Outcome, error) { return mostThroughput(ctx, p, s, o) })
}

// mostThroughput is Solve for floors as they are.
func mostThroughput(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	x, err := newSearch(ctx, p, s, o, throughput{})
	if err != nil {
		return nil, err
	}
	most := 1
	if slices.Contains(x.tightMemory(all(len(x.templates))), true) {
		// The relaxation, which orders the choices, knows no memory.
		most = maxCandidates * x.o.Effort
	}
	for {
		if err := x.each(ctx, most); err != nil {
			return nil, err
		}
		if err := x.served(ctx); err != nil {
			return nil, err
		}
		if !o.Any {
			if err := (&polish{x}).all(ctx); err != nil {
				return nil, err
			}
		}
		out, err := x.finish(ctx)
		if err != nil || !x.movedTooMuch(ctx, out.Moved) {
			return out, err
		}
	}
}

// finish places the plan and writes the outcome.
func (x *search) finish(ctx context.Context) (*Outcome, error) {
	plan, where, warnings := x.place(x.best, x.stay.holds())
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: no replica can be left out to make %d pipelines fit", len(x.best.list))
	}
	if plan.value < x.best.value && x.stopped == milp.StoppedByProof {
		x.stopped = milp.StoppedByWork
	}
	x.best = plan
	o := x.out
	o.Warnings = warnings
	o.RPS, o.Value = plan.rps, plan.value
	o.Bound = max(x.theta(x.proven()), plan.value)
	o.StoppedBy = x.stopped
	o.Pipelines = x.pipelines(plan, where)
	if x.stay != nil {
		o.Moved = x.stay.loads(o.Pipelines)
	}
	if !x.o.Any {
		o.Limits = x.sensitivity(ctx)
	}
	if ctx.Err() != nil {
		// Whatever was proved before, what came after was cut short.
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}
