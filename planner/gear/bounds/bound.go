package bounds

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/solver/pareto"
)

// PooledDevices are the devices of all kinds as one, whose time has a price. A second of all of them costs 1, and
// a sample of a model costs what it does on the kind, or along the chain, where that is cheapest. For any prices,
// no plan does more than devices that never queue and whose work is limited by its total price alone.
type PooledDevices struct {
	problem       *cascades.Problem
	cascades      []cascades.Cascade
	minLateShares []float64                          // by cascade: least share of late requests
	devicePrice   []float64                          // by kind: price of a second of a device
	nicPrice      map[planspace.NICDirection]float64 // price of a second of a NIC
	deviceScale   float64                            // factor on the numbers of devices
	inTimeCost    []float64                          // by model: price of a sample in batches as long as the SLO
	anyTimeCost   []float64                          // by model: price of a sample in batches of any length
}

// PoolDevices returns the devices of all kinds as one budget of work, for bounds under an SLO over all requests
// together. A second of a device or NIC is priced by its dual in the linear program of the highest range of rates,
// scaled so that a second of all of them costs 1. A sample of each model then costs what it does at these prices where
// it is cheapest.
//
// inTime is the space of plans within the SLO. lax is the one without an SLO: late requests may use its cascades and
// batches, and it has the least late share of each cascade.
func PoolDevices(ctx context.Context, p *cascades.Problem, inTime, lax *planspace.Space) (*PooledDevices, error) {
	const serveOnly = false // the program maximises the accuracy
	program, sol, _, err := lax.SolveRelaxation(ctx, len(p.RangeEdges)-1, serveOnly, nil)
	if err != nil {
		return nil, err
	}

	// Prices are the duals of device time and NIC time, which are below 0 by rounding at most. Rows have index 0, as the program
	// has one range, and each kind has at most one of the FluidConfigs.
	devicePrice, nicPrice, total := make([]float64, len(p.Kinds)), map[planspace.NICDirection]float64{}, 0.0
	for c, conf := range lax.FluidConfigs {
		devicePrice[conf.Kind] = math.Abs(sol.RowDuals[program.TimeRow[0][c]])
		total += devicePrice[conf.Kind] * float64(p.Kinds[conf.Kind].Devices)
	}
	for n, row := range program.NICRow[0] {
		nicPrice[n] = math.Abs(sol.RowDuals[row])
		total += nicPrice[n] * lax.NICCount(n.Kind)
	}
	if !(total > 0) { // devices are not short; price all alike
		total = 0
		for k := range devicePrice {
			devicePrice[k] = 1
			total += float64(p.Kinds[k].Devices)
		}
	}

	// Scale the prices, so that all devices cost 1.
	for k := range devicePrice {
		devicePrice[k] /= total
	}
	for n := range nicPrice {
		nicPrice[n] /= total
	}

	// sampleCosts returns the cost of a sample of each model where it is cheapest, in the batches of a space.
	sampleCosts := func(space *planspace.Space) []float64 {
		layout := placement.FluidLayout(space)
		groupPrices := lists.Filled(len(layout.DeviceGroups), func(c int) float64 { return devicePrice[layout.DeviceGroups[c].Kind] })
		return layout.CheapestCosts(groupPrices, nicPrice)
	}
	return &PooledDevices{problem: p, cascades: lax.Cascades, minLateShares: lax.MinLateShares, deviceScale: 1, devicePrice: devicePrice, nicPrice: nicPrice, inTimeCost: sampleCosts(inTime), anyTimeCost: sampleCosts(lax)}, nil
}

// lateCascade is a cascade of whose requests a share is late, with the least that it costs per request.
type lateCascade struct{ cost, accuracy, lateShare float64 }

