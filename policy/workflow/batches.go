package workflow

import (
	"time"

	"inferplan/policy"
)

// batchRunner runs placed tasks: it has the inputs of a task brought to the task's device, and starts and ends the
// batches there.
type batchRunner struct {
	cluster   *cluster
	book      *taskTable
	tables    *deviceTables
	states    *stateStore
	sequences *sequenceRunner
	fullBatch fullBatchFinder
	loader    *networkLoader
	admission *admission
}

// startTouched is called at the end of each event. It starts batches and loads, where it can, on all devices that
// the event has touched. A start may touch further devices, so the list grows meanwhile.
func (b *batchRunner) startTouched(now int64, out *policy.Actions) {
	for i := 0; i < len(b.cluster.touchedPlaces); i++ {
		place := b.cluster.touchedPlaces[i]
		b.cluster.isTouched[place] = false
		if d := &b.cluster.devices[place]; !d.down {
			b.startBatch(place, now, out)
			b.loader.loadNext(place, now, out)
		}
	}
	b.cluster.touchedPlaces = b.cluster.touchedPlaces[:0]
}

// startBatch starts a batch on an idle device: the first task in its queue that may run, with all later tasks of
// the same service that may run, up to the largest batch. If the device runs a language model, tasks join it
// instead. It is called whenever a device may be able to start something.
func (b *batchRunner) startBatch(place int32, now int64, out *policy.Actions) {
	d := &b.cluster.devices[place]
	if d.busy {
		if b.tables.isLanguageModel(d.service) {
			b.joinSequences(place, now, out)
		}
		return
	}

	// Find the head of the batch. A language model starts sequences instead.
	headPosition := b.firstToStart(d, b.batchHead(d, place, now))
	if headPosition < 0 {
		return
	}
	service := b.book.tasks[d.queue[headPosition]].service
	if b.tables.isLanguageModel(service) {
		b.startSequences(place, service, headPosition, now, out)
		return
	}

	// Book the batch on the device.
	firstTask := int32(len(out.Tasks))
	work, recomputeTime := b.chooseBatch(place, headPosition, service, out)
	n := int32(len(d.batch))
	d.busy, d.dirty, d.service = true, true, service
	b.cluster.busyDevices++
	d.batchEndsAt = now + b.tables.batchTime(service, place, n, work) + recomputeTime
	d.lastUsedAt[b.tables.services[service].network] = now
	for _, id := range d.batch {
		b.book.tasks[id].endsAt = d.batchEndsAt
	}

	// Order the dispatch.
	onDevice := b.tables.serviceOn(service, place)
	start := time.Duration(now)
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: onDevice.pipeline, Model: -1, Batch: place, Size: n, Device: b.tables.deviceAt[place],
		TaskFirst: firstTask, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: onDevice.stage, Device: b.tables.deviceAt[place], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(d.batchEndsAt)})
}

// firstToStart returns the first position of a queue, from a given one on, whose task may run and waits for no sibling.
// If there is none, it returns -1.
func (b *batchRunner) firstToStart(d *device, position int) int {
	for i := position; i < len(d.queue); i++ {
		if k := &b.book.tasks[d.queue[i]]; b.cluster.isRunnable(d, k) && !b.siblingArriving(d, k) {
			return i
		}
	}
	return -1
}

// chooseBatch moves the tasks of a service that may run, from a position of the queue on, into the batch of a
// device, as many as fit. It returns the largest work of a task, which sets the time of the batch, and the time in
// ns to recompute session states (what a service keeps of a request) that are not on the device.
func (b *batchRunner) chooseBatch(place int32, headPosition int, service int32, out *policy.Actions) (work, recomputeTime int64) {
	d, maxBatch := &b.cluster.devices[place], int(b.tables.serviceOn(service, place).maxBatch)
	remainingQueue := d.queue[:headPosition]
	for _, id := range d.queue[headPosition:] {
		k := &b.book.tasks[id]
		if len(d.batch) == maxBatch || k.service != service || !b.cluster.isRunnable(d, k) {
			remainingQueue = append(remainingQueue, id)
			continue
		}
		recomputeTime += b.states.recomputeTime(k, place)
		k.state, work = taskRunning, max(work, k.work)
		b.admission.settleOwedTime(k, 1)
		d.batch, out.Tasks = append(d.batch, id), append(out.Tasks, k.slot)
	}
	d.queue = remainingQueue
	return work, recomputeTime
}

