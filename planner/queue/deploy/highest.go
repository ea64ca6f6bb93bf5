package deploy

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// HighestGoodput returns the layout on all devices with which the most requests are in time (the goodput), of
// those structures that it tries. Its price is minus the goodput, because the search takes the lowest price.
func (p *Search) HighestGoodput(ctx context.Context, o SearchOptions, onBetter func(*LayoutResult)) (*LayoutResult, error) {
	q := p.withRates(1, true)
	return q.searchAllDevices(ctx, o, func(l *Layout) (*LayoutResult, error) {
		requestCounts := q.Trials.requestCounts()
		for i := range l.Pools {
			if _, err := q.tuneCaps(ctx, &l.Pools[i], requestCounts); err != nil {
				return nil, err
			}
		}
		score, err := q.Trials.judgeLayout(ctx, l)
		if err != nil {
			return nil, err
		}
		f := &LayoutResult{Layout: l, Score: score, Price: -q.Trials.goodput(&score), BacklogGrows: q.Problem.backlogGrows(&score)}
		for i := range l.Pools {
			fits, err := q.Trials.fitsCapacity(&l.Pools[i])
			if err != nil {
				return nil, err
			}
			f.BacklogGrows = f.BacklogGrows || !fits
		}
		return f, nil
	}, onBetter)
}

// goodput returns the requests per second that are in time: the rates by the shares that a score shows.
func (p *Trials) goodput(s *Score) float64 {
	sum := 0.0
	for i := range p.problem.Items {
		sum += p.problem.Items[i].RPS * s.ByItem[i].Attainment()
	}
	return sum
}

// searchAllDevices gives all devices to the pools of each structure (which items share a pool), and returns the
// layout that judge gives the lowest price. For goals that are maximised, that is minus the value.
func (p *Search) searchAllDevices(ctx context.Context, o SearchOptions, judge func(*Layout) (*LayoutResult, error), onBetter func(*LayoutResult)) (*LayoutResult, error) {
	return p.searchStructures(ctx, o, math.Inf(-1), func(s Structure, _ float64) (*LayoutResult, error) {
		l, err := p.assignAllDevices(s)
		if err != nil {
			return nil, err
		}
		return judge(l)
	}, onBetter)
}

// assignAllDevices makes a layout of a structure with all devices: each server goes to the pool whose instances
// do the smallest part of its work so far. Kinds that run the fewest models come first, as they fit few pools.
// If some pool gets none, it returns ErrTooFewDevices.
func (p *Search) assignAllDevices(s Structure) (*Layout, error) {
	l, err := p.emptyLayout(s)
	if err != nil {
		return nil, err
	}
	capacity := make([]float64, len(l.Pools)) // by pool: the part of its work that its instances do
	kinds := make([]int, len(p.Problem.Kinds))
	for k := range kinds {
		kinds[k] = k
	}
	slices.SortStableFunc(kinds, func(a, b int) int { // those that run the fewest models first
		return cmp.Compare(runnableModels(p.Problem, a), runnableModels(p.Problem, b))
	})

	// Per kind, find which part of a pool's work one instance does, then deal out the instances.
	for _, k := range kinds {
		instanceCapacity := make([]float64, len(l.Pools)) // by pool: the part of its work that one instance does
		for i := range instanceCapacity {
			if p.Problem.canRunItems(k, l.Pools[i].Items) {
				need, err := p.Trials.busyInstances(&l.Pools[i], k)
				if err != nil {
					return nil, err
				}
				instanceCapacity[i] = 1 / max(need, 1e-9)
			}
		}
		for range p.Problem.Kinds[k].MaxInstances {
			target, minCapacity := -1, math.Inf(1)
			for i := range l.Pools {
				if instanceCapacity[i] > 0 && capacity[i] < minCapacity {
					target, minCapacity = i, capacity[i]
				}
			}
			if target < 0 {
				break
			}
			l.Pools[target].Counts[k]++
			capacity[target] += instanceCapacity[target]
		}
	}
	for i := range l.Pools {
		if l.Pools[i].InstanceCount() == 0 {
			return nil, ErrTooFewDevices
		}
	}
	return l, nil
}

// runnableModels returns the number of models that a kind runs.
func runnableModels(p *Problem, kind int) int {
	n := 0
	for m := range p.Models {
		if p.Models[m].ByKind[kind] != nil {
			n++
		}
	}
	return n
}

// withRates returns a new search on the problem with all rates multiplied by a factor; goodput says that
// requests in time are maximised. What requests cost does not depend on the rates, so the estimators are
// shared.
func (p *Search) withRates(factor float64, goodput bool) *Search {
	q := *p.Problem
	q.Goodput = goodput
	q.Items = slices.Clone(p.Problem.Items)
	for i := range q.Items {
		q.Items[i].RPS *= factor
	}
	s := NewSearch(&q)
	s.Estimators.cache, s.useClassCaps = p.Estimators.cache, p.useClassCaps
	return s
}

// HighestRates returns the layout on all devices that carries the highest multiple of the rates, at most
// maxFactor, with which every class keeps its SLO. It also returns the search at those rates.
func (p *Search) HighestRates(ctx context.Context, o SearchOptions, maxFactor float64, onBetter func(*LayoutResult)) (*Search, *LayoutResult, error) {
	var bestSearch *Search
	bestFactor := 0.0
	f, err := p.searchAllDevices(ctx, o, func(l *Layout) (*LayoutResult, error) {
		q, f, err := p.highestFactor(ctx, l, bestFactor, maxFactor)
		if f != nil && ctx.Err() != nil {
			err = nil // interrupted: the layout carries at least so much
		}
		if f != nil {
			bestSearch, bestFactor = q, -f.Price
		}
		return f, err
	}, onBetter)
	return bestSearch, f, err
}

// factorPrecision is the relative distance between a factor that is carried and one that is not at which a
// search ends.
const factorPrecision = 0.02

// maxBoundExcess is how many times too high a bound of the factor may be for a search to find a factor at
// all.
const maxBoundExcess = 1000

// highestFactor searches, by bisection, for the largest multiple of the rates between two that a layout carries
// in simulation, with caps that suit it. It returns the search at those rates, and the result. If the layout
// carries none of those that were tried, the result is nil. With an error, the result is the best so far.
func (p *Search) highestFactor(ctx context.Context, l *Layout, carried, refused float64) (carriedSearch *Search, result *LayoutResult, err error) {
	for minFactor := refused / maxBoundExcess; refused > max(carried*(1+factorPrecision), minFactor); {
		mid := refused / 2
		if carried > 0 {
			mid = math.Sqrt(carried * refused)
		}
		q, x := p.withRates(mid, false), l.clone()
		q.Problem.Runs = 2 * max(p.Problem.Runs, 1) // the highest of several rates that pass is often a lucky one
		ok, _, err := q.testLayout(ctx, x, q.Trials.requestCounts())
		if err != nil {
			return carriedSearch, result, err
		}
		if !ok {
			refused = mid
			continue
		}
		score, err := q.Trials.judgeLayout(ctx, x)
		if err != nil {
			return carriedSearch, result, err
		}
		carried, carriedSearch, result = mid, q, &LayoutResult{Layout: x, Score: score, Price: -mid}
	}
	return carriedSearch, result, nil
}
