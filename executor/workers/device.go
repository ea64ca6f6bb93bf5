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
	Index      int32
	Kind       string
	isRemote   bool            // on another host
	Process    *worker.Process // nil while the worker is down
	Generation int32           // number of the process: 1 for the first
	IsUp       atomic.Bool     // the process exists; for other goroutines
	Segment    *worker.Segment
	// sharesGPUMemory says that the worker has shared memory of its GPU besides the segment. mapsMemoryOf says, by device,
	// whose GPU memory it has mapped. Both end with the first worker: one that is started again does without.
	sharesGPUMemory bool
	mapsMemoryOf    []bool
	pinned          bool                  // the GPU copies directly from and to all segments that it sees
	loadedStages    []*worker.LoadedStage // by stage; nil if the stage is not placed here
	Slots           []*stageSlots         // by stage; nil if the stage is not placed here, or not loaded
	Networks        *deviceNetworks       // nil if what is placed here stays loaded
	queue           []*stageRun           // not sent yet, first in first out
	InFlight        []*stageRun           // sent, in order
	waitsForSlot    bool                  // a run in the queue waits for a slot
	cpuTotal        int64                 // CPU time of the process so far, in ns
	BusyTime        time.Duration         // of the runs that have ended
	lastEnd         time.Duration         // latest end of a run
	pulse           cpuPulse
	stats           *turn.DeviceMetrics
}

// hasNetwork returns whether a device has memory slots for a network (a model that can be loaded) at present.
func (d *Device) hasNetwork(t *policy.Tables, network int32) bool {
	for s := range d.Slots {
		if d.Slots[s] != nil && t.Pipelines[t.Stages[s].Pipeline].Network == network {
			return true
		}
	}
	return false
}

// RunBatch is called when a batch is to run its next stage, at b.CurrentHop, on the device of that hop. It queues the
// run, and sends it if the device's worker (the process that executes models) can take it. If the device does not have
// the network (the model's weights) loaded, the batch fails with that reason, and the policy gets it back.
func (w *WorkerBackend) RunBatch(b *turn.Batch) {
	hop := &b.Hops[b.CurrentHop]
	d := w.Devices[hop.Device]
	if b.CurrentHop > 0 {
		source := w.Devices[b.Hops[b.CurrentHop-1].Device]
		recordTransfer(w.core, w.core.Tables.Stages[hop.Stage].CutBytes*int64(len(b.Tasks)), source, d, batchRunOf(b).inputTier, b.HandOverTime)
	}
	r := w.newRun()
	*r = stageRun{id: w.nextRunID, Batch: b, device: d, stage: hop.Stage, size: len(b.Tasks)}
	w.nextRunID++
	batchRunOf(b).run = r
	if w.lacksNetwork(d, r.stage) {
		b.ReturnReason = policy.ReturnNotLoaded
		w.core.Batches.FailBatch(b, policy.ReasonFailed, nil)
		w.freeRun(r)
		return
	}
	d.queue = append(d.queue, r)
	w.sendRuns(d)
}

// sendRuns sends runs from a device's queue to its worker process, until Options.Depth runs are in flight, so that
// the worker has the next one when it ends one. Runs whose batch was aborted are dropped.
func (w *WorkerBackend) sendRuns(d *Device) {
	d.waitsForSlot = false
	for d.Process != nil && len(d.InFlight) < w.Supervisor.options.Depth {
		i := d.nextSendable()
		if i < 0 {
			return
		}
		r := d.queue[i]
		d.queue = d.queue[:i+copy(d.queue[i:], d.queue[i+1:])]
		if r.Batch == nil {
			w.freeRun(r)
			continue
		}
		w.sendRun(d, r)
	}
}

// nextSendable returns the index of the run in the queue to send next, or -1 if there is none. It is the first,
// unless no slot is free for its output because its reader is slow or gone; then it is the first run that has one.
// Outputs of last stages always find a slot in time, so waiting for slots ends wherever the stages are placed.
func (d *Device) nextSendable() int {
	for i, r := range d.queue {
		if slots := d.Slots[r.stage]; r.Batch == nil || slots == nil || !slots.Pool.IsFull() {
			return i
		}
		d.waitsForSlot = true
	}
	return -1
}

// SendWaiting is called at the end of each round of the core's loop. It sends runs on the devices whose queue
// waited for a free slot (memory for one batch's tensors), which other runs may have released.
func (w *WorkerBackend) SendWaiting() {
	for _, d := range w.OwnDevices {
		if d.waitsForSlot {
			w.sendRuns(d)
			w.core.Flush()
		}
	}
}

