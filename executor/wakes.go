package executor

import (
	"time"

	"inferplan/policy"
)

type wakeup struct {
	tag int32
	at  time.Duration
}

// soonest is the least time until a policy is woken: one that finds a run
// overdue may ask for the very next moment again and again, and the result that
// it waits for has to come through in between.
const soonest = 100 * time.Microsecond

func (c *core) setWake(tag int32, at time.Duration) {
	for i := range c.wakes {
		if c.wakes[i].tag == tag {
			if at < 0 {
				c.wakes[i] = c.wakes[len(c.wakes)-1]
				c.wakes = c.wakes[:len(c.wakes)-1]
			} else {
				c.wakes[i].at = at
			}
			return
		}
	}
	if at >= 0 {
		c.wakes = append(c.wakes, wakeup{tag, at})
	}
}

// timers hands the wake-ups that are due now to the policy, earliest first.
// Those that it asks for meanwhile come in a later round, after news from
// workers and clients.
func (c *core) timers() {
	now := c.now()
	for {
		due := -1
		for i := range c.wakes {
			if c.wakes[i].at <= now && (due < 0 || c.wakes[i].at < c.wakes[due].at) {
				due = i
			}
		}
		if due < 0 {
			return
		}
		tag := c.wakes[due].tag
		c.wakes[due] = c.wakes[len(c.wakes)-1]
		c.wakes = c.wakes[:len(c.wakes)-1]
		if tag == watchTag {
			c.watch()
		} else {
			c.handle(policy.Event{Kind: policy.Timer, Value: int64(tag)})
		}
		c.flush()
	}
}
