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
	slowdown = 4
	// maxPricedGroups is the number of groups of a queue by which a pause is priced, so that a long queue makes no
	// decision slower. The groups behind count by the linear growth of their lateness.
	mostPriced = 64
)

// pausePricer decides when an instance pauses to pull: if prompts would make more of its batch late than they win.
type pricing struct{ *grouping }

// shouldPause reports whether an instance finishes its batch without the prompts that it would pull next from its
// queue. If the policy serves several networks, it returns false, because pauses cost throughput there. An
// instance uses Beta/DecodeAlone of its time for each request that runs alone, and idles for the rest.
func (s pricing) pauses(now time.Duration, q int32) bool {
	in := &s.instances[q]
	if s.opt.Rule != Planned || s.opt.Unpriced || len(in.running) == 0 || len(s.t.Networks) > 1 {
		return false
	}

	// Add up the gain of the running requests by a pause, and the share of the instance that they use.
	saved, busy := 0.0, 0.0
	for _, slot := range in.running {
		r := &s.requests[s.batches[slot]]
		e := s.estimator(in, r.model, false)
		if e.Alone == 0 || e.Decode < slowdown*e.Alone {
			return false // the speed of the batch without prompts is not known, or is hardly higher
		}
		busy += e.Beta / e.Alone
		if spare := seconds(r.deadline - now); r.open && spare > 0 && s.classes[r.model].milestone == answered {
			saved += lateRise(e, spare) * (1 - e.Alone/e.Decode)
		}
	}
	return saved > 0 && saved > waiterWeight*s.pauseCost(q, max(0, 1-busy))
}

// latenessSlope returns by how much a delay of a second raises the probability that a running request is late, at
// the pace of a full batch, if it has timeLeft seconds to its deadline. The tokens that remain of its answer are
// exponential, with the mean at a random moment of the answer:
//
//	exp(-timeLeft / remainingTime) / remainingTime
func lateRise(e *RCT, spare float64) float64 {
	rest := (e.OutputVar + e.OutputMean*e.OutputMean) / (2 * e.OutputMean)
	takes := rest * e.Decode
	return math.Exp(-spare/takes) / takes
}

// pauseCost returns the cost of a second of pause for those who wait in a queue, in the units of the objective.
// Meanwhile the share idleShare of the instance is idle. The first group waits for the whole second, the others
// for that share. If nobody waits in the queue, other instances serve what it would pull.
func (s pricing) pauseCost(q int32, idle float64) float64 {
	p, l := &s.problem, &s.state.queues[q]
	out, kind := p.End*idle, p.Queues[q].Kind
	if len(l.slots) > 0 {
		x := &l.slots[0]
		out += (1 - idle) * (p.cost(&p.Groups[x.group], p.Cost(x.group, kind), x.start+1, x.variance) - x.cost)
		out += idle * p.pushed(kind, l, 0, mostPriced, priceHorizon, 0, math.Inf(1)) / priceHorizon
	}
	return out
}
