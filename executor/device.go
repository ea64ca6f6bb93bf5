package executor

import (
	"fmt"
	"sync/atomic"
	"time"

	"inferplan/engine/worker"
	"inferplan/policy"
)

// device is a worker with the queue in front of it. Everything here belongs to
// whoever has the core's turn.
type device struct {
	index   int32
	kind    string
	remote  bool            // of another host
	proc    *worker.Process // nil while down
	gen     int             // of proc
	up      atomic.Bool     // proc is there, for other goroutines
	segment *worker.Segment
	// shares: the worker has memory of its GPU beside the segment; maps: it has
	// mapped that of other devices, by device. Both end with the first worker: one
	// that is started again does without.
	shares bool
	maps   []bool
	pinned bool          // the GPU copies from and to all segments that it sees directly
	slots  []*stageSlots // by stage; nil where the stage is not placed here
	queue  []*run        // not yet sent, first-in first-out
	flight []*run        // sent, in order
	full   bool          // a run in the queue waits for a slot
	total  int64         // CPU time of the process so far, ns
	busy   time.Duration
	ended  time.Duration // the latest end of a run
	stats  *deviceMetrics
}

// enqueue puts the batch's next run behind the device.
func (c *core) enqueue(b *batch) {
	h := &b.hops[b.hop]
	d := c.devices[h.Device]
	r := c.newRun()
	*r = run{id: c.nextRun, batch: b, device: d, stage: h.Stage, size: len(b.reqs)}
	c.nextRun++
	b.run = r
	d.queue = append(d.queue, r)
	c.pump(d)
}

// pump sends what the worker may be sent.
func (c *core) pump(d *device) {
	d.full = false
	for d.proc != nil && len(d.flight) < c.opt.Depth {
		i := d.sendable()
		if i < 0 {
			return
		}
		r := d.queue[i]
		d.queue = d.queue[:i+copy(d.queue[i:], d.queue[i+1:])]
		if r.batch == nil {
			c.freeRun(r)
			continue
		}
		c.send(d, r)
	}
}

// sendable is the place in the queue of the run to send next: the first, unless
// no slot is free for its output because what reads it is slow or gone. Then it
// is the first that has one. A last stage always has, so that what waits for
// slots comes to an end wherever the stages are placed.
func (d *device) sendable() int {
	for i, r := range d.queue {
		if own := d.slots[r.stage]; r.batch == nil || own == nil || !own.pool.Full() {
			return i
		}
		d.full = true
	}
	return -1
}

// refill pumps the devices that waited for a slot.
func (c *core) refill() {
	for _, d := range c.devices {
		if d.full {
			c.pump(d)
			c.Flush()
		}
	}
}

func (c *core) send(d *device, r *run) {
	r.sent = c.now()
	b := r.batch
	own := d.slots[r.stage]
	if own == nil {
		c.failBatch(b, policy.ReasonFailed, fmt.Errorf("the policy sent stage %d to device %d, where it is not placed", r.stage, d.index))
		c.freeRun(r)
		return
	}
	slot, ok := own.pool.Take()
	if !ok {
		c.failBatch(b, policy.ReasonQueueFull, nil)
		c.freeRun(r)
		return
	}
	r.out = slotRef{own, slot}
	cmd := worker.Run{
		ID: r.id, Stage: uint32(r.stage), Batch: uint32(r.size), Segment: d.segment.ID,
		In: uint64(own.layout.In(int(slot))), Out: uint64(own.layout.Out(int(slot))),
		OutDevice: c.handsOver(b, d),
	}
	r.outDevice = cmd.OutDevice
	if b.hop == 0 {
		start := c.now()
		c.gatherInputs(b, d, own, slot)
		b.gather = c.now() - start
	} else {
		r.in, b.in = b.in, slotRef{}
		from := r.in.pool
		cmd.Segment = c.devices[from.device].segment.ID
		cmd.In = uint64(from.layout.Out(int(r.in.slot)))
		cmd.InDevice = b.inDevice
		if r.inDevice = b.inDevice; b.inDevice && !d.reaches(c.devices[from.device]) {
			// One of the two workers was lost, and the tensor with it.
			c.failBatch(b, policy.ReasonWorkerLost, nil)
			c.freeRun(r)
			return
		}
	}
	c.cmd[0] = cmd
	// A send that fails means that the worker is gone, which its reader tells.
	_ = d.proc.Send(c.cmd[:]...)
	d.flight = append(d.flight, r)
	if len(d.flight) == 1 {
		c.markStarted(r)
	}
}

// markStarted: the run is at the head of its worker.
func (c *core) markStarted(r *run) {
	r.started = c.now()
	b := r.batch
	if b == nil {
		return
	}
	if b.hop == 0 {
		b.started = r.started
	}
	c.emit(b, policy.Event{Kind: policy.BatchStarted, Hop: int16(b.hop), Batch: b.slot, Device: r.device.index, Model: b.model.index, Service: b.model.index, Start: r.started})
}

// gatherInputs copies the samples of a batch side by side into a slot.
func (c *core) gatherInputs(b *batch, d *device, own *stageSlots, slot int32) {
	off := own.layout.In(int(slot))
	var bytes int64
	for i := range b.model.inputs {
		size := b.model.inputs[i].bytes
		dst := d.segment.TensorAt(own.loaded.Inputs, i, len(b.reqs), off)
		for k, req := range b.reqs {
			q := &c.reqs[req]
			part := dst[k*size : (k+1)*size]
			if q.job == nil || q.job.answered {
				clear(part) // nobody waits for this sample any more
				continue
			}
			c.copiers.copy(part, q.job.inputs[i][int(q.sample)*size:][:size])
		}
		bytes += int64(len(dst))
	}
	c.copiers.wait()
	c.stats.ingress.add(bytes)
}

// scatterOutputs copies the outputs of a batch to its requests.
func (c *core) scatterOutputs(b *batch, r *run) {
	own := r.out.pool
	off := own.layout.Out(int(r.out.slot))
	segment := c.devices[own.device].segment
	var bytes int64
	for i := range b.model.outputs {
		size := b.model.outputs[i].bytes
		src := segment.TensorAt(own.loaded.Outputs, i, r.size, off)
		for k, req := range b.reqs {
			q := &c.reqs[req]
			if q.job == nil || q.job.answered {
				continue
			}
			copy(q.job.outputs[i][int(q.sample)*size:][:size], src[k*size:])
		}
		bytes += int64(len(src))
	}
	c.stats.egress.add(bytes)
}

func (c *core) newRun() *run {
	if n := len(c.freeRuns); n > 0 {
		r := c.freeRuns[n-1]
		c.freeRuns = c.freeRuns[:n-1]
		return r
	}
	return new(run)
}

func (c *core) freeRun(r *run) {
	r.in.give()
	r.out.give()
	*r = run{}
	c.freeRuns = append(c.freeRuns, r)
}
