package gear

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
)

// A plan is a set of cascades that pass trials, one per range, so trials can also rule better plans out. For every
// placement and range the most accurate cascade that the devices have time for is tried. If it fails, the next one
// bounds the range. So the bound of a placement falls trial by trial, until it is not above the plan, or until all
// ranges have passed, and then the placement has a better plan. The placement with the highest bound is always
// next (best first). If the search stops early, the bound of the next placement is still a bound.
//
// It bounds the plans that this planner accepts, by the streams of its trials and the splits that it tries. It
// does not bound what devices can do.

// maxProofRequests limits the simulated requests of all proofs of a solve.
const provingRequests = 4_000_000

// candidatePlacements are placements that may have a better plan than the present one.
type rivals struct {
	list []*rival
	rest float64 // bound of the placements that are not candidates
	left *int    // number of requests that may still be simulated; nil if no proof is wanted
}

// candidatePlacement is a placement whose ranges are tried one by one.
type rival struct {
	*laid
	design *design   // nil until a range is tried
	at     []int     // by range: index, in the order by accuracy, of the most accurate cascade that is not ruled out
	gears  []*passed // by range: that cascade, if it has passed; nil before it is tried
	most   float64   // weighted accuracy that the ranges reach at most; below 0 if a range has no cascade
}

// passedCascade is a cascade that passed its trial.
type passed struct {
	stair *stair
	trial Trial
}

// add adds the placements that serve all ranges. They are sorted, the best first. If there are as many as were
// requested, others may follow that are as good as the last one.
func (l *rivals) add(top []*laid, most int) {
	for _, c := range top {
		x := c.l.x
		if len(c.ranges) < len(x.p.Edges) {
			return
		}
		v := &rival{laid: c, gears: make([]*passed, len(c.ranges)), most: c.accuracy}
		for _, a := range c.ranges {
			at, _ := slices.BinarySearchFunc(x.order, a, func(i int, a float64) int {
				return cmp.Or(cmp.Compare(a, accuracyOn(x.p, &x.list[i])), 1)
			})
			v.at = append(v.at, at)
		}
		l.list = append(l.list, v)
	}
	if len(top) == most {
		l.rest = max(l.rest, top[most-1].accuracy)
	}
}

// maxRangeAccuracy returns the accuracy that a range has at most.
func (v *rival) accuracyOf(r int) float64 {
	x := v.l.x
	return accuracyOn(x.p, &x.list[x.order[v.at[r]]])
}

// mostPromisingRange returns the range without a trial that may add the most accuracy to a plan. If all ranges
// were tried, it returns -1.
func (v *rival) doubtful(plan *Outcome) int {
	best, most := -1, math.Inf(-1)
	for r := range v.at {
		adds := v.accuracyOf(r)
		if plan != nil {
			adds -= plan.Gears[r].Accuracy
		}
		if adds *= v.l.x.p.Weights[r]; v.gears[r] == nil && adds > most {
			best, most = r, adds
		}
	}
	return best
}

// tryNext tries the next cascade of range r. If the devices have no time for it, or it fails, the bound of the
// range falls to the cascade after it. It returns the number of simulated requests.
func (v *rival) tryNext(ctx context.Context, r int, o *Options) (simulated int, err error) {
	if v.design == nil {
		v.design = v.l.design(o, v.ranges)
	}
	x, before := v.l.x, v.design.bench.simulated

	// Try the cascade.
	i, edge := x.order[v.at[r]], x.p.Edges[r]
	fits, err := v.l.fits(ctx, i, edge)
	if err == nil && fits {
		v.gears[r], err = v.try(ctx, i, edge)
	}
	if err != nil {
		return 0, err
	}

	// It failed: lower the bound.
	if v.gears[r] == nil {
		v.at[r]++
		v.most = -1
		if v.at[r] < len(x.order) {
			v.most = 0
			for r := range v.at {
				v.most += x.p.Weights[r] * v.accuracyOf(r)
			}
		}
	}
	return v.design.bench.simulated - before, nil
}

// tryCascade tries a cascade at a rate. If it fails, the result is nil.
func (v *rival) try(ctx context.Context, i int, rate float64) (*passed, error) {
	s, err := v.design.stair(ctx, i)
	if err != nil {
		return nil, err
	}
	trial, err := v.design.try(ctx, i, s, rate)
	if err != nil || !trial.Passed {
		return nil, err
	}
	return &passed{s, trial}, nil
}

// plan returns the plan of a placement whose ranges have all passed.
func (v *rival) outcome() *Outcome {
	p := v.l.x.p
	out := &Outcome{Problem: p, Configs: v.l.configs, design: v.design}
	for r, g := range v.gears {
		out.Gears = append(out.Gears, gearOf(p, g.stair, p.Edges[r], g.trial))
		out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
	}
	return out
}

// findBetterPlan looks for a plan that is better than the present one by nextPlacementGain or, without one, that
// reaches the target. It also returns a bound of all plans on these placements, as far as the trials went.
func (l *rivals) better(ctx context.Context, plan *Outcome, target float64, o *Options) (best *Outcome, bound float64, err error) {
	above := target - sumsRound
	if plan != nil {
		above = plan.Accuracy + considerable
	}
	for {
		// Stop if no placement can be better, or no requests are left.
		v := l.first()
		switch {
		case v == nil:
			return nil, l.rest, nil
		case v.most < above || *l.left <= 0:
			return nil, max(l.rest, v.most), nil
		}

		// Try the most promising range of the most promising placement.
		r := v.doubtful(plan)
		if r < 0 {
			return v.outcome(), max(l.rest, v.most), nil
		}
		n, err := v.tryNext(ctx, r, o)
		if err != nil {
			return nil, 0, err
		}
		*l.left -= n
	}
}

// mostPromising returns the placement with the highest bound, or nil if there are none.
func (l *rivals) first() (first *rival) {
	for _, v := range l.list {
		if first == nil || v.most > first.most {
			first = v
		}
	}
	return first
}

// settleByTrials continues the search by trials of single ranges. It may find a better plan, or one that reaches
// the target if there was none. It sets the bound of plans that pass trials. If there is no plan, the error
// records whether trials rule one out.
func (t *tries) settle(ctx context.Context, l *rivals) error {
	if l.left == nil || !t.wholeOnly || t.p.Overall || t.best != nil && t.p.Target > 0 || math.IsInf(l.rest, 1) {
		return nil
	}
	best, bound, err := l.better(ctx, t.best, t.p.Target, t.o)
	if err != nil {
		return err
	}
	for _, v := range l.list {
		if v.design != nil {
			t.runs += v.design.bench.runs
		}
	}
	if best != nil {
		t.best = best
	}
	t.tried = bound
	if inf, ok := errors.AsType[*Infeasible](t.missing); ok && t.best == nil {
		inf.Tried = t.p.misses(bound)
	}
	return nil
}
