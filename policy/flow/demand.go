package flow

import (
	"math"
	"time"
)

// WorkerDemand computes how many workers are wanted by the arrivals at the entry alone, so that it does not depend on
// what is dropped. Calls must not be concurrent.
type Demand struct {
	rule    *Scaling
	came    int64    // arrivals in this second
	seconds []int64  // arrivals of the latest seconds, a ring
	second  int64    // the current second
	found   []looked // lookups within the last Scaling.Hold
	want    []int    // result of WantedWorkers
}

// workerLookup is a row of the scaling table that was looked up at a time.
type looked struct {
	at      time.Duration
	workers []int
}

// NewWorkerDemand returns the demand under a scaling rule.
func NewDemand(rule *Scaling) *Demand {
	n := int(rule.Window / time.Second)
	if rule.RiseSigmas > 0 {
		n = max(n, noisy+1)
	}
	return &Demand{rule: rule, seconds: make([]int64, n), want: append([]int(nil), rule.Start...)}
}

// CountArrival counts a request.
func (d *Demand) Arrive() { d.came++ }

// PassTime ends the seconds before now. The first of them has the arrivals counted so far, the others have none.
func (d *Demand) Pass(now time.Duration) {
	last := int64(now / time.Second)
	for d.second = max(d.second, last-int64(len(d.seconds))-1); d.second < last; d.second++ {
		d.seconds[d.second%int64(len(d.seconds))] = d.came
		d.came = 0
	}
}

// IsDecisionDue returns true if a decision is due in the second that begins.
func (d *Demand) Due() bool { return d.second%int64(d.rule.Every/time.Second) == 0 }

// WantedWorkers returns how many workers of each module are wanted from now on: the maximum of what was looked up within
// Scaling.Hold, unless that is more than MaxWorkers together; then what was looked up now. The caller must not change
// the list.
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

// noiseSamples is the number of differences between successive seconds from which the noise of the arrivals is
// estimated.
const noisy = 30

// PlannedRate returns the rate that workers are wanted for: the mean over the window. With a Lookahead, a rising line
// through the window's seconds (least squares) is continued by that time.
//
// With RiseSigmas σ a rise counts only as far as it exceeds the noise: the slope less σ standard errors. The same holds
// for steps: the rate is at least the mean over the last u seconds, for every u, less σ standard errors:
//
//	rate = mean + max(0, slope/spread - σ·noise/√spread) · (middle + lookahead),   spread = n(n²-1)/12
//	rate >= mean over the last u seconds - σ·noise/√u
func (d *Demand) Rate() float64 {
	n := int64(d.rule.Window / time.Second)

	// Mean and slope over the window.
	sum, slope, mid := 0.0, 0.0, float64(n-1)/2
	for i := range n {
		came := d.cameAt(d.second - n + i)
		sum += came
		slope += (float64(i) - mid) * came
	}
	rate, doubt := sum/float64(n), d.rule.RiseSigmas*d.noise()

	// Continue the line, if it rises.
	if d.rule.Lookahead > 0 && n > 1 && d.second >= n {
		spread := float64(n) * float64(n*n-1) / 12
		rate += max(0, slope/spread-doubt/math.Sqrt(spread)) * (mid + d.rule.Lookahead.Seconds())
	}

	// Steps.
	if d.rule.RiseSigmas > 0 {
		last := 0.0
		for u := range min(n, d.second) {
			last += d.cameAt(d.second - 1 - u)
			rate = max(rate, last/float64(u+1)-doubt/math.Sqrt(float64(u+1)))
		}
	}
	return rate
}

// arrivalsAt returns the arrivals in a second.
func (d *Demand) cameAt(second int64) float64 {
	if second < 0 {
		return 0
	}
	return float64(d.seconds[second%int64(len(d.seconds))])
}

// arrivalNoise returns the standard deviation of the arrivals of a second, estimated from the differences between
// successive seconds, which a trend changes little. Without RiseSigmas it returns 0.
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
