package headroom

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/pool/problem"
	"inferplan/solver/queueing"
)

// maxMixtures bounds how often each model's margin is chosen.
const maxMixtures = 2

// sketchMargins are the margins that each model chooses from, the smallest first.
var sketchMargins = []float64{0.05, 0.1, 0.2, 0.3}

// A formula of queueing gives the places for waiting requests that a pipeline has. Until a plan is simulated,
// they are multiplied by defaultPlaceFactor. Later the factor is its geometric mean with the one that simulation
// of the best plan showed.
const (
	defaultPlaceFactor             = 1.5
	minPlaceFactor, maxPlaceFactor = 0.02, 5.0
	maxPlaces                      = 60.0 // more places change little
	bisectionSteps                 = 20
)

// tryMixedMargins gives each model a margin of its own (the part of its SLO that is kept back): the one whose pipelines
// carry a request for the least price of their devices. How much of its devices a model can use with margins that were
// not simulated is estimated by a formula of queueing, corrected by what simulation of the best plan showed.
//
//  1. Plans with one margin for all models are solved and not simulated: the sketches. In some of them the SLO leaves
//     time for batches to fill, in others it leaves none.
//  2. With and without that time, each model takes the margin of the sketch in which a request of it costs least.
//  3. The cheaper of the two plans is simulated. If it is no better than the best plan so far, the other one is, too.
//     From what a better plan showed, the margins are chosen once more.
//
// It changes nothing if a price is minimised, if a plan runs whose margins are known, if models take turns on devices,
// or once the best plan is near enough to the bound.
func tryMixedMargins(ctx context.Context, tuner *planTuner) error {
	if tuner.bestAttempt == nil || !tuner.maximises() || tuner.runningHeadroom() != nil || modelsTakeTurns(tuner.bestAttempt.result.Plan) {
		return nil
	}
	for range maxMixtures {
		// The best plan has no loads if it was not simulated.
		if tuner.overBudgetErr != nil || len(tuner.bestAttempt.loads) == 0 || reachedGap(tuner) {
			return nil
		}
		if len(tuner.sketches) == 0 {
			if err := solveSketches(ctx, tuner); err != nil {
				return err
			}
		}
		improved, err := tryMixturesOnce(ctx, tuner)
		if err != nil || !improved {
			return err
		}
	}
	return nil
}

// tryMixturesOnce plans and simulates mixtures, in which each model has a margin of its own (the part of its
// SLO that is kept back). There is one for each delay of filling batches that is tried (the time that latencies
// include until a batch has filled). The mixture in which requests cost least comes first. It stops at the
// first that raises the best plan's rate by at least minRateGain, and reports whether there was one.
func tryMixturesOnce(ctx context.Context, tuner *planTuner) (bool, error) {
	type mixture struct {
		setting planSetting
		price   float64 // of one request/s of each model, by weight
	}

	// The cheapest margins with each delay of filling batches. Delays are multiples of the expected one. The places that
	// the formula of queueing gives to waiting requests are multiplied by a factor for each model.
	var mixtures []mixture
	modelFactors := placeFactors(tuner)
	for _, fillFactor := range fillFactors(tuner) {
		if setting, price := cheapestMargins(tuner, modelFactors, fillFactor); !math.IsInf(price, 1) {
			mixtures = append(mixtures, mixture{setting, price})
		}
	}
	slices.SortStableFunc(mixtures, func(a, b mixture) int { return cmp.Compare(a.price, b.price) })

	// Plan and simulate them, the cheapest first.
	rateBefore := tuner.bestAttempt.sustainedRate
	for k, candidate := range mixtures {
		if ctx.Err() != nil || tuner.overBudgetErr != nil {
			break
		}
		workBefore := tuner.workDone
		attempt, err := tuner.trySetting(ctx, candidate.setting) // nil if there is no such plan or it was tried before
		if k > 0 {
			tuner.workDone = workBefore // tryNeighbours, the next step, shall have as much work as after one mixture
		}
		if err != nil {
			return false, err
		}
		if attempt != nil && attempt == tuner.bestAttempt && attempt.sustainedRate >= rateBefore*(1+minRateGain) {
			return true, nil
		}
	}
	return false, nil
}

