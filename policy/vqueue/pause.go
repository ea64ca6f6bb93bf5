package vqueue

import (
	"math"
	"time"
)

const (
	// Constants of the price of a pause. They were chosen on the first half of Azure's requests for code, with
	// five seeds, and on 12,000 rows of its conversations.
	//
	// waiterWeight is the weight of the cost of waiting requests: requests that arrive later wait behind them.
	waiterWeight = 20
	// priceHorizon is the delay of a queue, in seconds, over which the cost of a second is averaged.
	priceHorizon = 15
	// minSlowdown is how many times slower prompts have to make a batch for a pause. Then the batch is fast
	// without prompts, so that a pause costs little throughput.
	minSlowdown = 4
	// maxPricedGroups is the number of groups of a queue by which a pause is priced, so that a long queue makes no
	// decision slower. The groups behind count by the linear growth of their lateness.
	maxPricedGroups = 64
)

// pausePricer decides when an instance should start no request for a while: if the prompts of further requests would slow down and make
// late more of its batch than they win.
type pausePricer struct {
	fleet    *instanceFleet
	requests *requestTable
	groups   *groupTable
}

// shouldPause reports whether an instance should finish its batch before it starts the next prompts from its queue,
// because prompts slow down the answers that run. It compares what the running requests gain with what the waiting
// ones lose in a second of pause, in units of the objective. If the policy serves several networks, it returns false,
// because pauses cost throughput there.
//
// Of the estimator's seconds per token, Decode is the time of a request with prompts beside it, DecodeAlone that without
// prompts, and Beta the part of the instance's time that the token costs. So during a pause a request uses the share
// Beta/DecodeAlone of the instance, and what all together do not use is idle.
func (p *pausePricer) shouldPause(now time.Duration, queueIndex int32) bool {
	instance := &p.fleet.instances[queueIndex]
	if p.groups.options.Rule != VirtualQueues || p.groups.options.NoPausePricing || len(instance.RunningBatches) == 0 || len(p.fleet.tables.Networks) > 1 {
		return false
	}

	// Add up the gain of the running requests by a pause, and the share of the instance that they use.
	savedCost, busyShare := 0.0, 0.0
	for _, batchNumber := range instance.RunningBatches {
		request := &p.requests.byNumber[p.requests.requestOfBatch[batchNumber]]
		estimator := p.fleet.EstimatorOn(instance, request.Model, false)
		if estimator.DecodeAlone == 0 || estimator.Decode < minSlowdown*estimator.DecodeAlone {
			return false // the speed of the batch without prompts is not known, or is hardly higher
		}
		busyShare += estimator.Beta / estimator.DecodeAlone
		// Decoding without prompts saves the part 1 - DecodeAlone/Decode of a token's time. That helps only a request whose SLO applies to the
		// answer, and whose deadline is still ahead.
		if timeLeft := toSeconds(request.Deadline - now); request.isOpen && timeLeft > 0 && p.fleet.classes[request.Model].milestone == atAnswer {
			savedCost += latenessSlope(estimator, timeLeft) * (1 - estimator.DecodeAlone/estimator.Decode)
		}
	}

	// The loss of those who wait counts waiterWeight times, because requests that arrive later wait behind them.
	return savedCost > 0 && savedCost > waiterWeight*p.pauseCost(queueIndex, max(0, 1-busyShare))
}

// latenessSlope returns by how much a delay of a second raises the probability that a running request is late, if timeLeft seconds remain
// to its deadline and it goes on at the pace of a full batch. The number of tokens that remain of its answer is taken to be exponential. Its
// mean is that at a random moment of an answer, (variance + mean^2) / (2 mean) of the answers' lengths. The slope is then
//
//	exp(-timeLeft / remainingTime) / remainingTime
func latenessSlope(estimator *RCT, timeLeft float64) float64 {
	remainingTokens := (estimator.OutputVar + estimator.OutputMean*estimator.OutputMean) / (2 * estimator.OutputMean)
	remainingTime := remainingTokens * estimator.Decode
	return math.Exp(-timeLeft/remainingTime) / remainingTime
}

// pauseCost returns what it costs those who wait in a queue, in units of the objective, if the instance starts none of them for a second.
// The requests that run go on meanwhile, and the share idleShare of the instance is idle: only by that share less work gets done, so only by
// that share of a second the queue falls back. The first group, which would start now, waits for the whole second.
// If nobody waits in the queue, only the delay of the queue's end counts.
func (p *pausePricer) pauseCost(queueIndex int32, idleShare float64) float64 {
	problem, order := &p.groups.problem, &p.groups.assignment.queues[queueIndex]
	cost, kind := problem.EndWeight*idleShare, problem.Queues[queueIndex].Kind
	if len(order.entries) > 0 {
		// All groups wait for the share idleShare of the second, and the first group for the rest of it, too. The loss of all is averaged over a
		// delay of priceHorizon seconds, because a single second makes few requests late.
		head := &order.entries[0]
		cost += (1 - idleShare) * (problem.startCost(&problem.Groups[head.group], problem.Cost(head.group, kind), head.start+1, head.variance) - head.cost)
		const firstPosition, addedVariance = 0, 0
		noBound := math.Inf(1)
		cost += idleShare * problem.delayCost(kind, order, firstPosition, maxPricedGroups, priceHorizon, addedVariance, noBound) / priceHorizon
	}
	return cost
}
