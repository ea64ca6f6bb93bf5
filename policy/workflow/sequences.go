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
type sequences struct{ *cluster }

// languageModels returns the view of the cluster that runs sequences.
func (c *cluster) sequences() sequences { return sequences{c} }

// sequence is the progress of a task on a language model.
type generation struct {
	batch int32   // its batch slot
	kv    int64   // KV tokens that it will hold, as expected
	left  float64 // part of it that remains to be done, as expected
}

// isLanguageModel returns true if a service is a language model.
func (q sequences) is(service int32) bool {
	return service >= 0 && q.fleet.services[service].gen != nil
}

// tokensOf returns the KV tokens that a task of a service and work will hold. For other services it returns 0.
func (q sequences) tokens(service int32, work int64) int64 {
	g := q.fleet.services[service].gen
	if g == nil {
		return 0
	}
	return max(1, scaled(int64(g.Prompt+g.Output+.5), work))
}

// fitsOneMore returns true if a batch of n tasks, which will hold `kv` tokens, takes one more task of a work. An empty
// batch always does.
func (q sequences) fits(service, place, n int32, kv, work int64) bool {
	if n == 0 {
		return true
	}
	on := q.fleet.on(service, place)
	return n < on.most && (!q.is(service) || kv+q.tokens(service, work) <= on.kv)
}

// startSequence starts a task as a sequence on a device whose language model it needs.
func (q sequences) start(place, id int32, now int64, out *policy.Actions) {
	d, k := &q.devices[place], &q.tasks[id]
	anew := q.memos().toll(k, place)

	// An idle device begins to run the model.
	if !d.busy {
		d.busy, d.service, d.ends, d.kv, d.seen = true, k.service, now, 0, now
		q.running++
	}
	q.advance(d, place, now)

	// Add the sequence; recomputing its session state makes it longer than 1.
	g := generation{batch: q.takeSlot(id), kv: q.tokens(k.service, k.work)}
	k.state = running
	d.batch = append(d.batch, id)
	d.kv += g.kv
	usual := q.fleet.cost(k.service, place, int32(len(d.batch)), k.work)
	g.left = 1 + float64(anew)/float64(usual)
	k.generation = g
	d.last[q.fleet.services[k.service].network] = now
	q.expect(d, place, now)

	// Order the dispatch.
	sv, start := q.fleet.on(k.service, place), time.Duration(now)
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: sv.pipeline, Model: -1, Batch: g.batch, Size: 1, Device: q.fleet.ids[place],
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Tasks = append(out.Tasks, k.slot)
	out.Hops = append(out.Hops, policy.Hop{Stage: sv.stage, Device: q.fleet.ids[place], Uplink: -1, Downlink: -1, XferStart: start, XferEnd: start, Start: start, End: time.Duration(k.end)})
}

// takeBatchSlot returns a batch slot for a sequence. Slots below the number of devices are those of the devices' other
// batches.
func (q sequences) takeSlot(id int32) int32 {
	n := len(q.freeSlots)
	if n == 0 {
		q.inSlot = append(q.inSlot, id)
		return int32(len(q.devices) + len(q.inSlot) - 1)
	}
	slot := q.freeSlots[n-1]
	q.freeSlots = q.freeSlots[:n-1]
	q.inSlot[int(slot)-len(q.devices)] = id
	return slot
}

// taskOfSlot returns the task in a batch slot. If the batch is none of a language model, it returns -1.
func (q sequences) of(slot int32) int32 {
	if i := int(slot) - len(q.devices); i >= 0 && i < len(q.inSlot) {
		return q.inSlot[i]
	}
	return -1
}

// advanceProgress counts what the sequences of a device have done up to now.
func (q sequences) advance(d *device, place int32, now int64) {
	n := int32(len(d.batch))
	for _, id := range d.batch {
		k := &q.tasks[id]
		k.left = max(0, k.left-float64(now-d.seen)/float64(q.fleet.cost(k.service, place, n, k.work)))
	}
	d.seen = now
}

// updateEnds computes when the sequences of a device will end if no other one joins.
func (q sequences) expect(d *device, place int32, now int64) {
	n := int32(len(d.batch))
	d.ends, d.dirty = now, true
	for _, id := range d.batch {
		k := &q.tasks[id]
		k.end = now + int64(k.left*float64(q.fleet.cost(k.service, place, n, k.work)))
		d.ends = max(d.ends, k.end)
	}
}

// endSequence removes a sequence from its device.
func (q sequences) leave(place, id int32, now int64) {
	d, k := &q.devices[place], &q.tasks[id]
	q.advance(d, place, now)
	i := slices.Index(d.batch, id)
	d.batch = slices.Delete(d.batch, i, i+1)
	d.kv -= k.kv
	q.freeSlots = append(q.freeSlots, k.generation.batch)
	q.inSlot[int(k.generation.batch)-len(q.devices)] = -1
	d.last[q.fleet.services[d.service].network] = now
	if len(d.batch) == 0 {
		d.busy = false
		q.running--
	}
	q.expect(d, place, now)
	q.touchDevice(place)
}

// causesDrain returns true if a task that waits on a device makes the running language model drain: the task could run
// next, or its network needs the memory.
func (q sequences) closes(d *device, k *task) bool {
	if k.slot < 0 || k.service == d.service || k.pending > 0 || k.arrived != k.place || k.coming {
		return false
	}
	n := q.fleet.services[k.service].network
	return d.loaded[n] || d.loading < 0 && q.fleet.bytes[n] > d.memory-d.taken
}

// currentPeriod returns what the running language model of a device does until it has drained, as a batch of the plan.
func (q sequences) period(d *device, now int64) period {
	return period{start: now, end: d.ends, until: q.until(d, d.service, now, d.ends), service: d.service, n: int32(len(d.batch)), kv: d.kv, real: true}
}

// lastJoin returns when a task appended to a queue could at the latest join a language model that runs over an interval:
// before any task of another service may run.
func (q sequences) until(d *device, service int32, from, end int64) int64 {
	until := end
	for i, id := range d.queue {
		if k := &q.tasks[id]; k.slot >= 0 && k.service != service && d.waits[i] >= 0 {
			until = min(until, max(from, d.waits[i]))
		}
	}
	return until
}

// planJoins lets the tasks of a queue join a planned batch of a language model, and returns how many do. headPosition is
// the first position of the service that is not planned.
func (q sequences) plan(d *device, place, head int32, b *period) (joined int32) {
	for i := head; i < int32(len(d.queue)); i = d.alike[i] {
		at := max(d.waits[i], b.start)
		k := &q.tasks[d.queue[i]]
		if d.waits[i] == planned || at > b.until || !q.fits(b.service, place, b.n, b.kv, k.work) {
			continue
		}
		b.n++
		b.kv += q.tokens(b.service, k.work)
		b.real = b.real || k.slot >= 0
		k.end = at + q.fleet.cost(b.service, place, b.n, k.work) + q.memos().toll(k, place)
		if b.until == b.end {
			b.until = max(b.end, k.end)
		}
		b.end = max(b.end, k.end)
		d.waits[i] = planned
		joined++
	}
	return joined
}

// waitsForDrain returns true if a batch of a service that starts at an instant waits for a language model to drain, or
// is a language model that waits for a batch.
func (q sequences) drains(d *device, service int32, start int64) bool {
	for i := range d.plan {
		if b := &d.plan[i]; b.service != service && b.end == start {
			return q.is(service) || q.is(b.service)
		}
	}
	return false
}
