package workers

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// batchRun is the state of a batch on workers.
type batchRun struct {
	run       *stageRun    // queued or under way; nil between two runs
	input     slotRef      // its tensor for the next stage
	inputTier transferTier // tier by which that tensor comes
}

// batchRunOf returns what the workers' backend keeps about a batch, which it creates on the first call.
func batchRunOf(b *turn.Batch) *batchRun {
	c, _ := b.BackendState.(*batchRun)
	if c == nil {
		c = &batchRun{}
		b.BackendState = c
	}
	return c
}

// slotRef is a slot of a stage on a device, held by the run that reads or writes it.
type slotRef struct {
	pool *stageSlots // nil if none
	slot int32
}

// release gives the slot back to its pool, if there is one.
func (s *slotRef) release() {
	if s.pool != nil {
		s.pool.Pool.Give(s.slot)
		s.pool.returnIfUnused()
		s.pool = nil
	}
}

// stageSlots is a stage's part of a worker's segment.
type stageSlots struct {
	device    int32
	Layout    worker.Layout
	Pool      *worker.SlotPool
	loaded    *worker.LoadedStage
	arena     *arena // the arena that they were cut from
	isRetired bool   // they return to the arena once nobody reads them
}

// returnIfUnused returns retired slots to their arena once nobody reads them.
func (s *stageSlots) returnIfUnused() {
	if s.isRetired && s.Pool.InUse() == 0 {
		s.arena.returnExtent(s.Layout.Base, s.Layout.Stride*int64(s.Layout.Slots))
	}
}

// stageRun is one stage of a batch on one device.
type stageRun struct {
	id        uint64
	Batch     *turn.Batch // nil if it was aborted; its result is then ignored
	device    *Device
	stage     int32
	size      int
	input     slotRef // held until the run is over; empty for a first stage
	output    slotRef
	sentAt    time.Duration // when copying its inputs began
	StartedAt time.Duration // as far as the core knows

	inputTier, outputTier transferTier // tiers of its input and output; nil for the client's
}

// Output implements turn.BatchOutputs.
func (r *stageRun) Output(i int) []byte {
	slots := r.output.pool
	return r.device.Segment.TensorAt(slots.loaded.Outputs, i, r.size, slots.Layout.OutputOffset(int(r.output.slot)))
}
