package turn

import (
	"time"

	"inferplan/policy"
)

// Batch is a batch that the policy dispatched.
type Batch struct {
	Slot     int32
	Pipeline int32
	Model    int32  // model of the requests; -1 if they are of several
	Service  *Model // service that its tasks ask for
	Tasks    []int32
	Hops     []policy.Hop
	Hop      int           // index of the hop that runs or is next
	Failed   bool          // it cannot run: the remaining hops are skipped, or the policy gets it back
	Tokens   int32         // tokens produced at an instance
	returns  bool          // it has failed, and the policy gets it back
	Why      policy.Return // reason that the policy is then told; 0 stands for failed
	live     bool
	Serial   uint64 // number of this use of the record

	Exec any // state of the backend that executes it; it stays with the record for the next batch there

	Dispatched time.Duration
	Started    time.Duration // start of the first stage
	Gather     time.Duration // time in which inputs were copied
	Infer      time.Duration // sum over stages
	Answer     time.Duration // time in which its outputs were copied
	Handed     time.Duration // from the end of the last stage until the policy let it go on
	Ready      int64         // when the last output was complete, CLOCK_MONOTONIC
	Recorded   *RecordedRun  // its last run; nil if runs are not recorded
}

// Device returns the device of the current hop.
func (b *Batch) Device() int32 { return b.Hops[b.Hop].Device }

// batchTable holds the batches under way by the policy's slots.
type batchTable struct {
	c      *Core
	list   []*Batch // by slot
	spare  []*Batch // records to be used again
	serial uint64
	skips  []queued // batches whose hop is skipped, or that end, without a run
}

// BatchIn returns the batch in a slot of the policy. If there is none, it returns nil.
func (u *batchTable) Batch(slot int32) *Batch {
	if slot < 0 || int(slot) >= len(u.list) {
		return nil
	}
	return u.list[slot]
}

// addBatch adds a batch that the policy has dispatched.
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

// freeSlot frees the slot of a batch. Its record is still in use.
func (u *batchTable) take(b *Batch) { u.list[b.Slot], b.live = nil, false }

// freeRecord makes the record of a batch available to another one.
func (u *batchTable) give(b *Batch) { u.spare = append(u.spare, b) }

// event returns an event about a batch on a device.
func (b *Batch) event(kind policy.EventKind, device int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.Hop), Model: b.Model, Service: b.Service.Index, Batch: b.Slot, Device: device}
}

// TellStarted tells the policy, at the next Flush, that a batch runs on a device or was admitted there.
func (u *batchTable) Began(b *Batch, device int32, start time.Duration) {
	c := u.c
	ev := b.event(policy.BatchStarted, device)
	ev.Start = start
	c.events = append(c.events, queued{ev: ev, batch: b, serial: b.Serial})
}

// FinishHop tells the policy that a hop has ended, and sends the batch to its next hop, or ends it.
func (u *batchTable) FinishHop(b *Batch, dev int32, start, end time.Duration) {
	c := u.c
	serial := b.Serial
	ev := b.event(policy.BatchFinished, dev)
	ev.Start, ev.End, ev.Tokens = start, end, b.Tokens

	// The last hop: the batch ends.
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

	// Otherwise the tensors are handed over to the next hop, if the policy has not aborted the batch.
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

// TellProgress tells the policy how many tokens an instance has produced: the first token, then every Instance.Progress.
func (u *batchTable) Progressed(b *Batch, tokens int32) {
	c := u.c
	in := c.Tables.InstanceOf(b.Device())
	if every := c.Tables.Instances[in].Progress; tokens == 1 || every > 0 && tokens%every == 0 {
		ev := b.event(policy.TokenProgress, b.Device())
		ev.Tokens = tokens
		c.Tell(ev)
	}
}

// FailBatch ends a batch that cannot run, at the next Flush.
func (u *batchTable) FailBatch(b *Batch, reason policy.Reason, err error) {
	c := u.c
	b.Failed = true
	c.BackendOf(b.Device()).Abort(b)
	b.returns = !c.Answers.Failed(b, reason, err)
	u.skip(b)
}

// EndUnwanted ends a batch whose result nobody waits for, at the next Flush.
func (u *batchTable) Void(b *Batch) {
	b.Failed = true
	u.skip(b)
}

// ReturnBatch returns a batch to the policy, at the next Flush.
func (u *batchTable) HandBack(b *Batch, why policy.Return) {
	b.returns, b.Why = true, why
	u.skip(b)
}

// skipRun queues a batch whose hop ends without a run.
func (u *batchTable) skip(b *Batch) { u.skips = append(u.skips, queued{batch: b, serial: b.Serial}) }

// TellReturned ends a batch without a result and tells the policy the reason. `tokens` has what each task has produced;
// the list belongs to the caller.
func (u *batchTable) Returned(b *Batch, why policy.Return, tokens []int32) {
	c := u.c
	ev := b.event(policy.BatchReturned, b.Device())
	ev.Value, ev.List = int64(why), tokens
	c.Answers.Again(b)
	u.take(b)
	u.give(b)
	c.Tell(ev)
}
