package flow

import (
	"math"
	"time"
)

// WorkerDemand computes how many workers of each module are wanted, by the arrivals at the entry alone, so that it
// does not depend on what is dropped. Without a rule it is nil, and counts nothing. Calls must not be concurrent.
type WorkerDemand struct {
	scaling        *Scaling
	arrivals       int64          // arrivals in this second
	secondArrivals []int64        // arrivals of the latest seconds, a ring
	second         int64          // the current second
	lookups        []workerLookup // lookups within the last Scaling.Hold
	wantedWorkers  []int          // result of WantedWorkers
}

// workerLookup is a row of the scaling table that was looked up at a time.
type workerLookup struct {
	lookedUpAt time.Duration
	workers    []int
}

// NewWorkerDemand returns the demand under a scaling rule. It keeps the arrivals of as many seconds as the rule
// looks at. Without a rule it returns nil.
func NewWorkerDemand(scaling *Scaling) *WorkerDemand {
	if scaling == nil {
		return nil
	}
	seconds := int(scaling.Window / time.Second)
	if scaling.RiseSigmas > 0 {
		seconds = max(seconds, noiseSamples+1)
	}
	return &WorkerDemand{scaling: scaling, secondArrivals: make([]int64, seconds), wantedWorkers: append([]int(nil), scaling.StartWorkers...)}
}

// CountArrival counts a request that arrives in the current second.
func (d *WorkerDemand) CountArrival() {
	if d != nil {
		d.arrivals++
	}
}

// PassTime ends the seconds before now. d.second is the second whose arrivals are still counted; it ends first and has
// the arrivals counted so far (d.arrivals). The seconds after it, up to the one that contains now, have none.
func (d *WorkerDemand) PassTime(now time.Duration) {
	if d == nil {
		return
	}
	currentSecond, ringLength := int64(now/time.Second), int64(len(d.secondArrivals))

	// If more seconds have passed than the ring holds, skip the oldest. The loop then fills ringLength+1 seconds: the
	// first gets the arrivals counted so far, which belong to a skipped second, and the last, at the same place in the
	// ring, overwrites them with 0.
	d.second = max(d.second, currentSecond-ringLength-1)
	for ; d.second < currentSecond; d.second++ {
		d.secondArrivals[d.second%ringLength] = d.arrivals
		d.arrivals = 0
	}
}

// IsDecisionDue reports whether the number of workers is to be decided in the second that begins.
func (d *WorkerDemand) IsDecisionDue() bool {
	return d.second%int64(d.scaling.Interval/time.Second) == 0
}

// WantedWorkers returns how many workers (devices that run it) each module is to have from now on, when a decision is
// due. It looks up the numbers for the planned rate in the plan's scaling table, and returns the maximum of all such
// lookups within Scaling.Hold, so that a short dip removes none. If that is more than MaxWorkers together, it returns
// those looked up now. It overwrites the list that it returned before, and the caller must not change it.
func (d *WorkerDemand) WantedWorkers(now time.Duration) []int {
	newest := d.scaling.WorkersAt(d.PlannedRate())

	// Forget what was looked up too long ago, and add what was looked up now.
	recent := d.lookups[:0]
	for _, lookup := range d.lookups {
		if now-lookup.lookedUpAt < d.scaling.Hold {
			recent = append(recent, lookup)
		}
	}
	d.lookups = append(recent, workerLookup{now, newest})

	// Take the maximum of each module.
	total := 0
	for module := range d.wantedWorkers {
		d.wantedWorkers[module] = 0
		for _, lookup := range d.lookups {
			d.wantedWorkers[module] = max(d.wantedWorkers[module], lookup.workers[module])
		}
		total += d.wantedWorkers[module]
	}

	// If the maxima together exceed the plan's limit, take the numbers of the latest lookup.
	if total > d.scaling.MaxWorkers {
		copy(d.wantedWorkers, newest)
	}
	return d.wantedWorkers
}

// noiseSamples is the number of differences between successive seconds from which the noise of the arrivals is
// estimated.
const noiseSamples = 30

// PlannedRate returns the rate in requests per second for which workers are wanted: the mean over the window of n
// seconds. With a Lookahead, a line is laid through the arrivals of the window's seconds (least squares). It has the
// value of the mean in the middle of the window. If it rises, it is continued to the end of the window, which is
// (n-1)/2 seconds later (`middle`), and by the lookahead beyond.
//
// With RiseSigmas σ a rise counts only as far as it exceeds the noise (the standard deviation of the arrivals of a
// second): the slope less σ standard errors. The same holds for steps: the rate is at least the mean over the last u
// seconds, for every u, less σ standard errors:
//
//	rate = mean + max(0, products/squaredSpread - σ·noise/√squaredSpread) · (middle + lookahead),   squaredSpread = n(n²-1)/12
//	rate >= mean over the last u seconds - σ·noise/√u
//
// products is the sum of (second - middle) · arrivals, squaredSpread that of (second - middle)²; their quotient is the
// slope. In the code noiseMargin is σ·noise.
func (d *WorkerDemand) PlannedRate() float64 {
	seconds := int64(d.scaling.Window / time.Second)

	// Sums for the mean and the slope over the window.
	sum, products, middle := 0.0, 0.0, float64(seconds-1)/2
	for second := range seconds {
		arrivals := d.arrivalsAt(d.second - seconds + second)
		sum += arrivals
		products += (float64(second) - middle) * arrivals
	}
	rate, noiseMargin := sum/float64(seconds), d.scaling.RiseSigmas*d.arrivalNoise()

	// Continue the line, if it rises, once the run has lasted for a window.
	if d.scaling.Lookahead > 0 && seconds > 1 && d.second >= seconds {
		squaredSpread := float64(seconds) * float64(seconds*seconds-1) / 12
		rate += max(0, products/squaredSpread-noiseMargin/math.Sqrt(squaredSpread)) * (middle + d.scaling.Lookahead.Seconds())
	}

	// Steps: the mean of the last seconds, for each number of them, less its noise.
	if d.scaling.RiseSigmas > 0 {
		lastArrivals := 0.0
		for back := range min(seconds, d.second) {
			lastArrivals += d.arrivalsAt(d.second - 1 - back)
			rate = max(rate, lastArrivals/float64(back+1)-noiseMargin/math.Sqrt(float64(back+1)))
		}
	}
	return rate
}

// arrivalsAt returns the arrivals in a second of the run, which must be among those that are kept; 0 before its
// start.
func (d *WorkerDemand) arrivalsAt(second int64) float64 {
	if second < 0 {
		return 0
	}
	return float64(d.secondArrivals[second%int64(len(d.secondArrivals))])
}

// arrivalNoise returns the standard deviation of the arrivals of a second, estimated from the differences between
// successive seconds, which a trend changes little. Without RiseSigmas it returns 0. The difference of two seconds has
// twice the variance of one, hence the half.
func (d *WorkerDemand) arrivalNoise() float64 {
	if d.scaling.RiseSigmas == 0 {
		return 0
	}
	sum, differences := 0.0, 0
	for second := max(1, d.second-noiseSamples); second < d.second; second++ {
		difference := d.arrivalsAt(second) - d.arrivalsAt(second-1)
		sum += difference * difference / 2
		differences++
	}
	return math.Sqrt(sum / float64(max(differences, 1)))
}