// batchHead returns the queue position at which the search for the next batch begins. That is the first full batch
// if the first task that may run can wait for it, and otherwise position 0. Tasks whose siblings (tasks of the same
// request) will arrive soon wait for them, unless others of the service are ready.
func (b *batchRunner) batchHead(d *device, place int32, now int64) int {
	if !b.cluster.options.FullBatchFirst {
		return 0
	}
	finder := &b.fullBatch
	finder.reset()
	for i, id := range d.queue {
		if k := &b.book.tasks[id]; b.cluster.isRunnable(d, k) && (finder.partialBatches[k.service].size > 0 || !b.siblingArriving(d, k)) {
			if position := finder.addTask(b.tables, k, place, int32(i), now); position >= 0 {
				return int(position)
			}
		}
	}
	return 0
}

// startSequences starts a language model on an idle device, with all tasks of the service that may run, from a
// position of the queue on, and for which there is KV memory. Each such task is a sequence and a batch of its own.
// The others stay in the queue.
func (b *batchRunner) startSequences(place, service int32, headPosition int, now int64, out *policy.Actions) {
	d := &b.cluster.devices[place]
	remainingQueue := d.queue[:headPosition]
	for _, id := range d.queue[headPosition:] {
		if k := &b.book.tasks[id]; k.service == service && b.cluster.isRunnable(d, k) && b.tables.fitsOneMore(service, place, int32(len(d.batch)), d.kvTokens, k.work) {
			b.admission.settleOwedTime(k, 1)
			b.sequences.startSequence(place, id, now, out)
		} else {
			remainingQueue = append(remainingQueue, id)
		}
	}
	d.queue = remainingQueue
}

// joinSequences lets tasks join the language model that runs on a device, in the order of the queue. It stops at
// the first task that does not fit or that causes the device to drain. To drain is to take no new sequences, so
// that another service gets the device.
func (b *batchRunner) joinSequences(place int32, now int64, out *policy.Actions) {
	d := &b.cluster.devices[place]
	remainingQueue, accepting := d.queue[:0], true
	for _, id := range d.queue {
		k := &b.book.tasks[id]
		sameService := k.service == d.service && b.cluster.isRunnable(d, k)
		if accepting = accepting && !b.sequences.causesDrain(d, k) && (!sameService || b.tables.fitsOneMore(d.service, place, int32(len(d.batch)), d.kvTokens, k.work)); accepting && sameService {
			b.admission.settleOwedTime(k, 1)
			b.sequences.startSequence(place, id, now, out)
		} else {
			remainingQueue = append(remainingQueue, id)
		}
	}
	d.queue = remainingQueue
}

// siblingArriving returns true if the inputs of another task of the same request and service are on their way to the
// device. The two tasks are meant for one batch, so the first one waits.
func (b *batchRunner) siblingArriving(d *device, k *task) bool {
	if len(d.queue) == 1 {
		return false
	}
	for _, id := range d.queue {
		if other := &b.book.tasks[id]; other.slot >= 0 && other.req == k.req && other.service == k.service && other.pendingInputs == 0 && other.inputsRequestedAt == other.place && other.inputsAt != other.place {
			return true
		}
	}
	return false
}

// finishBatch ends the tasks of a batch that has finished on a device, or the one sequence of a language model that
// the slot names, and has the device looked at for what it can start next.
func (b *batchRunner) finishBatch(place, slot int32, now int64, out *policy.Actions) {
	d := &b.cluster.devices[place]
	if id := b.sequences.taskOfSlot(slot); id >= 0 {
		b.sequences.endSequence(place, id, now)
		b.endTask(id, now, out)
	} else {
		d.busy, d.dirty = false, true
		b.cluster.busyDevices--
		d.lastUsedAt[b.tables.services[d.service].network] = now
		for _, id := range d.batch {
			b.endTask(id, now, out)
		}
		d.batch = d.batch[:0]
	}
	b.loader.trimToMemory(now, place, out)
	b.cluster.touchDevice(place)
}

