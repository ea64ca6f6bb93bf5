package gear

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/solver/balance"
)

// Of placements: up to how many all are ranked, on identical devices and on several kinds,
// and how many are tried: in general, and on several kinds where the SLO is over all requests.
const (
	alikePlacements   = 20000
	fewPlacements     = 1000
	placementsTried   = 400
	overallPlacements = 10
)

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
// cascade, and on a placement the one with the most time for it. Of too many on identical
// devices those are ranked that moving devices ends at, on several kinds that of the program
// over all placements, which stands before its equals.
func (x *fleet) ranked(ctx context.Context, keep int) (top []*laid, all bool, err error) {
	g := &ranking{fleet: x, keep: keep}
	all = x.few(keep)
	var first []Config
	switch {
	case x.p.Mixed():
		if first, err = x.place(ctx); err == nil {
			err = g.add(ctx, first)
		}
	case !all:
		err = g.move(ctx)
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
	total, most := 1.0, float64(alikePlacements)
	switch {
	case len(x.run) > 0:
		most = float64(keep)
	case x.p.Mixed():
		most = fewPlacements
	}
	for k, kind := range x.p.kinds() {
		total *= balance.Compositions(kind.Devices, len(ofKind(x.configs, k)))
	}
	return total <= most
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
	kinds := x.p.kinds()
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
		balance.EachComposition(kinds[kind].Devices, len(configs), func(counts []int) {
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

// move adds placements of identical devices. Single devices are moved between
// configurations while that helps, from an even spread and from each configuration alone.
func (g *ranking) move(ctx context.Context) error {
	devices, n := g.p.Devices, len(g.configs)
	starts := [][]int{make([]int, n)}
	for d := range devices {
		starts[0][d%n]++
	}
	for i := range n {
		starts = append(starts, make([]int, n))
		starts[i+1][i] = devices
	}
	for _, counts := range starts {
		best, err := g.lay(ctx, g.layoutOf(counted(g.configs, counts), nil))
		for improved := true; improved; {
			improved = false
			for step := devices; step >= 1; step /= 2 {
				for move := range n * n {
					from, to := move/n, move%n
					if from == to || counts[from] < step || err != nil {
						continue
					}
					counts[from] -= step
					counts[to] += step
					var c *laid
					if c, err = g.lay(ctx, g.layoutOf(counted(g.configs, counts), nil)); err == nil && c.compare(best) < 0 {
						best, improved = c, true
					} else {
						counts[from] += step
						counts[to] -= step
					}
				}
			}
		}
		if err == nil {
			err = g.add(ctx, best.l.configs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// singleGears is what no plan exceeds whose ranges have one cascade each, whole models or
// in stages: all devices of a kind take any model that fits on one and any stage. 0: some
// range has none.
func singleGears(ctx context.Context, x *fleet) (float64, error) {
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
	if fits := l.atLeast(cascade)*rate <= 1; !fits || l.alike != nil {
		return fits, nil
	}
	s, err := l.split(ctx, cascade)
	return err == nil && s.taken*rate <= 1, err
}

// wholeModels plans without stages: on the best placements, with batches as long as the SLO
// and half as long (and then without kinds where even one sample of a model takes longer, if it
// takes less elsewhere), until no other placement could be considerably better. What the
// fluid model allows a placement at most tells which these are.
func (t *tries) wholeModels(ctx context.Context, x *fleet) error {
	if len(x.p.Kinds) == 1 {
		s := t.alike(x.p)
		out, err := s.once(ctx, s.p)
		if out != nil && t.wholeOnly {
			t.gears, t.tried = out.GearBound, out.TriedBound
		}
		return t.keepIfBetter(out, err)
	}
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
		if err := t.keepLate(ctx, out, err); err != nil {
			return err
		}
	}
	return nil
}

// rulesOut tells that a placement, and any behind it, is not worth a try after some others. An
// SLO over all requests lets ranges be late, so that on several kinds, where few placements are
// tried, what the fluid model allows them rules none out.
func (t *tries) rulesOut(c *laid, others int) bool {
	switch {
	case t.missing != nil && len(c.ranges) < len(t.p.Edges):
		return true
	case t.p.Overall && t.p.Mixed():
		return false
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
