package gear

import (
	"cmp"
	"context"
	"slices"
	"sort"
)

// No switching is a plan, too: one cascade for all ranges. Where the SLO is over all
// requests and rates hover at the edge of two ranges, or rarely reach the highest one, it may
// be more accurate than gears, of which a range has to hold its upper edge for ever.

// single makes the plan of one cascade where that is more accurate than the one
// found, or where none was; with is the error of that.
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

// beats tells whether a plan of one cascade is more accurate than another plan: as
// planned, or on the measured rates, where both are shown on them. There a plan's gears
// may be in force for other shares of the requests than its weights say: with few
// requests a second, a queue holds back a slower gear.
func (out *Outcome) beats(o *Outcome) bool {
	return o == nil || out.Accuracy > o.Accuracy+worthwhile || o.shown > 0 && out.shown > o.shown+worthwhile
}

// OverRequests is the accuracy of one cascade for all ranges that keeps the SLO over all
// of the measured requests together, where that is more than the plan's, whose SLO is for
// every range: 0 where there is none. Such a cascade is late at some range's upper edge,
// or its latency grows there, else it were the plan.
func (out *Outcome) OverRequests(ctx context.Context, seed uint64) (float64, error) {
	q := *out.Problem
	if q.Overall || q.Goal() != MostAccurate {
		return 0, nil
	}
	if q.Overall, q.longest = true, 0; !q.shown() {
		return 0, nil
	}
	best := &Outcome{Problem: &q, Configs: out.Configs, Chains: out.Chains, Accuracy: out.Accuracy}
	x := singles{out.design.x.within(&q)}
	if q.many() {
		if leads, err := best.leads(ctx, x); leads || err != nil {
			return 0, err // of so many requests the plan shows what it promises
		}
	}
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

// bestAbove is the best plan of one cascade that is more accurate than another plan, on the
// placement of a plan and others; nil: none is. The second result is the number of runs.
// With an error comes the best so far.
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

// leads tells whether no single cascade that is more accurate than a plan is worth
// trying, on any placement.
func (out *Outcome) leads(ctx context.Context, x singles) (bool, error) {
	list, err := x.alone(ctx, out)
	return !slices.ContainsFunc(list, func(on laidAlone) bool { return len(x.worthTrying(on.stairs, out)) > 0 }), err
}

// either plans for all requests together where nobody said what the SLO is over, and one
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

// singles are cascades that serve all ranges alone.
type singles struct{ *fleet }

// laidAlone is a placement for one cascade, with those that it could be, by rising load.
type laidAlone struct {
	*layout
	stairs []stair
}

// alone are the placement of a plan, if there is one, and the best of the rate that one
// cascade has to hold.
func (x singles) alone(ctx context.Context, out *Outcome) (list []laidAlone, err error) {
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
	if out != nil && (len(out.Chains) > 0 || len(layouts) == 0 || !slices.Equal(out.Configs, layouts[0].configs)) {
		layouts = slices.Insert(layouts, 0, x.layoutOf(out.Configs, out.Chains))
	}
	for _, l := range layouts {
		stairs, err := l.ladder(ctx, x.p.steady(), -1)
		if err != nil {
			return nil, err
		}
		list = append(list, laidAlone{l, stairs})
	}
	return list, nil
}

// steady is the rate that one cascade has to hold: the highest, but where it is shown
// on measured rates.
func (p *Problem) steady() float64 {
	if p.shown() {
		return sum(p.Measured) / float64(len(p.Measured))
	}
	return p.Edges[len(p.Edges)-1]
}

// worthTrying are the stairs that are more accurate than a plan, and accurate enough.
// Where a run on measured rates is long, not many more may be late than the percentile
// allows even if requests come evenly.
func (x singles) worthTrying(list []stair, than *Outcome) []stair {
	return slices.DeleteFunc(list, func(s stair) bool {
		p, accuracy := x.p, accuracyOn(x.p, s.cascade)
		return p.misses(accuracy) || than != nil && accuracy <= than.least()+worthwhile ||
			p.shown() && p.many() && p.lateEvenly(s.load) > lateRunEvenly*(1-p.Percentile)
	})
}

// lateRunEvenly is how many times the lateness allowed a cascade may show by
// lateEvenly, for a long run to be worth it.
const lateRunEvenly = 2

// least is a plan's accuracy as planned, or as shown where that is less.
func (out *Outcome) least() float64 {
	if out.shown > 0 {
		return min(out.Accuracy, out.shown)
	}
	return out.Accuracy
}

// oneCascade takes the most accurate of some cascades, by rising load, that keeps the
// SLO everywhere; false: none does. Of few all are tried. On measured rates the search begins where devices
// that never wait end, and goes on from there in steps that double. It goes by the first
// stream; from what that finds downwards, all streams decide. With an error may come one
// that keeps it, where one stream is all.
func (out *Outcome) oneCascade(ctx context.Context, b *bench, list []stair) (bool, error) {
	if len(list) <= fewStairs && !b.p.many() { // one that fails may have heavier ones that do not
		for k := len(list) - 1; k >= 0; k-- {
			if ok, err := out.everywhere(ctx, b, &list[k], streams(b.p)); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
	low, high := 0, len(list) // list[low-1] keeps it, list[high] does not
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

// fewStairs are all tried, the most accurate first.
const fewStairs = 8

// firstLate is the first of some cascades, by rising load, of which more requests are
// late than the percentile allows even if they come evenly.
func (p *Problem) firstLate(list []stair) int {
	return sort.Search(len(list), func(i int) bool { return p.lateEvenly(list[i].load) > 1-p.Percentile })
}

// lateEvenly is the share of the measured requests that find the busiest device more
// than the SLO behind, if they come evenly and each takes it so many seconds.
func (p *Problem) lateEvenly(load float64) float64 {
	behind, late := 0.0, 0.0
	for _, rate := range p.Measured {
		if behind = max(0, behind+rate*load-1); behind > p.SLO.Seconds() {
			late += rate
		}
	}
	return late / sum(p.Measured)
}

// everywhere gives all ranges one cascade, if that keeps the SLO over all requests, which is
// shown on streams of the measured rates where these are known. There the lateness of every
// range is that of all.
func (out *Outcome) everywhere(ctx context.Context, b *bench, s *stair, streams int) (bool, error) {
	p := b.p
	gears, late := make([]Planned, len(p.Edges)), 0.0
	for r, edge := range p.Edges {
		gears[r] = gearOf(p, s, edge, Trial{})
	}
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
	for r := len(p.Edges) - 1; r >= 0; r-- { // the highest rate fails first
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
