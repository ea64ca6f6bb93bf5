package flow

import "time"

// Demand says how many workers are wanted, by the arrivals at the entry alone, so
// that it does not depend on what is dropped. One goroutine calls it.
type Demand struct {
	rule    *Scaling
	came    int64 // in this second
	seconds []int64
	second  int64
	found   []looked // of the last Hold
	want    []int
}

// looked is what was looked up at a time.
type looked struct {
	at      time.Duration
	workers []int
}

// NewDemand is the demand under a rule.
func NewDemand(rule *Scaling) *Demand {
	return &Demand{rule: rule, seconds: make([]int64, int(rule.Window/time.Second)), want: append([]int(nil), rule.Start...)}
}

// Arrive takes in a request.
func (d *Demand) Arrive() { d.came++ }

// Pass ends the seconds before now. In all but the first of them nothing came.
func (d *Demand) Pass(now time.Duration) {
	last := int64(now / time.Second)
	for d.second = max(d.second, last-int64(len(d.seconds))-1); d.second < last; d.second++ {
		d.seconds[d.second%int64(len(d.seconds))] = d.came
		d.came = 0
	}
}

// Due tells whether a decision is due in the second that begins.
func (d *Demand) Due() bool { return d.second%int64(d.rule.Every/time.Second) == 0 }

// Want is how many workers of each module are wanted from now on: the most that
// were looked up within Hold, unless they are too many together. The list is the
// demand's own.
func (d *Demand) Want(now time.Duration) []int {
	newest := d.rule.At(d.Rate())
	kept := d.found[:0]
	for _, r := range d.found {
		if now-r.at < d.rule.Hold {
			kept = append(kept, r)
		}
	}
	d.found = append(kept, looked{now, newest})
	total := 0
	for m := range d.want {
		d.want[m] = 0
		for _, r := range d.found {
			d.want[m] = max(d.want[m], r.workers[m])
		}
		total += d.want[m]
	}
	if total > d.rule.Max {
		copy(d.want, newest)
	}
	return d.want
}

// Rate is the rate that workers are wanted for: the mean over the window. With a
// Lookahead it is what the line through the window's seconds (least squares) will
// have reached so much later, where it rises.
func (d *Demand) Rate() float64 {
	n := int64(len(d.seconds))
	sum, slope, mid := 0.0, 0.0, float64(n-1)/2
	for i := range n {
		came := 0.0
		if s := d.second - n + i; s >= 0 {
			came = float64(d.seconds[s%n])
		}
		sum += came
		slope += (float64(i) - mid) * came
	}
	mean := sum / float64(n)
	if d.rule.Lookahead == 0 || n < 2 || d.second < n {
		return mean
	}
	slope /= float64(n) * float64(n*n-1) / 12
	return mean + max(0, slope)*(mid+d.rule.Lookahead.Seconds())
}
