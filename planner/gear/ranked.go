package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// fewPlacements is up to how many placements all are ranked, and how many are tried.
const fewPlacements = 1000

// laid is a placement with what the fluid model allows it at most.
type laid struct {
	l        *layout
	ranges   []float64 // of those that are served
	accuracy float64   // weighted over these
}

// compare says which serves more ranges, and then which is more accurate.
func (c *laid) compare(o *laid) int {
	return cmp.Or(cmp.Compare(len(o.ranges), len(c.ranges)), cmp.Compare(o.accuracy, c.accuracy))
}

// ranking are the best placements so far.
type ranking struct {
	*fleet
	keep int // of them
	top  []*laid
}

// lay scores a layout.
func (g *ranking) lay(ctx context.Context, l *layout) (*laid, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ranges, err := l.fluidRanges(ctx, 0)
	return &laid{l, ranges, g.p.weighted(ranges)}, err
}

// add keeps a placement, in every way to put chains on it that is good enough, behind
// equals: the first stands.
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

// ranked are the best placements, as many as are to be kept. Where all of them are ranked,
// no plan of whole models is more accurate than the first is allowed to be: a gear is one
// cascade, and on a placement the one with the most time for it. Of too many there is that of the program over all
// of them. On several kinds of devices and with chains that one stands before its equals.
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

// few tells whether there are few enough placements to rank all: with stages no more than
// are kept.
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

// ofKind are the configurations of a kind.
func ofKind(configs []Config, kind int) (list []Config) {
	for _, c := range configs {
		if c.Kind == kind {
			list = append(list, c)
		}
	}
	return list
}

// placements visits all ways to give the devices of every kind maximal sets of models, but
// for none at all.
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

// counted are configurations with counts, without those of none.
func counted(configs []Config, counts []int) (placed []Config) {
	for i, n := range counts {
		if n > 0 {
			placed = append(placed, Config{configs[i].Kind, configs[i].Set, n})
		}
	}
	return placed
}

// fluidLayout is that on which all devices of a kind take any model that fits on one and any stage.
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

// singleGears is what no plan exceeds whose ranges have one cascade each, whole models or
// in stages. 0: some range has none.
func singleGears(ctx context.Context, x *fleet) (float64, error) {
	ranges, err := fluidLayout(x).fluidRanges(ctx, reaches)
	if err != nil || len(ranges) < len(x.p.Edges) {
		return 0, err
	}
	return x.p.weighted(ranges), nil
}

// fluidRanges are the accuracies of the most accurate cascades that devices have the time
// for at the upper edges of the ranges, up to the first range that has none. So much of the
// time may be exceeded.
func (l *layout) fluidRanges(ctx context.Context, over float64) (ranges []float64, err error) {
	x, at := l.x, 0
	for _, edge := range x.p.Edges { // rising rates: the best one never comes down
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

// fits tells whether devices and NICs have the time for a cascade at a rate.
func (l *layout) fits(ctx context.Context, cascade int, rate float64) (bool, error) {
	if l.atLeast(cascade)*rate > 1 {
		return false, nil
	}
	s, err := l.split(ctx, cascade)
	return err == nil && s.taken*rate <= 1, err
}

// wholeModels plans without stages: on the best placements, with batches as long as the SLO
// and half as long (and then without kinds where even one sample of a model takes longer, if it
// takes less elsewhere), until no other placement could be considerably better. What the
// fluid model allows a placement at most tells which these are.
func (t *tries) wholeModels(ctx context.Context, x *fleet) error {
	rest := rivals{left: t.left, rest: -1}
	for n, q := range batchLimits(x.p) {
		if n > 0 && t.enough() {
			rest.rest = max(rest.rest, t.gears)
			break
		}
		top, all, err := x.within(q).ranked(ctx, t.most())
		if err != nil {
			return err
		}
		if all && n == 0 && t.wholeOnly && !t.p.Overall {
			served := len(top[0].ranges) == len(t.p.Edges)
			if t.p.Target > 0 && (!served || t.p.misses(top[0].accuracy+reaches)) {
				return t.p.short(top[0].accuracy)
			}
			if served {
				t.gears = top[0].accuracy
			}
		}
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

// on plans on placements, the best first, with batches of the limit at a place in their
// list.
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
			out.Problem = t.p // of whole models
		}
		if err := t.keepIfBetter(out, err); err != nil {
			return err
		}
	}
	return nil
}

// rulesOut returns true if a placement, and any behind it, is not worth a try after some others.
func (t *tries) rulesOut(c *laid, others int) bool {
	switch {
	case t.missing != nil && len(c.ranges) < len(t.p.Edges):
		return true
	case t.best == nil:
		return t.missing != nil && t.p.misses(c.accuracy)
	}
	return c.accuracy <= t.best.Accuracy+worthFurther(others)
}

// Of plans: worthwhile is the least weighted accuracy that is worth simulations, worthShorter
// that which is worth shorter batches, with which devices do less under overload, considerable
// that which is worth the simulations of one more placement.
const (
	worthwhile   = 5e-5
	worthShorter = 2e-4
	considerable = 1e-3
)

// worthFurther is by how much a placement has to be able to exceed a plan for it to be
// tried after some others.
func worthFurther(others int) float64 {
	if others > 0 {
		return considerable
	}
	return worthwhile
}