// endTask marks a task as ended, stores the state of its session (what the next task of the request continues), and
// counts it as an ended input of its readers. If the request is gone (req below 0), the task is only released.
func (b *batchRunner) endTask(id int32, now int64, out *policy.Actions) {
	k := &b.book.tasks[id]
	k.state, k.endsAt = taskEnded, now
	if k.req < 0 {
		b.book.releaseTask(id)
		return
	}
	b.cluster.countTask(now, k.service, -1)
	b.states.storeState(now, id, out)
	q := &b.book.requests[k.req]
	b.markInputEnded(now, q.revealedTasks, id, out)
	b.markInputEnded(now, q.expectedTasks, id, out)
}

// markInputEnded counts an ended task among the inputs of those tasks of the list that read it. Tasks all of whose
// inputs have ended may run once the inputs are at their place.
func (b *batchRunner) markInputEnded(now int64, readers []int32, id int32, out *policy.Actions) {
	for _, c := range readers {
		k := &b.book.tasks[c]
		for _, in := range k.inputs {
			if in == id {
				k.pendingInputs--
			}
		}
		if k.pendingInputs == 0 && k.state == taskQueued && k.slot >= 0 {
			b.makeRunnable(now, c, out)
		}
	}
}

// gatherInputs has the inputs of a task that has just been placed brought to its place (device). If all have ended,
// the task may run there at once.
func (b *batchRunner) gatherInputs(now int64, id int32, out *policy.Actions) {
	k := &b.book.tasks[id]
	if k.pendingInputs == 0 {
		b.makeRunnable(now, id, out)
	} else if b.hasRemoteInputs(k) {
		b.requestInputs(id, out)
	}
}

// makeRunnable is called for a placed task whose inputs have all ended. If the inputs are at its place (device), it
// may run; otherwise they are requested, and it may run when they arrive.
func (b *batchRunner) makeRunnable(now int64, id int32, out *policy.Actions) {
	k := &b.book.tasks[id]
	b.fetchState(now, id, out)
	if k.inputsAt == k.place {
		b.cluster.touchDevice(k.place)
		return
	}
	if !b.hasRemoteInputs(k) {
		k.inputsAt = k.place
		b.cluster.devices[k.place].dirty = true
		b.cluster.touchDevice(k.place)
		return
	}
	b.requestInputs(id, out)
}

// requestInputs requests that the inputs of a task are brought to its place, unless that has been requested already.
func (b *batchRunner) requestInputs(id int32, out *policy.Actions) {
	if k := &b.book.tasks[id]; k.inputsRequestedAt != k.place {
		k.inputsRequestedAt, k.inputsAt = k.place, -1
		out.List = append(out.List, policy.Action{Kind: policy.Place, Task: k.slot, Device: b.tables.deviceAt[k.place]})
	}
}

// hasRemoteInputs returns true if a task reads an output that is at another place.
func (b *batchRunner) hasRemoteInputs(k *task) bool {
	for _, in := range k.inputs {
		if in >= 0 && b.book.tasks[in].place != k.place {
			return true
		}
	}
	return false
}

// markInputsArrived notes that the inputs of a task have arrived at its device. Transfers of batches are ignored.
func (b *batchRunner) markInputsArrived(ev *policy.Event) {
	if ev.Batch >= 0 {
		return
	}
	id, place := b.book.taskInSlot[ev.Task], b.tables.placeOf[ev.Device]
	if k := &b.book.tasks[id]; k.slot == ev.Task && k.state == taskQueued && k.place == place {
		k.inputsAt = place
		b.cluster.devices[place].dirty = true
		b.cluster.touchDevice(place)
	}
}
