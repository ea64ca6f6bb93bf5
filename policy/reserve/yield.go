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
	if len(p.models[m].sharingModels) == 0 {
		return false
	}
	keptReservations := p.finder.keepReservations
	p.finder.keepReservations = true
	urgentModel := p.moreUrgentModel(m, ownPath, now)
	if urgentModel >= 0 {
		p.dispatch(urgentModel, &p.chooser.otherModelPath, now, out)
		p.markAfterChange(urgentModel)
	}
	p.finder.keepReservations = keptReservations
	return urgentModel >= 0
}

// moreUrgentModel returns the sharing model (one with stages on the same devices) to which m yields, and leaves
// that model's path in otherModelPath. That model must be late behind m's batch and in time before it, and m's
// batch must still be in time behind that. If there is none, it returns -1.
func (p *Policy) moreUrgentModel(m int32, ownPath *reservedPath, now time.Duration) int32 {
	ownDeadline, largerBatchPath := p.models[m].queue.At(0).Deadline, &p.chooser.largerBatchPath
	for _, otherModel := range p.models[m].sharingModels {
		if other := &p.models[otherModel]; other.queue.Len == 0 || other.awaitsOtherWork || other.nextWake >= farFuture {
			continue
		}

		// It must be late behind m's path, and in time if it goes now.
		if !p.wouldDelay(ownPath, otherModel, now) || !p.chooser.inTimeIfSentNow(otherModel, now) {
			continue
		}

		// And m's batch must still be in time behind it.
		slot := p.reserveTrial(&p.chooser.otherModelPath, now)
		p.finder.findPath(ownPath.pipeline, ownPath.batch, now, largerBatchPath)
		p.releaseTrial(slot)
		if largerBatchPath.finish <= p.chooser.latestFinish(ownDeadline, ownPath.pipeline, ownPath.batch) {
			return otherModel
		}
	}
	return -1
}

// wouldDelay reports whether the waiting requests of otherModel would be late behind a path of this model. It
// reserves the path for a trial, and releases it again.
func (p *Policy) wouldDelay(ownPath *reservedPath, otherModel int32, now time.Duration) bool {
	slot := p.reserveTrial(ownPath, now)
	isInTime := p.chooser.inTimeIfSentNow(otherModel, now)
	p.releaseTrial(slot)
	return !isInTime
}

// inTimeIfSentNow reports whether all waiting requests of otherModel, up to a planned batch, would be in time if they
// were sent now. It leaves their path in otherModelPath.
func (c *batchChooser) inTimeIfSentNow(otherModel int32, now time.Duration) bool {
	q := &c.models[otherModel].queue
	firstPipeline, endPipeline := c.tables.PipelinesOf(otherModel)
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		batch := min(c.tables.Pipelines[pipeline].Batch, int32(q.Len))
		c.finder.findPath(pipeline, batch, now, &c.otherModelPath)
		if c.otherModelPath.finish <= c.latestFinish(q.At(0).Deadline, pipeline, batch) && c.otherModelPath.holdTime == 0 {
			return true
		}
	}
	return false
}

// reserveTrial reserves a path for a trial under the slot that the next dispatch would take, and returns that slot.
// releaseTrial cancels the reservation. If there is no free slot, the tables grow.
func (p *Policy) reserveTrial(path *reservedPath, now time.Duration) int32 {
	oldSlots, slot := p.batches.Len(), p.batches.NextSlot()
	if slots := p.batches.Len(); slots > oldSlots {
		p.lists.grow(slots)
	}
	p.finder.reservePath(slot, path, now)
	return slot
}

// releaseTrial cancels a trial reservation: it releases all reservations of a batch slot, and the work behind them
// gets its former times.
func (p *Policy) releaseTrial(slot int32) {
	p.timelines.toSettle = p.timelines.toSettle[:0]
	for n := slot * p.lists.nodesPerBatch; n < (slot+1)*p.lists.nodesPerBatch; n++ {
		if p.lists.reservations[n].resource >= 0 {
			p.timelines.release(n)
		}
	}
	p.timelines.settleAll()
}
