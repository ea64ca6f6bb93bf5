package turn

import (
	"time"

	"inferplan/policy"
)

// Act carries out one action of the policy, such as to send a batch or to drop a request. Actions on batches that no
// longer exist, or that this kind of plan does not have, are counted as ignored or do nothing. It implements loop.Host,
// and runs in a round of the core.
func (c *Core) Act(a *policy.Action) {
	switch a.Kind {
	case policy.Dispatch:
		c.dispatchBatch(a)
	case policy.Drop:
		c.Ledger.setRetry(a.Req, a.At)
		c.Answerer.BlameTask(a.Task)
		c.Ledger.dropRequest(a.Req, a.Reason)
	case policy.Abort:
		if b := c.Batches.BatchIn(a.Batch); b != nil {
			c.abortBatch(b)
		}
	case policy.Evict:
		if b := c.Batches.BatchIn(a.Batch); b != nil {
			c.Backends.BackendOf(b.Device()).EvictBatch(b, a.Tag == 1) // with tag 1 its state stays in the host's memory
		} else {
			c.Stats.IgnoredActions++
		}
	case policy.Complete:
		c.Answerer.CompleteRequest(a.Req)
	case policy.SwitchMode:
		if !c.Answerer.SwitchMode(a.Tag) {
			c.Stats.IgnoredActions++
		}
	case policy.Load, policy.Unload:
		c.Backends.BackendOf(a.Device).LoadNetwork(LoadOrder{Network: a.Network, Device: a.Device, Key: a.Key, Load: a.Kind == policy.Load})
	case policy.Place:
		c.Answerer.PlaceInputs(a.Task, a.Device)
	default:
		c.Stats.IgnoredActions++
	}
}

// dispatchBatch enters a batch that the policy has dispatched, and hands it to the backend of its first device. A
// dispatch that cannot be carried out, because its slot is in use or it is empty, is an error of the policy: it is
// logged, and its requests are dropped.
func (c *Core) dispatchBatch(a *policy.Action) {
	tasks, hops := c.Loop.Dispatched(a)
	if c.Batches.BatchIn(a.Batch) != nil || len(tasks) == 0 || len(hops) == 0 {
		c.Options.Log.Error("the policy dispatched a batch that cannot be", "batch", a.Batch, "requests", len(tasks), "stages", len(hops), "in_use", c.Batches.BatchIn(a.Batch) != nil)
		for _, t := range tasks {
			c.Ledger.dropRequest(c.Answerer.RequestOf(t), policy.ReasonFailed)
		}
		return
	}
	b := c.Batches.addBatch(a, tasks, hops)
	b.Service, b.DispatchedAt = c.Services[c.Tables.Pipelines[a.Pipeline].Service], c.Loop.LastTime()
	c.Answerer.EnterBatch(b)
	c.Stats.recordDispatch(b)
	if c.Options.Tracer != nil {
		c.traceDispatch(b)
	}
	c.Backends.BackendOf(b.Device()).RunBatch(b)
}

// abortBatch ends a batch that the policy aborts: its backend stops or ignores it, and its tasks wait with the
// policy again.
func (c *Core) abortBatch(b *Batch) {
	c.Answerer.RequeueBatch(b)
	c.Stats.AbortedBatches++
	c.Backends.BackendOf(b.Device()).AbortBatch(b)
	c.Batches.freeSlot(b)
	c.Batches.freeRecord(b)
}

// TellLoaded tells the policy the end of a load order, at the next Flush.
func (c *Core) TellLoaded(o *LoadOrder, start, end time.Duration, reason policy.ReturnReason) {
	c.events = append(c.events, pendingEvent{ev: o.event(start, end, reason)})
}

// TellPlaced tells the policy that the inputs of a task are at a device, at the next Flush.
func (c *Core) TellPlaced(task, device, ticket int32, start, end time.Duration) {
	c.events = append(c.events, pendingEvent{ev: policy.Event{Kind: policy.TransferFinished, Req: task, Task: task, Batch: -1, Device: device, Start: start, End: end}, ticket: ticket})
}
