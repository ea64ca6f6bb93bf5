package reserve

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// verdict says what is to be done about the head of a queue.
type verdict uint8

const (
	headGoes     verdict = iota // dispatch it, with those behind it
	headWaits                   // it waits until modelState.nextWake, or for other work
	queueTooLong                // it waits until work has ended on a device with maxDepth reservations
	headTooLate                 // drop it: no batch is in time
	headStranded                // drop it: no pipeline has a device left at every stage
)

// decideModel is Algorithm 1 for one model: it serves, drops or keeps waiting the head (the request with the
// earliest deadline) of the queue, again and again until there is nothing more to do now. It then sets the time at
// which the head is looked at again.
func (p *Policy) decideModel(m int32, now time.Duration, out *policy.Actions) {
	model := &p.models[m]
	model.nextWake, model.awaitsOtherWork = farFuture, false
	p.finder.keepReservations = false
	dispatched, waits := false, false
	for model.queue.Len > 0 && !waits {
		path, verdict := p.chooser.judgeHead(m, now)
		switch verdict {
		case headGoes:
			dispatched = true
			p.sendHead(m, path, now, out)
		case headWaits:
			waits = true
		case queueTooLong:
			waits = true
			p.dropHopelessTail(m, path, out)
		case headTooLate, headStranded:
			p.dropHead(m, verdict, out)
			p.finder.keepReservations = false
		}
	}

	// Set the wake, and let sharing models decide again after a dispatch.
	p.setWake(m, model.nextWake, out)
	if !dispatched {
		return
	}
	for _, o := range model.sharingModels {
		if p.models[o].queue.Len > 0 {
			p.markAfterChange(o)
		}
	}
}

// sendHead dispatches the head of a queue along a path, unless a more urgent model goes first. If the path moves
// reservations that may not move, nothing goes, and the next path sought moves none.
func (p *Policy) sendHead(m int32, path *reservedPath, now time.Duration, out *policy.Actions) {
	p.models[m].awaitedDevices = p.models[m].awaitedDevices[:0]
	if !p.yieldToUrgentModel(m, path, now, out) {
		p.finder.keepReservations = !p.dispatch(m, path, now, out)
	}
}

// judgeHead returns the verdict on the head of a model's queue (the request with the earliest deadline): goes,
// waits, is too late or stranded; and its path (a device for each stage) if it has one. If the head waits, it sets
// when it is looked at again.
func (c *batchChooser) judgeHead(m int32, now time.Duration) (*reservedPath, verdict) {
	model := &c.models[m]
	head := model.queue.At(0)

	// Check without a search whether the head waits on as before.
	if c.keepsWaiting(m, now) {
		return nil, headWaits
	}

	// Choose the pipeline that waits least.
	bestPath := c.choosePipeline(m, now)
	if bestPath == nil && now < head.Deadline {
		model.nextWake = head.Deadline // until then a device may come back
		return nil, headWaits
	}
	if bestPath == nil {
		return nil, headStranded
	}

	// Find the largest batch in time.
	path := c.fitHead(m, bestPath, head, now)
	if path == nil || c.shouldDropHead(path, head) {
		return nil, headTooLate
	}
	head.PassedFirstLook = true

	// If fewer requests wait than the batch takes, decide whether to wait for more.
	if int32(model.queue.Len) < path.batch {
		if path = c.sendPartialBatch(m, path, head, now); path == nil {
			return nil, headWaits
		}
	}
	return path, c.judgeStart(model, path, now)
}

// judgeStart returns the verdict on a batch that could go along a path: whether it goes now, or waits for other
// work. It waits if its device is free only later and other models share it, if it would stand in front of other
// work (holdTime), or if too many batches are reserved there.
func (c *batchChooser) judgeStart(model *modelState, path *reservedPath, now time.Duration) verdict {
	start := path.hops[0].Start
	switch {
	// With sharing models, wait until shortly before the device becomes free. Then the most urgent head is served,
	// in the batch that waits by then.
	case c.options.SendWhenFree && len(model.sharingModels) > 0 && start > now+c.options.DecideAhead:
		model.nextWake, model.awaitsOtherWork = start-c.options.DecideAhead, true
		return headWaits

	// Wait for work that must go first, or for a device with fewer reservations.
	case path.holdTime > 0:
		model.nextWake, model.awaitsOtherWork = now+path.holdTime, true
		return headWaits
	case c.finder.atMaxDepth(path):
		model.awaitsOtherWork = true
		return queueTooLong
	}
	return headGoes
}