// fillFactors returns the delays of filling a batch that are tried, as multiples of the expected one: what the
// options ask for or, if they ask for none and the rates at which batches fill are known, 0 and 1.
func fillFactors(tuner *planTuner) []float64 {
	if widestShape(tuner).fillFactor == 0 && tuner.fillRates != nil && tuner.largestBatch() > 1 {
		return []float64{0, 1}
	}
	return []float64{widestShape(tuner).fillFactor}
}

// solveSketches fills tuner.sketches with plans that have one margin (part of the SLO kept back) for all models, for each of
// sketchMargins and each delay of filling batches. They are not simulated. They show the devices that each model's rate
// takes with each margin.
func solveSketches(ctx context.Context, tuner *planTuner) error {
	for _, fill := range fillFactors(tuner) {
		shape := tuner.bestAttempt.setting.shape
		shape.fillFactor = fill
		for _, margin := range sketchMargins {
			setting := tuner.uniformSetting(margin, shape)
			if setting.equal(tuner.bestAttempt.setting) {
				tuner.sketches = append(tuner.sketches, tuner.bestAttempt)
				continue
			}
			res, err := solveSetting(ctx, tuner, setting, 0)
			if err != nil {
				return err
			}
			if res == nil {
				break // a larger margin leaves less
			}
			tuner.sketches = append(tuner.sketches, &planAttempt{setting: setting, result: res})
		}
	}
	return nil
}

// placeFactors returns, for each model, the factor on the waiting places of its pipelines for the formula of queueing
// (sustainableUtilisation). It is the geometric mean of the usual factor and the one with which the formula agrees with
// the simulation of the best plan, as a single plan shows little.
func placeFactors(tuner *planTuner) (factors []float64) {
	for i := range tuner.models {
		utilisation := tuner.bestAttempt.loads[i] * tuner.bestAttempt.setting.headroom[i].Utilisation
		queues := pipelineQueues(tuner.bestAttempt.result.Plan, i)
		simulatedFactor := placeFactor(queues, tuner.allowedLateShare(i), utilisation)
		factors = append(factors, math.Sqrt(defaultPlaceFactor*simulatedFactor))
	}
	return factors
}

// allowedLateShare returns the share of a model's requests that may be late or dropped.
func (a *planTuner) allowedLateShare(i int) float64 {
	return 1 - cmp.Or(a.certifyRequest.Attainment, document.ShareAt(a.models[i].Percentile))
}

// cheapestMargins returns the setting in which each model has the margin (part of its SLO kept back) at which one request/s
// of it costs the least price of devices. It chooses from the margins of the sketches (plans that were solved but not
// simulated) whose latencies include fillFactor times the expected delay until a batch has filled. The part of what its
// replicas carry that a model can use in a sketch, its utilisation, is estimated by a formula of queueing. That formula
// has a number of places for waiting requests, which placeFactors multiply by model. Margins and utilisations that the
// workload sets stay. It also returns the sum of the prices over the models, by weight; without a sketch it is infinite.
func cheapestMargins(tuner *planTuner, placeFactors []float64, fillFactor float64) (planSetting, float64) {
	prices := devicePricesOf(tuner.bestAttempt.result.Plan)
	shape := tuner.bestAttempt.setting.shape
	shape.fillFactor = fillFactor
	mixed, total := tuner.uniformSetting(startMargin, shape), 0.0
	for i := range mixed.headroom {
		minPrice := math.Inf(1)
		for _, sketch := range tuner.sketches {
			if sketch.setting.shape.fillFactor != fillFactor {
				continue
			}
			// The model's devices cost their price for the rate that can be used of what they carry without queueing. The
			// sketch promises that rate times its own utilisation.
			utilisation := sustainableUtilisation(pipelineQueues(sketch.result.Plan, i), tuner.allowedLateShare(i), placeFactors[i])
			carriedRPS := sketch.result.Plan.PromiseFor(i).RPS / sketch.setting.headroom[i].Utilisation
			if price := modelDevicePrice(sketch.result.Plan, i, prices) / (utilisation * carriedRPS); price < minPrice {
				minPrice = price
				headroom := formats.Headroom{Margin: sketch.setting.headroom[i].Margin, Utilisation: min(1, max(minUtilisation, utilisation))}
				mixed.headroom[i] = tuner.withWorkloadValues(i, headroom)
			}
		}
		total += minPrice * cmp.Or(tuner.models[i].Weight, 1)
	}
	return mixed, total
}

