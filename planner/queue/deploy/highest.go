package deploy

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"inferplan/planner/lists"
)

// HighestGoodput returns the layout (pools of instances, on all devices) with which the most requests per second are in time, of the
// structures (which classes share a pool) that it tries. That number is the goodput; the price of the result is minus it, because the
// search takes the lowest price. BacklogGrows of the result says that the rates are more work than the instances do: the requests in the
// system grow in the runs or, as a run may be too short to show that, the estimated work of some pool takes too much of its instances'
// time. onBetter is called with every better layout; it may be nil.
func (p *Search) HighestGoodput(ctx context.Context, o SearchOptions, onBetter func(*LayoutResult)) (*LayoutResult, error) {
	goodputSearch := p.withRates(1, true) // at the rates asked, with late requests allowed
	return goodputSearch.searchAllDevices(ctx, o, func(l *Layout) (*LayoutResult, error) {
		// Improve the caps of each pool in l.
		requestCounts := goodputSearch.Trials.requestCounts()
		for i := range l.Pools {
			if _, err := goodputSearch.tuneCaps(ctx, &l.Pools[i], requestCounts); err != nil {
				return nil, err
			}
		}
		score, err := goodputSearch.Trials.judgeLayout(ctx, l)
		if err != nil {
			return nil, err
		}
		result := &LayoutResult{Layout: l, Score: score, Price: -goodputSearch.Trials.goodput(&score), BacklogGrows: goodputSearch.Problem.backlogGrows(&score)}
		for i := range l.Pools {
			fits, err := goodputSearch.Trials.fitsCapacity(&l.Pools[i])
			if err != nil {
				return nil, err
			}
			result.BacklogGrows = result.BacklogGrows || !fits
		}
		return result, nil
	}, onBetter)
}

// goodput returns the requests per second that are in time: the rates by the shares that a score shows.
func (p *Trials) goodput(s *Score) float64 {
	return lists.Sum(len(p.problem.Items), func(i int) float64 { return p.problem.Items[i].RPS * s.ByItem[i].Attainment() })
}

// searchAllDevices gives all devices to the pools of each structure (which items, classes of requests for a model, share a pool), and
// returns the layout to which judge gives the lowest price. For goals that are maximised, that price is minus the value. judge may return
// nil if the layout is of no use.
func (p *Search) searchAllDevices(ctx context.Context, o SearchOptions, judge func(*Layout) (*LayoutResult, error), onBetter func(*LayoutResult)) (*LayoutResult, error) {
	return p.searchStructures(ctx, o, math.Inf(-1), func(s Structure, _ float64) (*LayoutResult, error) {
		l, err := p.assignAllDevices(s)
		if err != nil {
			return nil, err
		}
		return judge(l)
	}, onBetter)
}

// assignAllDevices makes a layout of a structure (which items share a pool) that uses all devices: it deals the servers out one by one,
// each to the pool whose instances so far do the smallest part of the pool's work. Kinds of servers that run the fewest models are dealt
// out first, as they fit few pools. If some pool gets none, it returns ErrTooFewDevices.
func (p *Search) assignAllDevices(s Structure) (*Layout, error) {
	layout, err := p.emptyLayout(s)
	if err != nil {
		return nil, err
	}
	capacity := make([]float64, len(layout.Pools)) // by pool: the part of its work that its instances do
	kinds := lists.Indexes(len(p.Problem.Kinds))
	slices.SortStableFunc(kinds, func(a, b int) int { // those that run the fewest models first
		return cmp.Compare(runnableModels(p.Problem, a), runnableModels(p.Problem, b))
	})

	// Find which part of a pool's work one instance of a kind does.
	instanceCapacity := make([][]float64, len(kinds))
	for k := range kinds {
		instanceCapacity[k] = make([]float64, len(layout.Pools))
		for i := range layout.Pools {
			if p.Problem.canRunItems(k, layout.Pools[i].Items) {
				need, err := p.Trials.busyInstances(&layout.Pools[i], k)
				if err != nil {
					return nil, err
				}
				instanceCapacity[k][i] = 1 / max(need, 1e-9)
			}
		}
	}

	// Deal out the instances, of all kinds that share their devices at once: of these the one that does most on a device.
	for n, first := range kinds {
		isShared := func(k int) bool { return p.Problem.Kinds[k].Pool == p.Problem.Kinds[first].Pool }
		if slices.ContainsFunc(kinds[:n], isShared) {
			continue
		}
		for {
			target, kind := -1, -1
			for i := range layout.Pools {
				for _, k := range kinds[n:] {
					if !isShared(k) || instanceCapacity[k][i] == 0 || layout.remainingServers(p.Problem, k) <= 0 {
						continue
					}
					onDevice := func(k int) float64 { return instanceCapacity[k][i] / float64(p.Problem.Kinds[k].TP) }
					if target < 0 || capacity[i] < capacity[target] || i == target && onDevice(k) > onDevice(kind) {
						target, kind = i, k
					}
				}
			}
			if target < 0 {
				break
			}
			layout.Pools[target].Counts[kind]++
			capacity[target] += instanceCapacity[kind][target]
		}
	}
	for i := range layout.Pools {
		if layout.Pools[i].InstanceCount() == 0 {
			return nil, ErrTooFewDevices
		}
	}
	return layout, nil
}

