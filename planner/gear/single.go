package gear

import (
	"cmp"
	"context"
	"slices"
	"sort"
)

// One cascade for all ranges is a plan, too. If the SLO is over all requests, it may be more accurate than gears:
// rates may vary around the edge of two ranges or seldom reach the highest range, and each gear must hold its
// upper edge forever.

// trySingleCascade returns a plan of one cascade for all ranges if that is more accurate than the plan found so
// far, or if there is none. wholeErr is the error of that search.
func (s *search) single(ctx context.Context, p *Problem, x *fleet, out *Outcome, with error) (*Outcome, error) {
	if with != nil && !none(with) {
		return nil, with
	}
	than := out
	if out != nil && p.misses(out.Accuracy) {
		than = nil
	}
	one, runs, err := singles{x.within(p)}.bestAbove(ctx, out, than, s.o.Seed)
	if s.runs += runs; one == nil {
		return kept(ctx, out, cmp.Or(err, with))
	}
	return kept(ctx, one, err)
}

// isBetterThan reports whether a plan of one cascade is more accurate than another plan: as planned or, if both
// were simulated on the measured rates, as simulated. On those a plan's gears may serve other shares of the
// requests than its weights state: at low rates a queue delays the switch to a slower gear.
func (out *Outcome) beats(o *Outcome) bool {
	return o == nil || out.Accuracy > o.Accuracy+worthwhile || o.shown > 0 && out.shown > o.shown+worthwhile
}

// SingleCascadeAccuracy returns the accuracy of one cascade for all ranges that keeps the SLO over all measured
// requests together, if that is more than the accuracy of the plan, whose SLO is for every range. Else it returns
// 0. Such a cascade is late or unstable at the upper edge of some range, or it would be the plan.
func (out *Outcome) OverRequests(ctx context.Context, seed uint64) (float64, error) {
	q := *out.Problem
	if q.Overall || q.Goal() != MostAccurate {
		return 0, nil
	}
	if q.Overall, q.longest = true, 0; !q.shown() {
		return 0, nil
	}

	// With many requests first ask whether any cascade can be better.
	best := &Outcome{Problem: &q, Configs: out.Configs, Chains: out.Chains, Accuracy: out.Accuracy}
	x := singles{out.design.x.within(&q)}
	if q.many() {
		if leads, err := best.leads(ctx, x); leads || err != nil {
			return 0, err // with so many requests the plan's own accuracy counts
		}
	}

	// What the plan shows on the measured rates, and the best cascade.
	gears, err := newBench(&q, out.Configs, out.Chains, seed).onMeasured(ctx, out.Gears, 0, 1)
	if err != nil {
		return 0, err
	}
	best.shown = gears.accuracy
	one, _, err := x.bestAbove(ctx, out, best, seed)
	if one == nil || err != nil {
		return 0, err
	}
	return one.Accuracy, nil
}

// bestCascadePlan returns the best plan of one cascade that is more accurate than toBeat, on the placement of the
// reference plan and others, and the number of runs. If there is none, the plan is nil. An error comes with the
// best plan so far.
func (x singles) bestAbove(ctx context.Context, placed, than *Outcome, seed uint64) (best *Outcome, runs int, err error) {
	list, err := x.alone(ctx, placed)
	for _, on := range list {
		d := on.design(&Options{Seed: seed}, nil)
		one, b := &Outcome{Problem: x.p, Configs: on.configs, Chains: on.chains, Front: len(on.stairs), design: d}, d.bench
		ok, err := one.oneCascade(ctx, b, x.worthTrying(on.stairs, than))
		if runs += b.runs; ok && one.beats(than) {
			best, than = one, one
		}
		if err != nil {
			return best, runs, err
		}
	}
	return best, runs, err
}

