package workers

import (
	"fmt"
	"sync/atomic"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// Device is a worker with the queue in front of it. Everything here belongs to
// whoever has the core's turn.
type Device struct {
	Index   int32
	Kind    string
	remote  bool            // of another host
	Proc    *worker.Process // nil while down
	Gen     int32           // of proc
	Up      atomic.Bool     // proc is there, for other goroutines
	Segment *worker.Segment
	// shares: the worker has memory of its GPU beside the segment; maps: it has
	// mapped that of other devices, by device. Both end with the first worker: one
	// that is started again does without.
	shares bool
	maps   []bool
	pinned bool             // the GPU copies from and to all segments that it sees directly
	known  []*worker.Loaded // by stage; nil where the stage is not placed here
	Slots  []*stageSlots    // likewise; nil where it is not loaded either
	Home   *home            // nil: what is placed here is loaded for good
	queue  []*run           // not yet sent, first-in first-out
	Flight []*run           // sent, in order
	full   bool             // a run in the queue waits for a slot
	total  int64            // CPU time of the process so far, ns
	Busy   time.Duration
	ended  time.Duration // the latest end of a run
	pulse  pulse
	stats  *turn.DeviceMetrics
}

// holds tells whether the plan places a network on the device.
func (d *Device) holds(t *policy.Tables, network int32) bool {
	for s := range d.Slots {
		if d.Slots[s] != nil && t.Pipelines[t.Stages[s].Pipeline].Network == network {
			return true
		}
	}
	return false
}

// Run puts the batch's next run behind its device.
func (w *Workers) Run(b *turn.Batch) {
	h := &b.Hops[b.Hop]
	d := w.Devices[h.Device]
	if b.Hop > 0 {
		from := w.Devices[b.Hops[b.Hop-1].Device]
		moved(w.c, w.c.Tables.Stages[h.Stage].CutBytes*int64(len(b.Tasks)), from, d, batchRunOf(b).by, b.Handed)
	}
	r := w.newRun()
	*r = run{id: w.nextRun, Batch: b, device: d, stage: h.Stage, size: len(b.Tasks)}
	w.nextRun++
	batchRunOf(b).run = r
	if loadsOf(w).lacks(d, r.stage) {
		b.Why = policy.ReturnNotLoaded
		w.c.FailBatch(b, policy.ReasonFailed, nil)
		w.freeRun(r)
		return
	}
	d.queue = append(d.queue, r)
	w.pump(d)
}

// pump sends what the worker may be sent.
func (w *Workers) pump(d *Device) {
	d.full = false
	for d.Proc != nil && len(d.Flight) < w.Crew.opt.Depth {
		i := d.sendable()
		if i < 0 {
			return
		}
		r := d.queue[i]
		d.queue = d.queue[:i+copy(d.queue[i:], d.queue[i+1:])]
		if r.Batch == nil {
			w.freeRun(r)
			continue
		}
		w.send(d, r)
	}
}

// sendable is the place in the queue of the run to send next: the first, unless
// no slot is free for its output because what reads it is slow or gone. Then it
// is the first that has one. A last stage always has, so that what waits for
// slots comes to an end wherever the stages are placed.
func (d *Device) sendable() int {
	for i, r := range d.queue {
		if own := d.Slots[r.stage]; r.Batch == nil || own == nil || !own.Pool.Full() {
			return i
		}
		d.full = true
	}
	return -1
}

// Room pumps the devices that waited for a slot.
func (w *Workers) Room() {
	for _, d := range w.Own {
		if d.full {
			w.pump(d)
			w.c.Flush()
		}
	}
}

func (w *Workers) send(d *Device, r *run) {
	r.sent = w.c.Now()
	b := r.Batch
	own := d.Slots[r.stage]
	if own == nil {
		if d.Home != nil { // it was, before the worker was lost
			b.Why = policy.ReturnNotLoaded
		}
		w.c.FailBatch(b, policy.ReasonFailed, fmt.Errorf("the policy sent stage %d to device %d, where it is not placed", r.stage, d.Index))
		w.freeRun(r)
		return
	}
	slot, ok := own.Pool.Take()
	if !ok {
		w.c.FailBatch(b, policy.ReasonQueueFull, nil)
		w.freeRun(r)
		return
	}
	r.out = slotRef{own, slot}
	cmd := worker.Run{
		ID: r.id, Stage: uint32(r.stage), Batch: uint32(r.size), Segment: d.Segment.ID,
		In: uint64(own.Layout.In(int(slot))), Out: uint64(own.Layout.Out(int(slot))),
	}
	if b.Hop+1 < len(b.Hops) {
		r.to = tierBetween(d, w.Devices[b.Hops[b.Hop+1].Device])
		r.to.made(&cmd)
	}
	if b.Hop == 0 {
		start := w.c.Now()
		w.gatherInputs(b, d, own, slot)
		b.Gather = w.c.Now() - start
	} else {
		held := batchRunOf(b)
		r.in, held.in = held.in, slotRef{}
		from := r.in.pool
		cmd.Segment = w.Devices[from.device].Segment.ID
		cmd.In = uint64(from.Layout.Out(int(r.in.slot)))
		r.from = held.by
		r.from.read(&cmd)
		if !r.from.reaches(w.Devices[from.device], d) {
			// One of the two workers was lost, and the tensor with it.
			w.c.FailBatch(b, policy.ReasonWorkerLost, nil)
			w.freeRun(r)
			return
		}
	}
	w.cmd[0] = cmd
	// A send that fails means that the worker is gone, which its reader tells.
	_ = d.Proc.Send(w.cmd[:]...)
	d.Flight = append(d.Flight, r)
	if len(d.Flight) == 1 {
		w.markStarted(r)
	}
}

// markStarted: the run is at the head of its worker.
func (w *Workers) markStarted(r *run) {
	r.Started = w.c.Now()
	b := r.Batch
	if b == nil {
		return
	}
	if b.Hop == 0 {
		b.Started = r.Started
	}
	w.c.Began(b, r.device.Index, r.Started)
}

// gatherInputs copies the samples of a batch side by side into a slot.
func (w *Workers) gatherInputs(b *turn.Batch, d *Device, own *stageSlots, slot int32) {
	off := own.Layout.In(int(slot))
	var bytes int64
	for i := range b.Service.Inputs {
		size := b.Service.Inputs[i].Bytes
		dst := d.Segment.TensorAt(own.loaded.Inputs, i, len(b.Tasks), off)
		for k, t := range b.Tasks {
			part := dst[k*size : (k+1)*size]
			if w.c.Answers.Fill(t, i, part) {
				continue
			}
			if src := w.c.Answers.Input(t, i); len(src) == size {
				w.copiers.copy(part, src)
			} else {
				clear(part) // nobody waits for this sample any more
			}
		}
		bytes += int64(len(dst))
	}
	w.copiers.wait()
	w.c.Stats.Ingress.Add(bytes)
}

func (w *Workers) newRun() *run {
	if n := len(w.freeRuns); n > 0 {
		r := w.freeRuns[n-1]
		w.freeRuns = w.freeRuns[:n-1]
		return r
	}
	return new(run)
}

func (w *Workers) freeRun(r *run) {
	r.in.give()
	r.out.give()
	*r = run{}
	w.freeRuns = append(w.freeRuns, r)
}
