package reserve

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/policy/underway"
	"inferplan/policy/waiting"
)

// verdict says what is to be done about the head of a model's queue, the request with the earliest deadline.
type verdict uint8

const (
	headGoes     verdict = iota // dispatch it, with those behind it
	headWaits                   // it waits until modelState.nextWake, or for other work
	queueTooLong                // it waits until work has ended on a device with maxDepth reservations
	headTooLate                 // drop it: no batch is in time
	headStranded                // drop it: no pipeline has a device left at every stage
)

// decideModel is Algorithm 1 (PPipe, appendix A.3) for one model: it serves, drops or keeps waiting the head of the
// queue (the request with the earliest deadline), again and again until there is nothing more to do now. It then sets
// the timer at which the head is looked at again (farFuture stops it). If it dispatched anything, the models that share
// its devices are marked to decide again, too.
func (p *Policy) decideModel(modelIndex int32, now time.Duration, out *policy.Actions) {
	model := &p.models[modelIndex]
	model.nextWake, model.wakesOnDeviceEvents = farFuture, false
	p.finder.forbidsMoves = false // at first, a new path may push reservations of others
	dispatched, waits := false, false
	for model.queue.Len > 0 && !waits {
		path, verdict := p.chooser.judgeHead(modelIndex, now)
		switch verdict {
		case headGoes:
			dispatched = true
			p.sendHead(modelIndex, path, now, out)
		case headWaits:
			waits = true
		case queueTooLong:
			// The devices have enough reservations, so no further batch is reserved. But the clients of requests that cannot be
			// in time hear of it now.
			waits = true
			p.dropHopelessTail(modelIndex, path, out)
		case headTooLate, headStranded:
			p.dropHead(modelIndex, verdict, out)
			p.finder.forbidsMoves = false
		}
	}

	// Set the wake. After a dispatch the colocated models, whose devices are now busier, decide again.
	underway.SetWake(&model.pendingWake, modelIndex, model.nextWake, out)
	if !dispatched {
		return
	}
	for _, colocatedModel := range model.colocatedModels {
		if p.models[colocatedModel].queue.Len > 0 {
			p.markForNewSearch(colocatedModel)
		}
	}
}

// sendHead is called by decideModel when the verdict is headGoes: it dispatches the head of a model's queue, with the
// requests behind it, along a path, unless a more urgent model goes first. If the path would move reservations that
// may not move, nothing is dispatched, and finder.forbidsMoves is set, so that decideModel seeks the next path without
// moves.
func (p *Policy) sendHead(modelIndex int32, path *reservedPath, now time.Duration, out *policy.Actions) {
	p.models[modelIndex].awaitedDevices = p.models[modelIndex].awaitedDevices[:0] // the head waits no longer
	if !p.yieldToUrgentModel(modelIndex, path, now, out) {
		p.finder.forbidsMoves = !p.dispatch(modelIndex, path, now, out)
	}
}

// judgeHead returns the verdict on the head of a model's queue (the request with the earliest deadline): it goes, waits,
// is too late, or stranded (its devices are lost). If it goes, or waits because its devices have too many reservations,
// it also returns the path (a device for each stage), which is valid until the next search. If the head waits, it sets
// modelState.nextWake, when it is looked at again.
func (c *batchChooser) judgeHead(modelIndex int32, now time.Duration) (*reservedPath, verdict) {
	model := &c.models[modelIndex]
	head := model.queue.At(0)

	// Check without a search, which is expensive, whether the head waits on as before.
	if c.continuesWaiting(modelIndex, now) {
		return nil, headWaits
	}

	// Choose the pipeline that waits least.
	bestPath := c.choosePipeline(modelIndex, now)
	if bestPath == nil && now < head.Deadline {
		model.nextWake = head.Deadline // until then a device may come back
		return nil, headWaits
	}
	if bestPath == nil {
		return nil, headStranded
	}

	// Find the largest batch in time.
	path := c.findPathInTime(modelIndex, bestPath, head, now)
	if path == nil || c.shouldDropHead(path, head) {
		return nil, headTooLate
	}
	head.PassedFirstLook = true

	// If fewer requests wait than the batch takes, decide whether to wait for more.
	if int32(model.queue.Len) < path.batchSize {
		path = c.partialBatchPath(modelIndex, path, head, now)
		if path == nil {
			return nil, headWaits
		}
	}
	return path, c.judgeStart(model, path, now)
}

