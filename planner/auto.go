package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/solver/milp"
)

// autoMargins are the shares of the SLO that SolveAuto tries. PPipe fixes 0.4
// (0.1 in its ablation); queueing and jitter ask for more or less, by the
// arrivals, the batches and the number of devices.
var autoMargins = []float64{0.4, 0.3, 0.2, 0.1, 0.5}

// SolveAuto chooses the margin, and a cap on the batch size, by what simulation
// certifies: it plans at every margin of a small grid, simulates each plan on
// the workload's arrivals, and takes the plan of the highest certified rate; at
// its margin it then halves the largest batch as long as that helps. All
// simulations use the same seeds, so plans are compared on the same arrivals.
// With an objective that shrinks, the best plan is the least one that is
// certified to carry the floors. The plan is certified, and says what was tried.
//
// When ctx ends, the best plan so far is returned.
func SolveAuto(ctx context.Context, in Inputs, opt Options, cert CertifyOptions, solver milp.Solver, progress func(Progress)) (*Result, error) {
	if in.Workload != nil && in.Workload.Cascade != nil || opt.Method == MethodGear {
		return nil, optionsError("margin", "auto", "a share of the SLO: auto is for pooled pipelines")
	}
	a := &auto{in: in, opt: opt, cert: cert, solver: solver}
	steps := len(autoMargins) + 2
	step := 0
	tell := func(u Progress) {
		if progress != nil {
			u.Fraction = (min(float64(step), float64(steps-1)) + u.Fraction) / float64(steps)
			progress(u)
		}
	}
	var first error
	for _, m := range autoMargins {
		o := opt
		o.Margin = m
		err := a.try(ctx, o, tell)
		step++
		var inf *InfeasibleError
		switch {
		case errors.As(err, &inf):
			// A smaller margin leaves more of the SLO: the last word is the least one's.
			if first == nil || m < 0.4 {
				first = err
			}
		case err != nil && (a.best == nil || ctx.Err() == nil):
			return nil, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if a.best == nil {
		return nil, first
	}
	for ctx.Err() == nil {
		o := a.best.opt
		largest := 0
		for _, m := range a.best.res.Plan.Models {
			for _, p := range m.Pipelines {
				largest = max(largest, p.Batch)
			}
		}
		if largest < 2 {
			break
		}
		before := a.best
		o.MaxBatch = largest / 2
		err := a.try(ctx, o, tell)
		step++
		var inf *InfeasibleError
		if err != nil && !errors.As(err, &inf) && ctx.Err() == nil {
			return nil, err
		}
		if a.best == before {
			break
		}
	}
	res := a.best.res
	if ctx.Err() != nil {
		res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), status(milp.StoppedByInterrupt)
		res.Plan.StoppedBy = res.StoppedBy
	}
	res.WallMS = a.wall
	res.Plan.Assumptions = append(res.Plan.Assumptions, a.tried())
	return res, nil
}

// auto is a search for the margin.
type auto struct {
	in     Inputs
	opt    Options
	cert   CertifyOptions
	solver milp.Solver
	best   *attempt
	all    []attempt
	wall   float64
}

// attempt is a plan with what simulation certified.
type attempt struct {
	opt  Options
	res  *Result
	load float64 // certified load factor
	rate float64 // certified rps per weight, the least over models
	// floors tells that every model's certified rate is at least its floor.
	floors bool
}

func (a *auto) try(ctx context.Context, o Options, progress func(Progress)) error {
	what := fmt.Sprintf("margin %.2g", o.Margin)
	if o.MaxBatch != a.opt.MaxBatch {
		what += fmt.Sprintf(", batch up to %d", o.MaxBatch)
	}
	res, err := Solve(ctx, a.in, o, a.solver, func(u Progress) {
		u.Phase = what + ": " + u.Phase
		u.Fraction /= 2
		progress(u)
	})
	if err != nil {
		return err
	}
	a.wall += res.WallMS
	progress(Progress{Phase: what + ": simulating", Fraction: 0.5, Value: math.NaN(), Bound: math.NaN()})
	if err := Certify(ctx, res.Plan, a.cert); err != nil {
		if ctx.Err() == nil {
			return err
		}
		if a.best == nil { // better an uncertified plan than none
			a.best = &attempt{opt: o, res: res}
		}
		return nil
	}
	t := attempt{opt: o, res: res, load: res.Plan.Certified.LoadFactor}
	t.rate, t.floors = math.Inf(1), true
	for i, m := range res.Plan.Certified.Models {
		weight := res.Plan.Models[i].Weight
		t.rate = min(t.rate, m.RPS/weight)
		floor := o.MinLoad * weight
		for _, w := range a.in.Workload.Models {
			if w.Key() == m.Key() {
				floor = max(floor, w.MinRPS)
			}
		}
		t.floors = t.floors && m.RPS >= floor*(1-1e-6)
	}
	a.all = append(a.all, t)
	if a.best == nil || a.compare(&t, a.best) > 0 {
		a.best = &t
	}
	return nil
}

// compare is above 0 where s is the better one.
func (a *auto) compare(s, t *attempt) int {
	if a.opt.sense() == milp.Maximize {
		return cmp.Compare(s.rate, t.rate)
	}
	// First to carry the floors, then the least of what is paid.
	switch {
	case s.floors != t.floors && s.floors:
		return 1
	case s.floors != t.floors:
		return -1
	case s.floors:
		return cmp.Or(cmp.Compare(t.res.Plan.Objective.Value, s.res.Plan.Objective.Value), cmp.Compare(s.rate, t.rate))
	}
	return cmp.Compare(s.rate, t.rate)
}

// tried says what was tried and what came of it.
func (a *auto) tried() string {
	list := slices.Clone(a.all)
	slices.SortStableFunc(list, func(s, t attempt) int {
		return cmp.Or(cmp.Compare(s.opt.Margin, t.opt.Margin), cmp.Compare(t.opt.MaxBatch, s.opt.MaxBatch))
	})
	var parts []string
	for _, t := range list {
		s := fmt.Sprintf("%.2g", t.opt.Margin)
		if t.opt.MaxBatch != a.opt.MaxBatch {
			s += fmt.Sprintf(" with batches up to %d", t.opt.MaxBatch)
		}
		parts = append(parts, fmt.Sprintf("%s certifies %.6g", s, t.rate))
	}
	o := a.best.opt
	s := fmt.Sprintf("margin %.2g", o.Margin)
	if o.MaxBatch != a.opt.MaxBatch {
		s += fmt.Sprintf(" and batches up to %d", o.MaxBatch)
	}
	return s + " chosen by simulation (rps per weight): " + strings.Join(parts, ", ")
}

// MarginAuto is the value of --margin that asks for SolveAuto.
const MarginAuto = "auto"
