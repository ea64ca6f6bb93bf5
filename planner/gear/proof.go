package gear

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
)

// A plan of one cascade per range is what trials accept, so trials can also rule better
// ones out. For every placement and range the most accurate cascade that the devices have
// the time for is tried. Where it fails, the range has the next one at most. So what a
// placement comes to at most falls trial by trial, until it is not above the plan, or until
// all of its ranges have passed: then it is the better plan. The placement that comes to
// the most is always next (best first). If the search stops early, what the next placement
// comes to is still a bound. It is one of plans that this planner accepts, by the streams of
// its trials, of the splits that it tries, no bound of what devices can do.

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
	*laid
	design *design   // once its first range is tried
	at     []int     // by range: the place in the order of the most accurate cascade left
	gears  []*passed // by range; nil: that one was not tried
	most   float64   // what the ranges come to at most, weighted; below 0: some range has none
}

// passed is a cascade that passed.
type passed struct {
	stair *stair
	trial Trial
}

// add takes up placements that serve all ranges, the best first, of which the fluid model
// was asked for so many at most.
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

// accuracyOf is what a range has at most.
func (v *rival) accuracyOf(r int) float64 {
	x := v.l.x
	return accuracyOn(x.p, &x.list[x.order[v.at[r]]])
}

// doubtful is the range, of those whose cascade was not tried, that adds most to what a
// plan's range has; -1: all were tried.
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

// tryNext tries the cascade of a range. Where the devices have no time for it, or it
// fails, the range has the next one at most. It returns how many requests were simulated.
func (v *rival) tryNext(ctx context.Context, r int, o *Options) (simulated int, err error) {
	if v.design == nil {
		v.design = v.l.design(o, v.ranges)
	}
	x, before := v.l.x, v.design.bench.simulated
	i, edge := x.order[v.at[r]], x.p.Edges[r]
	fits, err := v.l.fits(ctx, i, edge)
	if err == nil && fits {
		v.gears[r], err = v.try(ctx, i, edge)
	}
	if err != nil {
		return 0, err
	}
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

// try tries a cascade at a rate; nil: it does not pass.
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

// outcome is the plan of a rival whose ranges have all passed.
func (v *rival) outcome() *Outcome {
	p := v.l.x.p
	out := &Outcome{Problem: p, Configs: v.l.configs, design: v.design}
	for r, g := range v.gears {
		out.Gears = append(out.Gears, gearOf(p, g.stair, p.Edges[r], g.trial))
		out.Accuracy += p.Weights[r] * out.Gears[r].Accuracy
	}
	return out
}

// better looks for a plan that is considerably more accurate than one in hand or, without
// one, that reaches a target. bound is what no plan on these placements exceeds, as far as
// the trials went.
func (l *rivals) better(ctx context.Context, plan *Outcome, target float64, o *Options) (best *Outcome, bound float64, err error) {
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
		n, err := v.tryNext(ctx, r, o)
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

// settle ends tries by trials: with a plan that is considerably better, or one that reaches
// the target where there was none, and with what none exceeds that trials accept. Without a
// plan the error says whether there is none.
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
