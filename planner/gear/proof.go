package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// A plan of one cascade per range is what trials accept, so trials can also rule better
// ones out. For every placement and range the most accurate cascade that the devices have
// the time for is tried. Where it fails, the range has the next one at most. So what a
// placement comes to at most falls trial by trial, until it is not above the plan, or until
// all of its ranges have passed: then it is the better plan. The placement that comes to
// the most is always next (best first). If the search stops early, what the next placement
// comes to is still a bound. It is one of plans that this planner accepts, by the trials of
// its seed, no bound of what devices can do.

// provingRequests is how many simulated requests the proofs of a solve take at most.
const provingRequests = 4_000_000

// rivals are placements that may make a better plan than another.
type rivals struct {
	list []*rival
	rest float64 // what placements that are not among them come to at most
	left *int    // requests that may yet be simulated; nil: no proof is asked for
}

// rival is a placement whose ranges are tried.
type rival struct {
	p     *Problem
	list  []Cascade
	order []int // of the list, the most accurate first
	make  func() *design
	*design
	at    []int     // by range: the place in the order of the most accurate one left
	gears []*passed // by range; nil: that one was not tried
	most  float64   // what the ranges come to at most, weighted; below 0: some range has none
}

// passed is a cascade that passed.
type passed struct {
	stair *stair
	trial Trial
}

// add takes up a placement whose ranges have so much at most, each of them something, of
// cascades in an order, the most accurate first.
func (l *rivals) add(p *Problem, list []Cascade, order []int, ranges []float64, make func() *design) {
	v := &rival{p: p, list: list, order: order, make: make, gears: slices.Repeat([]*passed{nil}, len(ranges)), most: p.weighted(ranges)}
	for _, most := range ranges {
		at, _ := slices.BinarySearchFunc(order, most, func(i int, most float64) int {
			return cmp.Or(cmp.Compare(most, accuracyOn(p, &list[i])), 1)
		})
		v.at = append(v.at, at)
	}
	l.list = append(l.list, v)
}

// accuracy is what a range has at most.
func (v *rival) accuracy(r int) float64 { return accuracyOn(v.p, &v.list[v.order[v.at[r]]]) }

// doubtful is the range, of those whose cascade was not tried, that adds most to what a
// plan's range has; -1: all were tried.
func (v *rival) doubtful(plan *Outcome) int {
	best, most := -1, math.Inf(-1)
	for r := range v.at {
		adds := v.accuracy(r)
		if plan != nil {
			adds -= plan.Gears[r].Accuracy
		}
		if adds *= v.p.Weights[r]; v.gears[r] == nil && adds > most {
			best, most = r, adds
		}
	}
	return best
}

// tryNext tries the cascade of a range. Where the devices have no time for it, or it
// fails, the range has the next one at most. It returns how many requests were simulated.
func (v *rival) tryNext(ctx context.Context, r int) (simulated int, err error) {
	if v.design == nil {
		v.design = v.make()
	}
	i, edge, before := v.order[v.at[r]], v.p.Edges[r], v.bench.simulated
	s := &stair{taken: v.least(i)}
	if s.taken*edge <= 1 {
		if s, err = v.design.at(ctx, i); err != nil {
			return 0, err
		}
	}
	if s.taken*edge <= 1 {
		trial, err := v.try(ctx, i, s, edge)
		if err != nil {
			return 0, err
		}
		if trial.Passed {
			v.gears[r] = &passed{s, trial}
			return v.bench.simulated - before, nil
		}
	}
	if v.at[r]++; v.at[r] == len(v.order) {
		v.most = -1
		return v.bench.simulated - before, nil
	}
	v.most = 0
	for r := range v.at {
		v.most += v.p.Weights[r] * v.accuracy(r)
	}
	return v.bench.simulated - before, nil
}

// outcome is the plan of a rival whose ranges have all passed.
func (v *rival) outcome() *Outcome {
	out := v.out
	out.Problem = v.p
	for r, g := range v.gears {
		out.Gears = append(out.Gears, gearOf(v.p, g.stair, v.p.Edges[r], g.trial))
		out.Accuracy += v.p.Weights[r] * out.Gears[r].Accuracy
	}
	return &out
}

// better looks for a plan that is considerably more accurate than one in hand or, without
// one, that reaches a target. bound is what no plan on these placements exceeds, as far as
// the trials went.
func (l *rivals) better(ctx context.Context, plan *Outcome, target float64) (best *Outcome, bound float64, err error) {
	above := target - sumsRound
	if plan != nil {
		above = plan.Accuracy + considerable
	}
	for {
		v := l.first()
		switch {
		case v == nil:
			return nil, l.rest, nil
		case v.most < above || *l.left <= 0:
			return nil, max(l.rest, v.most), nil
		}
		r := v.doubtful(plan)
		if r < 0 {
			return v.outcome(), max(l.rest, v.most), nil
		}
		n, err := v.tryNext(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		*l.left -= n
	}
}

// first is the placement that comes to most; nil: there is none.
func (l *rivals) first() (first *rival) {
	for _, v := range l.list {
		if first == nil || v.most > first.most {
			first = v
		}
	}
	return first
}

// settle makes the best plan of trials, from the best that is known of a problem; nil: none
// is known. refuted tells that there is none.
func (l *rivals) settle(ctx context.Context, p *Problem, plan *Outcome) (best *Outcome, refuted bool, err error) {
	if l.left == nil || plan != nil && p.Target > 0 {
		return plan, false, nil
	}
	best, bound, err := l.better(ctx, plan, p.Target)
	if err != nil {
		return nil, false, err
	}
	if best = cmp.Or(best, plan); best == nil {
		return nil, p.misses(bound), nil
	}
	for _, v := range l.list {
		if v.design != nil {
			best.Runs += v.bench.runs
		}
	}
	if !math.IsInf(bound, 1) {
		best.TriedBound = max(bound, best.Accuracy)
	}
	return best, false, nil
}
