package executor

import (
	"time"

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
	model    int32  // of the requests; -1: of several
	service  *model // what its tasks ask for
	tasks    []int32
	hops     []policy.Hop
	hop      int           // the next one to finish
	failed   bool          // cannot run; goes through the motions, or back to the policy
	tokens   int32         // that it has made at an instance
	returns  bool          // failed, and goes back
	why      policy.Return // what the policy then hears; 0: that it failed
	live     bool
	serial   uint64 // of this use of the record

	exec any // of the backend that executes it, and of the record's next batch there

	dispatched time.Duration
	started    time.Duration // of the first stage
	gather     time.Duration
	infer      time.Duration // sum over stages
	answer     time.Duration // that copying its outputs took
	handed     time.Duration // from the end of the last stage until the policy let it go on
	ready      int64         // when the last output was complete, CLOCK_MONOTONIC
	recorded   *recordedRun  // its last run; nil: not recorded
}

// device is where the batch is.
func (b *batch) device() int32 { return b.hops[b.hop].Device }

// batchTable holds the batches under way by the policy's slots.
type batchTable struct {
	list   []*batch
	spare  []*batch
	serial uint64
}

// at is the batch of a slot; nil where there is none.
func (u *batchTable) at(slot int32) *batch {
	if slot < 0 || int(slot) >= len(u.list) {
		return nil
	}
	return u.list[slot]
}

// put notes a batch that the policy dispatched.
func (u *batchTable) put(a *policy.Action, tasks []int32, hops []policy.Hop) *batch {
	for int(a.Batch) >= len(u.list) {
		u.list = append(u.list, nil)
	}
	var b *batch
	if n := len(u.spare); n > 0 {
		b = u.spare[n-1]
		u.spare = u.spare[:n-1]
	} else {
		b = new(batch)
	}
	u.serial++
	*b = batch{slot: a.Batch, pipeline: a.Pipeline, model: a.Model, live: true, serial: u.serial,
		tasks: append(b.tasks[:0], tasks...), hops: append(b.hops[:0], hops...), exec: b.exec}
	u.list[a.Batch] = b
	return b
}

// take ends the use of a slot; the record is still somebody's.
func (u *batchTable) take(b *batch) { u.list[b.slot], b.live = nil, false }

// give gives the record of a batch back.
func (u *batchTable) give(b *batch) { u.spare = append(u.spare, b) }
