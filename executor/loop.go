package executor

import (
	"fmt"
	"runtime/debug"
	"time"

	"inferplan/policy"
)

// attend sees to it that what has come is looked at: at once and by this goroutine
// where nobody is at it, or else by whoever is. A request that comes alone is so
// served without waking another goroutine, which would cost more than all that is
// decided about it.
func (c *core) attend() {
	c.in.news.Store(true)
	if !c.turn.TryLock() {
		return // who has the turn looks again when it is over
	}
	c.takeTurn()
	if c.in.news.Load() {
		c.in.wake() // more has come: not for this goroutine, whose own is done
	}
}

// loop takes the turns that others leave.
func (c *core) loop() {
	for {
		select {
		case <-c.in.signal:
		case <-c.done:
			return
		}
		for c.in.news.Load() {
			c.turn.Lock()
			c.takeTurn()
		}
	}
}

// takeTurn runs a round and gives the turn back. A panic ends the process: the
// transports, whose goroutine this may be, would keep it to the one request.
func (c *core) takeTurn() {
	whole := false
	defer func() {
		if p := recover(); !whole && p != nil {
			stack := debug.Stack()
			go func() { panic(fmt.Sprintf("%v\n\n%s", p, stack)) }()
			select {}
		}
		c.turn.Unlock()
	}()
	if !c.ended {
		c.round()
	}
	whole = true
}

// begin is the first thing that the policy hears.
func (c *core) begin() {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.handle(policy.Event{Kind: policy.PlanInstalled})
	c.flush()
	c.arm()
}

// round does all that has come.
func (c *core) round() {
	c.take()
	t := &c.taken
	for i := range t.events {
		c.deviceEvent(&t.events[i])
		c.flush()
	}
	for _, j := range t.arrivals {
		// A wake-up that is due was so before the policy hears of this one.
		c.timers()
		c.arrive(j)
		c.flush()
	}
	for _, j := range t.cancels {
		c.clientGone(j)
		c.flush()
		j.release()
	}
	c.timers()
	c.refill()
	for _, f := range t.calls {
		f()
	}
	if c.open == 0 && len(c.idle) > 0 {
		for _, ch := range c.idle {
			close(ch)
		}
		c.idle = nil
	}
	if c.stopping {
		c.end()
		return
	}
	c.arm()
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
	c.ended = true
	close(c.done)
}

// arm sets the alarm for the next wake-up.
func (c *core) arm() {
	at := time.Duration(-1)
	for i := range c.wakes {
		if at < 0 || c.wakes[i].at < at {
			at = c.wakes[i].at
		}
	}
	if at >= 0 {
		c.alarm.before(max(1, c.epochMono+int64(at)), c.epochMono+int64(c.now()))
	}
}

// handle asks the policy and does what it says. The policy gets the address of a
// field: a parameter whose address it gets would be allocated for every event. One
// event and one buffer of actions suffice, for no action comes back here: what
// follows from one waits for flush.
func (c *core) handle(ev policy.Event) {
	now := c.tick()
	c.event = ev
	c.actions.Reset()
	c.policy.Handle(now, &c.event, &c.actions)
	c.stats.events++
	for i := range c.actions.List {
		c.act(&c.actions.List[i])
	}
}

type queued struct {
	ev     policy.Event
	batch  *batch
	serial uint64
}

// emit queues an event that follows from an action.
func (c *core) emit(b *batch, ev policy.Event) {
	c.events = append(c.events, queued{ev, b, b.serial})
}

// flush hands over what actions brought about, until nothing more follows.
func (c *core) flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			if q.batch.live && q.batch.serial == q.serial {
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
