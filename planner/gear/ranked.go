package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// fewPlacements is the number of placements up to which all are ranked, and the largest number that is tried.
const fewPlacements = 1000

// rankedLayout is a placement with the accuracies that the fluid model allows it.
type laid struct {
	l        *layout
	ranges   []float64 // by range, up to the first range that cannot be served
	accuracy float64   // weighted over these ranges
}

// compare orders layouts, those first that serve more ranges, and then those of more accuracy.
func (c *laid) compare(o *laid) int {
	return cmp.Or(cmp.Compare(len(o.ranges), len(c.ranges)), cmp.Compare(o.accuracy, c.accuracy))
}

// placementRanking holds the best placements so far.
type ranking struct {
	*fleet
	keep int     // number of placements to keep
	top  []*laid // the best first
}

// score returns a layout with its fluid accuracies.
func (g *ranking) lay(ctx context.Context, l *layout) (*laid, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ranges, err := l.fluidRanges(ctx, 0)
	return &laid{l, ranges, g.p.weighted(ranges)}, err
}

// add ranks a placement with every layout of its chains, and keeps those that are good enough. Of equal ones the
// earlier is first.
func (g *ranking) add(ctx context.Context, configs []Config) error {
	for _, l := range g.layouts(configs) {
		c, err := g.lay(ctx, l)
		if err != nil {
			return err
		}
		at, _ := slices.BinarySearchFunc(g.top, c, func(a, b *laid) int { return cmp.Or(a.compare(b), -1) })
		if at < g.keep {
			g.top = slices.Insert(g.top, at, c)[:min(g.keep, len(g.top)+1)]
		}
	}
	return nil
}

// rankPlacements returns the best placements, up to maxKept. rankedAll says that all placements were ranked. No
// plan of whole models is then more accurate than the first placement allows: a gear is one cascade, and a
// placement's best one is the most accurate that it has time for. If there are too many placements, only that of
// placeModels is ranked. On several kinds or with chains that placement is ranked first, before equal ones.
func (x *fleet) ranked(ctx context.Context, keep int) (top []*laid, all bool, err error) {
	g := &ranking{fleet: x, keep: keep}
	var first []Config
	if all = x.few(keep); !all || len(x.p.Kinds) > 1 || len(x.run) > 0 {
		if first, err = x.place(ctx); err == nil {
			err = g.add(ctx, first)
		}
	}
	if all {
		x.placements(func(placed []Config) {
			if err == nil && !slices.Equal(placed, first) {
				err = g.add(ctx, placed)
			}
		})
	}
	return g.top, all, err
}

// canRankAll reports whether there are few enough placements to rank all: up to fewPlacements or, with chains,
// maxKept.
func (x *fleet) few(keep int) bool {
	total, most := 1.0, fewPlacements
	if len(x.run) > 0 {
		most = keep
	}
	for k, kind := range x.p.Kinds {
		total *= compositions(kind.Devices, len(ofKind(x.configs, k)))
	}
	return total <= float64(most)
}

// configsOfKind returns the configs of a kind.
func ofKind(configs []Config, kind int) (list []Config) {
	for _, c := range configs {
		if c.Kind == kind {
			list = append(list, c)
		}
	}
	return list
}

// eachPlacement calls visit for every way to give the devices of all kinds maximal sets of models. The empty
// placement is left out.
func (x *fleet) placements(visit func(placed []Config)) {
	kinds := x.p.Kinds
	var fill func(kind int, placed []Config)
	fill = func(kind int, placed []Config) {
		if kind == len(kinds) {
			if len(placed) > 0 {
				visit(placed)
			}
			return
		}
		configs := ofKind(x.configs, kind)
		if len(configs) == 0 {
			fill(kind+1, placed)
			return
		}
		eachComposition(kinds[kind].Devices, len(configs), func(counts []int) {
			fill(kind+1, append(slices.Clone(placed), counted(configs, counts)...))
		})
	}
	fill(0, nil)
}

// withCounts returns configs with their numbers of devices, without those of none.
func counted(configs []Config, counts []int) (placed []Config) {
	for i, n := range counts {
		if n > 0 {
			placed = append(placed, Config{configs[i].Kind, configs[i].Set, n})
		}
	}
	return placed
}

// fluidLayout returns the layout of the fluid model: all devices of a kind hold every model and stage that fits on
// one of them alone.
func fluidLayout(x *fleet) *layout {
	l, home := &layout{x: x, loads: map[int]*split{}}, slices.Repeat([]int{-1}, len(x.p.Kinds))
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
	return l
}

