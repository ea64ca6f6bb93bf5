package executor

import (
	"time"

	"inferplan/policy"
)

// Act does one thing that the policy decided. It implements loop.Host.
func (c *core) Act(a *policy.Action) {
	switch a.Kind {
	case policy.Dispatch:
		c.dispatch(a)
	case policy.Drop:
		c.book.again(a.Req, a.At)
		c.answers.blame(a.Task)
		c.book.drop(a.Req, a.Reason)
	case policy.Abort:
		if b := c.batches.at(a.Batch); b != nil {
			c.abort(b)
		}
	case policy.Evict:
		if b := c.batches.at(a.Batch); b != nil {
			c.backendOf(b.device()).evict(b, a.Tag == 1)
		} else {
			c.stats.ignored++
		}
	case policy.Complete:
		c.answers.complete(a.Req)
	case policy.SwitchMode:
		if !c.answers.mode(a.Tag) {
			c.stats.ignored++
		}
	case policy.Load, policy.Unload:
		c.backendOf(a.Device).load(order{network: a.Network, device: a.Device, key: a.Key, up: a.Kind == policy.Load})
	case policy.Place:
		c.answers.place(a.Task, a.Device)
	default:
		c.stats.ignored++
	}
}

// dispatch hands a batch to what executes it.
func (c *core) dispatch(a *policy.Action) {
	tasks, hops := c.loop.Dispatched(a)
	if c.batches.at(a.Batch) != nil || len(tasks) == 0 || len(hops) == 0 {
		c.opt.Log.Error("the policy dispatched a batch that cannot be", "batch", a.Batch, "requests", len(tasks), "stages", len(hops), "in_use", c.batches.at(a.Batch) != nil)
		for _, t := range tasks {
			c.book.drop(c.answers.requestOf(t), policy.ReasonFailed)
		}
		return
	}
	b := c.batches.put(a, tasks, hops)
	b.service, b.dispatched = c.services[c.tables.Pipelines[a.Pipeline].Service], c.loop.Last()
	c.answers.enter(b)
	c.stats.dispatched(b)
	c.backendOf(b.device()).run(b)
}

// abort forgets a batch; its tasks wait with the policy again.
func (c *core) abort(b *batch) {
	c.answers.again(b)
	c.stats.aborted++
	c.backendOf(b.device()).abort(b)
	c.batches.take(b)
	c.batches.give(b)
}

// event is one about a batch on a device.
func (b *batch) event(kind policy.EventKind, device int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.hop), Model: b.model, Service: b.service.index, Batch: b.slot, Device: device}
}

// began tells the policy that a batch runs on a device, or was admitted there.
func (c *core) began(b *batch, device int32, start time.Duration) {
	ev := b.event(policy.BatchStarted, device)
	ev.Start = start
	c.emit(queued{ev: ev, batch: b, serial: b.serial})
}

// finishHop tells the policy that a stage is done and sends the batch on.
func (c *core) finishHop(b *batch, dev int32, start, end time.Duration) {
	serial := b.serial
	ev := b.event(policy.BatchFinished, dev)
	ev.Start, ev.End, ev.Tokens = start, end, b.tokens
	if b.hop == len(b.hops)-1 {
		// The policy may use the batch's slot again in its very answer.
		c.batches.take(b)
		c.answers.ended(b, dev)
		c.handle(ev)
		c.answers.told(b)
		c.batches.give(b)
		return
	}
	c.handle(ev)
	if !b.live || b.serial != serial {
		return
	}
	b.hop++
	now := c.now()
	b.handed = now - end
	ev = b.event(policy.TransferFinished, b.device())
	ev.Start, ev.End = end, now
	c.handle(ev)
	if !b.live || b.serial != serial {
		return
	}
	if b.failed {
		c.skips = append(c.skips, queued{batch: b, serial: b.serial})
		return
	}
	c.backendOf(b.device()).run(b)
}

// progressed tells the policy of what an instance has produced: the first token,
// then every Instance.Progress.
func (c *core) progressed(b *batch, tokens int32) {
	in := c.tables.InstanceOf(b.device())
	if every := c.tables.Instances[in].Progress; tokens == 1 || every > 0 && tokens%every == 0 {
		ev := b.event(policy.TokenProgress, b.device())
		ev.Tokens = tokens
		c.handle(ev)
	}
}

// failBatch ends a batch that cannot run, once the policy can be told.
func (c *core) failBatch(b *batch, reason policy.Reason, err error) {
	b.failed = true
	c.backendOf(b.device()).abort(b)
	b.returns = !c.answers.failed(b, reason, err)
	c.skips = append(c.skips, queued{batch: b, serial: b.serial})
}

// returned ends a batch without a result and tells the policy why. Tokens are
// what each task has produced; the list is the caller's.
func (c *core) returned(b *batch, why policy.Return, tokens []int32) {
	ev := b.event(policy.BatchReturned, b.device())
	ev.Value, ev.List = int64(why), tokens
	c.answers.again(b)
	c.batches.take(b)
	c.batches.give(b)
	c.handle(ev)
}

// placed tells that what a task reads is at a device.
func (c *core) placed(task, device, ticket int32, start, end time.Duration) {
	c.emit(queued{ev: policy.Event{Kind: policy.TransferFinished, Req: task, Task: task, Batch: -1, Device: device, Start: start, End: end}, ticket: ticket})
}
