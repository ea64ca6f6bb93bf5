package workflow

import (
	"time"

	"inferplan/policy"
)

// batchRunner runs placed tasks: it has the inputs of a task brought to the task's device, and starts and ends the
// batches there.
type batches struct {
	*cluster
	loads *loads
	door  *door
}

// startTouched starts batches and loads, where it can, on all devices that an event has touched.
func (b *batches) kick(now int64, out *policy.Actions) {
	for i := 0; i < len(b.touched); i++ {
		place := b.touched[i]
		b.touch[place] = false
		if d := &b.devices[place]; !d.down {
			b.run(place, now, out)
			b.loads.loadNext(place, now, out)
		}
	}
	b.touched = b.touched[:0]
}

// startBatch starts a batch on an idle device: the first task in its queue that may run, with all later tasks of the
// same service that may run, up to the largest batch. If the device runs a language model, tasks join it instead.
func (b *batches) run(place int32, now int64, out *policy.Actions) {
	d := &b.devices[place]
	if d.busy {
		if b.sequences().is(d.service) {
			b.join(place, now, out)
		}
		return
	}

	// Choose the tasks of the batch. What is not chosen stays in the queue.
	first := int32(len(out.Tasks))
	service, most, work, anew := int32(-1), 0, int64(0), int64(0)
	head := b.head(d, place, now)
	kept := d.queue[:head]
	for i, id := range d.queue[head:] {
		k := &b.tasks[id]

		// A language model starts sequences in place of a batch.
		if service < 0 && b.sequences().is(k.service) && b.runnable(d, k) && !b.expects(d, k) {
			d.queue = append(kept, d.queue[head+i:]...)
			b.generate(place, k.service, len(kept), now, out)
			return
		}
		if len(d.batch) == most && service >= 0 || service >= 0 && k.service != service || !b.runnable(d, k) || service < 0 && b.expects(d, k) {
			kept = append(kept, id)
			continue
		}
		service, most = k.service, int(b.fleet.on(k.service, place).most)
		anew += b.cluster.memos().toll(k, place)
		k.state, work = running, max(work, k.work)
		b.door.move(k, 1)
		d.batch, out.Tasks = append(d.batch, id), append(out.Tasks, k.slot)
	}
	d.queue = kept
	if service < 0 {
		return
	}

	// Book the batch on the device.
	n := int32(len(d.batch))
	d.busy, d.dirty, d.service = true, true, service
	b.running++
	d.ends = now + b.fleet.cost(service, place, n, work) + anew
	d.last[b.fleet.services[service].network] = now
	for _, id := range d.batch {
		b.tasks[id].end = d.ends
	}

	// Order the dispatch.
	sv := b.fleet.on(service, place)
	start := time.Duration(now)
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: sv.pipeline, Model: -1, Batch: place, Size: n, Device: b.fleet.ids[place],
		TaskFirst: first, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: sv.stage, Device: b.fleet.ids[place], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(d.ends)})
}

// batchHead returns the queue position at which the search for the next batch begins. That is the first full batch if
// the first task that may run can wait for it, and otherwise position 0.
func (b *batches) head(d *device, place int32, now int64) int {
	if !b.opt.Full {
		return 0
	}
	f := &b.fill
	f.reset()
	for i, id := range d.queue {
		if k := &b.tasks[id]; b.runnable(d, k) && (f.services[k.service].n > 0 || !b.expects(d, k)) {
			if head := f.add(b.cluster, k, place, int32(i), now); head >= 0 {
				return int(head)
			}
		}
	}
	return 0
}

// startSequences starts a language model on an idle device, with all tasks of the service that may run, from a position
// of the queue on.
func (b *batches) generate(place, service int32, from int, now int64, out *policy.Actions) {
	d, q := &b.devices[place], b.sequences()
	kept := d.queue[:from]
	for _, id := range d.queue[from:] {
		if k := &b.tasks[id]; k.service == service && b.runnable(d, k) && q.fits(service, place, int32(len(d.batch)), d.kv, k.work) {
			b.door.move(k, 1)
			q.start(place, id, now, out)
		} else {
			kept = append(kept, id)
		}
	}
	d.queue = kept
}