// judgeStart is the last step of judgeHead: it returns the verdict on a batch that would be in time along a path,
// whether it goes now, or waits for other work. It waits if its first device is free only later and other models share
// it, if it would run in front of other work and delay that (path.requiredDelay), or if too many batches are reserved
// there. It then sets when the model decides again: at modelState.nextWake and, with wakesOnDeviceEvents, after each
// event of work on the model's devices.
func (c *batchChooser) judgeStart(model *modelState, path *reservedPath, now time.Duration) verdict {
	start := path.hops[0].Start
	switch {
	// With colocated models, wait until shortly before the device becomes free. Then the most urgent head is served,
	// in the batch that waits by then.
	case c.options.SendWhenFree && len(model.colocatedModels) > 0 && start > now+c.options.DecideAhead:
		model.nextWake, model.wakesOnDeviceEvents = start-c.options.DecideAhead, true
		return headWaits

	// Wait for work that must go first, or for a device with fewer reservations. When that is depends on events.
	case path.requiredDelay > 0:
		model.nextWake, model.wakesOnDeviceEvents = now+path.requiredDelay, true
		return headWaits
	case c.finder.atMaxDepth(path):
		model.wakesOnDeviceEvents = true
		return queueTooLong
	}
	return headGoes
}

// partialBatchPath is called by judgeHead when fewer requests wait than the largest batch in time takes; the given path
// is that of this largest batch. If the waiting requests are to go now, it returns their path, for which it may
// overwrite the given one. If they are to wait for more requests, it returns nil, and sets modelState.nextWake, the
// time at which the head (the first of them) is looked at again. They wait at most until one request more would make the
// batch late.
func (c *batchChooser) partialBatchPath(modelIndex int32, path *reservedPath, head *waiting.Request, now time.Duration) *reservedPath {
	model := &c.models[modelIndex]
	waitingRequests := int32(model.queue.Len)

	// The waiting requests must go by lastMoment. The wake is earlier by an allowance, since real clocks wake late.
	lastMoment := c.latestDispatch(path, model, now)
	wake := lastMoment - c.wakeDelayAllowance(path.pipeline, min(waitingRequests+1, path.batchSize))

	// If that time has come, the waiting requests go now, along a path of their own batch size, if they are in time. A
	// smaller batch may be late where the larger one is not (its path or its guard differs). Then they wait until the last
	// moment itself.
	if wake <= now {
		c.finder.findPath(path.pipeline, waitingRequests, now, path)
		if path.finish <= c.guardedDeadline(head.Deadline, path.pipeline, waitingRequests) {
			return path
		}
		model.nextWake = lastMoment
		return nil
	}

	// Without SendWhenFree, wait for a fuller batch until then, as the paper does. The devices of the path are stored, so
	// that the next decision can check without a search whether a batch along them is still in time.
	if !c.options.SendWhenFree {
		c.storeAwaitedDevices(modelIndex, path)
		model.nextWake = wake
		return nil
	}

	// With SendWhenFree, send the waiting requests if they would wait for nothing on their path.
	waitingPath, goesAtOnce := c.waitingRequestsPath(path.pipeline, model, head, now)
	if goesAtOnce {
		return waitingPath
	}

	// Otherwise they wait for the devices of their own path. Wake when that wait is over (sendAheadTime earlier on shared
	// devices), if that is before the last moment. If other models use the devices too, or if the batch would have to go
	// later for the sake of other work (requiredDelay), each event of work on the devices may change that time.
	c.storeAwaitedDevices(modelIndex, waitingPath)
	model.wakesOnDeviceEvents = len(model.colocatedModels) > 0 || waitingPath.requiredDelay > 0
	if wait := waitingPath.waitTime - c.sendAheadTime(model); wait > 0 {
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

// atMaxDepth reports whether some device of a path (a device for each stage) has so many reservations (maxDepth) that no
// more are to be added yet. reservationCounts has their number by resource; devices come first.
func (f *pathFinder) atMaxDepth(path *reservedPath) bool {
	for i := range path.hops {
		if f.lists.reservationCounts[path.hops[i].Device] >= f.maxDepth {
			return true
		}
	}
	return false
}

// dropHopelessTail is called when the head of a model's queue waits for devices with maxDepth reservations. From the end
// of the queue it drops the requests that could not be in time even if the model had all of its devices at full rate
// from the head's batch on, so that their clients hear of it earlier. headPath is the path (a device for each stage,
// with times) found for the head.
func (p *Policy) dropHopelessTail(modelIndex int32, headPath *reservedPath, out *policy.Actions) {
	queue := &p.models[modelIndex].queue
	for queue.Len > 1 {
		// Behind the head's batch, requests end one per requestInterval at best.
		earliestFinish := headPath.finish + time.Duration(max(int32(queue.Len)-headPath.batchSize, 0))*p.chooser.requestInterval[modelIndex]
		if earliestFinish <= p.chooser.guardedDeadline(queue.At(queue.Len-1).Deadline, headPath.pipeline, headPath.batchSize) {
			return
		}
		dropRequest(modelIndex, queue.PopLast().Req, policy.ReasonDeadline, out)
	}
}

// storeAwaitedDevices is called when the head of a model's queue (its request with the earliest deadline) waits for a fuller
// batch. It stores the devices of the path for that batch in modelState.awaitedDevices, so that the next decision can
// check these devices alone, without a search (continuesWaiting). If such a check might decide otherwise than a search, it
// stores none.
func (c *batchChooser) storeAwaitedDevices(modelIndex int32, path *reservedPath) {
	model := &c.models[modelIndex]
	model.awaitedDevices = model.awaitedDevices[:0]

	// A search may choose another pipeline if there are several. If a larger batch can take less time, a check of one size
	// says nothing of others. If transfers may stay within a node, their times depend on the devices that are chosen.
	firstPipeline, endPipeline := c.tables.PipelinesOf(modelIndex)
	if endPipeline != firstPipeline+1 || !c.timeGrowsWithBatch[firstPipeline] || c.finder.hasNodeLocalTransfers {
		return
	}

	// With SendWhenFree the head goes as soon as the devices are free. So a check would also have to know who else may take
	// them: other models on the same devices (colocatedModels), or work that must go first (requiredDelay). Without it the
	// head waits in any case until the last moment at which it can be in time.
	if c.options.SendWhenFree && (len(model.colocatedModels) > 0 || path.requiredDelay > 0) {
		return
	}
	for i := range path.hops {
		model.awaitedDevices = append(model.awaitedDevices, path.hops[i].Device)
	}
}

// continuesWaiting is the first step of judgeHead: it reports, without a search, that a model's head goes on waiting
// for a fuller batch (one of one request more than wait). It checks the devices that storeAwaitedDevices stored at an
// earlier decision, which it does for models with a single pipeline only. The head goes on waiting if the fuller batch
// would still be in time on these devices. With SendWhenFree the waiting requests must also still have to wait for one
// of them, because otherwise they would be sent at once. It then sets modelState.nextWake. If it returns false, a
// search has to decide.
func (c *batchChooser) continuesWaiting(modelIndex int32, now time.Duration) bool {
	model := &c.models[modelIndex]
	if len(model.awaitedDevices) == 0 {
		return false
	}

	// Check that a fuller batch would still be in time on the same devices. A head at its first look (its first decision)
	// needs a search, and a batch of more than the planned size is not possible.
	head, pipeline := model.queue.At(0), c.tables.Models[modelIndex].FirstPipeline
	largerBatch := int32(model.queue.Len) + 1
	if !head.PassedFirstLook || largerBatch > c.tables.Pipelines[pipeline].Batch {
		return false
	}
	latestFinish := c.guardedDeadline(head.Deadline, pipeline, largerBatch)
	if c.finder.finishAlong(pipeline, largerBatch, model.awaitedDevices, now) > latestFinish {
		return false
	}

	// Wake a nanosecond after the last moment at which the fuller batch could go and be in time: the deadline, less the
	// guard (its part in reserve against jitter), less the time of a path without waits. That is minPathTime, which is
	// indexed by batch size - 1. An allowance for a late wake is taken off, too. With SendWhenFree, wake also when the
	// waiting requests, one fewer than in the fuller batch, would wait for nothing: they could end at finishAlong if they
	// went now, and that less their time without waits is when they could start.
	wake := latestFinish - c.minPathTime[pipeline][largerBatch-1] + 1 - c.wakeDelayAllowance(pipeline, largerBatch)
	if c.options.SendWhenFree {
		waitingRequests := largerBatch - 1
		wake = min(wake, c.finder.finishAlong(pipeline, waitingRequests, model.awaitedDevices, now)-c.minPathTime[pipeline][waitingRequests-1])
	}
	if wake <= now {
		return false
	}
	model.nextWake = wake
	return true
}

// finishAlong returns when a batch that is dispatched now would leave a pipeline on given devices, one for each stage,
// behind everything that is reserved there and on the links between them. Nothing is reserved. If the batch would not
// stand behind everything, or if that is in doubt, it returns farFuture, and a search has to decide. It is cheaper than
// a search.
//
// In the summary of a device or a link, lastEnd is when its last reservation ends, and lastReady is when the work of
// that reservation is ready. Work runs first-in first-out, so a batch that comes before lastReady would go in front.
func (f *pathFinder) finishAlong(pipeline, batchSize int32, devices []int32, now time.Duration) time.Duration {
	firstStage := f.tables.Pipelines[pipeline].FirstStage
	finish := now
	for hop, device := range devices {
		stage := &f.tables.Stages[firstStage+int32(hop)]

		// Add the transfer, behind the last reservation of both links (-1: no such link). Tables of times are by batch size -
		// 1.
		if hop > 0 && stage.Xfer != nil && stage.Xfer[batchSize-1] > 0 {
			for _, link := range [2]int32{f.uplinks[devices[hop-1]], f.downlinks[device]} {
				if link < 0 {
					continue
				}
				if finish < f.lists.summaries[link].lastReady {
					return farFuture // first-in first-out puts the transfer in front of the last reservation
				}
				finish = max(finish, f.lists.summaries[link].lastEnd)
			}
			finish += stage.Xfer[batchSize-1]
		}

		// Add the run, behind the last reservation of the device. A batch that comes at the same instant as the work of that
		// reservation may pass it if that has not come yet (findGap). If a reservation should have ended before now and is
		// still there, its work runs longer than reserved, and lastEnd is wrong.
		summary := &f.lists.summaries[device]
		runsLonger := summary.lastEnd < now && summary.first >= 0
		if finish <= summary.lastReady || runsLonger {
			return farFuture
		}
		finish = max(finish, summary.lastEnd) + stage.Infer[batchSize-1]
	}
	return finish
}

// waitingRequestsPath returns the best path of all waiting requests of a model through a pipeline, and whether they are
// to go along it at once: in time, and without waiting for a device or a link. Then there is no reason to wait: a
// fuller batch only costs latency, and on a shared device another model may take the place that the wait counted on.
// Under load some stage is busy, and batches fill meanwhile. That the first stage is free is not enough: small batches
// would reduce the rate of a later stage that limits the pipeline. The path is a buffer that the next call overwrites.
func (c *batchChooser) waitingRequestsPath(pipeline int32, model *modelState, head *waiting.Request, now time.Duration) (path *reservedPath, goesAtOnce bool) {
	path = &c.waitingPath
	c.finder.findPath(pipeline, int32(model.queue.Len), now, path)
	waitsForNothing := path.waitTime <= c.sendAheadTime(model) && path.requiredDelay == 0
	isInTime := path.finish <= c.guardedDeadline(head.Deadline, pipeline, path.batchSize)
	return path, waitsForNothing && isInTime
}

// sendAheadTime returns how long before a device becomes free a batch of this model may be sent to it: with colocated
// models, Options.DecideAhead, because the decision which of them is next there is made so early; else 0.
func (c *batchChooser) sendAheadTime(model *modelState) time.Duration {
	if len(model.colocatedModels) == 0 {
		return 0
	}
	return c.options.DecideAhead
}

// choosePipeline returns the path of the model's pipeline on which a batch of the planned size waits least for devices
// and links. If no pipeline has a device left at every stage, it returns nil.
//
// A model with one pipeline has no choice to make, so a single search suffices. It is made at once with a fuller batch,
// one request more than wait: if that is in time, it may pay to wait for one more request, and whether an even larger
// batch would be in time changes nothing. If it is late, no larger batch is in time, provided that times grow with the
// batch (timeGrowsWithBatch). At the first look (the first decision about a head) DropHopeless judges the head by the
// planned size, so that the search must be made with that. The returned path is valid until the next call.
func (c *batchChooser) choosePipeline(modelIndex int32, now time.Duration) *reservedPath {
	firstPipeline, endPipeline := c.tables.PipelinesOf(modelIndex)
	bestPath, candidatePath := &c.pipelinePaths[0], &c.pipelinePaths[1]

	// With a single pipeline, find the path of a fuller batch, unless DropHopeless needs that of the planned size.
	queue := &c.models[modelIndex].queue
	needsPlannedSize := c.options.DropHopeless && !queue.At(0).PassedFirstLook
	if endPipeline == firstPipeline+1 && c.timeGrowsWithBatch[firstPipeline] && !needsPlannedSize {
		c.finder.findPath(firstPipeline, min(c.tables.Pipelines[firstPipeline].Batch, int32(queue.Len)+1), now, bestPath)
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

// hasGuard reports whether the options keep a part of each deadline in reserve against jitter (the guard).
func (c *batchChooser) hasGuard() bool { return c.options.GuardTime > 0 || c.options.GuardShare > 0 }

// findPathInTime returns the path of the largest batch that meets the deadline of a model's head: on the pipeline of
// the given path or else on another one. If there is none, and an earlier decision found the head in time
// (PassedFirstLook), it tries all pipelines again without the guard, the part of the deadline in reserve against
// jitter. If no batch meets the deadline, it returns nil. The given path is overwritten.
func (c *batchChooser) findPathInTime(modelIndex int32, path *reservedPath, head *waiting.Request, now time.Duration) *reservedPath {
	if fitted := c.shrinkUntilInTime(path, head, now); fitted != nil {
		return fitted
	}

	// The stages of another pipeline may be faster.
	const anySize = math.MaxInt32 // batches up to the planned size
	if fitted := c.tryPipelines(modelIndex, path.pipeline, anySize, head, now); fitted != nil {
		return fitted
	}

	// A head that was in time at its first look may be late now because a wake on a real clock came late, and the guard is
	// there to cover that. A head at its first look, or without a guard, is too late.
	if !head.PassedFirstLook || !c.hasGuard() {
		return nil
	}

	// Try all pipelines (-1 excludes none) without the guard. The batch is no larger than the queue, so that judgeHead
	// does not let it wait for more requests: it goes now.
	c.ignoreGuard = true
	fitted := c.tryPipelines(modelIndex, -1, int32(c.models[modelIndex].queue.Len), head, now)
	c.ignoreGuard = false
	return fitted
}

// tryPipelines returns the path of the largest batch, up to maxBatch requests, that meets the head's deadline, on the
// first of the model's pipelines that has one. It leaves out excludedPipeline, which was tried before (-1: none). If
// there is none, it returns nil.
func (c *batchChooser) tryPipelines(modelIndex, excludedPipeline, maxBatch int32, head *waiting.Request, now time.Duration) *reservedPath {
	firstPipeline, endPipeline := c.tables.PipelinesOf(modelIndex)
	for pipeline := firstPipeline; pipeline < endPipeline; pipeline++ {
		if pipeline == excludedPipeline {
			continue
		}
		batchSize := c.largestInTime(pipeline, min(c.tables.Pipelines[pipeline].Batch, maxBatch), head, now)
		if batchSize == 0 {
			continue
		}
		c.finder.findPath(pipeline, batchSize, now, &c.otherPipelinePath)
		if fitted := c.shrinkUntilInTime(&c.otherPipelinePath, head, now); fitted != nil {
			return fitted
		}
	}
	return nil
}

// largestInTime returns the largest batch size, up to maxBatch, with which the head meets its deadline if the batch
// goes now and waits for nothing; 0 if there is none.
func (c *batchChooser) largestInTime(pipeline, maxBatch int32, head *waiting.Request, now time.Duration) int32 {
	batchSize := maxBatch
	for batchSize > 0 && now+c.minPathTime[pipeline][batchSize-1] > c.guardedDeadline(head.Deadline, pipeline, batchSize) {
		batchSize--
	}
	return batchSize
}

// guardedDeadline returns the latest time at which a batch of a size may leave a pipeline so that the requests in it
// meet their deadline: the deadline less the guard, the part in reserve against jitter. With ignoreGuard, which
// findPathInTime sets for its last attempt, it is the deadline itself.
func (c *batchChooser) guardedDeadline(deadline time.Duration, pipeline, batchSize int32) time.Duration {
	if c.ignoreGuard {
		return deadline
	}
	return deadline - c.guard[pipeline][batchSize-1]
}

// wakeDelayAllowance returns how much earlier than at its latest dispatch a head that waits for a fuller batch is looked
// at again, because a wake on a real clock comes late: GuardTime, but no more than the guard of the batch.
func (c *batchChooser) wakeDelayAllowance(pipeline, batchSize int32) time.Duration {
	return min(c.options.GuardTime, c.guard[pipeline][batchSize-1])
}

// shrinkUntilInTime returns the given path if its batch meets the head's deadline, less the guard (its part in reserve
// against jitter). Otherwise it searches the same pipeline with smaller and smaller batches, and writes the first path
// that meets the deadline into path. If there is none, it returns nil.
func (c *batchChooser) shrinkUntilInTime(path *reservedPath, head *waiting.Request, now time.Duration) *reservedPath {
	pipeline := path.pipeline
	for {
		if path.finish <= c.guardedDeadline(head.Deadline, pipeline, path.batchSize) {
			return path
		}

		// Skip the batches that would be late even without waiting.
		batchSize := c.largestInTime(pipeline, path.batchSize-1, head, now)
		if batchSize == 0 {
			return nil
		}
		c.finder.findPath(pipeline, batchSize, now, path)
	}
}

// shouldDropHead reports whether a head is to be dropped at its first look, the first decision about it
// (Options.DropHopeless, as PPipe's artifact does), because even the chosen path, that of the largest batch in time, has
// a batch well below the planned size.
func (c *batchChooser) shouldDropHead(chosenPath *reservedPath, head *waiting.Request) bool {
	if !c.options.DropHopeless || head.PassedFirstLook {
		return false
	}

	// A batch of less than 95 % of the planned size does not count.
	plannedBatch := c.tables.Pipelines[chosenPath.pipeline].Batch
	return chosenPath.batchSize < int32(math.Round(underway.FirstLookShare*float64(plannedBatch)))
}

// dropHead drops the head of a model's queue (the request with the earliest deadline) because of a verdict. The
// reason is the deadline or, if a device was lost under the request or none is left for it, the lost device.
func (p *Policy) dropHead(modelIndex int32, verdict verdict, out *policy.Actions) {
	reason := policy.ReasonDeadline
	if verdict == headStranded {
		reason = policy.ReasonWorkerLost
	}
	underway.DropHead(&p.models[modelIndex].queue, modelIndex, reason, out)
}

// latestDispatch returns the time at which a head that waits for a fuller batch (one of one request more than wait now)
// must stop waiting, and go with the requests that wait: just after the last moment at which the fuller batch could go
// and be in time. Until then a further arrival could still join. Time that the batch would wait for devices and links
// need not be kept free: if it goes later, it waits less there and ends at the same time. chosenPath is the path of the
// largest batch in time.
//
// If times grow with the batch and do not depend on the devices, no search is needed: the fuller batch is no larger
// than the chosen one, so that it is in time, too.
func (c *batchChooser) latestDispatch(chosenPath *reservedPath, model *modelState, now time.Duration) time.Duration {
	deadline, pipeline := model.queue.At(0).Deadline, chosenPath.pipeline
	largerBatch := min(int32(model.queue.Len)+1, chosenPath.batchSize)
	if c.timeGrowsWithBatch[pipeline] && !c.finder.hasNodeLocalTransfers {
		// A fuller batch that goes at this time is late even if it waits for nothing: minPathTime is its time without waits,
		// and is indexed by batch size - 1.
		return c.guardedDeadline(deadline, pipeline, largerBatch) - c.minPathTime[pipeline][largerBatch-1] + 1
	}

	// Otherwise search for a path of the fuller batch. If that is late already, the chosen path counts.
	path := chosenPath
	if largerBatch < chosenPath.batchSize {
		c.finder.findPath(pipeline, largerBatch, now, &c.largerBatchPath)
		if c.largerBatchPath.finish <= c.guardedDeadline(deadline, pipeline, largerBatch) {
			path = &c.largerBatchPath
		}
	}

	// The batch can go later by the time between its end and the deadline, and by as long as it would wait for devices and
	// links anyway. A nanosecond after that it is late.
	return now + c.guardedDeadline(deadline, pipeline, path.batchSize) - path.finish + path.waitTime + 1
}

// dispatch reserves a path (a device for each stage, with its transfers) for a batch and sends the first requests of
// the model's queue along it. If the path would move reservations of other batches so that these end later than they
// may (Batch.LatestEnd), it does nothing and returns false. Later paths may move the reservations of this batch in turn.
// It may then end no later than the deadline of its head less the guard, the part in reserve against jitter, or, if it
// ends after that already, than the deadline.
func (p *Policy) dispatch(modelIndex int32, path *reservedPath, now time.Duration, out *policy.Actions) bool {
	// Set the latest end of the batch.
	latestEnd := p.models[modelIndex].queue.At(0).Deadline
	if guardedEnd := p.chooser.guardedDeadline(latestEnd, path.pipeline, path.batchSize); path.finish <= guardedEnd {
		latestEnd = guardedEnd
	}

	// Reserve the path under the next free batch slot (the number of a batch), which batches.Dispatch then takes.
	batchSlot := p.tryReservePath(path, latestEnd, now)
	if batchSlot < 0 {
		return false
	}
	const firstStage = 0 // the batch begins at the first stage of its pipeline
	out.Hops = append(out.Hops, path.hops...)
	p.batches.Dispatch(&p.models[modelIndex].queue, modelIndex, path.pipeline, path.batchSize, firstStage, len(path.hops), out)
	p.batches.BatchAt(batchSlot).LatestEnd = latestEnd
	return true
}
