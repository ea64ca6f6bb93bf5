package workers

import (
	"fmt"
	"sync/atomic"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// Device is a worker with the queue in front of it. Everything here belongs to the core's turn.
type Device struct {
	Index   int32
	Kind    string
	remote  bool            // on another host
	Proc    *worker.Process // nil while the worker is down
	Gen     int32           // number of the process: 1 for the first
	Up      atomic.Bool     // the process exists; for other goroutines
	Segment *worker.Segment
	// sharesGPUMemory says that the worker has shared memory of its GPU besides the segment. mapsMemoryOf says, by device,
	// whose GPU memory it has mapped. Both end with the first worker: one that is started again does without.
	shares bool
	maps   []bool
	pinned bool             // the GPU copies directly from and to all segments that it sees
	known  []*worker.Loaded // by stage; nil if the stage is not placed here
	Slots  []*stageSlots    // by stage; nil if the stage is not placed here, or not loaded
	Home   *home            // nil if what is placed here stays loaded
	queue  []*run           // not sent yet, first in first out
	Flight []*run           // sent, in order
	full   bool             // a run in the queue waits for a slot
	total  int64            // CPU time of the process so far, in ns
	Busy   time.Duration
	ended  time.Duration // latest end of a run
	pulse  pulse
	stats  *turn.DeviceMetrics
}

// hasNetwork returns true if the plan places a network on the device.
func (d *Device) holds(t *policy.Tables, network int32) bool {
	for s := range d.Slots {
		if d.Slots[s] != nil && t.Pipelines[t.Stages[s].Pipeline].Network == network {
			return true
		}
	}
	return false
}

// RunBatch puts the batch's next run into the queue of its device.
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

// sendRuns sends runs of the queue to the worker, up to Options.Depth ahead.
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

// nextSendable returns the index of the run to send next: the first in the queue, or, if no slot is free for its output
// because its reader is slow or gone, the first run that has one. If there is none, it returns -1. Outputs of last
// stages always find a slot in time, so waiting for slots ends wherever the stages are placed.
func (d *Device) sendable() int {
	for i, r := range d.queue {
		if own := d.Slots[r.stage]; r.Batch == nil || own == nil || !own.Pool.Full() {
			return i
		}
		d.full = true
	}
	return -1
}

// SendWaiting sends runs to the devices that waited for a slot.
func (w *Workers) Room() {
	for _, d := range w.Own {
		if d.full {
			w.pump(d)
			w.c.Flush()
		}
	}
}

// sendRun sends a run to its worker: it takes a slot for the output, and finds or copies the input.
func (w *Workers) send(d *Device, r *run) {
	r.sent = w.c.Now()
	b := r.Batch
	own := d.Slots[r.stage]
	if own == nil {
		if d.Home != nil { // the network was there before the worker was lost
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

	// The command says where input and output are in the segment.
	r.out = slotRef{own, slot}
	cmd := worker.Run{
		ID: r.id, Stage: uint32(r.stage), Batch: uint32(r.size), Segment: d.Segment.ID,
		In: uint64(own.Layout.In(int(slot))), Out: uint64(own.Layout.Out(int(slot))),
	}

	// The output goes to the next stage by the best tier.
	if b.Hop+1 < len(b.Hops) {
		r.to = tierBetween(d, w.Devices[b.Hops[b.Hop+1].Device])
		r.to.made(&cmd)
	}

	// The input of a first stage is copied from the requests; that of a later one is where the stage before left
	// it.
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

	// Send the command.
	w.cmd[0] = cmd
	// If the send fails, the worker is gone, which postResults reports.
	_ = d.Proc.Send(w.cmd[:]...)
	d.Flight = append(d.Flight, r)
	if len(d.Flight) == 1 {
		w.markStarted(r)
	}
}

// markStarted records that a run is at the head of its worker, and tells the policy.
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
				clear(part) // the sample is not wanted any more
			}
		}
		bytes += int64(len(dst))
	}
	w.copiers.wait()
	w.c.Stats.Ingress.Add(bytes)
}

// newRun returns a run, if possible one that is used again.
func (w *Workers) newRun() *run {
	if n := len(w.freeRuns); n > 0 {
		r := w.freeRuns[n-1]
		w.freeRuns = w.freeRuns[:n-1]
		return r
	}
	return new(run)
}

// freeRun releases the slots of a run and makes its record available.
func (w *Workers) freeRun(r *run) {
	r.in.give()
	r.out.give()
	*r = run{}
	w.freeRuns = append(w.freeRuns, r)
}
