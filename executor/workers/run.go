package workers

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// batchRun is the state of a batch on workers.
type batchRun struct {
	run *run    // queued or under way; nil between
	in  slotRef // its tensor for the next stage
	by  tier    // that the tensor came by
}

// batchRunOf returns the state of a batch, which the first call makes.
func batchRunOf(b *turn.Batch) *batchRun {
	c, _ := b.Exec.(*batchRun)
	if c == nil {
		c = &batchRun{}
		b.Exec = c
	}
	return c
}

// slotRef is a slot of a stage on a device, held by whoever reads or writes it.
type slotRef struct {
	pool *stageSlots // nil: none
	slot int32
}

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
	arena  *arena // that they were cut from
	over   bool   // they go back there once nobody reads them
}

// leave ends the use of slots that nobody reads any more.
func (s *stageSlots) leave() {
	if s.over && s.Pool.InUse() == 0 {
		s.arena.give(s.Layout.Base, s.Layout.Stride*int64(s.Layout.Slots))
	}
}

// run is one stage of a batch on one device.
type run struct {
	id      uint64
	Batch   *turn.Batch // nil: aborted, its result is ignored
	device  *Device
	stage   int32
	size    int
	in      slotRef // held until the run is over; the own slot for a first stage
	out     slotRef
	sent    time.Duration // when its inputs began to be copied
	Started time.Duration // as far as the core knows

	from, to tier // by which its input came and its output goes; nil: the client's
}

// Output implements turn.Outputs.
func (r *run) Output(i int) []byte {
	own := r.out.pool
	return r.device.Segment.TensorAt(own.loaded.Outputs, i, r.size, own.Layout.Out(int(r.out.slot)))
}