// lateCascades lists, by rising cost, what each cascade costs per request if a share of its requests is late (past the
// SLO), for an SLO over all requests together. Costs are in seconds of the pooled devices.
//
// Samples of requests in time are in batches of at most the SLO and cost inTimeCost; those of late ones may be in
// cheaper batches and cost lateCost, both by model. If a share l of the requests is late, the cascade costs least if
// these are the ones that reach the most models, as they have the most samples. Then min(l, reach) of the requests are
// late at a model that a share reach of all requests reaches:
//
//	cost(l) = Σ_m lateCost(m) · min(l, reach(m)) + inTimeCost(m) · max(0, reach(m) - l)
//
// l is at least the share that is late even without queueing (minLateShares). The cost is linear in l between two
// reaches, so only that share and the reaches above it are listed, and of these only those of models at which late
// samples are cheaper, as beyond the others nothing is saved.
func (p *PooledDevices) lateCascades(lateCost []float64) []lateCascade {
	var options []lateCascade
	for i := range p.cascades {
		c := &p.cascades[i]

		// The late shares at which the slope changes.
		minLateShare := p.minLateShares[i]
		shares := []float64{minLateShare}
		for k, m := range c.Models {
			reachShare := float64(c.ReachCounts[k]) / float64(p.problem.PlanningSamples.N)
			if lateIsCheaper := p.inTimeCost[m] > lateCost[m]; reachShare > minLateShare && lateIsCheaper {
				shares = append(shares, reachShare)
			}
		}

		// The cost at each.
		for _, lateShare := range shares {
			option := lateCascade{accuracy: cascades.PlannedAccuracy(p.problem, c), lateShare: lateShare}
			for k, m := range c.Models {
				reachShare := float64(c.ReachCounts[k]) / float64(p.problem.PlanningSamples.N)
				option.cost += lateCost[m] * min(lateShare, reachShare)
				if reachShare > lateShare {
					option.cost += p.inTimeCost[m] * (reachShare - lateShare)
				}
			}
			if !math.IsInf(option.cost, 1) {
				options = append(options, option)
			}
		}
	}
	slices.SortFunc(options, func(a, b lateCascade) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.accuracy, a.accuracy))
	})
	return options
}

// envelopeAtPrice returns, as a function of the cost per request, the most that mixtures of cascades with late requests
// reach of accuracy - price · lateShare: the upper concave envelope of the single ones. price is the accuracy that a
// late request is charged. list is sorted by rising cost.
func envelopeAtPrice(list []lateCascade, price float64) (envelope pareto.Envelope) {
	maxValue := math.Inf(-1)
	for i := range list {
		cost, value := list[i].cost, list[i].accuracy-price*list[i].lateShare
		if value <= maxValue {
			continue
		}
		maxValue = value
		envelope.Add(cost, value)
	}
	return envelope
}

// BoundOverRequests returns the accuracy that no plan exceeds, weighted over all ranges of rates, for an SLO over all
// requests together. bounds has such an accuracy for each range alone. BoundOverRequests lowers those for which it
// finds a smaller one.
//
// A range is served by a mixture of cascades, part of whose requests are late. Of all requests at most a share
// maxLateShare = 1 - percentile may be late, so of the requests of range r at most maxLateShare / weight(r). For any
// price ≥ 0, in accuracy, that a late request is charged, envelope(price, cost) is the most accuracy - price ·
// lateShare that mixtures of a cost per request reach. At its upper edge range r has deviceScale / edge(r) device
// seconds for each request. So each price gives the bounds below (Lagrange), and the least over the tried prices
// counts:
//
//	accuracy(r) ≤ envelope(price, deviceScale / edge(r)) + price · min(1, maxLateShare / weight(r))
//	total ≤ Σ_r weight(r) · envelope(price, deviceScale / edge(r)) + price · maxLateShare
func (p *PooledDevices) BoundOverRequests(bounds []float64) (total float64) {
	// Late requests may be in batches of any length, so they cost anyTimeCost.
	options, maxLateShare := p.lateCascades(p.anyTimeCost), 1-p.problem.Percentile
	total = minOverPrices(func(price float64) float64 {
		envelope, totalBound := envelopeAtPrice(options, price), price*maxLateShare
		for r, edge := range p.problem.RangeEdges {
			chargedAccuracy := envelope.At(p.deviceScale / edge)
			totalBound += p.problem.RangeWeights[r] * chargedAccuracy
			// Every tried price bounds the ranges, too.
			bounds[r] = min(bounds[r], chargedAccuracy+price*min(1, maxLateShare/p.problem.RangeWeights[r]))
		}
		return totalBound
	})
	return min(total, p.problem.WeightedSum(bounds))
}

// boundAtScale returns the accuracy that no plan exceeds on `scale` times the devices, for an SLO over all requests
// together. If no plan exists, it returns NaN. The search for the fewest devices that reach a target calls it.
func (p *PooledDevices) boundAtScale(scale float64) float64 {
	scaled := *p
	scaled.deviceScale = scale
	total := scaled.BoundOverRequests(slices.Repeat([]float64{math.Inf(1)}, len(p.problem.RangeEdges)))
	if p.problem.SimulatesMeasured() { // a plan on measured rates need not hold the highest rate
		total = LargerBound(total, scaled.MeasuredBound())
	}
	return total
}

