package readings

import (
	"time"

	"inferplan/policy/drop"
)

// overload is PARD-oc: as back, and the entry admits a share for a second after a module's mean queueing
// was above a limit (§5.3). Parameters: oc_limit_us, oc_admit.
func overload(m *inputs) (drop.Variant, error) {
	limit, err := m.number("oc_limit_us", 25_000, 1e-3, 1e9)
	if err != nil {
		return drop.Variant{}, err
	}
	share, err := m.number("oc_admit", .6, 0, 1)
	if err != nil {
		return drop.Variant{}, err
	}
	queues, crowded := make([]recent, len(m.t.Services)), false
	return drop.Variant{ModuleEstimate: nothing,
		TaskEntered: func(module int32, now, queued time.Duration) { queues[module].add(now, queued) },
		EverySecond: func(now time.Duration, _ []time.Duration) {
			crowded = false
			for i := range queues {
				crowded = crowded || queues[i].mean(now) > time.Duration(limit*1e3)
			}
		},
		AdmitRequest: func() bool { return !crowded || m.rng.Float64() < share },
	}, nil
}

// recent is how long tasks queued lately, by tenths of a second.
type recent struct {
	sum   [16]time.Duration
	count [16]int64
	at    [16]int64 // which tenth the place is of
}

const tenth = 100 * time.Millisecond

func (q *recent) add(now, queued time.Duration) {
	t := int64(now / tenth)
	i := t % int64(len(q.at))
	if q.at[i] != t {
		q.at[i], q.sum[i], q.count[i] = t, 0, 0
	}
	q.sum[i] += queued
	q.count[i]++
}

// mean is that of the last second.
func (q *recent) mean(now time.Duration) time.Duration {
	sum, n := time.Duration(0), int64(0)
	for i, t := range q.at {
		if now-time.Duration(t)*tenth <= time.Second {
			sum, n = sum+q.sum[i], n+q.count[i]
		}
	}
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n)
}