// sendPartialBatch returns the path on which the waiting requests go now, if fewer wait than a path's batch takes.
// If they wait for more requests, it sets when the head is looked at again, and returns nil. The last moment is
// when one request more would make the batch late.
func (c *batchChooser) sendPartialBatch(m int32, path *reservedPath, head *waiting.Request, now time.Duration) *reservedPath {
	model := &c.models[m]
	waitingRequests := int32(model.queue.Len)
	lastMoment := c.lastMoment(path, model, now)
	wake := lastMoment - c.wakeLead(path.pipeline, min(waitingRequests+1, path.batch))

	// The wake came, early by the guard's wakeLead: the waiting requests go now if they are in time.
	if wake <= now {
		c.finder.findPath(path.pipeline, waitingRequests, now, path)
		if path.finish <= c.latestFinish(head.Deadline, path.pipeline, path.batch) {
			return path
		}
		model.nextWake = lastMoment
		return nil
	}

	// Wait for a fuller batch, as in the paper.
	if !c.options.SendWhenFree {
		c.rememberPath(m, path)
		model.nextWake = wake
		return nil
	}

	// Everything is free: send the waiting requests.
	if c.canGoAtOnce(path.pipeline, model, head, now) {
		return &c.retryPath
	}

	// Wait until a device is free.
	c.rememberPath(m, &c.retryPath)
	model.awaitsOtherWork = len(model.sharingModels) > 0 || c.retryPath.holdTime > 0
	if wait := c.retryPath.waitTime - c.decideAhead(model); wait > 0 {
		wake = min(wake, now+wait)
	}
	model.nextWake = wake
	return nil
}

// maxDepth is the most reservations on a device. Work that deviates from its plan moves everything reserved behind
// it, so that with an SLO of thousands of service times every event of an overload would cost thousands of steps.
// A decision about so late a start is also better made later. Plans whose SLO is a few times the latency stay far
// below the limit.
const maxDepth = 64

// atMaxDepth reports whether some device of a path has so many reservations that no more are to be added yet.
func (f *pathFinder) atMaxDepth(path *reservedPath) bool {
	for i := range path.hops {
		if f.lists.reservationCounts[path.hops[i].Device] >= f.maxDepth {
			return true
		}
	}
	return false
}

// dropHopelessTail drops requests from the end of a queue whose head waits for devices at maxDepth: those that
// could not be in time even if the model had all of its devices at full rate from the head on. So their clients
// know earlier.
func (p *Policy) dropHopelessTail(m int32, head *reservedPath, out *policy.Actions) {
	q := &p.models[m].queue
	for q.Len > 1 {
		earliestFinish := head.finish + time.Duration(max(int32(q.Len)-head.batch, 0))*p.chooser.requestInterval[m]
		if earliestFinish <= p.chooser.latestFinish(q.At(q.Len-1).Deadline, head.pipeline, head.batch) {
			return
		}
		dropRequest(m, q.PopLast().Req, policy.ReasonDeadline, out)
	}
}

// rememberPath stores the devices of the path that a head waits for, so that keepsWaiting can check that path
// without a search. It stores none where that would not be exact: with several pipelines, or times that depend on
// the devices.
func (c *batchChooser) rememberPath(m int32, path *reservedPath) {
	model := &c.models[m]
	model.awaitedDevices = model.awaitedDevices[:0]
	if firstPipeline, endPipeline := c.tables.PipelinesOf(m); endPipeline != firstPipeline+1 || !c.batchMonotone[firstPipeline] || c.finder.hasSameNodePath || c.options.SendWhenFree && (len(model.sharingModels) > 0 || path.holdTime > 0) {
		return
	}
	for i := range path.hops {
		model.awaitedDevices = append(model.awaitedDevices, path.hops[i].Device)
	}
}

