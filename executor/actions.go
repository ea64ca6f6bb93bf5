package executor

import (
	"slices"

	"inferplan/policy"
)

// Act does one thing that the policy decided. It implements loop.Host.
func (c *core) Act(a *policy.Action) {
	switch a.Kind {
	case policy.Dispatch:
		c.dispatch(a)
	case policy.Drop:
		c.dropRequest(a.Req, a.Reason)
	case policy.Abort:
		if b := c.batchAt(a.Batch); b != nil {
			c.abort(b)
		}
	case policy.Complete:
		c.answers.complete(a.Req)
	case policy.SwitchMode:
		if !c.answers.mode(a.Tag) {
			c.stats.ignored++
		}
	case policy.Load, policy.Unload:
		c.network(a)
	case policy.Place:
		// What a task reads is the client's, and that is at every device.
		now := c.now()
		c.events = append(c.events, queued{ev: policy.Event{Kind: policy.TransferFinished, Req: a.Task, Task: a.Task, Batch: -1, Device: a.Device, Start: now, End: now}})
	default:
		c.stats.ignored++ // workers have no instances that a batch could leave
	}
}

// network answers a load or unload. Workers hold what the plan places on their
// devices from their start to their end: what is there is loaded at once, and
// the rest is refused.
func (c *core) network(a *policy.Action) {
	there := a.Network >= 0 && int(a.Device) < len(c.tables.Resident) && slices.Contains(c.tables.Resident[a.Device], a.Network)
	now := c.now()
	ev := policy.Event{Kind: policy.NetworkLoaded, Network: a.Network, Device: a.Device, Key: a.Key, Start: now, End: now}
	if a.Kind == policy.Unload {
		ev.Kind = policy.NetworkUnloaded
	}
	if there != (a.Kind == policy.Load) {
		ev.Value = int64(policy.ReturnRefused)
	}
	c.events = append(c.events, queued{ev: ev})
}

func (c *core) batchAt(slot int32) *batch {
	if slot < 0 || int(slot) >= len(c.batches) {
		return nil
	}
	return c.batches[slot]
}

func (c *core) dispatch(a *policy.Action) {
	reqs, hops := c.loop.Dispatched(a)
	for int(a.Batch) >= len(c.batches) {
		c.batches = append(c.batches, nil)
	}
	if c.batches[a.Batch] != nil || len(reqs) == 0 || len(hops) == 0 {
		c.opt.Log.Error("the policy dispatched a batch that cannot be", "batch", a.Batch, "requests", len(reqs), "stages", len(hops), "in_use", c.batches[a.Batch] != nil)
		for _, req := range reqs {
			c.dropRequest(req, policy.ReasonFailed)
		}
		return
	}
	b := c.newBatch()
	b.slot, b.pipeline, b.model = a.Batch, a.Pipeline, c.models[a.Model]
	b.reqs = append(b.reqs[:0], reqs...)
	b.hops = append(b.hops[:0], hops...)
	b.hop, b.failed, b.live, b.inDevice = 0, false, true, false
	b.dispatched, b.started, b.gather, b.infer = c.loop.Last(), 0, 0, 0
	b.model.waiting.Add(-int64(len(reqs)))
	b.model.running.Add(int64(len(reqs)))
	for _, req := range reqs {
		c.reqs[req].batch = b.slot
	}
	c.batches[a.Batch] = b
	c.stats.dispatched(b)
	c.enqueue(b)
}

func (c *core) newBatch() *batch {
	c.serial++
	var b *batch
	if n := len(c.spare); n > 0 {
		b = c.spare[n-1]
		c.spare = c.spare[:n-1]
	} else {
		b = new(batch)
	}
	b.serial = c.serial
	return b
}

// dropRequest answers a request that the policy gave up. One that sits in a
// batch keeps its slot until the batch is over.
func (c *core) dropRequest(slot int32, reason policy.Reason) {
	if slot < 0 || int(slot) >= len(c.reqs) {
		return
	}
	q := &c.reqs[slot]
	if q.job == nil {
		return
	}
	c.refuse(q.job, reason)
	if q.batch >= 0 {
		q.gone = true
		return
	}
	c.settle(slot)
}

// abort forgets a batch; its requests wait with the policy again.
func (c *core) abort(b *batch) {
	for _, req := range b.reqs {
		q := &c.reqs[req]
		if q.job == nil {
			continue
		}
		if q.gone {
			c.settle(req)
			continue
		}
		q.batch = -1
		b.model.running.Add(-1)
		b.model.waiting.Add(1)
		if q.job.answered { // it need not run again
			c.forsaken = append(c.forsaken, req)
		}
	}
	c.stats.aborted++
	c.forget(b)
}
