package workflow

import (
	"time"

	"inferplan/policy"
)

// batchRunner runs placed tasks: it has the inputs of a task brought to the task's device, and starts and ends the
// batches there.
type batchRunner struct {
	*cluster
	loader    *networkLoader
	admission *admission
}

// startTouched starts batches and loads, where it can, on all devices that an event has touched.
func (b *batchRunner) startTouched(now int64, out *policy.Actions) {
	for i := 0; i < len(b.touchedPlaces); i++ {
		place := b.touchedPlaces[i]
		b.isTouched[place] = false
		if d := &b.devices[place]; !d.down {
			b.startBatch(place, now, out)
			b.loader.loadNext(place, now, out)
		}
	}
	b.touchedPlaces = b.touchedPlaces[:0]
}

// startBatch starts a batch on an idle device: the first task in its queue that may run, with all later tasks of the
// same service that may run, up to the largest batch. If the device runs a language model, tasks join it instead.
func (b *batchRunner) startBatch(place int32, now int64, out *policy.Actions) {
	d := &b.devices[place]
	if d.busy {
		if b.languageModels().isLanguageModel(d.service) {
			b.joinSequences(place, now, out)
		}
		return
	}

	// Choose the tasks of the batch. What is not chosen stays in the queue.
	firstTask := int32(len(out.Tasks))
	service, maxBatch, work, recomputeTime := int32(-1), 0, int64(0), int64(0)
	headPosition := b.batchHead(d, place, now)
	remainingQueue := d.queue[:headPosition]
	for i, id := range d.queue[headPosition:] {
		k := &b.tasks[id]

		// A language model starts sequences in place of a batch.
		if service < 0 && b.languageModels().isLanguageModel(k.service) && b.isRunnable(d, k) && !b.siblingArriving(d, k) {
			d.queue = append(remainingQueue, d.queue[headPosition+i:]...)
			b.startSequences(place, k.service, len(remainingQueue), now, out)
			return
		}
		if len(d.batch) == maxBatch && service >= 0 || service >= 0 && k.service != service || !b.isRunnable(d, k) || service < 0 && b.siblingArriving(d, k) {
			remainingQueue = append(remainingQueue, id)
			continue
		}
		service, maxBatch = k.service, int(b.tables.serviceOn(k.service, place).maxBatch)
		recomputeTime += b.cluster.stateStore().recomputeTime(k, place)
		k.state, work = taskRunning, max(work, k.work)
		b.admission.settleOwedTime(k, 1)
		d.batch, out.Tasks = append(d.batch, id), append(out.Tasks, k.slot)
	}
	d.queue = remainingQueue
	if service < 0 {
		return
	}

	// Book the batch on the device.
	n := int32(len(d.batch))
	d.busy, d.dirty, d.service = true, true, service
	b.busyDevices++
	d.batchEndsAt = now + b.tables.batchTime(service, place, n, work) + recomputeTime
	d.lastUsedAt[b.tables.services[service].network] = now
	for _, id := range d.batch {
		b.tasks[id].endsAt = d.batchEndsAt
	}

	// Order the dispatch.
	onDevice := b.tables.serviceOn(service, place)
	start := time.Duration(now)
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: onDevice.pipeline, Model: -1, Batch: place, Size: n, Device: b.tables.deviceAt[place],
		TaskFirst: firstTask, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: onDevice.stage, Device: b.tables.deviceAt[place], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(d.batchEndsAt)})
}

// batchHead returns the queue position at which the search for the next batch begins. That is the first full batch if
// the first task that may run can wait for it, and otherwise position 0.
func (b *batchRunner) batchHead(d *device, place int32, now int64) int {
	if !b.options.FullBatchFirst {
		return 0
	}
	finder := &b.fullBatch
	finder.reset()
	for i, id := range d.queue {
		if k := &b.tasks[id]; b.isRunnable(d, k) && (finder.partialBatches[k.service].size > 0 || !b.siblingArriving(d, k)) {
			if position := finder.addTask(b.cluster, k, place, int32(i), now); position >= 0 {
				return int(position)
			}
		}
	}
	return 0
}

// startSequences starts a language model on an idle device, with all tasks of the service that may run, from a position
// of the queue on.
func (b *batchRunner) startSequences(place, service int32, headPosition int, now int64, out *policy.Actions) {
	d, q := &b.devices[place], b.languageModels()
	remainingQueue := d.queue[:headPosition]
	for _, id := range d.queue[headPosition:] {
		if k := &b.tasks[id]; k.service == service && b.isRunnable(d, k) && q.fitsOneMore(service, place, int32(len(d.batch)), d.kvTokens, k.work) {
			b.admission.settleOwedTime(k, 1)
			q.startSequence(place, id, now, out)
		} else {
			remainingQueue = append(remainingQueue, id)
		}
	}
	d.queue = remainingQueue
}

