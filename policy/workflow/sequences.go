package workflow

import (
	"slices"
	"time"

	"inferplan/policy"
)

// languageModels runs the tasks of language models as sequences. A device runs one service at a time. If that is a
// language model, each task is a batch of its own, which begins with the next iteration. Tasks join as long as there is
// KV memory, and until a task of another service waits before them that could run. Then the device drains.
//
// The speed of a sequence depends on the number n of sequences beside it: it does 1/T(n) of itself per unit of time. So
// its expected end moves with every sequence that comes or goes.
type languageModels struct{ *cluster }

// languageModels returns the view of the cluster that runs sequences.
func (c *cluster) languageModels() languageModels { return languageModels{c} }

// sequence is the progress of a task on a language model.
type sequence struct {
	batchSlot     int32   // its batch slot
	kvTokens      int64   // KV tokens that it will hold, as expected
	remainingPart float64 // part of it that remains to be done, as expected
}

// isLanguageModel returns true if a service is a language model.
func (q languageModels) isLanguageModel(service int32) bool {
	return service >= 0 && q.tables.services[service].generation != nil
}

// tokensOf returns the KV tokens that a task of a service and work will hold. For other services it returns 0.
func (q languageModels) tokensOf(service int32, work int64) int64 {
	g := q.tables.services[service].generation
	if g == nil {
		return 0
	}
	return max(1, scaleTime(int64(g.Prompt+g.Output+.5), work))
}

// fitsOneMore returns true if a batch of n tasks, which will hold `kv` tokens, takes one more task of a work. An empty
// batch always does.
func (q languageModels) fitsOneMore(service, place, n int32, kv, work int64) bool {
	if n == 0 {
		return true
	}
	onPlace := q.tables.serviceOn(service, place)
	return n < onPlace.maxBatch && (!q.isLanguageModel(service) || kv+q.tokensOf(service, work) <= onPlace.kvTokens)
}

// startSequence starts a task as a sequence on a device whose language model it needs.
func (q languageModels) startSequence(place, id int32, now int64, out *policy.Actions) {
	d, k := &q.devices[place], &q.tasks[id]
	recomputeTime := q.stateStore().recomputeTime(k, place)

	// An idle device begins to run the model.
	if !d.busy {
		d.busy, d.service, d.batchEndsAt, d.kvTokens, d.progressCountedAt = true, k.service, now, 0, now
		q.busyDevices++
	}
	q.advanceProgress(d, place, now)

	// Add the sequence; recomputing its session state makes it longer than 1.
	g := sequence{batchSlot: q.takeBatchSlot(id), kvTokens: q.tokensOf(k.service, k.work)}
	k.state = taskRunning
	d.batch = append(d.batch, id)
	d.kvTokens += g.kvTokens
	sequenceTime := q.tables.batchTime(k.service, place, int32(len(d.batch)), k.work)
	g.remainingPart = 1 + float64(recomputeTime)/float64(sequenceTime)
	k.sequence = g
	d.lastUsedAt[q.tables.services[k.service].network] = now
	q.updateEnds(d, place, now)

	// Order the dispatch.
	sv, start := q.tables.serviceOn(k.service, place), time.Duration(now)
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: sv.pipeline, Model: -1, Batch: g.batchSlot, Size: 1, Device: q.tables.deviceAt[place],
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Tasks = append(out.Tasks, k.slot)
	out.Hops = append(out.Hops, policy.Hop{Stage: sv.stage, Device: q.tables.deviceAt[place], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(k.endsAt)})
}

// takeBatchSlot returns a batch slot for a sequence. Slots below the number of devices are those of the devices' other
// batches.
func (q languageModels) takeBatchSlot(id int32) int32 {
	n := len(q.freeBatchSlots)
	if n == 0 {
		q.sequenceInSlot = append(q.sequenceInSlot, id)
		return int32(len(q.devices) + len(q.sequenceInSlot) - 1)
	}
	slot := q.freeBatchSlots[n-1]
	q.freeBatchSlots = q.freeBatchSlots[:n-1]
	q.sequenceInSlot[int(slot)-len(q.devices)] = id
	return slot
}

// taskOfSlot returns the task in a batch slot. If the batch is none of a language model, it returns -1.
func (q languageModels) taskOfSlot(slot int32) int32 {
	if i := int(slot) - len(q.devices); i >= 0 && i < len(q.sequenceInSlot) {
		return q.sequenceInSlot[i]
	}
	return -1
}

