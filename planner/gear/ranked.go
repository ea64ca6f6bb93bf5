package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Of placements on several kinds: up to how many all are ranked, and how many are tried
// where the SLO is over all requests.
const (
	fewPlacements     = 1000
	overallPlacements = 10
)

// laid is a placement on several kinds with what the fluid model allows it at most.
type laid struct {
	l        *layout
	ranges   []float64
	accuracy float64 // weighted; below 0: some range is not served
}

// ranked are the placements that are worth a try, the best first. Where they are all, no
// plan of whole models is more accurate than the first is allowed to be: a gear is one
// cascade, and on a placement the one with the most time for it. Of many there is only the
// program's, which is allowed what bounds say.
func (x *mixed) ranked(ctx context.Context, bounds []float64) (list []*laid, all bool, err error) {
	placements, all, err := x.worthwhilePlacements(ctx)
	if err != nil {
		return nil, false, err
	}
	if !all {
		return []*laid{{x.layoutOf(placements[0], nil), bounds, x.p.weighted(bounds)}}, false, nil
	}
	for _, placed := range placements {
		l := x.layoutOf(placed, nil)
		ranges, err := l.fluidRanges(ctx, 0)
		if err != nil {
			return nil, false, err
		}
		c := &laid{l, ranges, -1}
		if len(ranges) == len(x.p.Edges) {
			c.accuracy = x.p.weighted(ranges)
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b *laid) int { return cmp.Compare(b.accuracy, a.accuracy) })
	return list, true, nil
}

// singleGears is what no plan exceeds whose ranges have one cascade each, whole models or
// in stages: all devices of a kind take any model that fits on one and any stage. 0: not
// known, some range has none or there are units of devices.
func singleGears(ctx context.Context, x *mixed) (float64, error) {
	l, home := &layout{x: x, loads: map[int]*split{}}, make([]int, len(x.p.Kinds))
	for k := range x.p.Kinds {
		if home[k] = -1; x.p.Kinds[k].Of >= 0 {
			return 0, nil
		}
	}
	for _, c := range x.all {
		if c.Count = x.p.Kinds[c.Kind].Devices; c.Count > 0 {
			home[c.Kind] = len(l.cells)
			l.cells = append(l.cells, c)
		}
	}
	for _, c := range x.chains {
		if cells := homes(c, home); !slices.Contains(cells, -1) {
			l.lanes = append(l.lanes, lane{chain: len(l.chains), cells: cells})
			l.chains = append(l.chains, PlacedChain{Chain: c})
		}
	}
	ranges, err := l.fluidRanges(ctx, reaches)
	if err != nil || len(ranges) < len(x.p.Edges) {
		return 0, err
	}
	return x.p.weighted(ranges), nil
}

// fluidRanges are the accuracies of the most accurate cascades that devices have the time
// for at the upper edges of the ranges, up to the first range that has none. So much of the
// time may be exceeded.
func (l *layout) fluidRanges(ctx context.Context, over float64) (ranges []float64, err error) {
	x, at, order := l.x, 0, byAccuracy(l.x.list)
	for _, edge := range x.p.Edges {
		edge /= 1 + over
		for ; at < len(order); at++ {
			if l.atLeast(order[at])*edge > 1 {
				continue
			}
			s, err := l.split(ctx, order[at])
			if err != nil {
				return nil, err
			}
			if s.taken*edge <= 1 {
				break
			}
		}
		if at == len(order) {
			return ranges, nil
		}
		ranges = append(ranges, accuracyOn(x.p, &x.list[order[at]]))
	}
	return ranges, nil
}

// worthwhilePlacements are the placement of a program over all of them, and the others
// where they are few: then they are all.
func (x *mixed) worthwhilePlacements(ctx context.Context) (list [][]Config, all bool, err error) {
	placed, _, err := x.place(ctx)
	list = append(list, placed)
	if err != nil || !x.few(fewPlacements) {
		return list, false, err
	}
	x.placements(func(other []Config) {
		if len(other) > 0 && !slices.Equal(other, placed) {
			list = append(list, other)
		}
	})
	return list, true, nil
}

// wholeModels plans without stages, on one kind as on identical devices; on several
// with batches as long as the SLO and half as long (and then without kinds where even one
// sample of a model takes longer, if it takes less elsewhere): on all placements, where they
// are few, else on the one that a program finds for devices that are busy all the time.
func (t *tries) wholeModels(ctx context.Context, x *mixed) error {
	if len(x.p.Kinds) == 1 {
		s := (&search{p: x.p, o: t.o, known: t.known, left: t.left}).alike()
		out, err := s.once(ctx, s.p)
		if out != nil && t.wholeOnly {
			t.gears = out.GearBound
		}
		return t.keepIfBetter(ctx, out, err)
	}
	limits := batchLimits(x.p)
	half := *limits[len(limits)-1]
	half.longest, half.fastOnly = x.p.SLO/2, true
	var before [][]int
	rest := rivals{left: t.left, rest: -1}
	for n, q := range append(limits, &half) {
		if n > 0 && t.enough() {
			rest.rest = t.gears
			break
		}
		y := *x
		y.p, y.per, y.batch = q, nil, nil
		if y.priceModels(); slices.EqualFunc(before, y.batch, slices.Equal[[]int]) {
			continue
		}
		before = y.batch
		y.configurations()
		list, all, err := y.ranked(ctx, t.bounds)
		if err != nil {
			return err
		}
		if all && n == 0 && t.wholeOnly && !t.p.Overall {
			if t.gears = max(0, list[0].accuracy); t.p.Target > 0 && t.p.misses(list[0].accuracy+reaches) {
				return t.p.short(list[0].accuracy)
			}
		}
		order := byAccuracy(y.list)
		for _, c := range list {
			if c.accuracy >= 0 && all {
				rest.add(q, y.list, order, c.ranges, func() *design { return c.l.design(t.o, c.ranges) })
			}
		}
		if !all {
			rest.rest = math.Inf(1)
		}
		list = list[:min(t.most(), len(list))]
		for k, c := range list {
			if t.enough() || !t.p.Overall && (k > 0 && c.accuracy < 0 || t.best != nil && c.accuracy <= t.best.Accuracy+worthFurther(k)) {
				break
			}
			out, err := c.l.design(t.o, c.ranges).plan(ctx, t.toExceed(), t.o)
			if err := t.keepIfBetter(ctx, out, err); err != nil {
				return err
			}
		}
	}
	if math.IsInf(rest.rest, 1) || !t.wholeOnly || t.p.Overall {
		return nil
	}
	out, refuted, err := rest.settle(ctx, t.p, t.best)
	if err == nil && out != nil {
		t.best = out
	}
	t.refuted = refuted
	return err
}
