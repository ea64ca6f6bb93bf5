package ttft

import (
	"math"
	"slices"
	"time"
)

// recent is a mean of what ended lately: each value has a weight that halves every
// two seconds.
type recent struct {
	sum, weight float64
	at          time.Duration
}

const half = 2 * time.Second

func (r *recent) fade(now time.Duration) float64 {
	age := float64(now-r.at) / float64(half)
	return math.Exp2(-age)
}

func (r *recent) add(now time.Duration, x float64) {
	f := r.fade(now)
	r.sum, r.weight, r.at = r.sum*f+x, r.weight*f+1, now
}

// mean counts what is taken before anything ended as half a value, so that what
// ended long ago is forgotten even if nothing goes on any more.
func (r *recent) mean(now time.Duration, before float64) float64 {
	f := r.fade(now)
	return (r.sum*f + before/2) / (r.weight*f + .5)
}

// lengths are the last lengths of a kind of requests, in order.
type lengths struct {
	ring   [64]int32
	n      int
	sorted []int32
}

func (l *lengths) add(tokens int32) {
	if l.n >= len(l.ring) {
		old := l.ring[l.n%len(l.ring)]
		i, _ := slices.BinarySearch(l.sorted, old)
		l.sorted = slices.Delete(l.sorted, i, i+1)
	}
	l.ring[l.n%len(l.ring)] = tokens
	l.n++
	i, _ := slices.BinarySearch(l.sorted, tokens)
	l.sorted = slices.Insert(l.sorted, i, tokens)
}

// quantile is that of the last lengths; false with too few of them.
func (l *lengths) quantile(q float64) (int32, bool) {
	if len(l.sorted) < 4 {
		return 0, false
	}
	return l.sorted[min(len(l.sorted)-1, int(q*float64(len(l.sorted))))], true
}
