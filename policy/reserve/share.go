package reserve

import (
	"time"

	"inferplan/policy"
)

// yieldToUrgentModel lets a sharing model's waiting head go first if a batch of m would take the device that it
// counts on, and reports whether it dispatched such a batch. Algorithm 1 assumes that models have devices of their
// own. On time-shared devices a head that waits for a fuller batch would otherwise miss its deadline because of
// models that fill a batch earlier.
//
// It yields to a model whose head would be late behind m's path, if that model's requests are in time when they go
// now and m's are still in time behind them.
func (p *Policy) yield(m int32, pa *path, now time.Duration, out *policy.Actions) bool {
	defer func(was bool) { p.gentle = was }(p.gentle)
	p.gentle = true

	// Look for a model that m's path would make late.
	for _, o := range p.models[m].shares {
		if q := &p.models[o].queue; q.Len == 0 || p.models[o].held || p.models[o].wake >= never {
			continue
		}
		if !p.harms(pa, o, now) || !p.nowInTime(o, now) {
			continue
		}

		// Check that m's batch would still be in time behind it.
		slot := p.try(&p.other, now)
		p.probe(pa.pipeline, pa.batch, now, &p.fuller)
		p.undo(slot)
		if p.fuller.finish > p.limit(p.models[m].queue.At(0).Deadline, pa.pipeline, pa.batch) {
			continue
		}

		// Dispatch the other model first.
		p.dispatch(o, &p.other, now, out)
		p.again(o)
		return true
	}
	return false
}

// wouldDelay reports whether the waiting requests of model o would be late behind a path.
func (p *Policy) harms(pa *path, o int32, now time.Duration) bool {
	slot := p.try(pa, now)
	defer p.undo(slot)
	return !p.nowInTime(o, now)
}

// inTimeIfSentNow reports whether all waiting requests of model o, up to a planned batch, would be in time if they
// were sent now. It leaves their path in otherModelPath.
func (c *chooser) nowInTime(o int32, now time.Duration) bool {
	q := &c.models[o].queue
	first, last := c.t.PipelinesOf(o)
	for pl := first; pl < last; pl++ {
		b := min(c.t.Pipelines[pl].Batch, int32(q.Len))
		c.probe(pl, b, now, &c.other)
		if c.other.finish <= c.limit(q.At(0).Deadline, pl, b) && c.other.hold == 0 {
			return true
		}
	}
	return false
}

// reserveTrial reserves a path for a trial and returns its batch slot. releaseTrial cancels the reservation.
func (p *Policy) try(pa *path, now time.Duration) int32 {
	had, slot := p.batches.Len(), p.batches.Next()
	if slots := p.batches.Len(); slots > had {
		p.tl.grow(slots)
	}
	p.reserve(slot, pa, now)
	return slot
}

// releaseTrial releases the reservations of a batch slot.
func (p *Policy) undo(slot int32) {
	p.tl.work = p.tl.work[:0]
	for n := slot * p.tl.stride; n < (slot+1)*p.tl.stride; n++ {
		if p.tl.nodes[n].res >= 0 {
			p.tl.release(n)
		}
	}
	p.tl.drain()
}
