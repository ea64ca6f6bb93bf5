package vqueue

import (
	"time"

	"inferplan/policy"
)

// While no instance does anything, as during a long load, the interval of ticks grows to 1/idleTickDivisor of the
// time since one last did.
const idleTickDivisor = 32

// tickSchedule has the times of ticks, the periodic updates of all queues. While requests are open, a tick is always pending.
type tickSchedule struct {
	interval     time.Duration // time between two ticks
	pending      bool          // a tick is pending
	nextAt       time.Duration // when it comes
	lastActivity time.Duration // when an instance last did something, or the ticks began
}

// startTicks asks for the first tick, an interval from now.
func (c *tickSchedule) startTicks(now time.Duration, actions *policy.Actions) {
	c.pending, c.lastActivity = true, now
	c.wakeAt(now+c.interval, actions)
}

// noteActivity notes that an instance did something now, and moves a later tick to an interval from now.
func (c *tickSchedule) noteActivity(now time.Duration, actions *policy.Actions) {
	c.lastActivity = now
	if c.pending && c.nextAt > now+c.interval {
		c.wakeAt(now+c.interval, actions)
	}
}

// scheduleNext asks for the next tick. If mayRest is true, the wait grows with the time since an instance last did anything, so that a
// stuck system does not tick for nothing.
func (c *tickSchedule) scheduleNext(now time.Duration, mayRest bool, actions *policy.Actions) {
	wait := c.interval
	if mayRest {
		wait = max(wait, (now-c.lastActivity)/idleTickDivisor)
	}
	c.wakeAt(now+wait, actions)
}

// wakeAt asks for a tick at a time, by a Wake action.
func (c *tickSchedule) wakeAt(when time.Duration, actions *policy.Actions) {
	c.nextAt = when
	actions.List = append(actions.List, policy.Action{Kind: policy.Wake, At: when})
}