// runnableModels returns the number of models that a kind runs.
func runnableModels(p *Problem, kind int) int {
	return lists.Count(len(p.Models), func(m int) bool { return p.Models[m].ByKind[kind] != nil })
}

// withRates returns a new search on a copy of the problem with all rates multiplied by a factor, to find the highest rates that a layout
// carries. goodput says that late requests are allowed and those in time are maximised. The time that a request takes does not depend on
// the rates, so the new search shares the cache of estimators.
func (p *Search) withRates(factor float64, goodput bool) *Search {
	scaledProblem := *p.Problem
	scaledProblem.Goodput = goodput
	scaledProblem.Items = slices.Clone(p.Problem.Items)
	for i := range scaledProblem.Items {
		scaledProblem.Items[i].RPS *= factor
	}
	search := NewSearch(&scaledProblem)
	search.Estimators.cache, search.useClassCaps = p.Estimators.cache, p.useClassCaps
	return search
}

// HighestRates returns the layout (pools of instances, on all devices) that carries the highest multiple of the rates, at most maxFactor,
// with which every class keeps its SLO. The price of the result is minus the multiple. It also returns the search whose problem has these
// rates. onBetter is called with every better layout; it may be nil.
func (p *Search) HighestRates(ctx context.Context, o SearchOptions, maxFactor float64, onBetter func(*LayoutResult)) (*Search, *LayoutResult, error) {
	var bestSearch *Search
	bestFactor := 0.0
	bestResult, err := p.searchAllDevices(ctx, o, func(l *Layout) (*LayoutResult, error) {
		// highestFactor tries only multiples above bestFactor, so what it returns is better than all layouts before, or nil.
		factorSearch, result, err := p.highestFactor(ctx, l, bestFactor, maxFactor)
		if result != nil && ctx.Err() != nil {
			err = nil // interrupted: the layout carries at least so much
		}
		if result != nil {
			bestSearch, bestFactor = factorSearch, -result.Price
		}
		return result, err
	}, onBetter)
	return bestSearch, bestResult, err
}

// factorPrecision is the relative distance between a factor that is carried and one that is not at which a
// search ends.
const factorPrecision = 0.02

// maxBoundExcess is how many times too high a bound of the factor may be for a search to find a factor at
// all.
const maxBoundExcess = 1000

// highestFactor searches, by bisection, for the largest multiple of the rates with which layout l keeps the SLOs in simulation, after its
// caps (limits on concurrent sequences) were tuned for it. carried is a multiple that is reached already by this or another layout, 0 if
// none; refused is one that cannot be reached. It returns a search on the problem at the multiple found, and the result, whose price is
// minus the multiple. If the layout carries none of those that were tried, the result is nil. With an error, it returns the best so far.
func (p *Search) highestFactor(ctx context.Context, l *Layout, carried, refused float64) (carriedSearch *Search, result *LayoutResult, err error) {
	_, err = bisectFactor(carried, refused, func(factor float64) (bool, error) {
		factorSearch, layout := p.withRates(factor, false), l.clone()
		factorSearch.Problem.Runs = 2 * max(p.Problem.Runs, 1) // the highest of several rates that pass is often a lucky one
		if ok, _, err := factorSearch.testLayout(ctx, layout, factorSearch.Trials.requestCounts()); err != nil || !ok {
			return false, err
		}
		// testLayout has made these runs, so their score comes from the cache.
		score, err := factorSearch.Trials.judgeLayout(ctx, layout)
		if err != nil {
			return false, err
		}
		carriedSearch, result = factorSearch, &LayoutResult{Layout: layout, Score: score, Price: -factor}
		return true, nil
	})
	return carriedSearch, result, err
}

// bisectFactor returns the largest multiple of the rates that test finds carried, of those that a bisection tries between carried, which is
// reached already (0 if none is), and refused, which cannot be reached. If there is none, or after an error, it returns the best so far.
func bisectFactor(carried, refused float64, test func(factor float64) (isCarried bool, err error)) (float64, error) {
	// The first value of refused is a bound. If no multiple down to a maxBoundExcess-th of it is carried, the search gives up.
	for minFactor := refused / maxBoundExcess; refused > max(carried*(1+factorPrecision), minFactor); {
		// Halve the factor until one is carried. From then on take the geometric mean, since the precision is relative.
		mid := refused / 2
		if carried > 0 {
			mid = math.Sqrt(carried * refused)
		}
		isCarried, err := test(mid)
		switch {
		case err != nil:
			return carried, err
		case isCarried:
			carried = mid
		default:
			refused = mid
		}
	}
	return carried, nil
}

// AllDevicesSuffice returns whether all devices of the cluster together keep the SLOs in some structure (which classes share a pool of
// instances). If they do not, no smaller layout needs to be searched for, and an explanation need not look for missing devices.
func AllDevicesSuffice(ctx context.Context, p *Search) (bool, error) {
	_, err := p.searchAllDevices(ctx, SearchOptions{FirstFeasible: true}, func(l *Layout) (*LayoutResult, error) {
		ok, _, err := p.testLayout(ctx, l, p.Trials.requestCounts())
		if !ok || err != nil {
			return nil, err
		}
		return &LayoutResult{Layout: l, Price: l.Price(p.Problem)}, nil
	}, nil)
	if errors.Is(err, ErrTooFewDevices) {
		return false, nil
	}
	return err == nil, err
}
