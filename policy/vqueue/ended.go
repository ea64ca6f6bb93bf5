package vqueue

import (
	"math"
	"slices"

	"inferplan/solver/stoch"
)

// sharedErrorCases is the number of values of the shared error over which AllAnsweredBy averages.
const disturbed = 15

// AllAnsweredBy returns the time by which n requests are all answered with the given probability. The requests
// start one after the other over `work` seconds, the first at start. They share a normal error of their starts
// with standard deviation sigma.
func (r *RCT) Ended(share, start, work, sigma float64, n int) float64 {
	stays := r.stays()

	// allEndedBy returns the probability that all requests have ended, as a mean over quantiles of the shared
	// error.
	all := func(t float64) float64 {
		sum := 0.0
		for k := range disturbed {
			off := sigma * stoch.Normal{Sigma: 1}.Quantile((float64(k)+0.5)/disturbed)
			each := 1.0
			for i := 0; i < n && each > 0; i++ {
				each *= stays(t - max(0, start+work*float64(i)/float64(n)+off))
			}
			sum += each / disturbed
		}
		return sum
	}

	// Double the upper end until it is likely enough, then bisect to one part in a thousand.
	low, high := 0.0, max(start, 0)+work+1
	for all(high) < share && high < 1e9 {
		low, high = high, 2*high
	}
	for high-low > 1e-3*high {
		if mid := (low + high) / 2; all(mid) < share {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

const (
	// minTailResidences is the number of residences from which on their tail is continued, and minTailSample the
	// number that the tail needs to be fitted.
	fewStays   = 16
	fewPassing = 20
)

// tailStart returns the index of the residence at which the tail begins: the last eighth.
func (r *RCT) tail() int { return len(r.Stays) - len(r.Stays)/8 }

const (
	// minTailShape and maxTailShape bound the shape of a tail, because few residences determine it badly.
	steepest = -1
	heaviest = 0.3
)

// fitTail fits a generalised Pareto distribution to the excesses of residences over the start of the tail, by
// probability-weighted moments (Hosking and Wallis, Technometrics 29, 1987). Answers that end at a token limit
// have a shape below 0.
func (r *RCT) fitTail(stays []float64) {
	if len(r.Stays) < fewStays {
		return
	}

	// Find the excesses over the start of the tail.
	from := r.Stays[r.tail()]
	var passing []float64
	for _, s := range stays {
		if s > from {
			passing = append(passing, s-from)
		}
	}
	if len(passing) < fewPassing {
		return
	}
	slices.Sort(passing)

	// Compute shape and scale from the mean and the weighted mean of the sorted excesses.
	mean, weighted, n := 0.0, 0.0, float64(len(passing))
	for i, x := range passing {
		mean += x / n
		weighted += x * (1 - (float64(i)+0.65)/n) / n
	}
	r.TailShape = min(max(2-mean/(mean-2*weighted), steepest), heaviest)
	r.TailScale = mean * (1 - r.TailShape)
}

// tailExceedance returns the probability that a residence in the tail exceeds the start of the tail by more than x
// seconds.
func (r *RCT) passes(x float64) float64 {
	n := len(r.Stays)
	switch scale, shape := r.TailScale, r.TailShape; {
	case scale == 0:
		last, first := 0.5/float64(n), 1-(float64(r.tail())+0.5)/float64(n)
		return math.Exp(-x * math.Log(first/last) / max(1e-9, r.Stays[n-1]-r.Stays[r.tail()]))
	case math.Abs(shape) < 1e-6:
		return math.Exp(-x / scale)
	default:
		return math.Pow(max(0, 1+shape*x/scale), -1/shape)
	}
}

// residenceCDF returns the distribution function of residences with a full batch. Between the recorded residences
// it is linear. The last eighth is continued by the fitted tail, because the largest of many requests matters
// here.
func (r *RCT) stays() func(t float64) float64 {
	n := len(r.Stays)
	if n < fewStays {
		mean, variance := r.Residence(1)
		return stoch.Normal{Mu: mean, Sigma: math.Sqrt(variance)}.CDF
	}
	above, tail := func(k int) float64 { return 1 - (float64(k)+0.5)/float64(n) }, r.tail()
	return func(t float64) float64 {
		if t >= r.Stays[tail] {
			return 1 - above(tail)*r.passes(t-r.Stays[tail])
		}
		k, _ := slices.BinarySearch(r.Stays, t)
		if k == 0 {
			return 0
		}
		part := (t - r.Stays[k-1]) / max(r.Stays[k]-r.Stays[k-1], 1e-9)
		return 1 - above(k-1) + part/float64(n)
	}
}
