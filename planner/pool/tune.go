package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// autoMargins are the shares of the SLO that are tried. PPipe fixes 0.4
// (0.1 in its ablation); queueing and jitter ask for more or less, by the
// arrivals, the batches and the number of devices.
var autoMargins = []float64{0.4, 0.3, 0.2, 0.1, 0.5}

// tune chooses the margin, and a cap on the batch size, by what simulation
// certifies: it plans at every margin of a small grid, simulates each plan on
// the workload's arrivals, and takes the plan of the highest certified rate; at
// its margin it then halves the largest batch as long as that helps. All
// simulations use the same seeds, so plans are compared on the same arrivals.
// With an objective that shrinks, the best plan is the least one that is
// certified to carry the floors. The plan is certified, and says what was tried.
//
// When ctx ends, the best plan so far is returned.
func tune(ctx context.Context, p *kind.Problem, cert kind.Asked, solve kind.Solver) (*kind.Result, error) {
	a := &tuning{p: p, cert: cert, solve: solve}
	var first error
	for _, m := range autoMargins {
		v := p.Values
		if err := v.Set("margin", m); err != nil {
			return nil, err
		}
		err := a.try(ctx, v)
		a.step++
		var inf *kind.InfeasibleError
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
	if err := a.smallerBatches(ctx); err != nil {
		return nil, err
	}
	res := a.best.res
	if ctx.Err() != nil {
		res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.Status(milp.StoppedByInterrupt)
		res.Plan.StoppedBy = res.StoppedBy
	}
	res.WallMS = a.wall
	res.Plan.Assumptions = append(res.Plan.Assumptions, a.tried())
	return res, nil
}

// smallerBatches halves the largest batch of the best plan as long as that helps.
func (a *tuning) smallerBatches(ctx context.Context) error {
	for ctx.Err() == nil {
		largest := 0
		for _, m := range a.best.res.Plan.Deployment {
			for _, p := range m.Pipelines {
				largest = max(largest, p.Batch)
			}
		}
		if largest < 2 {
			break
		}
		before, v := a.best, a.best.values
		if err := v.Set("max-batch", largest/2); err != nil {
			return err
		}
		err := a.try(ctx, v)
		a.step++
		var inf *kind.InfeasibleError
		if err != nil && !errors.As(err, &inf) && ctx.Err() == nil {
			return err
		}
		if a.best == before {
			break
		}
	}
	return nil
}

// tuning is a search for the margin.
type tuning struct {
	p     *kind.Problem
	cert  kind.Asked
	solve kind.Solver
	step  int
	best  *attempt
	all   []attempt
	wall  float64
}

// attempt is a plan with what simulation certified.
type attempt struct {
	values formats.Values
	res    *kind.Result
	load   float64 // certified load factor
	rate   float64 // certified rps per weight, the least over models
	// floors tells that every model's certified rate is at least its floor.
	floors bool
}

func (a *tuning) try(ctx context.Context, v formats.Values) error {
	what := a.name(v, "margin %.2g", ", batch up to %d")
	steps := len(autoMargins) + 2
	progress := func(u kind.Progress) {
		if a.p.Progress != nil {
			u.Fraction = (min(float64(a.step), float64(steps-1)) + u.Fraction) / float64(steps)
			a.p.Progress(u)
		}
	}
	res, err := a.solve(ctx, v, func(u kind.Progress) {
		u.Phase = what + ": " + u.Phase
		u.Fraction /= 2
		progress(u)
	})
	if err != nil {
		return err
	}
	a.wall += res.WallMS
	progress(kind.Progress{Phase: what + ": simulating", Fraction: 0.5, Value: math.NaN(), Bound: math.NaN()})
	if err := Certify(ctx, res.Plan, a.cert); err != nil {
		if ctx.Err() == nil {
			return err
		}
		if a.best == nil { // better an uncertified plan than none
			a.best = &attempt{values: v, res: res}
		}
		return nil
	}
	t := attempt{values: v, res: res, load: res.Plan.Certified.LoadFactor}
	t.rate, t.floors = math.Inf(1), true
	for i, m := range res.Plan.Certified.Models {
		weight := res.Plan.Promised(i).Weight
		t.rate = min(t.rate, m.RPS/weight)
		floor := v.Number("min-load") * weight
		for _, w := range formats.ModelsOf(a.p.Workload) {
			if w.Key() == m.Key() {
				floor = max(floor, w.MinRPS)
			}
		}
		t.floors = t.floors && meets(m.RPS, floor)
	}
	a.all = append(a.all, t)
	if a.best == nil || a.compare(&t, a.best) > 0 {
		a.best = &t
	}
	return nil
}

// compare is above 0 where s is the better one.
func (a *tuning) compare(s, t *attempt) int {
	if o := choicesOf(a.p.Values); o.sense() == milp.Maximize {
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
func (a *tuning) tried() string {
	list := slices.Clone(a.all)
	slices.SortStableFunc(list, func(s, t attempt) int {
		return cmp.Or(cmp.Compare(s.values.Number("margin"), t.values.Number("margin")), cmp.Compare(t.values.Whole("max-batch"), s.values.Whole("max-batch")))
	})
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%s certifies %.6g", a.name(t.values, "%.2g", " with batches up to %d"), t.rate))
	}
	return a.name(a.best.values, "margin %.2g", " and batches up to %d") + " chosen by simulation (rps per weight): " + strings.Join(parts, ", ")
}

// name says what values are tried: the margin, and the largest batch where it is not
// the one that was asked for.
func (a *tuning) name(v formats.Values, margin, batch string) string {
	s := fmt.Sprintf(margin, v.Number("margin"))
	if n := v.Whole("max-batch"); n != a.p.Values.Whole("max-batch") {
		s += fmt.Sprintf(batch, n)
	}
	return s
}
