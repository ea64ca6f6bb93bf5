package vqueue

import (
	"math"
	"slices"

	"inferplan/solver/stoch"
)

// disturbed is the number of cases that Ended looks at for what requests share.
const disturbed = 15

// Ended is the time that the last answer of n requests does not pass with a
// probability. They start one after the other over so much work, the first at start,
// and share what the queue strays by, which is sigma at their end.
func (r *RCT) Ended(share, start, work, sigma float64, n int) float64 {
	stays := r.stays()
	all := func(t float64) float64 { // the probability that all have ended
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

// fewStays is the number of residences from which on their tail is looked at.
const fewStays = 16

// stays is the distribution of residences with a full batch. The largest of many
// counts here, so the last eighth of those that are known is continued as an
// exponential tail.
func (r *RCT) stays() func(t float64) float64 {
	n := len(r.Stays)
	if n < fewStays {
		mean, variance := r.Residence(1)
		return stoch.Normal{Mu: mean, Sigma: math.Sqrt(variance)}.CDF
	}
	above := func(k int) float64 { return 1 - (float64(k)+0.5)/float64(n) }
	tail := n - n/8
	scale := max(1e-9, (r.Stays[n-1]-r.Stays[tail])/math.Log(above(tail)/above(n-1)))
	return func(t float64) float64 {
		if t >= r.Stays[tail] {
			return 1 - above(tail)*math.Exp(-(t-r.Stays[tail])/scale)
		}
		k, _ := slices.BinarySearch(r.Stays, t)
		if k == 0 {
			return 0
		}
		part := (t - r.Stays[k-1]) / max(r.Stays[k]-r.Stays[k-1], 1e-9)
		return 1 - above(k-1) + part/float64(n)
	}
}
