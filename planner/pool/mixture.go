package pool

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/solver/queueing"
)

// maxMixtures bounds how often each model's margin is chosen.
const mixtures = 2

// sketchMargins are the margins that each model chooses from, the smallest first.
var sketchMargins = []float64{0.05, 0.1, 0.2, 0.3}

// A formula of queueing gives the places for waiting requests that a pipeline has. Until a plan is simulated,
// they are multiplied by defaultPlaceFactor. Later the factor is its geometric mean with the one that simulation
// of the best plan showed.
const (
	usualRoom           = 1.5
	leastRoom, mostRoom = 0.02, 5.0
	mostPlaces          = 60.0 // more places change little
	bisections          = 20
)

// tryMixedMargins plans with the margin for each model at which a request costs least. How much of its devices a
// model can use with margins that were not simulated is estimated by a formula of queueing, corrected by what
// simulation of the best plan showed.
//
//  1. Plans with one margin for all models are solved, with and without time to fill batches.
//  2. Each model takes the margin whose pipelines carry a request for the least price of their devices.
//  3. That plan is simulated. If it is no better, the one with the other delay is. The choice is made
//     again from what the better one showed.
//
// If models take turns on devices, or a plan runs already, nothing is changed.
func mix(ctx context.Context, a *tuning) error {
	if a.best == nil || !a.grows() || a.running() != nil || takeTurns(a.best.res.Plan) {
		return nil
	}
	for range mixtures {
		if a.overBudget != nil || len(a.best.loads) == 0 || reached(a) {
			return nil
		}
		if len(a.sketches) == 0 {
			if err := sketch(ctx, a); err != nil {
				return err
			}
		}
		better, err := tryMixtures(ctx, a)
		if err != nil || !better {
			return err
		}
	}
	return nil
}

// tryMixturesOnce tries the mixtures of margins with each delay of filling batches, the cheapest first, until
// one is better than the best plan by a worthwhile gain. It reports whether one is.
func tryMixtures(ctx context.Context, a *tuning) (bool, error) {
	type priced struct {
		setting
		price float64
	}

	// The cheapest margins with each delay of filling batches.
	var list []priced
	factors := roomFactors(a)
	for _, fill := range fills(a) {
		if s, price := mixture(a, factors, fill); !math.IsInf(price, 1) {
			list = append(list, priced{s, price})
		}
	}
	slices.SortStableFunc(list, func(s, t priced) int { return cmp.Compare(s.price, t.price) })

	// Plan and simulate them, the cheapest first.
	rate := a.best.rate
	for k, s := range list {
		if ctx.Err() != nil || a.overBudget != nil {
			break
		}
		work := a.work
		next, err := a.try(ctx, s.setting)
		if k > 0 {
			a.work = work // its work does not reduce the number of neighbours
		}
		if err != nil || next != nil && next == a.best && next.rate >= rate*(1+worthwhile) {
			return err == nil, err
		}
	}
	return false, nil
}

// fillFactors returns the delays of filling a batch, as multiples, that the SLO may have to leave.
func fills(a *tuning) []float64 {
	if widest(a).fill == 0 && a.fillRates != nil && a.largestBatch() > 1 {
		return []float64{0, 1}
	}
	return []float64{widest(a).fill}
}

// solveSketches solves for plans with one margin for all models, without simulating them.
func sketch(ctx context.Context, a *tuning) error {
	for _, fill := range fills(a) {
		of := a.best.shape
		of.fill = fill
		for _, margin := range sketchMargins {
			s := a.same(margin, of)
			if s.equal(a.best.setting) {
				a.sketches = append(a.sketches, a.best)
				continue
			}
			res, err := solved(ctx, a, s, 0)
			if err != nil {
				return err
			}
			if res == nil {
				break // a larger margin leaves less
			}
			a.sketches = append(a.sketches, &attempt{setting: s, res: res})
		}
	}
	return nil
}

// placeFactors returns, for each model, the factor on waiting places that simulation of the best plan shows.
func roomFactors(a *tuning) (factors []float64) {
	for i := range a.models {
		shown := a.best.loads[i] * a.best.headroom[i].Utilisation
		factors = append(factors, math.Sqrt(usualRoom*roomFactor(rooms(a.best.res.Plan, i), a.dropped(i), shown)))
	}
	return factors
}

