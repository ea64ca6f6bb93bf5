package executor

import "inferplan/policy"

// Round does all that has come. It implements loop.Host.
func (c *core) Round() {
	c.take()
	t := &c.taken
	for i := range t.events {
		c.deviceEvent(&t.events[i])
		c.Flush()
	}
	c.loop.Found()
	for _, j := range t.arrivals {
		// A wake-up that is due was so before the policy hears of this one.
		c.loop.Timers()
		c.arrive(j)
		c.Flush()
	}
	for _, j := range t.cancels {
		c.clientGone(j)
		c.Flush()
		j.release()
	}
	c.loop.Timers()
	c.refill()
	c.loop.Calls()
	if c.open == 0 && len(c.idle) > 0 {
		for _, ch := range c.idle {
			close(ch)
		}
		c.idle = nil
	}
	if c.stopping {
		c.end()
	}
}

// end refuses what came in between; there are no further rounds.
func (c *core) end() {
	c.closeInbox()
	c.take()
	for _, e := range c.taken.events {
		if e.proc != nil {
			c.devices[e.device].proc = e.proc // for stop, which ends it
		}
	}
	for _, j := range c.taken.arrivals {
		c.open++
		j.open = 0
		c.refuse(j, policy.ReasonDraining)
		j.release()
	}
	c.loop.End()
}

// handle asks the policy and does what it says.
func (c *core) handle(ev policy.Event) { c.loop.Tell(ev) }

// Woke implements loop.Host: the core's own wake-up looks after workers.
func (c *core) Woke(int32) { c.watch() }

type queued struct {
	ev     policy.Event
	batch  *batch // nil: of none
	serial uint64
}

// emit queues an event that follows from an action.
func (c *core) emit(b *batch, ev policy.Event) {
	c.events = append(c.events, queued{ev, b, b.serial})
}

// Flush hands over what actions brought about, until nothing more follows. It
// implements loop.Host.
func (c *core) Flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			if q.batch == nil || q.batch.live && q.batch.serial == q.serial {
				c.handle(q.ev)
			}
		case len(c.skips) > 0:
			q := c.skips[0]
			c.skips = c.skips[:copy(c.skips, c.skips[1:])]
			if q.batch.live && q.batch.serial == q.serial {
				now := c.now()
				c.finishHop(q.batch, q.batch.hops[q.batch.hop].Device, now, now)
			}
		case len(c.forsaken) > 0:
			slot := c.forsaken[len(c.forsaken)-1]
			c.forsaken = c.forsaken[:len(c.forsaken)-1]
			// Those in a batch run with it.
			if q := &c.reqs[slot]; q.job != nil && q.job.answered && q.batch < 0 {
				c.handle(policy.Event{Kind: policy.Cancel, Model: q.job.model.index, Service: q.job.model.index, Req: slot, Task: slot})
			}
		default:
			return
		}
	}
}