// advanceProgress counts what the sequences of a device have done up to now.
func (q languageModels) advanceProgress(d *device, place int32, now int64) {
	n := int32(len(d.batch))
	for _, id := range d.batch {
		k := &q.tasks[id]
		k.remainingPart = max(0, k.remainingPart-float64(now-d.progressCountedAt)/float64(q.tables.batchTime(k.service, place, n, k.work)))
	}
	d.progressCountedAt = now
}

// updateEnds computes when the sequences of a device will end if no other one joins.
func (q languageModels) updateEnds(d *device, place int32, now int64) {
	n := int32(len(d.batch))
	d.batchEndsAt, d.dirty = now, true
	for _, id := range d.batch {
		k := &q.tasks[id]
		k.endsAt = now + int64(k.remainingPart*float64(q.tables.batchTime(k.service, place, n, k.work)))
		d.batchEndsAt = max(d.batchEndsAt, k.endsAt)
	}
}

// endSequence removes a sequence from its device.
func (q languageModels) endSequence(place, id int32, now int64) {
	d, k := &q.devices[place], &q.tasks[id]
	q.advanceProgress(d, place, now)
	i := slices.Index(d.batch, id)
	d.batch = slices.Delete(d.batch, i, i+1)
	d.kvTokens -= k.kvTokens
	q.freeBatchSlots = append(q.freeBatchSlots, k.sequence.batchSlot)
	q.sequenceInSlot[int(k.sequence.batchSlot)-len(q.devices)] = -1
	d.lastUsedAt[q.tables.services[d.service].network] = now
	if len(d.batch) == 0 {
		d.busy = false
		q.busyDevices--
	}
	q.updateEnds(d, place, now)
	q.touchDevice(place)
}

// causesDrain returns true if a task that waits on a device makes the running language model drain: the task could run
// next, or its network needs the memory.
func (q languageModels) causesDrain(d *device, k *task) bool {
	if k.slot < 0 || k.service == d.service || k.pendingInputs > 0 || k.inputsAt != k.place || k.stateInTransit {
		return false
	}
	n := q.tables.services[k.service].network
	return d.loaded[n] || d.loading < 0 && q.tables.bytes[n] > d.memoryBytes-d.usedBytes
}

// currentPeriod returns what the running language model of a device does until it has drained, as a batch of the plan.
func (q languageModels) currentPeriod(d *device, now int64) plannedBatch {
	return plannedBatch{start: now, end: d.batchEndsAt, joinUntil: q.lastJoin(d, d.service, now, d.batchEndsAt), service: d.service, size: int32(len(d.batch)), kvTokens: d.kvTokens, hasRevealed: true}
}

// lastJoin returns when a task appended to a queue could at the latest join a language model that runs over an interval:
// before any task of another service may run.
func (q languageModels) lastJoin(d *device, service int32, begin, end int64) int64 {
	lastJoin := end
	for i, id := range d.queue {
		if k := &q.tasks[id]; k.slot >= 0 && k.service != service && d.readyTimes[i] >= 0 {
			lastJoin = min(lastJoin, max(begin, d.readyTimes[i]))
		}
	}
	return lastJoin
}

// planJoins lets the tasks of a queue join a planned batch of a language model, and returns how many do. headPosition is
// the first position of the service that is not planned.
func (q languageModels) planJoins(d *device, place, headPosition int32, period *plannedBatch) (joinedTasks int32) {
	for i := headPosition; i < int32(len(d.queue)); i = d.nextOfService[i] {
		joinAt := max(d.readyTimes[i], period.start)
		k := &q.tasks[d.queue[i]]
		if d.readyTimes[i] == positionPlanned || joinAt > period.joinUntil || !q.fitsOneMore(period.service, place, period.size, period.kvTokens, k.work) {
			continue
		}
		period.size++
		period.kvTokens += q.tokensOf(period.service, k.work)
		period.hasRevealed = period.hasRevealed || k.slot >= 0
		k.endsAt = joinAt + q.tables.batchTime(period.service, place, period.size, k.work) + q.stateStore().recomputeTime(k, place)
		if period.joinUntil == period.end {
			period.joinUntil = max(period.end, k.endsAt)
		}
		period.end = max(period.end, k.endsAt)
		d.readyTimes[i] = positionPlanned
		joinedTasks++
	}
	return joinedTasks
}

// waitsForDrain returns true if a batch of a service that starts at an instant waits for a language model to drain, or
// is a language model that waits for a batch.
func (q languageModels) waitsForDrain(d *device, service int32, start int64) bool {
	for i := range d.plannedBatches {
		if b := &d.plannedBatches[i]; b.service != service && b.end == start {
			return q.isLanguageModel(service) || q.isLanguageModel(b.service)
		}
	}
	return false
}