// allowedLateShare returns the share of a model's requests that may be late or dropped.
func (a *tuning) dropped(i int) float64 {
	return 1 - cmp.Or(a.cert.Attainment, document.ShareAt(a.models[i].Percentile))
}

// cheapestMargins returns the setting in which each model has the cheapest margin of the sketches with a given
// delay of filling batches, and the weighted sum over models of what a request then costs.
func mixture(a *tuning, factors []float64, fill float64) (setting, float64) {
	prices := devicePrices(a.best.res.Plan)
	of := a.best.shape
	of.fill = fill
	s, total := a.same(startMargin, of), 0.0
	for i := range s.headroom {
		least := math.Inf(1)
		for _, t := range a.sketches {
			if t.fill != fill {
				continue
			}
			use := sustainable(rooms(t.res.Plan, i), a.dropped(i), factors[i])
			carried := t.res.Plan.Promised(i).RPS / t.headroom[i].Utilisation
			if price := modelPrice(t.res.Plan, i, prices) / (use * carried); price < least {
				least, s.headroom[i] = price, a.fixed(i, formats.Headroom{Margin: t.headroom[i].Margin, Utilisation: min(1, max(leastUse, use))})
			}
		}
		total += least * cmp.Or(a.models[i].Weight, 1)
	}
	return s, total
}

// pipelineQueue is a pipeline as a formula of queueing sees it: a server with places for waiting requests.
type waitingRoom struct {
	rate   float64 // requests per second that the pipeline carries
	places float64 // requests that may wait for it and still be in time
}

// pipelineQueues returns the queues of a model's pipelines. A pipeline has as many places as it serves requests
// in the time that the SLO leaves beside latency and the filling of a batch. A batch fills at the rate of all
// pipelines together: whichever is free takes the waiting requests.
func rooms(plan *formats.Plan, model int) (list []waitingRoom) {
	pipelines, total := plan.Deployment[model].Pipelines, 0.0
	for i := range pipelines {
		rate := math.Inf(1)
		for _, s := range pipelines[i].Stages {
			rate = min(rate, s.RPS)
		}
		list = append(list, waitingRoom{rate: rate})
		total += rate
	}
	for i := range pipelines {
		l := &pipelines[i]
		spare := (plan.Promised(model).SLOUS - l.LatencyUS).D().Seconds() - float64(l.Batch-1)/total
		list[i].places = list[i].rate * max(0, spare)
	}
	return list
}

// sustainableUtilisation returns the utilisation of pipelines at which they drop the given share of requests, if
// requests arrive at random and a pipeline is a server of constant speed. The factor multiplies all places.
func sustainable(list []waitingRoom, dropped, factor float64) float64 {
	low, high := leastUse, 1/(1-dropped)
	for range bisections {
		u := (low + high) / 2
		lost, total := 0.0, 0.0
		for _, w := range list {
			lost, total = lost+w.rate*queueing.Lost(u, min(w.places*factor, mostPlaces)), total+w.rate
		}
		if lost > dropped*total {
			high = u
		} else {
			low = u
		}
	}
	return low
}

// placeFactor returns the factor on places at which sustainableUtilisation equals what simulation showed.
func roomFactor(list []waitingRoom, dropped, shown float64) float64 {
	low, high := leastRoom, mostRoom
	for range bisections {
		if f := math.Sqrt(low * high); sustainable(list, dropped, f) < shown {
			low = f
		} else {
			high = f
		}
	}
	return low
}

// devicePricesOf returns what one more device of each kind would gain, by the plan's limits. A kind without a
// limit has a thousandth of the highest price. If no kind has a limit, all have the same price.
func devicePrices(plan *formats.Plan) map[string]float64 {
	prices, highest := map[string]float64{}, 0.0
	for _, l := range plan.Limits {
		if device, ok := strings.CutPrefix(l.What, "device "); ok && l.Gain > 0 {
			prices[device], highest = l.Gain, max(highest, l.Gain)
		}
	}
	for _, p := range plan.Pools {
		if prices[p.Device] == 0 {
			prices[p.Device] = cmp.Or(highest/1000, 1)
		}
	}
	return prices
}

// modelDevicePrice returns the price of a model's devices.
func modelPrice(plan *formats.Plan, model int, prices map[string]float64) (price float64) {
	for _, l := range plan.Deployment[model].Pipelines {
		for _, s := range l.Stages {
			price += s.GPUs * prices[s.Device]
		}
	}
	return price
}
