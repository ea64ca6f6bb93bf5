package loop

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

// HostTag is the first tag of wake-ups that are the host's. No policy uses them.
const HostTag = -1 << 31

// ofHost tells the tags of the host from those of a policy.
func ofHost(tag int32) bool { return tag < HostTag/2 }

// SetWake asks for a wake-up at a time, or takes it back (at < 0). A tag has one
// at most.
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

// Timers hands the wake-ups that are due now to the policy, earliest first.
// Those that it asks for meanwhile come in a later round, after news from
// workers and clients. It is part of a round.
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

// arm sets the alarm for the next wake-up.
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