// noCascadeBeats reports whether no single cascade, on any placement, is worth trying against the plan.
func (out *Outcome) leads(ctx context.Context, x singles) (bool, error) {
	list, err := x.alone(ctx, out)
	return !slices.ContainsFunc(list, func(on laidAlone) bool { return len(x.worthTrying(on.stairs, out)) > 0 }), err
}

// tryOverRequests plans for all requests together if the workload does not name the scope of the SLO and one
// cascade is more accurate that way than a plan for every range.
func (s *search) either(ctx context.Context, out *Outcome) (*Outcome, error) {
	one, err := out.OverRequests(ctx, s.o.Seed)
	if err != nil || one == 0 {
		return kept(ctx, out, err)
	}
	q := *s.p
	q.Overall = true
	both, err := s.once(ctx, &q)
	if err != nil || ctx.Err() != nil && !both.beats(out) {
		return kept(ctx, out, err)
	}
	return both, nil
}

// singleCascades searches for one cascade for all ranges.
type singles struct{ *fleet }

// singleLayout is a placement for one cascade, with the cascades that it may be, by rising load.
type laidAlone struct {
	*layout
	stairs []stair
}

// layoutsFor returns the placement of a plan, if there is one, and the best placement at the rate that one cascade
// must hold.
func (x singles) alone(ctx context.Context, out *Outcome) (list []laidAlone, err error) {
	// The best placement at that rate.
	y, steady := *x.fleet, *x.p
	steady.Edges, steady.Weights = []float64{x.p.steady()}, []float64{1}
	y.p, y.run = &steady, nil
	y.configurations()
	top, _, err := y.ranked(ctx, 1)
	if err != nil {
		return nil, err
	}
	var layouts []*layout
	if len(top) > 0 { // if all members are in stages, no placement of whole models exists
		layouts = append(layouts, x.layoutOf(top[0].l.configs, nil))
	}

	// The placement of the plan.
	if out != nil && (len(out.Chains) > 0 || len(layouts) == 0 || !slices.Equal(out.Configs, layouts[0].configs)) {
		layouts = slices.Insert(layouts, 0, x.layoutOf(out.Configs, out.Chains))
	}

	// The cascades on each.
	for _, l := range layouts {
		stairs, err := l.ladder(ctx, x.p.steady(), -1)
		if err != nil {
			return nil, err
		}
		list = append(list, laidAlone{l, stairs})
	}
	return list, nil
}

// steadyRate returns the rate that one cascade must hold: the mean of the measured rates if they are simulated,
// else the highest rate.
func (p *Problem) steady() float64 {
	if p.shown() {
		return sum(p.Measured) / float64(len(p.Measured))
	}
	return p.Edges[len(p.Edges)-1]
}

// worthTrying returns the cascades that are more accurate than a plan and reach the target. If a simulation of the
// measured rates takes long, it leaves out cascades that are much too late even if requests come evenly.
func (x singles) worthTrying(list []stair, than *Outcome) []stair {
	return slices.DeleteFunc(list, func(s stair) bool {
		p, accuracy := x.p, accuracyOn(x.p, s.cascade)
		return p.misses(accuracy) || than != nil && accuracy <= than.least()+worthwhile ||
			p.shown() && p.many() && p.lateEvenly(s.load) > lateRunEvenly*(1-p.Percentile)
	})
}

// maxEvenLateFactor limits the evenLateShare of a cascade that a long simulation is worth, as a multiple of the
// late share that the percentile allows.
const lateRunEvenly = 2

// minAccuracy returns the plan's planned accuracy, or the one simulated on measured rates if that is less.
func (out *Outcome) least() float64 {
	if out.shown > 0 {
		return min(out.Accuracy, out.shown)
	}
	return out.Accuracy
}