// keepsWaiting reports, without a search, that a head continues to wait for a fuller batch: its path would still
// do for one request more and, with SendWhenFree, the waiting requests could not go through it without waiting. It
// sets the next wake. It returns false also if it cannot know, and a search has to decide.
func (c *batchChooser) keepsWaiting(m int32, now time.Duration) bool {
	model := &c.models[m]
	if len(model.awaitedDevices) == 0 {
		return false
	}
	head, pipeline := model.queue.At(0), c.tables.Models[m].FirstPipeline
	largerBatch := int32(model.queue.Len) + 1
	if !head.PassedFirstLook || largerBatch > c.tables.Pipelines[pipeline].Batch || c.finder.finishAlong(pipeline, largerBatch, model.awaitedDevices, now) > c.latestFinish(head.Deadline, pipeline, largerBatch) {
		return false
	}

	// Wake at the last moment, or when the path is free.
	wake := c.latestFinish(head.Deadline, pipeline, largerBatch) - c.minPathTime[pipeline][largerBatch-1] + 1 - c.wakeLead(pipeline, largerBatch)
	if c.options.SendWhenFree {
		wake = min(wake, c.finder.finishAlong(pipeline, largerBatch-1, model.awaitedDevices, now)-c.minPathTime[pipeline][largerBatch-2])
	}
	if wake <= now {
		return false
	}
	model.nextWake = wake
	return true
}

// finishAlong returns when a batch would end on given devices, one for each stage, behind everything that is
// reserved there and on the links between them. If it would have to stand in front of other work, it returns
// farFuture, and a search has to decide.
func (f *pathFinder) finishAlong(pipeline, batch int32, devices []int32, now time.Duration) time.Duration {
	firstStage := f.tables.Pipelines[pipeline].FirstStage
	finish := now
	for h, d := range devices {
		st := &f.tables.Stages[firstStage+int32(h)]

		// Add the transfer, behind the last reservation of both links.
		if h > 0 && st.Xfer != nil && st.Xfer[batch-1] > 0 {
			for _, link := range [2]int32{f.uplinks[devices[h-1]], f.downlinks[d]} {
				if link < 0 {
					continue
				}
				if finish < f.lists.summaries[link].lastReady {
					return farFuture
				}
				finish = max(finish, f.lists.summaries[link].lastEnd)
			}
			finish += st.Xfer[batch-1]
		}

		// Add the run, behind the last reservation of the device.
		summary := &f.lists.summaries[d]
		if finish <= summary.lastReady || summary.lastEnd < now && summary.first >= 0 {
			return farFuture
		}
		finish = max(finish, summary.lastEnd) + st.Infer[batch-1]
	}
	return finish
}

// canGoAtOnce reports whether the waiting requests could go through a pipeline without waiting for a device or a
// link, and leaves their path in retryPath. Then there is no reason to wait: a fuller batch only costs latency,
// and on a shared device another model may take the place that the wait counted on. Under load some stage is busy,
// and batches fill meanwhile. That the first stage is free is not enough: small batches would reduce the rate of a
// later stage that limits the pipeline.
func (c *batchChooser) canGoAtOnce(pipeline int32, model *modelState, head *waiting.Request, now time.Duration) bool {
	c.finder.findPath(pipeline, int32(model.queue.Len), now, &c.retryPath)
	return c.retryPath.waitTime <= c.decideAhead(model) && c.retryPath.holdTime == 0 && c.retryPath.finish <= c.latestFinish(head.Deadline, pipeline, c.retryPath.batch)
}

// decideAhead returns how long before a device is free a model may be sent to it.
func (c *batchChooser) decideAhead(model *modelState) time.Duration {
	if len(model.sharingModels) == 0 {
		return 0
	}
	return c.options.DecideAhead
}

