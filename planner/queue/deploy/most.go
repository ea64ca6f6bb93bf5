package deploy

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Most finds the layout on all devices with which the most requests are in time.
func (p *Search) Most(ctx context.Context, o Structures, found func(*Found)) (*Found, error) {
	q := p.at(1, true)
	return q.full(ctx, o, func(l *Layout) (*Found, error) {
		totals := q.totals()
		for i := range l.Pools {
			if _, err := q.tune(ctx, &l.Pools[i], totals); err != nil {
				return nil, err
			}
		}
		all, err := q.judge(ctx, l)
		if err != nil {
			return nil, err
		}
		f := &Found{Layout: l, Score: all, Price: -q.inTime(&all), Grows: q.grows(&all)}
		for i := range l.Pools {
			fits, err := q.fitsWork(&l.Pools[i])
			if err != nil {
				return nil, err
			}
			f.Grows = f.Grows || !fits
		}
		return f, nil
	}, found)
}

// inTime is the requests per second that a score shows to be in time.
func (p *Trials) inTime(s *Score) float64 {
	sum := 0.0
	for i := range p.Items {
		sum += p.Items[i].RPS * s.ByItem[i].Attained()
	}
	return sum
}

// full gives all devices to the pools of each structure, and keeps the layout of the
// least price.
func (p *Search) full(ctx context.Context, o Structures, judge func(*Layout) (*Found, error), found func(*Found)) (*Found, error) {
	list, err := p.structures(o)
	if err != nil {
		return nil, err
	}
	var best *Found
	for _, s := range list {
		l, err := p.dealt(s)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		f, err := judge(l)
		if err != nil {
			return p.orBest(ctx, best, err)
		}
		if f != nil && (best == nil || f.Price < best.Price-1e-12) {
			if best = f; found != nil {
				found(f)
			}
		}
	}
	if best == nil {
		return nil, ErrTooFew
	}
	best.Tried = len(p.kept)
	return best, nil
}

// orBest is the best so far where the search was interrupted.
func (p *Search) orBest(ctx context.Context, best *Found, err error) (*Found, error) {
	if best != nil && ctx.Err() != nil {
		return best, nil
	}
	return nil, err
}

// dealt gives every device to the pool that has the most work for each that it has;
// nil where a pool gets none.
func (p *Search) dealt(s Structure) (*Layout, error) {
	l, err := p.laid(s)
	if err != nil {
		return nil, err
	}
	have := make([]float64, len(l.Pools)) // of the work of each pool, the part that its instances do
	kinds := make([]int, len(p.Kinds))
	for k := range kinds {
		kinds[k] = k
	}
	slices.SortStableFunc(kinds, func(a, b int) int { // those that run the fewest models first
		return cmp.Compare(runnable(p.Problem, a), runnable(p.Problem, b))
	})
	for _, k := range kinds {
		parts := make([]float64, len(l.Pools)) // of the work, that an instance of the kind does
		for i := range parts {
			if p.runs(k, l.Pools[i].Items) {
				need, err := p.need(&l.Pools[i], k)
				if err != nil {
					return nil, err
				}
				parts[i] = 1 / max(need, 1e-9)
			}
		}
		for range p.Kinds[k].Most {
			to, least := -1, math.Inf(1)
			for i := range l.Pools {
				if parts[i] > 0 && have[i] < least {
					to, least = i, have[i]
				}
			}
			if to < 0 {
				break
			}
			l.Pools[to].Counts[k]++
			have[to] += parts[to]
		}
	}
	for i := range l.Pools {
		if l.Pools[i].Instances() == 0 {
			return nil, nil
		}
	}
	return l, nil
}

// runnable is the number of models that a kind runs.
func runnable(p *Problem, kind int) int {
	n := 0
	for m := range p.Models {
		if p.Models[m].On[kind] != nil {
			n++
		}
	}
	return n
}

// at is the problem with all rates multiplied, for a goodput or not. What models cost
// does not change with it, so estimators are shared.
func (p *Search) at(factor float64, goodput bool) *Search {
	q := *p.Problem
	q.Goodput = goodput
	q.Items = slices.Clone(p.Items)
	for i := range q.Items {
		q.Items[i].RPS *= factor
	}
	s := New(&q)
	s.Estimators.kept, s.byClass = p.Estimators.kept, p.byClass
	return s
}

// Highest finds the layout on all devices that carries the highest multiple of the
// rates, at most so many times them, with which every class keeps its SLO, and the
// problem at those rates.
func (p *Search) Highest(ctx context.Context, o Structures, most float64, found func(*Found)) (*Search, *Found, error) {
	var at *Search
	best := 0.0
	f, err := p.full(ctx, o, func(l *Layout) (*Found, error) {
		q, f, err := p.highest(ctx, l, best, most)
		if f != nil && ctx.Err() != nil {
			err = nil // interrupted, it carries so much at least
		}
		if f != nil {
			at, best = q, -f.Price
		}
		return f, err
	}, found)
	return at, f, err
}

// precision is how near the highest factor found is to one that a layout does not
// carry, relative.
const precision = 0.02

// thousand is by how much the rates of a bound may be too high.
const thousand = 1000

// highest searches for the largest multiple of the rates, between two, that a layout
// carries with caps that suit it; nil: it carries none of those tried. With an error it
// is the largest so far.
func (p *Search) highest(ctx context.Context, l *Layout, low, high float64) (at *Search, f *Found, err error) {
	for least := high / thousand; high > max(low*(1+precision), least); {
		mid := high / 2
		if low > 0 {
			mid = math.Sqrt(low * high)
		}
		q, x := p.at(mid, false), l.clone()
		q.Seeds = 2 * max(p.Seeds, 1) // the highest of several rates is one that was lucky
		ok, _, err := q.passes(ctx, x, q.totals())
		if err != nil {
			return at, f, err
		}
		if !ok {
			high = mid
			continue
		}
		score, err := q.judge(ctx, x)
		if err != nil {
			return at, f, err
		}
		low, at, f = mid, q, &Found{Layout: x, Score: score, Price: -mid}
	}
	return at, f, nil
}
