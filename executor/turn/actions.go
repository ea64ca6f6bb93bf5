package turn

import (
	"time"

	"inferplan/policy"
)

// Act carries out one action of the policy. It implements loop.Host.
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

// dispatchBatch hands a dispatched batch to the backend of its device. A dispatch that cannot be carried out drops its
// requests.
func (c *Core) dispatch(a *policy.Action) {
	tasks, hops := c.loop.Dispatched(a)
	if c.Batch(a.Batch) != nil || len(tasks) == 0 || len(hops) == 0 {
		c.Options.Log.Error("the policy dispatched a batch that cannot be", "batch", a.Batch, "requests", len(tasks), "stages", len(hops), "in_use", c.Batch(a.Batch) != nil)
		for _, t := range tasks {
			c.ledger.drop(c.Answers.RequestOf(t), policy.ReasonFailed)
		}
		return
	}
	b := c.batchTable.put(a, tasks, hops)
	b.Service, b.Dispatched = c.Services[c.Tables.Pipelines[a.Pipeline].Service], c.loop.Last()
	c.Answers.Enter(b)
	c.Stats.dispatched(b)
	c.BackendOf(b.Device()).Run(b)
}

// abortBatch ends a batch that the policy aborts. Its tasks wait with the policy again.
func (c *Core) abort(b *Batch) {
	c.Answers.Again(b)
	c.Stats.Aborted++
	c.BackendOf(b.Device()).Abort(b)
	c.batchTable.take(b)
	c.batchTable.give(b)
}

// TellLoaded tells the policy the end of a load order, at the next Flush.
func (c *Core) Loaded(o *Order, start, end time.Duration, why policy.Return) {
	c.events = append(c.events, queued{ev: o.event(start, end, why)})
}

// TellPlaced tells the policy that the inputs of a task are at a device, at the next Flush.
func (c *Core) Placed(task, device, ticket int32, start, end time.Duration) {
	c.events = append(c.events, queued{ev: policy.Event{Kind: policy.TransferFinished, Req: task, Task: task, Batch: -1, Device: device, Start: start, End: end}, ticket: ticket})
}
