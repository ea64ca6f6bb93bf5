package pool

import (
	"cmp"
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
	if slices.Contains(p.tightMemory(x.templates, all(len(x.templates))), true) {
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
		if err := x.fewestMoves(ctx); err != nil {
			return nil, err
		}
		if err := x.largestSum(ctx); err != nil {
			return nil, err
		}
		if err := x.leastLatency(ctx); err != nil {
			return nil, err
		}
		x.shorten(ctx)
		out, err := x.finish(ctx)
		if err != nil || !x.movedTooMuch(ctx, out.Moved) {
			return out, err
		}
	}
}

// largestSum looks, among the plans of the best objective, for the one with the
// largest weighted sum of rates, so that no model is left with needless slack.
func (x *search) largestSum(ctx context.Context) error {
	if len(x.p.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	set := x.pick(x.ranked(), x.lp.used, x.perModel())
	for _, c := range x.best.list {
		set = append(set, c.template)
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := x.p.mip(x.u, x.templates, set, x.value(), x.value()*(1-sameValue))
	if x.partial || x.stay != nil {
		q.pin(x.best) // the plan stays as it is: only what it leaves idle is looked at
	}
	if x.stay != nil {
		x.limitMoves(q, x.moved(x.best))
	}
	return x.mostSum(ctx, q, 1e-3, sumNodes)
}

// sumOver looks, among the plans of the best objective that use a set of
// templates, for the one with the largest weighted sum of rates.
func (x *search) sumOver(ctx context.Context, set []int, gap float64, nodes int64) error {
	if len(x.p.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	return x.mostSum(ctx, x.p.mip(x.u, x.templates, set, x.value(), x.value()*(1-sameValue)), gap, nodes)
}

// mostSum solves a program for the largest weighted sum of rates, and keeps a plan
// that has a larger one than the best plan at its objective.
func (x *search) mostSum(ctx context.Context, q *mipModel, gap float64, nodes int64) error {
	q.m.SetObj(q.theta, 0)
	parts, _ := x.sumTerms(q)
	for _, t := range parts {
		q.m.SetObj(t.Var, t.Coef)
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{
		Gap: gap, MaxNodes: nodes * int64(x.o.Effort), MaxIterations: nodes * iterationsPer * int64(x.o.Effort),
		Seed: x.o.Seed, Start: x.start(q, x.best),
	})
	if err != nil {
		return fmt.Errorf("solving for the largest weighted sum: %w", err)
	}
	if sol.Feasible() {
		if c := q.read(x.p, x.u, x.templates, sol); c != nil && c.value >= x.best.value*(1-1e-12) && c.sum > x.best.sum && x.placeable(c) && x.movesLittle(c) {
			x.best = c
		}
	}
	x.phase("weighted sum", len(q.set), sol.Stats)
	return nil
}

// sumTerms is the weighted sum of rates as terms of a program, in parts of what
// one unit of every model's rate gives.
func (x *search) sumTerms(q *mipModel) (parts []milp.Term, total float64) {
	for d := range x.p.Models {
		total += x.p.Models[d].Weight * x.u.rps[d]
	}
	for i, ti := range q.set {
		d := x.templates[ti].Model
		parts = append(parts, milp.Term{Var: q.x[i], Coef: x.p.Models[d].Weight * x.u.rps[d] / total})
	}
	return parts, total
}

// finish places the plan and writes the outcome.
func (x *search) finish(ctx context.Context) (*Outcome, error) {
	plan, where, warnings := x.p.place(x.templates, x.best, x.stay.devices())
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
	o.Bound = max(x.theta(x.bound()), plan.value)
	o.StoppedBy = x.stopped
	o.Pipelines = x.p.pipelines(x.templates, plan, where)
	if x.stay != nil {
		o.Moved = x.p.moves(x.stay.running, o.Pipelines)
	}
	o.Limits = x.limits(ctx)
	if ctx.Err() != nil {
		// Whatever was proved before, what came after was cut short.
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}

// pipelines writes out a placed plan.
func (p *Problem) pipelines(templates []stages.Template, plan *counts, where placed) []Pipeline {
	var out []Pipeline
	for ci, c := range plan.list {
		t := &templates[c.template]
		pl := Pipeline{Template: *t, RPS: c.rps, Replicas: slices.Clone(c.replicas), Placed: where[ci]}
		for si := range t.Stages {
			s := &t.Stages[si]
			if p.Pools[s.Pool].Time {
				pl.Replicas[si] = p.Pools[s.Pool].Count
				pl.Devices = append(pl.Devices, c.rps/s.Rate)
				continue
			}
			pl.Devices = append(pl.Devices, float64(c.replicas[si])/float64(s.Share))
		}
		out = append(out, pl)
	}
	slices.SortStableFunc(out, func(a, b Pipeline) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.RPS, a.RPS))
	})
	return out
}
