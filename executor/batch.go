package executor

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/policy"
)

// request is a sample as the policy names it, by slot.
type request struct {
	job    *job // nil: free
	sample int32
	batch  int32 // policy's batch slot, -1 while it waits
	gone   bool  // dropped by the policy while in a batch
}

// batch is what the policy dispatched.
type batch struct {
	slot     int32
	pipeline int32
	model    *model
	reqs     []int32
	hops     []policy.Hop
	hop      int  // the next one to finish
	run      *run // queued or under way; nil between
	in       slotRef
	inDevice bool // the tensor in it lies in the memory of its worker's GPU
	failed   bool // answered as failed; goes through the motions without running
	live     bool
	serial   uint64 // of this use of the record

	dispatched time.Duration
	started    time.Duration // of the first stage
	gather     time.Duration
	infer      time.Duration // sum over stages
	ready      int64         // when the last output was complete, CLOCK_MONOTONIC
}

// slotRef is a slot of a stage on a device, held by whoever reads or writes it.
type slotRef struct {
	pool *stageSlots // nil: none
	slot int32
}

func (s *slotRef) give() {
	if s.pool != nil {
		s.pool.pool.Give(s.slot)
		s.pool = nil
	}
}

// stageSlots is a stage's part of a worker's segment.
type stageSlots struct {
	device int32
	layout worker.Layout
	pool   *worker.SlotPool
	loaded *worker.Loaded
}

// run is one stage of a batch on one device.
type run struct {
	id      uint64
	batch   *batch // nil: aborted, its result is ignored
	device  *device
	stage   int32
	size    int
	in      slotRef // held until the run is over; the own slot for a first stage
	out     slotRef
	sent    time.Duration // when its inputs began to be copied
	started time.Duration // as far as the core knows

	inDevice, outDevice bool // where its input lies and its output goes
}