// boundSingleCascades returns the accuracy that no plan exceeds whose ranges have one cascade each, of whole
// models or in stages. If a range has none, it returns 0.
func singleGears(ctx context.Context, x *fleet) (float64, error) {
	ranges, err := fluidLayout(x).fluidRanges(ctx, reaches)
	if err != nil || len(ranges) < len(x.p.Edges) {
		return 0, err
	}
	return x.p.weighted(ranges), nil
}

// fluidAccuracies returns, range by range, the accuracy of the most accurate cascade that devices have time for at
// the upper edge, up to the first range without one. The time may be exceeded by the tolerance, as a fraction.
func (l *layout) fluidRanges(ctx context.Context, over float64) (ranges []float64, err error) {
	x, at := l.x, 0
	for _, edge := range x.p.Edges { // rates rise, so no range is more accurate than the one before
		for ; at < len(x.order); at++ {
			fits, err := l.fits(ctx, x.order[at], edge/(1+over))
			if err != nil {
				return nil, err
			}
			if fits {
				break
			}
		}
		if at == len(x.order) {
			break
		}
		ranges = append(ranges, accuracyOn(x.p, &x.list[x.order[at]]))
	}
	return ranges, nil
}

// hasTimeFor reports whether devices and NICs have time for a cascade at a rate.
func (l *layout) fits(ctx context.Context, cascade int, rate float64) (bool, error) {
	if l.atLeast(cascade)*rate > 1 {
		return false, nil
	}
	s, err := l.split(ctx, cascade)
	return err == nil && s.taken*rate <= 1, err
}

// planWholeModels plans without stages: on the best placements and with each of the limits of withBatchLimits,
// until no other placement can be noticeably better by the fluid model.
func (t *tries) wholeModels(ctx context.Context, x *fleet) error {
	rest := rivals{left: t.left, rest: -1}
	for n, q := range batchLimits(x.p) {
		if n > 0 && t.enough() {
			rest.rest = max(rest.rest, t.gears)
			break
		}

		// Rank the placements under this limit.
		top, all, err := x.within(q).ranked(ctx, t.most())
		if err != nil {
			return err
		}

		// If all are ranked, the first is a bound.
		if all && n == 0 && t.wholeOnly && !t.p.Overall {
			served := len(top[0].ranges) == len(t.p.Edges)
			if t.p.Target > 0 && (!served || t.p.misses(top[0].accuracy+reaches)) {
				return t.p.short(top[0].accuracy)
			}
			if served {
				t.gears = top[0].accuracy
			}
		}

		// Look for an early plan, and try the placements.
		if n == 0 {
			if err := t.findEarly(ctx, top[0]); err != nil {
				return err
			}
		}
		if rest.add(top, t.most()); !all {
			rest.rest = math.Inf(1)
		}
		if err := t.on(ctx, top, n); err != nil {
			return err
		}
	}
	return t.settle(ctx, &rest)
}

// planOn plans on placements, the best first, until no further one is worth it. limitIndex is the index of the
// batch limit.
func (t *tries) on(ctx context.Context, top []*laid, limit int) error {
	for k, c := range top {
		if t.enough() || t.rulesOut(c, k) {
			break
		}
		d := c.l.design(t.o, c.ranges)
		out, err := d.plan(ctx, t.toExceed(k, limit), t.o)
		if ctx.Err() != nil {
			t.early.improve(d)
		}
		if err == nil && len(c.l.x.run) > 0 {
			out.Problem = t.p // the problem without the times of members in stages
		}
		if err := t.keepIfBetter(out, err); err != nil {
			return err
		}
	}
	return nil
}

// rulesOutRest reports whether a placement and all behind it are not worth a try after some others.
func (t *tries) rulesOut(c *laid, others int) bool {
	switch {
	case t.missing != nil && len(c.ranges) < len(t.p.Edges):
		return true
	case t.best == nil:
		return t.missing != nil && t.p.misses(c.accuracy)
	}
	return c.accuracy <= t.best.Accuracy+worthFurther(others)
}

// Gains of weighted accuracy that are worth an effort: minAccuracyGain any simulation, shorterBatchGain shorter
// batches, with which devices do less under overload, and nextPlacementGain the simulations of another placement.
const (
	worthwhile   = 5e-5
	worthShorter = 2e-4
	considerable = 1e-3
)

// minPlacementGain returns the gain over the best plan that a placement must allow to be tried after some others.
func worthFurther(others int) float64 {
	if others > 0 {
		return considerable
	}
	return worthwhile
}
