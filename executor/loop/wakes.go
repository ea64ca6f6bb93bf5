package loop

import (
	"time"

	"inferplan/policy"
)

// timer is a timer of the policy or of the host.
type wakeup struct {
	tag int32
	at  time.Duration
}

// minTimerDelay is the least time until a timer of the policy fires. A policy that finds a run overdue may ask for the
// next instant again and again, and the result that it waits for has to be handled in between.
const soonest = 100 * time.Microsecond

// HostTag is the first tag of the host's timers. Policies do not use these tags.
const HostTag = -1 << 31

// isHostTag returns true for the tags of the host.
func ofHost(tag int32) bool { return tag < HostTag/2 }

// SetTimer sets the timer of a tag to a time, in place of an earlier one. A time below 0 removes it.
func (l *Loop) SetWake(tag int32, at time.Duration) {
	for i := range l.wakes {
		if l.wakes[i].tag == tag {
			if at < 0 {
				l.wakes[i] = l.wakes[len(l.wakes)-1]
				l.wakes = l.wakes[:len(l.wakes)-1]
			} else {
				l.wakes[i].at = at
			}
			return
		}
	}
	if at >= 0 {
		l.wakes = append(l.wakes, wakeup{tag, at})
	}
}

// FireTimers fires the timers that are due now, earliest first. Timers that are set meanwhile fire in a later round,
// after what has arrived from workers and clients. It is part of a round.
func (l *Loop) Timers() {
	now := l.Now()
	for {
		due := -1
		for i := range l.wakes {
			if l.wakes[i].at <= now && (due < 0 || l.wakes[i].at < l.wakes[due].at) {
				due = i
			}
		}
		if due < 0 {
			return
		}
		tag := l.wakes[due].tag
		l.wakes[due] = l.wakes[len(l.wakes)-1]
		l.wakes = l.wakes[:len(l.wakes)-1]
		if ofHost(tag) {
			l.host.Woke(tag)
		} else {
			l.Tell(policy.Event{Kind: policy.Timer, Value: int64(tag)})
		}
		l.host.Flush()
	}
}

// setAlarm sets the alarm for the next timer.
func (l *Loop) arm() {
	at := time.Duration(-1)
	for i := range l.wakes {
		if at < 0 || l.wakes[i].at < at {
			at = l.wakes[i].at
		}
	}
	if at >= 0 && !l.ended {
		l.alarm.before(max(1, l.epochMono+int64(at)), l.epochMono+int64(l.Now()))
	}
}