// joinSequences lets tasks join the language model that runs on a device, in the order of the queue. It stops at the
// first task that does not fit or that causes the device to drain.
func (b *batches) join(place int32, now int64, out *policy.Actions) {
	d, q := &b.devices[place], b.sequences()
	kept, open := d.queue[:0], true
	for _, id := range d.queue {
		k := &b.tasks[id]
		own := k.service == d.service && b.runnable(d, k)
		if open = open && !q.closes(d, k) && (!own || q.fits(d.service, place, int32(len(d.batch)), d.kv, k.work)); open && own {
			b.door.move(k, 1)
			q.start(place, id, now, out)
		} else {
			kept = append(kept, id)
		}
	}
	d.queue = kept
}

// siblingArriving returns true if the inputs of another task of the same request and service are on their way to the
// device. The two tasks are meant for one batch, so the first one waits.
func (b *batches) expects(d *device, k *task) bool {
	if len(d.queue) == 1 {
		return false
	}
	for _, id := range d.queue {
		if o := &b.tasks[id]; o.slot >= 0 && o.req == k.req && o.service == k.service && o.pending == 0 && o.asked == o.place && o.arrived != o.place {
			return true
		}
	}
	return false
}

// finishBatch ends the tasks of a batch that has finished on a device, or the one sequence that the slot names.
func (b *batches) finished(place, slot int32, now int64, out *policy.Actions) {
	d := &b.devices[place]
	if id := b.sequences().of(slot); id >= 0 {
		b.sequences().leave(place, id, now)
		b.ended(id, now, out)
	} else {
		d.busy, d.dirty = false, true
		b.running--
		d.last[b.fleet.services[d.service].network] = now
		for _, id := range d.batch {
			b.ended(id, now, out)
		}
		d.batch = d.batch[:0]
	}
	b.loads.fit(now, place, out)
	b.touchDevice(place)
}

// endTask marks a task as ended, stores the state of its session, and counts it as an ended input of its readers.
func (b *batches) ended(id int32, now int64, out *policy.Actions) {
	k := &b.tasks[id]
	k.state, k.end = ended, now
	if k.req < 0 {
		b.release(id)
		return
	}
	b.count(now, k.service, -1)
	b.cluster.memos().keep(now, id, out)
	q := &b.requests[k.req]
	b.endInput(now, q.tasks, id, out)
	b.endInput(now, q.ahead, id, out)
}

// markInputEnded counts an ended task among the inputs of those tasks of the list that read it. Tasks all of whose
// inputs have ended may run once the inputs are at their place.
func (b *batches) endInput(now int64, list []int32, id int32, out *policy.Actions) {
	for _, c := range list {
		k := &b.tasks[c]
		for _, in := range k.inputs {
			if in == id {
				k.pending--
			}
		}
		if k.pending == 0 && k.state == queued && k.slot >= 0 {
			b.settle(now, c, out)
		}
	}
}

// gatherInputs has the inputs of a task that has just been placed brought to its place.
func (b *batches) bind(now int64, id int32, out *policy.Actions) {
	k := &b.tasks[id]
	if k.pending == 0 {
		b.settle(now, id, out)
	} else if b.apart(k) {
		b.ask(id, out)
	}
}

// makeRunnable handles a placed task whose inputs have all ended: it may run if they are at its place, and otherwise
// they are requested.
func (b *batches) settle(now int64, id int32, out *policy.Actions) {
	k := &b.tasks[id]
	b.fetch(now, id, out)
	if k.arrived == k.place {
		b.touchDevice(k.place)
		return
	}
	if !b.apart(k) {
		k.arrived = k.place
		b.devices[k.place].dirty = true
		b.touchDevice(k.place)
		return
	}
	b.ask(id, out)
}

// requestInputs requests that the inputs of a task are brought to its place, unless that has been requested already.
func (b *batches) ask(id int32, out *policy.Actions) {
	if k := &b.tasks[id]; k.asked != k.place {
		k.asked, k.arrived = k.place, -1
		out.List = append(out.List, policy.Action{Kind: policy.Place, Task: k.slot, Device: b.fleet.ids[k.place]})
	}
}

// hasRemoteInputs returns true if a task reads an output that is at another place.
func (b *batches) apart(k *task) bool {
	for _, in := range k.inputs {
		if in >= 0 && b.tasks[in].place != k.place {
			return true
		}
	}
	return false
}

// markInputsArrived notes that the inputs of a task have arrived at its device. Transfers of batches are ignored.
func (b *batches) brought(ev *policy.Event) {
	if ev.Batch >= 0 {
		return
	}
	id, place := b.bySlot[ev.Task], b.fleet.places[ev.Device]
	if k := &b.tasks[id]; k.slot == ev.Task && k.state == queued && k.place == place {
		k.arrived = place
		b.devices[place].dirty = true
		b.touchDevice(place)
	}
}
