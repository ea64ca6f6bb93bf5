package vqueue

import (
	"math"
	"time"
)

// How a pause of pulling is priced. The numbers were chosen on the first half of Azure's
// requests for code, with five seeds, and on 12,000 rows of its conversations.
const (
	// waiterWeight is how many times more a request counts that would wait for the pause: requests
	// that come later wait behind it.
	waiterWeight = 20
	// priceHorizon is the delay of a queue, in seconds, over which the cost of a second is averaged.
	priceHorizon = 15
	// slowdown is how many times slower prompts have to make a batch for it to be let finish. It
	// is fast then without prompts, so that a pause costs little throughput.
	slowdown = 4
	// mostPriced is the number of groups of a queue that a pause is priced by, so that a decision takes no longer where
	// the queue is long. Those behind count by how their lateness grows.
	mostPriced = 64
)

// pricing holds back prompts that would make more of a batch late than they win.
type pricing struct{ *grouping }

// pauses returns whether an instance finishes its batch without the prompts that its queue would have it pull next.
// If the policy serves several networks it returns false: pauses cost throughput there. An instance uses
// Beta/Alone of its time for each request that runs alone, and idles for the rest.
func (s pricing) pauses(now time.Duration, q int32) bool {
	in := &s.instances[q]
	if s.opt.Rule != Planned || s.opt.Unpriced || len(in.running) == 0 || len(s.t.Networks) > 1 {
		return false
	}
	saved, busy := 0.0, 0.0
	for _, slot := range in.running {
		r := &s.requests[s.batches[slot]]
		e := s.estimator(in, r.model, false)
		if e.Alone == 0 || e.Decode < slowdown*e.Alone {
			return false // how fast the batch is without prompts is not known, or it is hardly faster
		}
		busy += e.Beta / e.Alone
		if spare := seconds(r.deadline - now); r.open && spare > 0 && s.classes[r.model].milestone == answered {
			saved += lateRise(e, spare) * (1 - e.Alone/e.Decode)
		}
	}
	return saved > 0 && saved > waiterWeight*s.pauseCost(q, max(0, 1-busy))
}

// lateRise returns by how much a delay of a second raises the probability that a request which runs is late, at the pace
// of a full queue, if it has so many seconds left. The tokens that its answer lacks are exponential, with the mean
// at a random moment of the answer.
func lateRise(e *RCT, spare float64) float64 {
	rest := (e.OutputVar + e.OutputMean*e.OutputMean) / (2 * e.OutputMean)
	takes := rest * e.Decode
	return math.Exp(-spare/takes) / takes
}

// pauseCost returns what a second of a pause costs those who wait in a queue, in the units of the planner's objective (late
// requests, and a little for ends and tardiness). The part `idle` of the instance has nothing to do
// meanwhile. The first group waits for all of it, the others for that part. If nobody waits in the
// queue, other instances serve what it would pull.
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
