package turn

import (
	"time"

	"inferplan/policy"
)

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
	c      *Core
	list   []*Batch
	spare  []*Batch
	serial uint64
	skips  []queued // that go on or end without a run
}

// Batch is that of a slot of the policy; nil where there is none.
func (u *batchTable) Batch(slot int32) *Batch {
	if slot < 0 || int(slot) >= len(u.list) {
		return nil
	}
	return u.list[slot]
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

// event is one about a batch on a device.
func (b *Batch) event(kind policy.EventKind, device int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.Hop), Model: b.Model, Service: b.Service.Index, Batch: b.Slot, Device: device}
}

// Began tells the policy that a batch runs on a device, or was admitted there.
func (u *batchTable) Began(b *Batch, device int32, start time.Duration) {
	c := u.c
	ev := b.event(policy.BatchStarted, device)
	ev.Start = start
	c.events = append(c.events, queued{ev: ev, batch: b, serial: b.Serial})
}

// FinishHop tells the policy that a stage is done and sends the batch on.
func (u *batchTable) FinishHop(b *Batch, dev int32, start, end time.Duration) {
	c := u.c
	serial := b.Serial
	ev := b.event(policy.BatchFinished, dev)
	ev.Start, ev.End, ev.Tokens = start, end, b.Tokens
	if b.Hop == len(b.Hops)-1 {
		// The policy may use the batch's slot again in its very answer.
		u.take(b)
		c.Answers.Ended(b, dev)
		c.Tell(ev)
		c.Answers.Told(b)
		u.give(b)
		return
	}
	c.Tell(ev)
	if !b.live || b.Serial != serial {
		return
	}
	b.Hop++
	now := c.Now()
	b.Handed = now - end
	ev = b.event(policy.TransferFinished, b.Device())
	ev.Start, ev.End = end, now
	c.Tell(ev)
	if !b.live || b.Serial != serial {
		return
	}
	if b.Failed {
		u.skip(b)
		return
	}
	c.BackendOf(b.Device()).Run(b)
}

// Progressed tells the policy of what an instance has produced: the first token,
// then every Instance.Progress.
func (u *batchTable) Progressed(b *Batch, tokens int32) {
	c := u.c
	in := c.Tables.InstanceOf(b.Device())
	if every := c.Tables.Instances[in].Progress; tokens == 1 || every > 0 && tokens%every == 0 {
		ev := b.event(policy.TokenProgress, b.Device())
		ev.Tokens = tokens
		c.Tell(ev)
	}
}

// FailBatch ends a batch that cannot run, once the policy can be told.
func (u *batchTable) FailBatch(b *Batch, reason policy.Reason, err error) {
	c := u.c
	b.Failed = true
	c.BackendOf(b.Device()).Abort(b)
	b.returns = !c.Answers.Failed(b, reason, err)
	u.skip(b)
}

// Void ends a batch that nobody waits for, once the policy can be told.
func (u *batchTable) Void(b *Batch) {
	b.Failed = true
	u.skip(b)
}

// HandBack hands a batch back to the policy, once it can be told.
func (u *batchTable) HandBack(b *Batch, why policy.Return) {
	b.returns, b.Why = true, why
	u.skip(b)
}

func (u *batchTable) skip(b *Batch) { u.skips = append(u.skips, queued{batch: b, serial: b.Serial}) }

// Returned ends a batch without a result and tells the policy why. Tokens are
// what each task has produced; the list is the caller's.
func (u *batchTable) Returned(b *Batch, why policy.Return, tokens []int32) {
	c := u.c
	ev := b.event(policy.BatchReturned, b.Device())
	ev.Value, ev.List = int64(why), tokens
	c.Answers.Again(b)
	u.take(b)
	u.give(b)
	c.Tell(ev)
}
