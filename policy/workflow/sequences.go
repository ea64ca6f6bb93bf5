package workflow

import (
	"slices"
	"time"

	"inferplan/policy"
)

// sequenceRunner runs the tasks of language models as sequences. A device runs one service at a time. If that is a
// language model, each task is a batch of its own, which begins with the next iteration. Tasks join as long as there is
// KV memory, and until a task of another service waits before them that could run. Then the device drains.
//
// The speed of a sequence depends on the number n of sequences beside it: it does 1/T(n) of itself per unit of time. So
// its expected end moves with every sequence that comes or goes.
type sequenceRunner struct {
	cluster        *cluster
	book           *taskTable
	tables         *deviceTables
	states         *stateStore
	sequenceInSlot []int32 // sequence by batch slot, counted from the number of devices on
	freeBatchSlots []int32
}

// sequence is the progress of a task on a language model.
type sequence struct {
	batchSlot     int32   // its batch slot
	kvTokens      int64   // KV tokens that it will hold, as expected
	remainingPart float64 // part of it that remains to be done, as expected
}

// startSequence starts a task as a sequence on a device whose language model it needs, beside those that run there.
// Each sequence is a batch of its own, whose slot is behind those of the devices.
func (q *sequenceRunner) startSequence(place, id int32, now int64, out *policy.Actions) {
	d, k := &q.cluster.devices[place], &q.book.tasks[id]
	recomputeTime := q.states.recomputeTime(k, place)

	// An idle device begins to run the model.
	if !d.busy {
		d.busy, d.service, d.batchEndsAt, d.kvTokens, d.progressCountedAt = true, k.service, now, 0, now
		q.cluster.busyDevices++
	}
	q.advanceProgress(d, place, now)

	// Add the sequence; recomputing its session state makes it longer than 1.
	g := sequence{batchSlot: q.takeBatchSlot(id), kvTokens: q.tables.tokensOf(k.service, k.work)}
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

// takeBatchSlot returns a batch slot (number in events) for a sequence, which is a batch of its own. Slots below
// the number of devices are those of the devices' other batches.
func (q *sequenceRunner) takeBatchSlot(id int32) int32 {
	n := len(q.freeBatchSlots)
	if n == 0 {
		q.sequenceInSlot = append(q.sequenceInSlot, id)
		return int32(len(q.cluster.devices) + len(q.sequenceInSlot) - 1)
	}
	slot := q.freeBatchSlots[n-1]
	q.freeBatchSlots = q.freeBatchSlots[:n-1]
	q.sequenceInSlot[int(slot)-len(q.cluster.devices)] = id
	return slot
}

// taskOfSlot returns the task in a batch slot. If the batch is none of a language model, it returns -1.
func (q *sequenceRunner) taskOfSlot(slot int32) int32 {
	if i := int(slot) - len(q.cluster.devices); i >= 0 && i < len(q.sequenceInSlot) {
		return q.sequenceInSlot[i]
	}
	return -1
}

// advanceProgress counts what the sequences of a device have done up to now, as parts of themselves: all run more
// slowly the more there are. It is called before their number changes.
func (q *sequenceRunner) advanceProgress(d *device, place int32, now int64) {
	n := int32(len(d.batch))
	for _, id := range d.batch {
		k := &q.book.tasks[id]
		k.sequence.remainingPart = max(0, k.sequence.remainingPart-float64(now-d.progressCountedAt)/float64(q.tables.batchTime(k.service, place, n, k.work)))
	}
	d.progressCountedAt = now
}

// updateEnds computes when the sequences of a device will end if no other one joins.
func (q *sequenceRunner) updateEnds(d *device, place int32, now int64) {
	n := int32(len(d.batch))
	d.batchEndsAt, d.dirty = now, true
	for _, id := range d.batch {
		k := &q.book.tasks[id]
		k.endsAt = now + int64(k.sequence.remainingPart*float64(q.tables.batchTime(k.service, place, n, k.work)))
		d.batchEndsAt = max(d.batchEndsAt, k.endsAt)
	}
}

// endSequence removes a sequence (a task of a language model) from its device, when it ends, returns or is aborted.
// The others then run faster, so their expected ends are updated. Without sequences the device is idle.
func (q *sequenceRunner) endSequence(place, id int32, now int64) {
	d, k := &q.cluster.devices[place], &q.book.tasks[id]
	q.advanceProgress(d, place, now)
	i := slices.Index(d.batch, id)
	d.batch = slices.Delete(d.batch, i, i+1)
	d.kvTokens -= k.sequence.kvTokens
	q.freeBatchSlots = append(q.freeBatchSlots, k.sequence.batchSlot)
	q.sequenceInSlot[int(k.sequence.batchSlot)-len(q.cluster.devices)] = -1
	d.lastUsedAt[q.tables.services[d.service].network] = now
	if len(d.batch) == 0 {
		d.busy = false
		q.cluster.busyDevices--
	}
	q.updateEnds(d, place, now)
	q.cluster.touchDevice(place)
}

// causesDrain returns true if a task that waits on a device makes the running language model drain: the task could run
// next, or its network needs the memory.
func (q *sequenceRunner) causesDrain(d *device, k *task) bool {
	if k.slot < 0 || k.service == d.service || k.pendingInputs > 0 || k.inputsAt != k.place || k.stateInTransit {
		return false
	}
	n := q.tables.services[k.service].network
	return d.loaded[n] || d.loading < 0 && q.tables.bytes[n] > d.memoryBytes-d.usedBytes
}
