package vqueue

import (
	"math"
	"time"
)

// How a pause of pulling is priced. The numbers were chosen on the first half of Azure's
// requests for code, with five seeds, and on 12,000 rows of its conversations.
const (
	// patient is how many times more a request counts that would wait for the pause: who
	// comes later waits behind it.
	patient = 20
	// foresight is the delay of a queue, in seconds, over which its price is taken.
	foresight = 15
	// slowed is how many times slower prompts make a batch from which on it may be let finish.
	// It is fast then without prompts, so that costs little throughput.
	slowed = 4
)

// pricing holds back prompts that would make more of a batch late than they win.
type pricing struct{ *grouping }

// pauses tells whether a batch goes on without what its queue would have it pull next.
// It does so where answers are short behind long prompts and there is one network alone.
// Elsewhere pauses cost throughput, which is missed once work comes as fast as it is done.
func (s pricing) pauses(now time.Duration, q int32) bool {
	in := &s.instances[q]
	if s.opt.Rule != Planned || s.opt.Unpriced || len(in.running) == 0 || len(s.t.Networks) > 1 {
		return false
	}
	saved, busy := 0.0, 0.0
	for _, slot := range in.running {
		r := &s.requests[s.batches[slot]]
		e := s.estimator(in, r.model, false)
		if e.Alone == 0 || e.Decode < slowed*e.Alone {
			return false // how fast the batch is without prompts is not known, or it is hardly faster
		}
		busy += e.Beta / e.Alone
		if spare := seconds(r.deadline - now); r.open && spare > 0 && s.classes[r.model].milestone == answered {
			saved += hurried(e, spare) * (1 - e.Alone/e.Decode)
		}
	}
	return saved > 0 && saved > patient*s.price(q, max(0, 1-busy))
}

// hurried is by how much the probability of being late grows, per second of delay, of a
// request that runs and has so many seconds left, at the pace of a full queue. What its
// answer lacks is exponential, with the mean at a random moment of its making.
func hurried(e *RCT, spare float64) float64 {
	rest := (e.OutputVar + e.OutputMean*e.OutputMean) / (2 * e.OutputMean)
	takes := rest * e.Decode
	return math.Exp(-spare/takes) / takes
}

// price is how many more of those who wait in a queue are late, per second of a pause in
// which a part of the instance is idle. The first group waits for all of it, the others
// for the part. Where nobody waits in the instance's queue, others serve what it pulls.
func (s pricing) price(q int32, idle float64) float64 {
	p, l := &s.problem, &s.state.queues[q]
	out, kind := p.End*idle, p.Queues[q].Kind
	if len(l.slots) > 0 {
		x := &l.slots[0]
		out += (1 - idle) * (p.cost(&p.Groups[x.group], p.Cost(x.group, kind), x.start+1, x.variance) - x.cost)
		out += idle * p.pushed(kind, l, 0, foresight, 0, math.Inf(1)) / foresight
	}
	return out
}
