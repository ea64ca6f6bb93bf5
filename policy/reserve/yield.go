package reserve

import (
	"time"

	"inferplan/policy"
)

// yieldToUrgentModel is called before a batch of a model is dispatched along modelPath. It may dispatch the waiting
// requests of another model with stages on the same devices (a colocated model) instead, and reports whether it did.
// PPipe's Algorithm 1 assumes that every model has devices of its own. On shared devices the head of the other model
// (its request with the earliest deadline), which waits for a fuller batch, would miss its deadline because of models
// that fill a batch earlier.
//
// The model yields if the other head would be late behind modelPath and is in time if it goes now, and if the model's
// batch is still in time behind the other one. It never moves reservations of other batches for that.
func (p *Policy) yieldToUrgentModel(modelIndex int32, modelPath *reservedPath, now time.Duration, out *policy.Actions) bool {
	if len(p.models[modelIndex].colocatedModels) == 0 {
		return false
	}
	forbadeMoves := p.finder.forbidsMoves
	p.finder.forbidsMoves = true
	urgentModel := p.moreUrgentModel(modelIndex, modelPath, now)
	if urgentModel >= 0 {
		p.dispatch(urgentModel, &p.chooser.otherModelPath, now, out) // the path that moreUrgentModel left there
		p.markForNewSearch(urgentModel)
	}
	p.finder.forbidsMoves = forbadeMoves
	return urgentModel >= 0
}

// moreUrgentModel returns the colocated model (one with stages on the same devices) to which a model yields, and leaves
// that model's path in otherModelPath. That model must be late behind this model's batch along modelPath and in time
// before it, and this batch must still be in time behind that. If there is none, it returns -1.
func (p *Policy) moreUrgentModel(modelIndex int32, modelPath *reservedPath, now time.Duration) int32 {
	modelDeadline, pathBehind := p.models[modelIndex].queue.At(0).Deadline, &p.chooser.pathBehind
	for _, otherModel := range p.models[modelIndex].colocatedModels {
		// Pass over a model without requests, one that waits for work on these devices anyway, and one without a wake,
		// whose head does not wait for a fuller batch.
		if otherState := &p.models[otherModel]; otherState.queue.Len == 0 || otherState.wakesOnDeviceEvents || otherState.nextWake >= farFuture {
			continue
		}

		// It must be late behind modelPath, and in time if it goes now. The second call leaves its path in otherModelPath.
		if !p.wouldDelay(modelPath, otherModel, now) || !p.chooser.inTimeIfSentNow(otherModel, now) {
			continue
		}

		// And the batch along modelPath must still be in time behind it.
		slot := p.reserveTrial(&p.chooser.otherModelPath, now)
		p.finder.findPath(modelPath.pipeline, modelPath.batchSize, now, pathBehind)
		p.releaseTrial(slot)
		if pathBehind.finish <= p.chooser.guardedDeadline(modelDeadline, modelPath.pipeline, modelPath.batchSize) {
			return otherModel
		}
	}
	return -1
}

// wouldDelay reports whether the waiting requests of otherModel would be late behind a batch of another model along
// modelPath. It reserves that path for a trial, and releases it again.
func (p *Policy) wouldDelay(modelPath *reservedPath, otherModel int32, now time.Duration) bool {
	slot := p.reserveTrial(modelPath, now)
	isInTime := p.chooser.inTimeIfSentNow(otherModel, now)
	p.releaseTrial(slot)
	return !isInTime
}

// inTimeIfSentNow reports whether the waiting requests of otherModel, up to a planned batch, would be in time if they
// were sent now through one of its pipelines. It leaves their path in otherModelPath.
func (c *batchChooser) inTimeIfSentNow(otherModel int32, now time.Duration) bool {
	queue := &c.models[otherModel].queue
	firstPipeline, endPipeline := c.tables.PipelinesOf(otherModel)
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		batchSize := min(c.tables.Pipelines[pipeline].Batch, int32(queue.Len))
		c.finder.findPath(pipeline, batchSize, now, &c.otherModelPath)
		if c.otherModelPath.finish <= c.guardedDeadline(queue.At(0).Deadline, pipeline, batchSize) && c.otherModelPath.requiredDelay == 0 {
			return true
		}
	}
	return false
}

// reserveTrial reserves a path (a device for each stage) under the slot (number of a batch) that the next dispatch will
// take, and returns that slot. If no slot is free, the tables of batches and reservations grow. To find out which times
// a path would change, callers reserve it, look, and call releaseTrial. If they dispatch instead, the batch has these
// reservations.
func (p *Policy) reserveTrial(path *reservedPath, now time.Duration) int32 {
	slotsBefore, slot := p.batches.Len(), p.batches.NextSlot() // NextSlot may make the table of batches grow
	if slotsNow := p.batches.Len(); slotsNow > slotsBefore {
		p.lists.growSlots(slotsNow)
	}
	p.finder.reservePath(slot, path, now)
	return slot
}

// releaseTrial cancels the reservations that reserveTrial made for a batch slot, and the work behind them gets its
// former times.
func (p *Policy) releaseTrial(slot int32) {
	p.timelines.toSettle = p.timelines.toSettle[:0]
	for index := slot * p.lists.reservationsPerBatch; index < (slot+1)*p.lists.reservationsPerBatch; index++ {
		if p.lists.reservations[index].resource >= 0 {
			p.timelines.releaseReservation(index)
		}
	}
	p.timelines.settleAll()
}