// sendRun sends a run (a batch at one stage) to the worker of device d. It takes a slot (shared memory for the tensors
// of one batch) for the output, copies the input of a first stage into the slot, and tells the worker where both are. If
// this cannot be done, the batch fails, and the run is freed.
func (w *WorkerBackend) sendRun(d *Device, r *stageRun) {
	r.sentAt = w.core.Loop.Now()
	b := r.Batch
	slots := d.Slots[r.stage]
	if slots == nil {
		if d.Networks != nil { // the network was there before the worker was lost
			b.ReturnReason = policy.ReturnNotLoaded
		}
		w.core.Batches.FailBatch(b, policy.ReasonFailed, fmt.Errorf("the policy sent stage %d to device %d, where it is not placed", r.stage, d.Index))
		w.freeRun(r)
		return
	}
	slot, ok := slots.Pool.Take()
	if !ok {
		w.core.Batches.FailBatch(b, policy.ReasonQueueFull, nil)
		w.freeRun(r)
		return
	}

	// The command says where input and output are in the segment.
	r.output = slotRef{slots, slot}
	cmd := worker.RunCommand{
		ID: r.id, Stage: uint32(r.stage), Batch: uint32(r.size), Segment: d.Segment.ID,
		InputOffset: uint64(slots.Layout.InputOffset(int(slot))), OutputOffset: uint64(slots.Layout.OutputOffset(int(slot))),
	}

	// The output goes to the next stage by the best tier.
	if b.CurrentHop+1 < len(b.Hops) {
		r.outputTier = tierBetween(d, w.Devices[b.Hops[b.CurrentHop+1].Device])
		r.outputTier.setOutput(&cmd)
	}

	// The input of a first stage is copied from the requests; that of a later one is where the stage before left
	// it.
	if b.CurrentHop == 0 {
		start := w.core.Loop.Now()
		w.gatherInputs(b, d, slots, slot)
		b.GatherTime = w.core.Loop.Now() - start
	} else {
		state := batchRunOf(b)
		r.input, state.input = state.input, slotRef{}
		source := r.input.pool
		cmd.Segment = w.Devices[source.device].Segment.ID
		cmd.InputOffset = uint64(source.Layout.OutputOffset(int(r.input.slot)))
		r.inputTier = state.inputTier
		r.inputTier.setInput(&cmd)
		if !r.inputTier.canReach(w.Devices[source.device], d) {
			// One of the two workers was lost, and the tensor with it.
			w.core.Batches.FailBatch(b, policy.ReasonWorkerLost, nil)
			w.freeRun(r)
			return
		}
	}

	// Send the command.
	w.command[0] = cmd
	// If the send fails, the worker is gone, which postResults reports.
	_ = d.Process.Send(w.command[:]...)
	d.InFlight = append(d.InFlight, r)
	if len(d.InFlight) == 1 {
		w.markStarted(r)
	}
}

// markStarted records that a run (a batch at one stage) is now the first in its worker's queue and so has started. At
// the first stage the batch has started, too. It tells the policy. A run without a batch (it was aborted) only gets the
// time.
func (w *WorkerBackend) markStarted(r *stageRun) {
	r.StartedAt = w.core.Loop.Now()
	b := r.Batch
	if b == nil {
		return
	}
	if b.CurrentHop == 0 {
		b.StartedAt = r.StartedAt
	}
	w.core.Batches.TellStarted(b, r.device.Index, r.StartedAt)
}

// gatherInputs copies the inputs of a batch's samples side by side into a slot (memory for one batch) of the
// device's shared memory, where the worker process reads them. What a step before the model computes is written
// there by the step.
func (w *WorkerBackend) gatherInputs(b *turn.Batch, d *Device, slots *stageSlots, slot int32) {
	offset := slots.Layout.InputOffset(int(slot))
	var bytes int64
	for i := range b.Service.Inputs {
		size := b.Service.Inputs[i].Bytes
		dst := d.Segment.TensorAt(slots.loaded.Inputs, i, len(b.Tasks), offset)
		for k, t := range b.Tasks {
			part := dst[k*size : (k+1)*size]
			if w.core.Answerer.FillInput(t, i, part) {
				continue
			}
			if src := w.core.Answerer.TaskInput(t, i); len(src) == size {
				w.copiers.copy(part, src)
			} else {
				clear(part) // the sample is not wanted any more
			}
		}
		bytes += int64(len(dst))
	}
	w.copiers.wait()
	w.core.Stats.Ingress.Add(bytes)
}

// newRun returns an empty record of a run, one that is used again if there is any.
func (w *WorkerBackend) newRun() *stageRun {
	if n := len(w.freeRuns); n > 0 {
		r := w.freeRuns[n-1]
		w.freeRuns = w.freeRuns[:n-1]
		return r
	}
	return new(stageRun)
}

// freeRun releases the memory slots of a run that is over, and keeps its record for newRun.
func (w *WorkerBackend) freeRun(r *stageRun) {
	r.input.release()
	r.output.release()
	*r = stageRun{}
	w.freeRuns = append(w.freeRuns, r)
}