// findSingleCascade gives all ranges the most accurate of some cascades, by rising load, that keeps the SLO
// everywhere. It returns false if there is none. If there are few, all are tried. On measured rates the search
// begins at the heaviest cascade that devices without queues could serve and goes on in steps that double. It uses
// the first stream. From the cascade found downwards all streams decide. An error may come with a cascade that
// keeps the SLO if there is one stream only.
func (out *Outcome) oneCascade(ctx context.Context, b *bench, list []stair) (bool, error) {
	if len(list) <= fewStairs && !b.p.many() { // a heavier cascade may hold where a lighter one fails
		for k := len(list) - 1; k >= 0; k-- {
			if ok, err := out.everywhere(ctx, b, &list[k], streams(b.p)); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}

	// Bisect by the first stream.
	low, high := 0, len(list) // cascades below low keep the SLO, those from high on do not
	mid, step := high/2, high
	if b.p.shown() {
		mid, step = min(b.p.firstLate(list), max(high-1, 0)), 1
	}
	for ; low < high; step *= 2 {
		ok, err := out.everywhere(ctx, b, &list[mid], 1)
		if err != nil {
			return low > 0 && streams(b.p) == 1, err
		}
		if ok {
			low = mid + 1
		} else {
			high = mid
		}
		switch mid = (low + high) / 2; {
		case high == len(list) && step < high:
			mid = min(mid, low+step-1)
		case low == 0 && step < high:
			mid = max(mid, high-step)
		}
	}

	// Confirm by all streams.
	top := low - 1
	if streams(b.p) == 1 {
		return top >= 0, nil
	}
	for ; top >= 0; top-- {
		if ok, err := out.everywhere(ctx, b, &list[top], streams(b.p)); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// fewCascades is the number of cascades up to which all are tried, the most accurate first.
const fewStairs = 8

// firstLateCascade returns the index of the first cascade, by rising load, of which too many requests are late
// even if they come evenly.
func (p *Problem) firstLate(list []stair) int {
	return sort.Search(len(list), func(i int) bool { return p.lateEvenly(list[i].load) > 1-p.Percentile })
}

// evenLateShare returns the share of the measured requests that find a backlog of more than the SLO at the busiest
// device, if requests come evenly within each second. load is in seconds per request.
func (p *Problem) lateEvenly(load float64) float64 {
	behind, late := 0.0, 0.0
	for _, rate := range p.Measured {
		if behind = max(0, behind+rate*load-1); behind > p.SLO.Seconds() {
			late += rate
		}
	}
	return late / sum(p.Measured)
}

// useInAllRanges gives all ranges one cascade if it keeps the SLO over all requests, and reports whether it does.
// If the measured rates are simulated, their streams decide, and the late share of every range is that of all
// requests. Else each range is tried at its upper edge.
func (out *Outcome) everywhere(ctx context.Context, b *bench, s *stair, streams int) (bool, error) {
	p := b.p
	gears, late := make([]Planned, len(p.Edges)), 0.0
	for r, edge := range p.Edges {
		gears[r] = gearOf(p, s, edge, Trial{})
	}

	// Streams of the measured rates.
	if p.shown() {
		shown, err := b.onStreams(ctx, gears, streams, 1-p.Percentile)
		if err != nil || !shown.keeps(p) {
			return false, err
		}
		for r := range gears {
			gears[r].Late, gears[r].Trial = shown.late, shown.trial()
		}
		out.Gears, out.Accuracy, out.Tail, out.shown = gears, gears[0].Accuracy, shown.tail, shown.accuracy
		return true, nil
	}
	for r := len(p.Edges) - 1; r >= 0; r-- { // the highest rate is the first to fail
		g := &gears[r]
		t, err := b.tryLate(ctx, s, p.Edges[r], min(1, (1-p.Percentile)/p.Weights[r]))
		if err != nil {
			return false, err
		}
		g.Trial, g.Late = t, t.late
		if late += p.Weights[r] * t.late; g.Load > 1 || !t.Stable || late > spent*(1-p.Percentile) {
			return false, nil
		}
	}
	out.Gears, out.Accuracy = gears, gears[0].Accuracy
	return true, nil
}
