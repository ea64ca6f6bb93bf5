package loop

import (
	"time"

	"inferplan/policy"
)

// timer is a timer of the policy or of the host.
type timer struct {
	tag     int32
	firesAt time.Duration
}

// minTimerDelay is the least time until a timer of the policy fires. A policy that finds a run overdue may ask for the
// next instant again and again, and the result that it waits for has to be handled in between.
const minTimerDelay = 100 * time.Microsecond

// HostTag is the first tag of the host's timers. Policies do not use these tags.
const HostTag = -1 << 31

// isHostTag returns true for the tags of the host.
func isHostTag(tag int32) bool { return tag < HostTag/2 }

// SetTimer sets the timer of a tag to a time on the loop's clock, in place of its earlier time. A time below 0 removes
// it. The tag is the policy's number for the timer; it comes back in the event when the timer fires.
func (l *Loop) SetTimer(tag int32, firesAt time.Duration) {
	for i := range l.timers {
		if l.timers[i].tag == tag {
			if firesAt < 0 {
				l.timers[i] = l.timers[len(l.timers)-1]
				l.timers = l.timers[:len(l.timers)-1]
			} else {
				l.timers[i].firesAt = firesAt
			}
			return
		}
	}
	if firesAt >= 0 {
		l.timers = append(l.timers, timer{tag, firesAt})
	}
}

// FireTimers fires the timers that are due now, earliest first: it tells the policy, or calls the host for tags of the
// host's own. Timers that are set in the meantime fire in a later round, after what has arrived from workers and
// clients. It is part of a round.
func (l *Loop) FireTimers() {
	now := l.Now()
	for {
		due := -1
		for i := range l.timers {
			if l.timers[i].firesAt <= now && (due < 0 || l.timers[i].firesAt < l.timers[due].firesAt) {
				due = i
			}
		}
		if due < 0 {
			return
		}
		tag := l.timers[due].tag
		l.timers[due] = l.timers[len(l.timers)-1]
		l.timers = l.timers[:len(l.timers)-1]
		if isHostTag(tag) {
			l.host.TimerFired(tag)
		} else {
			l.TellPolicy(policy.Event{Kind: policy.Timer, Value: int64(tag)})
		}
		l.host.Flush()
	}
}

// setAlarm sets the kernel's timer to the earliest of the policy's timers, so that it starts a round then. It does
// nothing if there is none or the loop has ended.
func (l *Loop) setAlarm() {
	firstAt := time.Duration(-1)
	for i := range l.timers {
		if firstAt < 0 || l.timers[i].firesAt < firstAt {
			firstAt = l.timers[i].firesAt
		}
	}
	// The alarm takes times of the kernel's monotonic clock. A time of 0 would switch the timer off.
	if firstAt >= 0 && !l.hasEnded {
		l.alarm.wakeBy(max(1, l.epochMono+int64(firstAt)), l.epochMono+int64(l.Now()))
	}
}
