package deploy

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// HighestGoodput returns the layout on all devices with which the most requests are in time.
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

// goodput returns the requests per second that are in time by a score.
func (p *Trials) inTime(s *Score) float64 {
	sum := 0.0
	for i := range p.Items {
		sum += p.Items[i].RPS * s.ByItem[i].Attained()
	}
	return sum
}

// searchAllDevices gives all devices to the pools of each structure, and returns the layout that judge
// gives the lowest price.
func (p *Search) full(ctx context.Context, o Structures, judge func(*Layout) (*Found, error), found func(*Found)) (*Found, error) {
	list, err := p.structures(o)
	if err != nil {
		return nil, err
	}
	var best *Found
	for _, s := range list {
		// Deal the devices to the pools of the structure, and judge the layout.
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

// bestIfInterrupted returns the best result so far if the search was interrupted. Otherwise it returns the
// error.
func (p *Search) orBest(ctx context.Context, best *Found, err error) (*Found, error) {
	if best != nil && ctx.Err() != nil {
		return best, nil
	}
	return nil, err
}

// assignAllDevices assigns every device to the pool whose instances do the smallest part of its work so
// far. If some pool gets none, it returns nil.
func (p *Search) dealt(s Structure) (*Layout, error) {
	l, err := p.laid(s)
	if err != nil {
		return nil, err
	}
	have := make([]float64, len(l.Pools)) // by pool: the part of its work that its instances do
	kinds := make([]int, len(p.Kinds))
	for k := range kinds {
		kinds[k] = k
	}
	slices.SortStableFunc(kinds, func(a, b int) int { // those that run the fewest models first
		return cmp.Compare(runnable(p.Problem, a), runnable(p.Problem, b))
	})

	// Per kind, find which part of a pool's work one instance does, then deal out the instances.
	for _, k := range kinds {
		parts := make([]float64, len(l.Pools)) // by pool: the part of its work that one instance does
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

// runnableModels returns the number of models that a kind runs.
func runnable(p *Problem, kind int) int {
	n := 0
	for m := range p.Models {
		if p.Models[m].On[kind] != nil {
			n++
		}
	}
	return n
}

// withRates returns the search with all rates multiplied by a factor. The cost of models does not depend on
// it, so estimators are shared.
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

// HighestRates returns the layout on all devices that carries the highest multiple of the rates, at most
// maxFactor, with which every class keeps its SLO. It also returns the search at those rates.
func (p *Search) Highest(ctx context.Context, o Structures, most float64, found func(*Found)) (*Search, *Found, error) {
	var at *Search
	best := 0.0
	f, err := p.full(ctx, o, func(l *Layout) (*Found, error) {
		q, f, err := p.highest(ctx, l, best, most)
		if f != nil && ctx.Err() != nil {
			err = nil // interrupted: the layout carries at least so much
		}
		if f != nil {
			at, best = q, -f.Price
		}
		return f, err
	}, found)
	return at, f, err
}

// factorPrecision is the relative distance between a factor that is carried and one that is not at which a
// search ends.
const precision = 0.02

// maxBoundExcess is how many times too high a bound of the factor may be for a search to find a factor at
// all.
const thousand = 1000

// highestFactor searches for the largest multiple of the rates between two that a layout carries, with caps
// that suit it. If it carries none of those that were tried, the result is nil. With an error, the result
// is the best so far.
func (p *Search) highest(ctx context.Context, l *Layout, low, high float64) (at *Search, f *Found, err error) {
	for least := high / thousand; high > max(low*(1+precision), least); {
		mid := high / 2
		if low > 0 {
			mid = math.Sqrt(low * high)
		}
		q, x := p.at(mid, false), l.clone()
		q.Seeds = 2 * max(p.Seeds, 1) // the highest of several rates that pass is often a lucky one
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
