package flow

import (
	"math"
	"time"
)

// Demand says how many workers are wanted, by the arrivals at the entry alone, so
// that it does not depend on what is dropped. One goroutine calls it.
type Demand struct {
	rule    *Scaling
	came    int64   // in this second
	seconds []int64 // the last ones, in turn
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
	n := int(rule.Window / time.Second)
	if rule.RiseSigmas > 0 {
		n = max(n, noisy+1)
	}
	return &Demand{rule: rule, seconds: make([]int64, n), want: append([]int(nil), rule.Start...)}
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

// noisy is how many differences between seconds the noise of the arrivals is taken of.
const noisy = 30

// Rate is the rate that workers are wanted for: the mean over the window. With a
// Lookahead it is what the line through the window's seconds (least squares) will
// have reached so much later, where it rises.
//
// With RiseSigmas a rise counts as far as it stands out of the noise: the slope less so
// many of its standard errors. The same holds for steps: the rate is at least the mean
// of the last second, of the last two and so on, less so many standard errors each.
func (d *Demand) Rate() float64 {
	n := int64(d.rule.Window / time.Second)
	sum, slope, mid := 0.0, 0.0, float64(n-1)/2
	for i := range n {
		came := d.cameAt(d.second - n + i)
		sum += came
		slope += (float64(i) - mid) * came
	}
	rate, doubt := sum/float64(n), d.rule.RiseSigmas*d.noise()
	if d.rule.Lookahead > 0 && n > 1 && d.second >= n {
		spread := float64(n) * float64(n*n-1) / 12
		rate += max(0, slope/spread-doubt/math.Sqrt(spread)) * (mid + d.rule.Lookahead.Seconds())
	}
	if d.rule.RiseSigmas > 0 {
		last := 0.0
		for u := range min(n, d.second) {
			last += d.cameAt(d.second - 1 - u)
			rate = max(rate, last/float64(u+1)-doubt/math.Sqrt(float64(u+1)))
		}
	}
	return rate
}

// cameAt is how many came in a second.
func (d *Demand) cameAt(second int64) float64 {
	if second < 0 {
		return 0
	}
	return float64(d.seconds[second%int64(len(d.seconds))])
}

// noise is the standard deviation of a second's arrivals, by the differences between
// seconds that follow each other: a trend changes them little.
func (d *Demand) noise() float64 {
	if d.rule.RiseSigmas == 0 {
		return 0
	}
	sum, n := 0.0, 0
	for s := max(1, d.second-noisy); s < d.second; s++ {
		by := d.cameAt(s) - d.cameAt(s-1)
		sum += by * by / 2
		n++
	}
	return math.Sqrt(sum / float64(max(n, 1)))
}