// choosePipeline returns the path of the pipeline that waits least at its planned batch. If no pipeline has a
// device left at every stage, it returns nil.
//
// A model with one pipeline has no choice to make. After its first look its head is sought a path at once with the
// largest batch that matters now: one request more than wait. That it could be in time in a larger batch would not
// change the decision.
func (c *batchChooser) choosePipeline(m int32, now time.Duration) *reservedPath {
	firstPipeline, endPipeline := c.tables.PipelinesOf(m)
	bestPath, candidatePath := &c.pipelinePaths[0], &c.pipelinePaths[1]

	// With a single pipeline, probe that one.
	if q := &c.models[m].queue; endPipeline == firstPipeline+1 && c.batchMonotone[firstPipeline] && (!c.options.DropHopeless || q.At(0).PassedFirstLook) {
		c.finder.findPath(firstPipeline, min(c.tables.Pipelines[firstPipeline].Batch, int32(q.Len)+1), now, bestPath)
		if bestPath.finish >= farFuture {
			return nil
		}
		return bestPath
	}

	// Otherwise compare all pipelines, up to one that does not wait at all.
	bestPath.waitTime = farFuture
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		c.finder.findPath(pipeline, c.tables.Pipelines[pipeline].Batch, now, candidatePath)
		if candidatePath.waitTime < bestPath.waitTime {
			bestPath, candidatePath = candidatePath, bestPath
			if bestPath.waitTime <= 0 {
				break
			}
		}
	}
	if bestPath.waitTime >= farFuture {
		return nil
	}
	return bestPath
}

// hasGuard reports whether the options keep a guard.
func (c *batchChooser) hasGuard() bool { return c.options.GuardTime > 0 || c.options.GuardShare > 0 }

// fitHead finds the path of the largest batch that meets the head's deadline: on the given path's pipeline, on
// another one, or, for a head that an earlier look found in time, without the guard (a reserve against jitter). If
// there is none, it returns nil.
func (c *batchChooser) fitHead(m int32, path *reservedPath, head *waiting.Request, now time.Duration) *reservedPath {
	if fitted := c.fitBatch(path, head, now); fitted != nil {
		return fitted
	}

	// The stages of another pipeline may be faster.
	if fitted := c.fitPipelines(m, path.pipeline, math.MaxInt32, head, now); fitted != nil || !head.PassedFirstLook || !c.hasGuard() {
		return fitted
	}

	// On a real clock a wake comes late, and the guard covers that. The batch is no larger than the queue, so that
	// it goes now.
	c.ignoreGuard = true
	fitted := c.fitPipelines(m, -1, int32(c.models[m].queue.Len), head, now)
	c.ignoreGuard = false
	return fitted
}

// fitPipelines looks for the largest batch, up to maxBatch requests, that meets the head's deadline, on the model's
// pipelines except one that was tried before (-1: none). If there is none, it returns nil.
func (c *batchChooser) fitPipelines(m, except, maxBatch int32, head *waiting.Request, now time.Duration) *reservedPath {
	firstPipeline, endPipeline := c.tables.PipelinesOf(m)
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		if pipeline == except {
			continue
		}
		b := c.largestInTime(pipeline, min(c.tables.Pipelines[pipeline].Batch, maxBatch), head, now)
		if b == 0 {
			continue
		}
		c.finder.findPath(pipeline, b, now, &c.retryPath)
		if fitted := c.fitBatch(&c.retryPath, head, now); fitted != nil {
			return fitted
		}
	}
	return nil
}

// largestInTime returns the largest batch, of at most maxBatch, that meets the head's deadline if it waits for
// nothing; 0 if there is none.
func (c *batchChooser) largestInTime(pipeline, maxBatch int32, head *waiting.Request, now time.Duration) int32 {
	b := maxBatch
	for b > 0 && now+c.minPathTime[pipeline][b-1] > c.latestFinish(head.Deadline, pipeline, b) {
		b--
	}
	return b
}

// latestFinish returns the latest completion of a batch that a deadline allows.
func (c *batchChooser) latestFinish(deadline time.Duration, pipeline, batch int32) time.Duration {
	if c.ignoreGuard {
		return deadline
	}
	return deadline - c.guard[pipeline][batch-1]
}

// wakeLead returns how long before its last moment a head that waits for a batch is looked at again.
func (c *batchChooser) wakeLead(pipeline, batch int32) time.Duration {
	return min(c.options.GuardTime, c.guard[pipeline][batch-1])
}

