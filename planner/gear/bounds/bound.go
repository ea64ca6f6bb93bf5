package bounds

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
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
// together: it prices device and network time by the duals of the linear program of the highest range of rates, such
// that a second of all devices costs 1, and each model's samples by these prices. inTime is the space of plans within
// the SLO, and lax the one without an SLO, as late requests may use its cascades and batches.
func PoolDevices(ctx context.Context, p *cascades.Problem, inTime, lax *planspace.Space) (*PooledDevices, error) {
	program, sol, _, err := lax.SolveRelaxation(ctx, len(p.RangeEdges)-1, false, nil)
	if err != nil {
		return nil, err
	}

	// Prices are the duals of device time and NIC time. The program has one range, whose rows have index 0.
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
		groupPrices := make([]float64, len(layout.DeviceGroups))
		for c := range groupPrices {
			groupPrices[c] = devicePrice[layout.DeviceGroups[c].Kind]
		}
		return layout.CheapestCosts(groupPrices, nicPrice)
	}
	return &PooledDevices{problem: p, cascades: lax.Cascades, minLateShares: lax.MinLateShares, deviceScale: 1, devicePrice: devicePrice, nicPrice: nicPrice, inTimeCost: sampleCosts(inTime), anyTimeCost: sampleCosts(lax)}, nil
}

// lateCascade is a cascade of whose requests a share is late, with the least that it costs per request.
type lateCascade struct{ cost, accuracy, lateShare float64 }

// lateCascades lists, by rising cost, what each cascade costs per request if a share of its requests is late (past the
// SLO), for an SLO over all requests together. Costs are in seconds of the pooled devices.
//
// Requests in time are in batches of at most the SLO and cost inTimeCost; late ones may be in cheaper batches and cost
// lateCost, both by model. Requests that reach the most models gain most by being late, so a share l of the requests is
// late at every model: of the requests that reach the model, min(l, reach). Between two reaches the cost is linear in
// l, so only the reaches and the least late share are listed:
//
//	cost(l) = Σ_m lateCost(m) · min(l, reach(m)) + inTimeCost(m) · max(0, reach(m) - l)
func (p *PooledDevices) lateCascades(lateCost []float64) []lateCascade {
	var options []lateCascade
	for i := range p.cascades {
		c := &p.cascades[i]

		// The late shares at which the slope changes.
		shares := []float64{p.minLateShares[i]}
		for k, m := range c.Models {
			if reachShare := float64(c.ReachCounts[k]) / float64(p.problem.PlanningSamples.N); reachShare > p.minLateShares[i] && p.inTimeCost[m] > lateCost[m] {
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

// BoundOverRequests returns the accuracy that no plan exceeds over all ranges of rates by weight, for an SLO over all
// requests together, and lowers bounds, the same of each range, where it knows better. A range is served by a mixture
// of cascades with shares of late requests, which costs no more than the devices. No range may have more late requests
// than the percentile allows in all ranges, which share these. Any price of a late request gives a bound (Lagrange),
// and the least over the tried prices counts. envelope is the best mixture's accuracy less that price, for a cost per
// request of deviceScale / edge(r), as edge(r) requests per second share the devices:
//
//	total ≤ Σ_r weight(r) · envelope(price, deviceScale / edge(r)) + price · maxLateShare
func (p *PooledDevices) BoundOverRequests(bounds []float64) (total float64) {
	options, maxLateShare := p.lateCascades(p.anyTimeCost), 1-p.problem.Percentile
	total = minOverPrices(func(price float64) float64 {
		envelope, sum := envelopeAtPrice(options, price), price*maxLateShare
		for r, edge := range p.problem.RangeEdges {
			accuracy := envelope.At(p.deviceScale / edge)
			bounds[r] = min(bounds[r], accuracy+price*min(1, maxLateShare/p.problem.RangeWeights[r]))
			sum += p.problem.RangeWeights[r] * accuracy
		}
		return sum
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