// joinSequences lets tasks join the language model that runs on a device, in the order of the queue. It stops at the
// first task that does not fit or that causes the device to drain.
func (b *batchRunner) joinSequences(place int32, now int64, out *policy.Actions) {
	d, q := &b.devices[place], b.languageModels()
	remainingQueue, accepting := d.queue[:0], true
	for _, id := range d.queue {
		k := &b.tasks[id]
		sameService := k.service == d.service && b.isRunnable(d, k)
		if accepting = accepting && !q.causesDrain(d, k) && (!sameService || q.fitsOneMore(d.service, place, int32(len(d.batch)), d.kvTokens, k.work)); accepting && sameService {
			b.admission.settleOwedTime(k, 1)
			q.startSequence(place, id, now, out)
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
		if other := &b.tasks[id]; other.slot >= 0 && other.req == k.req && other.service == k.service && other.pendingInputs == 0 && other.inputsRequestedAt == other.place && other.inputsAt != other.place {
			return true
		}
	}
	return false
}

// finishBatch ends the tasks of a batch that has finished on a device, or the one sequence that the slot names.
func (b *batchRunner) finishBatch(place, slot int32, now int64, out *policy.Actions) {
	d := &b.devices[place]
	if id := b.languageModels().taskOfSlot(slot); id >= 0 {
		b.languageModels().endSequence(place, id, now)
		b.endTask(id, now, out)
	} else {
		d.busy, d.dirty = false, true
		b.busyDevices--
		d.lastUsedAt[b.tables.services[d.service].network] = now
		for _, id := range d.batch {
			b.endTask(id, now, out)
		}
		d.batch = d.batch[:0]
	}
	b.loader.trimToMemory(now, place, out)
	b.touchDevice(place)
}

// endTask marks a task as ended, stores the state of its session, and counts it as an ended input of its readers.
func (b *batchRunner) endTask(id int32, now int64, out *policy.Actions) {
	k := &b.tasks[id]
	k.state, k.endsAt = taskEnded, now
	if k.req < 0 {
		b.releaseTask(id)
		return
	}
	b.countTask(now, k.service, -1)
	b.cluster.stateStore().storeState(now, id, out)
	q := &b.requests[k.req]
	b.markInputEnded(now, q.revealedTasks, id, out)
	b.markInputEnded(now, q.expectedTasks, id, out)
}

// markInputEnded counts an ended task among the inputs of those tasks of the list that read it. Tasks all of whose
// inputs have ended may run once the inputs are at their place.
func (b *batchRunner) markInputEnded(now int64, readers []int32, id int32, out *policy.Actions) {
	for _, c := range readers {
		k := &b.tasks[c]
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

// gatherInputs has the inputs of a task that has just been placed brought to its place.
func (b *batchRunner) gatherInputs(now int64, id int32, out *policy.Actions) {
	k := &b.tasks[id]
	if k.pendingInputs == 0 {
		b.makeRunnable(now, id, out)
	} else if b.hasRemoteInputs(k) {
		b.requestInputs(id, out)
	}
}

// makeRunnable handles a placed task whose inputs have all ended: it may run if they are at its place, and otherwise
// they are requested.
func (b *batchRunner) makeRunnable(now int64, id int32, out *policy.Actions) {
	k := &b.tasks[id]
	b.fetchState(now, id, out)
	if k.inputsAt == k.place {
		b.touchDevice(k.place)
		return
	}
	if !b.hasRemoteInputs(k) {
		k.inputsAt = k.place
		b.devices[k.place].dirty = true
		b.touchDevice(k.place)
		return
	}
	b.requestInputs(id, out)
}

// requestInputs requests that the inputs of a task are brought to its place, unless that has been requested already.
func (b *batchRunner) requestInputs(id int32, out *policy.Actions) {
	if k := &b.tasks[id]; k.inputsRequestedAt != k.place {
		k.inputsRequestedAt, k.inputsAt = k.place, -1
		out.List = append(out.List, policy.Action{Kind: policy.Place, Task: k.slot, Device: b.tables.deviceAt[k.place]})
	}
}

// hasRemoteInputs returns true if a task reads an output that is at another place.
func (b *batchRunner) hasRemoteInputs(k *task) bool {
	for _, in := range k.inputs {
		if in >= 0 && b.tasks[in].place != k.place {
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
	id, place := b.taskInSlot[ev.Task], b.tables.placeOf[ev.Device]
	if k := &b.tasks[id]; k.slot == ev.Task && k.state == taskQueued && k.place == place {
		k.inputsAt = place
		b.devices[place].dirty = true
		b.touchDevice(place)
	}
}