// fitBatch finds the largest batch on a path's pipeline that meets the head's deadline, at most as large as the
// path's. It searches smaller and smaller batches and changes the path to the result. If there is none, it returns
// nil.
func (c *batchChooser) fitBatch(path *reservedPath, head *waiting.Request, now time.Duration) *reservedPath {
	pipeline := path.pipeline
	for {
		if path.finish <= c.latestFinish(head.Deadline, pipeline, path.batch) {
			return path
		}

		// Skip the batches that would be late even without waiting.
		b := c.largestInTime(pipeline, path.batch-1, head, now)
		if b == 0 {
			return nil
		}
		c.finder.findPath(pipeline, b, now, path)
	}
}

// shouldDropHead reports whether a head is to be dropped at its first look, because only a batch well below the
// planned size would still be in time.
func (c *batchChooser) shouldDropHead(chosenPath *reservedPath, head *waiting.Request) bool {
	if !c.options.DropHopeless || head.PassedFirstLook {
		return false
	}
	plannedBatch := c.tables.Pipelines[chosenPath.pipeline].Batch
	return chosenPath.batch < int32(math.Round(0.95*float64(plannedBatch)))
}

// dropHead drops the head of a model's queue (the request with the earliest deadline) because of a verdict. If a
// device was lost under it, that is the reason.
func (p *Policy) dropHead(m int32, verdict verdict, out *policy.Actions) {
	r := p.models[m].queue.Pop()
	reason := policy.ReasonDeadline
	if r.WasLost || verdict == headStranded {
		reason = policy.ReasonWorkerLost
	}
	dropRequest(m, r.Req, reason, out)
}

// lastMoment returns the time at which a head that waits for a fuller batch must go as it is: just after the time
// from which a batch of one request more would be late. Until then a further arrival could still join. Waiting for
// resources passes as time does, so it is no reason to go earlier.
//
// If a path's work does not depend on its devices, no search is needed: one request more is then in time whenever
// the batch that was found is.
func (c *batchChooser) lastMoment(chosenPath *reservedPath, model *modelState, now time.Duration) time.Duration {
	deadline, pipeline := model.queue.At(0).Deadline, chosenPath.pipeline
	largerBatch := min(int32(model.queue.Len)+1, chosenPath.batch)
	if c.batchMonotone[pipeline] && !c.finder.hasSameNodePath {
		return c.latestFinish(deadline, pipeline, largerBatch) - c.minPathTime[pipeline][largerBatch-1] + 1
	}
	path := chosenPath
	if largerBatch < chosenPath.batch {
		c.finder.findPath(pipeline, largerBatch, now, &c.largerBatchPath)
		if c.largerBatchPath.finish <= c.latestFinish(deadline, pipeline, largerBatch) {
			path = &c.largerBatchPath
		}
	}
	return now + c.latestFinish(deadline, pipeline, path.batch) - path.finish + path.waitTime + 1
}

// dispatch reserves a path, a device for each stage with its transfers, and sends the first requests of the queue
// along it. If the path would move reservations of others beyond their limits, it does nothing and returns false.
// The batch may later be moved itself, up to limit: the guarded deadline if it meets that, else the deadline.
func (p *Policy) dispatch(m int32, path *reservedPath, now time.Duration, out *policy.Actions) bool {
	limit := p.models[m].queue.At(0).Deadline
	if guardedLimit := p.chooser.latestFinish(limit, path.pipeline, path.batch); path.finish <= guardedLimit {
		limit = guardedLimit
	}
	slot := p.reserveChecked(path, limit, now)
	if slot < 0 {
		return false
	}
	out.Hops = append(out.Hops, path.hops...)
	p.batches.Dispatch(&p.models[m].queue, m, path.pipeline, path.batch, 0, len(path.hops), out)
	p.batches.BatchAt(slot).LatestEnd = limit
	return true
}

// setWake sets the model's timer, at which its head is looked at again, unless it is set for the same time already.
// farFuture stops it.
func (p *Policy) setWake(m int32, wakeAt time.Duration, out *policy.Actions) {
	model := &p.models[m]
	if wakeAt == model.pendingWake {
		return
	}
	model.pendingWake = wakeAt
	if wakeAt >= farFuture {
		wakeAt = -1
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: m, Tag: m, At: wakeAt})
}
