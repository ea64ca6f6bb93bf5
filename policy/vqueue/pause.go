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

// pausePricer decides when an instance pauses to pull: if prompts would make more of its batch late than they win.
type pausePricer struct {
	fleet    *instanceFleet
	requests *requestTable
	groups   *groupTable
}

// shouldPause reports whether an instance should finish its batch before it pulls the next prompts from its queue,
// because prompts slow down the answers that run. It compares what the running requests gain with what the waiting
// ones lose, in units of the objective. If the policy serves several networks, it returns false, because pauses
// cost throughput there. An instance uses Beta/DecodeAlone of its time for each request that runs without prompts
// beside it, and idles for the rest. Decode is the time per token with prompts beside it.
func (s *pausePricer) shouldPause(now time.Duration, q int32) bool {
	in := &s.fleet.instances[q]
	if s.groups.options.Rule != VirtualQueues || s.groups.options.NoPausePricing || len(in.runningBatches) == 0 || len(s.fleet.tables.Networks) > 1 {
		return false
	}

	// Add up the gain of the running requests by a pause, and the share of the instance that they use.
	savedCost, busyShare := 0.0, 0.0
	for _, slot := range in.runningBatches {
		r := &s.requests.bySlot[s.requests.batchRequests[slot]]
		e := s.fleet.estimatorOn(in, r.model, false)
		if e.DecodeAlone == 0 || e.Decode < minSlowdown*e.DecodeAlone {
			return false // the speed of the batch without prompts is not known, or is hardly higher
		}
		busyShare += e.Beta / e.DecodeAlone
		if timeLeft := toSeconds(r.deadline - now); r.open && timeLeft > 0 && s.fleet.classes[r.model].milestone == atAnswer {
			savedCost += latenessSlope(e, timeLeft) * (1 - e.DecodeAlone/e.Decode)
		}
	}
	return savedCost > 0 && savedCost > waiterWeight*s.pauseCost(q, max(0, 1-busyShare))
}

// latenessSlope returns by how much a delay of a second raises the probability that a running request is late, at
// the pace of a full batch, if it has timeLeft seconds to its deadline. The tokens that remain of its answer are
// exponential, with the mean at a random moment of the answer:
//
//	exp(-timeLeft / remainingTime) / remainingTime
func latenessSlope(e *RCT, timeLeft float64) float64 {
	remainingTokens := (e.OutputVar + e.OutputMean*e.OutputMean) / (2 * e.OutputMean)
	remainingTime := remainingTokens * e.Decode
	return math.Exp(-timeLeft/remainingTime) / remainingTime
}

// pauseCost returns the cost of a second of pause for those who wait in a queue, in the units of the objective.
// Meanwhile the share idleShare of the instance is idle. The first group waits for the whole second, the others
// for that share. If nobody waits in the queue, other instances serve what it would pull.
func (s *pausePricer) pauseCost(q int32, idleShare float64) float64 {
	problem, order := &s.groups.problem, &s.groups.assignment.queues[q]
	cost, kind := problem.EndWeight*idleShare, problem.Queues[q].Kind
	if len(order.slots) > 0 {
		head := &order.slots[0]
		cost += (1 - idleShare) * (problem.startCost(&problem.Groups[head.group], problem.Cost(head.group, kind), head.start+1, head.variance) - head.cost)
		cost += idleShare * problem.delayCost(kind, order, 0, maxPricedGroups, priceHorizon, 0, math.Inf(1)) / priceHorizon
	}
	return cost
}
