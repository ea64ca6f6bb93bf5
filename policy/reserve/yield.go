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
func (p *Policy) yieldToUrgentModel(m int32, ownPath *reservedPath, now time.Duration, out *policy.Actions) bool {
	defer func(oldValue bool) { p.keepReservations = oldValue }(p.keepReservations)
	p.keepReservations = true

	// Look for a model that m's path would make late.
	for _, otherModel := range p.models[m].sharingModels {
		if q := &p.models[otherModel].queue; q.Len == 0 || p.models[otherModel].awaitsOtherWork || p.models[otherModel].nextWake >= farFuture {
			continue
		}
		if !p.wouldDelay(ownPath, otherModel, now) || !p.inTimeIfSentNow(otherModel, now) {
			continue
		}

		// Check that m's batch would still be in time behind it.
		slot := p.reserveTrial(&p.otherModelPath, now)
		p.findPath(ownPath.pipeline, ownPath.batch, now, &p.largerBatchPath)
		p.releaseTrial(slot)
		if p.largerBatchPath.finish > p.latestFinish(p.models[m].queue.At(0).Deadline, ownPath.pipeline, ownPath.batch) {
			continue
		}

		// Dispatch the other model first.
		p.dispatch(otherModel, &p.otherModelPath, now, out)
		p.markAfterChange(otherModel)
		return true
	}
	return false
}

// wouldDelay reports whether the waiting requests of otherModel would be late behind a path.
func (p *Policy) wouldDelay(ownPath *reservedPath, otherModel int32, now time.Duration) bool {
	slot := p.reserveTrial(ownPath, now)
	defer p.releaseTrial(slot)
	return !p.inTimeIfSentNow(otherModel, now)
}

// inTimeIfSentNow reports whether all waiting requests of otherModel, up to a planned batch, would be in time if they
// were sent now. It leaves their path in otherModelPath.
func (c *batchChooser) inTimeIfSentNow(otherModel int32, now time.Duration) bool {
	q := &c.models[otherModel].queue
	firstPipeline, endPipeline := c.tables.PipelinesOf(otherModel)
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		batch := min(c.tables.Pipelines[pipeline].Batch, int32(q.Len))
		c.findPath(pipeline, batch, now, &c.otherModelPath)
		if c.otherModelPath.finish <= c.latestFinish(q.At(0).Deadline, pipeline, batch) && c.otherModelPath.holdTime == 0 {
			return true
		}
	}
	return false
}

// reserveTrial reserves a path for a trial and returns its batch slot. releaseTrial cancels the reservation.
func (p *Policy) reserveTrial(path *reservedPath, now time.Duration) int32 {
	oldSlots, slot := p.batches.Len(), p.batches.NextSlot()
	if slots := p.batches.Len(); slots > oldSlots {
		p.timelines.grow(slots)
	}
	p.reservePath(slot, path, now)
	return slot
}

// releaseTrial releases the reservations of a batch slot.
func (p *Policy) releaseTrial(slot int32) {
	p.timelines.toSettle = p.timelines.toSettle[:0]
	for n := slot * p.timelines.nodesPerBatch; n < (slot+1)*p.timelines.nodesPerBatch; n++ {
		if p.timelines.reservations[n].resource >= 0 {
			p.timelines.release(n)
		}
	}
	p.timelines.settleAll()
}
