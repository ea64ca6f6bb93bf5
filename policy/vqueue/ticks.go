package vqueue

import (
	"time"

	"inferplan/policy"
)

// restPart: while no instance does anything, as in a long load, the time between two ticks grows to 1/restPart of the time since one did.
const restPart = 32

// ticks are the times at which all queues are looked after. One is always to come while requests are open.
type ticks struct {
	every time.Duration
	on    bool          // a tick is asked for
	due   time.Duration // when it comes
	acted time.Duration // when an instance did something last, or the ticks began
}

// begin has the first tick come.
func (c *ticks) begin(now time.Duration, out *policy.Actions) {
	c.on, c.acted = true, now
	c.wake(now+c.every, out)
}

// act notes that an instance did something: a tick follows soon.
func (c *ticks) act(now time.Duration, out *policy.Actions) {
	if c.acted = now; c.on && c.due > now+c.every {
		c.wake(now+c.every, out)
	}
}

// again has the next tick come; if rests is true, it may come later where nothing is done.
func (c *ticks) again(now time.Duration, rests bool, out *policy.Actions) {
	wait := c.every
	if rests {
		wait = max(wait, (now-c.acted)/restPart)
	}
	c.wake(now+wait, out)
}

func (c *ticks) wake(at time.Duration, out *policy.Actions) {
	c.due = at
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: at})
}
