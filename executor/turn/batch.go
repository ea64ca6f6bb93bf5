package turn

import (
	"time"

	"inferplan/policy"
)

// Batch is a batch that the policy dispatched.
type Batch struct {
	Slot         int32
	Pipeline     int32
	Model        int32  // model of the requests; -1 if they are of several
	Service      *Model // service that its tasks ask for
	Tasks        []int32
	Hops         []policy.Hop
	CurrentHop   int                 // index of the hop that runs or is next
	HasFailed    bool                // it cannot run: the remaining hops are skipped, or the policy gets it back
	Tokens       int32               // tokens produced at an instance
	goesBack     bool                // it has failed, and the policy gets it back
	ReturnReason policy.ReturnReason // reason that the policy is then told; 0 stands for failed
	isLive       bool
	Serial       uint64 // number of this use of the record

	BackendState any // state of the backend that executes it; it stays with the record for the next batch there

	DispatchedAt time.Duration
	StartedAt    time.Duration // start of the first stage
	GatherTime   time.Duration // time in which inputs were copied
	InferTime    time.Duration // sum over stages
	CopyTime     time.Duration // time in which its outputs were copied
	HandOverTime time.Duration // from the end of the last stage until the policy let it go on
	ReadyAt      int64         // when the last output was complete, CLOCK_MONOTONIC
	LastRun      *RecordedRun  // its last run; nil if runs are not recorded
	trace        *batchTrace   // nil if no request of it is traced
}

// Device returns the device of the current hop.
func (b *Batch) Device() int32 { return b.Hops[b.CurrentHop].Device }

// batchTable holds the batches under way by the policy's slots.
type batchTable struct {
	core         *Core
	batches      []*Batch // by slot
	spareRecords []*Batch // records to be used again
	serial       uint64
	skippedRuns  []pendingEvent // batches whose hop is skipped, or that end, without a run
}

// BatchIn returns the batch in a slot of the policy. If there is none, it returns nil.
func (u *batchTable) BatchIn(slot int32) *Batch {
	if slot < 0 || int(slot) >= len(u.batches) {
		return nil
	}
	return u.batches[slot]
}

// addBatch enters a batch that the policy has dispatched into the table, under the policy's slot number, and returns it.
// hops are the devices of its stages. Records of ended batches are used again, so that a batch allocates no memory. The
// serial number tells it from earlier ones of the slot, whose results may still come.
func (u *batchTable) addBatch(a *policy.Action, tasks []int32, hops []policy.Hop) *Batch {
	for int(a.Batch) >= len(u.batches) {
		u.batches = append(u.batches, nil)
	}
	var b *Batch
	if n := len(u.spareRecords); n > 0 {
		b = u.spareRecords[n-1]
		u.spareRecords = u.spareRecords[:n-1]
	} else {
		b = new(Batch)
	}
	u.serial++
	*b = Batch{Slot: a.Batch, Pipeline: a.Pipeline, Model: a.Model, isLive: true, Serial: u.serial,
		Tasks: append(b.Tasks[:0], tasks...), Hops: append(b.Hops[:0], hops...), BackendState: b.BackendState}
	u.batches[a.Batch] = b
	return b
}

// freeSlot frees the slot of a batch. Its record is still in use.
func (u *batchTable) freeSlot(b *Batch) {
	u.batches[b.Slot], b.isLive = nil, false
	if b.trace != nil {
		b.trace.endedAt = u.core.Loop.Now()
	}
}

// freeRecord makes the record of a batch available to another one.
func (u *batchTable) freeRecord(b *Batch) { u.spareRecords = append(u.spareRecords, b) }

// event returns an event about a batch on a device.
func (b *Batch) event(kind policy.EventKind, device int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.CurrentHop), Model: b.Model, Service: b.Service.Index, Batch: b.Slot, Device: device}
}