// LargerBound returns the larger of two bounds on the accuracy. bound may be NaN, and other below 0, if they are not
// known. If neither is known, it returns bound.
func LargerBound(bound, other float64) float64 {
	if other >= 0 && !(bound >= other) {
		return other
	}
	return bound
}

// maxWindows limits the windows that measured rates are cut into. Of more seconds, several form one window.
const maxWindows = 2048

// MeasuredBound returns the accuracy that no plan exceeds on the measured rates (requests of every second of a trace),
// if all requests together keep the SLO. It holds even for plans that could not hold a rate forever.
//
// Cut time into windows. A request that is in time is answered within the window of its arrival or the SLO after it, so
// the n requests of a window share windowSeconds + SLO seconds of the pooled devices. At best all get one mixture of
// cascades, because the envelope is concave. The sum of the windows' best accuracies, for any cut, is a bound, so the
// cut of the least sum is chosen, of windows of 1, 2, 4, … basic windows. A late request is charged a price in
// accuracy, and the lateness allowed is added back at that price, as in BoundOverRequests. Late requests take none of
// these seconds, as they may be worked on at any time.
//
// The bound also holds for the mean of random streams: the best of a window is concave in its requests and its work, so
// chance in the arrivals does not raise it.
func (p *PooledDevices) MeasuredBound() float64 {
	freeCost := make([]float64, len(p.problem.Models)) // by model: a late sample costs 0
	options, maxLateShare := p.lateCascades(freeCost), 1-p.problem.Percentile
	windowSeconds := (len(p.problem.MeasuredRates) + maxWindows - 1) / maxWindows // of a basic window, for at most maxWindows of them
	cumulativeRequests := []float64{0}                                            // requests that arrived until the end of each basic window
	for second := 0; second < len(p.problem.MeasuredRates); second += windowSeconds {
		cumulativeRequests = append(cumulativeRequests, cumulativeRequests[len(cumulativeRequests)-1]+lists.Total(p.problem.MeasuredRates[second:min(second+windowSeconds, len(p.problem.MeasuredRates))]))
	}

	// For each price find the cut into windows of the least sum, by dynamic programming over their ends. bestUntil has, by end of
	// a basic window, the least sum until then of what windows reach: correct answers less the price of late requests.
	requests := cumulativeRequests[len(cumulativeRequests)-1]
	return minOverPrices(func(price float64) float64 {
		envelope, bestUntil := envelopeAtPrice(options, price), make([]float64, len(cumulativeRequests))
		for end := 1; end < len(cumulativeRequests); end++ {
			bestUntil[end] = math.Inf(1)
			// The last window before this end has 1, 2, 4, … basic windows.
			for length := 1; length <= end; length *= 2 {
				n, value := cumulativeRequests[end]-cumulativeRequests[end-length], bestUntil[end-length]
				if n > 0 {
					deviceSeconds := p.deviceScale * (float64(length*windowSeconds) + p.problem.SLO.Seconds())
					value += n * envelope.At(deviceSeconds/n)
				}
				bestUntil[end] = min(bestUntil[end], value)
			}
		}
		return bestUntil[len(bestUntil)-1]/requests + price*maxLateShare
	})
}

// The prices of lateness that the search covers, and its number of steps.
const (
	minLatePrice, maxLatePrice = 1e-3, 1e3
	priceSteps                 = 40
)

// minOverPrices returns the least of a bound on the accuracy over the prices that late requests may be charged, as each
// price gives a valid bound. It is a golden-section search on the logarithm of the price from minLatePrice to
// maxLatePrice, since the bound is convex in the price. A price of 0 is tried, too.
func minOverPrices(boundAt func(price float64) float64) float64 {
	lowest := boundAt(0)
	low, high := math.Log(minLatePrice), math.Log(maxLatePrice)
	for range priceSteps {
		lower, upper := low+(high-low)*.382, low+(high-low)*.618
		atLower, atUpper := boundAt(math.Exp(lower)), boundAt(math.Exp(upper))
		if lowest = min(lowest, atLower, atUpper); atLower <= atUpper {
			high = upper
		} else {
			low = lower
		}
	}
	return lowest
}
