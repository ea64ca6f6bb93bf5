package workers

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// batchRun is the state of a batch on workers.
type batchRun struct {
	run *run    // queued or under way; nil between two runs
	in  slotRef // its tensor for the next stage
	by  tier    // tier by which that tensor comes
}

// batchRunOf returns the state of a batch, and creates it on the first call.
func batchRunOf(b *turn.Batch) *batchRun {
	c, _ := b.Exec.(*batchRun)
	if c == nil {
		c = &batchRun{}
		b.Exec = c
	}
	return c
}

// slotRef is a slot of a stage on a device, held by the run that reads or writes it.
type slotRef struct {
	pool *stageSlots // nil if none
	slot int32
}

// release releases the slot.
func (s *slotRef) give() {
	if s.pool != nil {
		s.pool.Pool.Give(s.slot)
		s.pool.leave()
		s.pool = nil
	}
}

// stageSlots is a stage's part of a worker's segment.
type stageSlots struct {
	device int32
	Layout worker.Layout
	Pool   *worker.SlotPool
	loaded *worker.Loaded
	arena  *arena // the arena that they were cut from
	over   bool   // they return to the arena once nobody reads them
}

// returnIfUnused returns retired slots to their arena once nobody reads them.
func (s *stageSlots) leave() {
	if s.over && s.Pool.InUse() == 0 {
		s.arena.give(s.Layout.Base, s.Layout.Stride*int64(s.Layout.Slots))
	}
}

// stageRun is one stage of a batch on one device.
type run struct {
	id      uint64
	Batch   *turn.Batch // nil if it was aborted; its result is then ignored
	device  *Device
	stage   int32
	size    int
	in      slotRef // held until the run is over; empty for a first stage
	out     slotRef
	sent    time.Duration // when copying its inputs began
	Started time.Duration // as far as the core knows

	from, to tier // tiers of its input and output; nil for the client's
}

// Output implements turn.BatchOutputs.
func (r *run) Output(i int) []byte {
	own := r.out.pool
	return r.device.Segment.TensorAt(own.loaded.Outputs, i, r.size, own.Layout.Out(int(r.out.slot)))
}
