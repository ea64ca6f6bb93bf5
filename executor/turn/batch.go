package turn

import (
	"time"

	"inferplan/policy"
)

// Request is a sample as the policy names it, by slot.
type Request struct {
	Job    *Job // nil: free
	Sample int32
	Batch  int32 // policy's batch slot, -1 while it waits
	Gone   bool  // dropped by the policy while in a batch
}

// Batch is what the policy dispatched.
type Batch struct {
	Slot     int32
	Pipeline int32
	Model    int32  // of the requests; -1: of several
	Service  *Model // what its tasks ask for
	Tasks    []int32
	Hops     []policy.Hop
	Hop      int           // the next one to finish
	Failed   bool          // cannot run; goes through the motions, or back to the policy
	Tokens   int32         // that it has made at an instance
	returns  bool          // failed, and goes back
	Why      policy.Return // what the policy then hears; 0: that it failed
	live     bool
	Serial   uint64 // of this use of the record

	Exec any // of the backend that executes it, and of the record's next batch there

	Dispatched time.Duration
	Started    time.Duration // of the first stage
	Gather     time.Duration
	Infer      time.Duration // sum over stages
	Answer     time.Duration // that copying its outputs took
	Handed     time.Duration // from the end of the last stage until the policy let it go on
	Ready      int64         // when the last output was complete, CLOCK_MONOTONIC
	Recorded   *RecordedRun  // its last run; nil: not recorded
}

// Device is where the batch is.
func (b *Batch) Device() int32 { return b.Hops[b.Hop].Device }

// batchTable holds the batches under way by the policy's slots.
type batchTable struct {
	list   []*Batch
	spare  []*Batch
	serial uint64
}

// Batch is that of a slot of the policy; nil where there is none.
func (c *Core) Batch(slot int32) *Batch {
	if slot < 0 || int(slot) >= len(c.batches.list) {
		return nil
	}
	return c.batches.list[slot]
}

// put notes a batch that the policy dispatched.
func (u *batchTable) put(a *policy.Action, tasks []int32, hops []policy.Hop) *Batch {
	for int(a.Batch) >= len(u.list) {
		u.list = append(u.list, nil)
	}
	var b *Batch
	if n := len(u.spare); n > 0 {
		b = u.spare[n-1]
		u.spare = u.spare[:n-1]
	} else {
		b = new(Batch)
	}
	u.serial++
	*b = Batch{Slot: a.Batch, Pipeline: a.Pipeline, Model: a.Model, live: true, Serial: u.serial,
		Tasks: append(b.Tasks[:0], tasks...), Hops: append(b.Hops[:0], hops...), Exec: b.Exec}
	u.list[a.Batch] = b
	return b
}

// take ends the use of a slot; the record is still somebody's.
func (u *batchTable) take(b *Batch) { u.list[b.Slot], b.live = nil, false }

// give gives the record of a batch back.
func (u *batchTable) give(b *Batch) { u.spare = append(u.spare, b) }
