package turn

import (
	"time"

	"inferplan/policy"
)

// Act does one thing that the policy decided. It implements loop.Host.
func (c *Core) Act(a *policy.Action) {
	switch a.Kind {
	case policy.Dispatch:
		c.dispatch(a)
	case policy.Drop:
		c.ledger.again(a.Req, a.At)
		c.Answers.Blame(a.Task)
		c.ledger.drop(a.Req, a.Reason)
	case policy.Abort:
		if b := c.Batch(a.Batch); b != nil {
			c.abort(b)
		}
	case policy.Evict:
		if b := c.Batch(a.Batch); b != nil {
			c.BackendOf(b.Device()).Evict(b, a.Tag == 1)
		} else {
			c.Stats.Ignored++
		}
	case policy.Complete:
		c.Answers.Complete(a.Req)
	case policy.SwitchMode:
		if !c.Answers.Mode(a.Tag) {
			c.Stats.Ignored++
		}
	case policy.Load, policy.Unload:
		c.BackendOf(a.Device).Load(Order{Network: a.Network, Device: a.Device, Key: a.Key, Load: a.Kind == policy.Load})
	case policy.Place:
		c.Answers.Place(a.Task, a.Device)
	default:
		c.Stats.Ignored++
	}
}

// dispatch hands a batch to what executes it.
func (c *Core) dispatch(a *policy.Action) {
	tasks, hops := c.loop.Dispatched(a)
	if c.Batch(a.Batch) != nil || len(tasks) == 0 || len(hops) == 0 {
		c.Options.Log.Error("the policy dispatched a batch that cannot be", "batch", a.Batch, "requests", len(tasks), "stages", len(hops), "in_use", c.Batch(a.Batch) != nil)
		for _, t := range tasks {
			c.ledger.drop(c.Answers.RequestOf(t), policy.ReasonFailed)
		}
		return
	}
	b := c.batches.put(a, tasks, hops)
	b.Service, b.Dispatched = c.Services[c.Tables.Pipelines[a.Pipeline].Service], c.loop.Last()
	c.Answers.Enter(b)
	c.Stats.dispatched(b)
	c.BackendOf(b.Device()).Run(b)
}

// abort forgets a batch; its tasks wait with the policy again.
func (c *Core) abort(b *Batch) {
	c.Answers.Again(b)
	c.Stats.Aborted++
	c.BackendOf(b.Device()).Abort(b)
	c.batches.take(b)
	c.batches.give(b)
}

// event is one about a batch on a device.
func (b *Batch) event(kind policy.EventKind, device int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.Hop), Model: b.Model, Service: b.Service.Index, Batch: b.Slot, Device: device}
}

// Began tells the policy that a batch runs on a device, or was admitted there.
func (c *Core) Began(b *Batch, device int32, start time.Duration) {
	ev := b.event(policy.BatchStarted, device)
	ev.Start = start
	c.events = append(c.events, queued{ev: ev, batch: b, serial: b.Serial})
}

// FinishHop tells the policy that a stage is done and sends the batch on.
func (c *Core) FinishHop(b *Batch, dev int32, start, end time.Duration) {
	serial := b.Serial
	ev := b.event(policy.BatchFinished, dev)
	ev.Start, ev.End, ev.Tokens = start, end, b.Tokens
	if b.Hop == len(b.Hops)-1 {
		// The policy may use the batch's slot again in its very answer.
		c.batches.take(b)
		c.Answers.Ended(b, dev)
		c.Tell(ev)
		c.Answers.Told(b)
		c.batches.give(b)
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
		c.skip(b)
		return
	}
	c.BackendOf(b.Device()).Run(b)
}

// Progressed tells the policy of what an instance has produced: the first token,
// then every Instance.Progress.
func (c *Core) Progressed(b *Batch, tokens int32) {
	in := c.Tables.InstanceOf(b.Device())
	if every := c.Tables.Instances[in].Progress; tokens == 1 || every > 0 && tokens%every == 0 {
		ev := b.event(policy.TokenProgress, b.Device())
		ev.Tokens = tokens
		c.Tell(ev)
	}
}

// FailBatch ends a batch that cannot run, once the policy can be told.
func (c *Core) FailBatch(b *Batch, reason policy.Reason, err error) {
	b.Failed = true
	c.BackendOf(b.Device()).Abort(b)
	b.returns = !c.Answers.Failed(b, reason, err)
	c.skip(b)
}

// Void ends a batch that nobody waits for, once the policy can be told.
func (c *Core) Void(b *Batch) {
	b.Failed = true
	c.skip(b)
}

// HandBack hands a batch back to the policy, once it can be told.
func (c *Core) HandBack(b *Batch, why policy.Return) {
	b.returns, b.Why = true, why
	c.skip(b)
}

func (c *Core) skip(b *Batch) { c.skips = append(c.skips, queued{batch: b, serial: b.Serial}) }

// Returned ends a batch without a result and tells the policy why. Tokens are
// what each task has produced; the list is the caller's.
func (c *Core) Returned(b *Batch, why policy.Return, tokens []int32) {
	ev := b.event(policy.BatchReturned, b.Device())
	ev.Value, ev.List = int64(why), tokens
	c.Answers.Again(b)
	c.batches.take(b)
	c.batches.give(b)
	c.Tell(ev)
}

// Loaded answers an order, once the policy can be told.
func (c *Core) Loaded(o *Order, start, end time.Duration, why policy.Return) {
	c.events = append(c.events, queued{ev: o.event(start, end, why)})
}

// Placed tells that what a task reads is at a device.
func (c *Core) Placed(task, device, ticket int32, start, end time.Duration) {
	c.events = append(c.events, queued{ev: policy.Event{Kind: policy.TransferFinished, Req: task, Task: task, Batch: -1, Device: device, Start: start, End: end}, ticket: ticket})
}
