package vqueue

import (
	"time"

	"inferplan/policy"
)

// While no instance does anything, as during a long load, the interval of ticks grows to 1/idleTickDivisor of the
// time since one last did.
const restPart = 32

// tickSchedule has the times of ticks. A tick is always pending while requests are open.
type ticks struct {
	every time.Duration
	on    bool          // a tick is pending
	due   time.Duration // when it comes
	acted time.Duration // when an instance last did something, or the ticks began
}

// startTicks schedules the first tick.
func (c *ticks) begin(now time.Duration, out *policy.Actions) {
	c.on, c.acted = true, now
	c.wake(now+c.every, out)
}

// noteActivity notes that an instance did something: a tick follows within an interval.
func (c *ticks) act(now time.Duration, out *policy.Actions) {
	if c.acted = now; c.on && c.due > now+c.every {
		c.wake(now+c.every, out)
	}
}

// scheduleNext schedules the next tick. If mayRest is true, it may come later while nothing is done.
func (c *ticks) again(now time.Duration, rests bool, out *policy.Actions) {
	wait := c.every
	if rests {
		wait = max(wait, (now-c.acted)/restPart)
	}
	c.wake(now+wait, out)
}

// wakeAt asks for a tick at a time.
func (c *ticks) wake(at time.Duration, out *policy.Actions) {
	c.due = at
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: at})
}