// pipelineQueue is a pipeline as a formula of queueing sees it: a server with places for waiting requests.
type pipelineQueue struct {
	serviceRate   float64 // requests per second that the pipeline carries
	waitingPlaces float64 // requests that may wait for it and still be in time
}

// pipelineQueues returns the queues of a model's pipelines. A pipeline has as many places as it serves requests
// in the time that the SLO leaves beside latency and the filling of a batch. A batch fills at the rate of all
// pipelines together: whichever is free takes the waiting requests.
func pipelineQueues(plan *formats.Plan, model int) (queues []pipelineQueue) {
	// The rate of a pipeline is that of its slowest stage; total is that of all pipelines.
	pipelines, total := plan.Deployment[model].Pipelines, 0.0
	for i := range pipelines {
		rate := math.Inf(1)
		for _, s := range pipelines[i].Stages {
			rate = min(rate, s.RPS)
		}
		queues = append(queues, pipelineQueue{serviceRate: rate})
		total += rate
	}
	for i := range pipelines {
		pipeline := &pipelines[i]
		fillTime := float64(pipeline.Batch-1) / total // until the further requests of a batch have arrived
		waitTime := (plan.PromiseFor(model).SLOUS - pipeline.LatencyUS).D().Seconds() - fillTime
		queues[i].waitingPlaces = queues[i].serviceRate * max(0, waitTime)
	}
	return queues
}

// sustainableUtilisation returns the utilisation of pipelines (the rate that arrives over the rate that they carry) at
// which the share lateShare of the requests is lost, because they would be late. Requests arrive at random, and a pipeline
// is a server of constant speed with some places to wait, which factor multiplies. It bisects over utilisations.
func sustainableUtilisation(queues []pipelineQueue, lateShare, factor float64) float64 {
	// What is served is at most what the pipelines carry, so at most 1/(1-lateShare) of that can be offered.
	utilisation, _ := problem.Bisect(minUtilisation, 1/(1-lateShare), bisectionSteps, func(utilisation float64) bool {
		lostRate, totalRate := 0.0, 0.0
		for _, queue := range queues {
			lostRate += queue.serviceRate * queueing.LostShare(utilisation, min(queue.waitingPlaces*factor, maxPlaces))
			totalRate += queue.serviceRate
		}
		return lostRate <= lateShare*totalRate
	})
	return utilisation
}

// placeFactor returns the factor on the waiting places of the queues at which sustainableUtilisation gives the simulated
// utilisation, when the share lateShare of the requests may be lost. It bisects over the logarithm of the factor, from
// minPlaceFactor to maxPlaceFactor.
func placeFactor(queues []pipelineQueue, lateShare, simulated float64) float64 {
	lower, upper := minPlaceFactor, maxPlaceFactor
	for range bisectionSteps {
		if f := math.Sqrt(lower * upper); sustainableUtilisation(queues, lateShare, f) < simulated {
			lower = f
		} else {
			upper = f
		}
	}
	return lower
}

// devicePricesOf returns, by device kind, a price of a device to compare margins by: the relative gain of the objective with
// one more device, as the plan's limits state it. A kind without such a limit has a thousandth of the highest price. If no
// kind has one, all have the price 1.
func devicePricesOf(plan *formats.Plan) map[string]float64 {
	prices, highest := map[string]float64{}, 0.0
	for _, l := range plan.Limits {
		if device, ok := strings.CutPrefix(l.Constraint, "device "); ok && l.Gain > 0 {
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

// modelDevicePrice returns the price of all devices, or shares of them, that a model's pipelines take.
func modelDevicePrice(plan *formats.Plan, model int, prices map[string]float64) (price float64) {
	for _, pipeline := range plan.Deployment[model].Pipelines {
		for _, s := range pipeline.Stages {
			price += s.GPUs * prices[s.Device]
		}
	}
	return price
}