// TellStarted queues the event that a batch runs on a device, or was admitted there, from `start` on. The policy
// hears of it at the next Flush, unless the batch has ended by then.
func (u *batchTable) TellStarted(b *Batch, device int32, start time.Duration) {
	c := u.core
	ev := b.event(policy.BatchStarted, device)
	ev.Start = start
	c.events = append(c.events, pendingEvent{ev: ev, batch: b, serial: b.Serial})
}

// FinishHop is called when a batch has run one stage (hop) on a device. It tells the policy, and sends the batch to
// the device of its next stage, or ends it. After each message the policy may have aborted the batch.
func (u *batchTable) FinishHop(b *Batch, dev int32, start, end time.Duration) {
	c := u.core
	serial := b.Serial
	ev := b.event(policy.BatchFinished, dev)
	ev.Start, ev.End, ev.Tokens = start, end, b.Tokens

	// The last hop: the batch ends.
	if b.CurrentHop == len(b.Hops)-1 {
		// The policy may use the batch's slot again in its very answer.
		u.freeSlot(b)
		c.Answerer.BatchEnded(b, dev)
		c.Loop.TellPolicy(ev)
		c.Answerer.PolicyTold(b)
		u.freeRecord(b)
		return
	}
	c.Loop.TellPolicy(ev)
	if !b.isLive || b.Serial != serial {
		return
	}

	// Otherwise the tensors are handed over to the next hop, if the policy has not aborted the batch.
	b.CurrentHop++
	now := c.Loop.Now()
	b.HandOverTime = now - end
	ev = b.event(policy.TransferFinished, b.Device())
	ev.Start, ev.End = end, now
	c.Loop.TellPolicy(ev)
	if !b.isLive || b.Serial != serial {
		return
	}
	if b.HasFailed {
		u.skipRun(b)
		return
	}
	c.Backends.BackendOf(b.Device()).RunBatch(b)
}

// TellProgress tells the policy how many tokens an instance has produced: the first token, then every Instance.ProgressTokens.
func (u *batchTable) TellProgress(b *Batch, tokens int32) {
	c := u.core
	instance := c.Tables.InstanceOf(b.Device())
	if interval := c.Tables.Instances[instance].ProgressTokens; tokens == 1 || interval > 0 && tokens%interval == 0 {
		ev := b.event(policy.TokenProgress, b.Device())
		ev.Tokens = tokens
		c.Loop.TellPolicy(ev)
	}
}

// FailBatch ends a batch that cannot run, because of a failure or a lost device. The answerer decides what the policy
// hears of it at the next Flush: that the batch has run its remaining hops (stages on devices), if the answerer has
// answered its requests, or that the batch is returned without a result, and its tasks wait again.
func (u *batchTable) FailBatch(b *Batch, reason policy.DropReason, err error) {
	c := u.core
	b.HasFailed = true
	c.Backends.BackendOf(b.Device()).AbortBatch(b)
	b.goesBack = !c.Answerer.BatchFailed(b, reason, err)
	u.skipRun(b)
}

// EndUnwanted ends a batch whose result nobody waits for, at the next Flush.
func (u *batchTable) EndUnwanted(b *Batch) {
	b.HasFailed = true
	u.skipRun(b)
}

// ReturnBatch returns a batch to the policy, at the next Flush.
func (u *batchTable) ReturnBatch(b *Batch, reason policy.ReturnReason) {
	b.goesBack, b.ReturnReason = true, reason
	u.skipRun(b)
}

// skipRun queues a batch whose hop ends without a run.
func (u *batchTable) skipRun(b *Batch) {
	u.skippedRuns = append(u.skippedRuns, pendingEvent{batch: b, serial: b.Serial})
}

// TellReturned ends a batch without a result and tells the policy the reason. `tokens` has what each task has produced;
// the list belongs to the caller.
func (u *batchTable) TellReturned(b *Batch, reason policy.ReturnReason, tokens []int32) {
	c := u.core
	ev := b.event(policy.BatchReturned, b.Device())
	ev.Value, ev.List = int64(reason), tokens
	c.Answerer.RequeueBatch(b)
	u.freeSlot(b)
	u.freeRecord(b)
	c.Loop.TellPolicy(ev)
}
