package profiler

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
)

// segments is the number of stretches of time whose medians tell drift from
// scatter, and tSegments the two-sided 95 % quantile of Student's t for them.
const (
	segments  = 8
	tSegments = 2.365 // 7 degrees of freedom
)

// Summarize turns the samples of one block, in the order in which they were
// taken, into its latency. cpu may be nil (GPUs). The half width is that of
// the 95 % interval of the median: of the CPU time where there is one, else of
// the wall time.
func Summarize(cpu, wall []time.Duration) formats.Latency {
	l := formats.Latency{Samples: len(wall)}
	if len(wall) == 0 {
		return l
	}
	w := slices.Sorted(slices.Values(wall))
	l.WallUS = formats.Micros(median(w))
	l.P99US = formats.Micros(w[rank(0.99, len(w))])
	series := wall
	if len(cpu) > 0 {
		l.CPUUS = formats.Micros(median(slices.Sorted(slices.Values(cpu))))
		series = cpu
	}
	l.HalfWidthUS = formats.Micros(halfWidth(series))
	return l
}

// halfWidth is half the 95 % interval of the median of samples in time order.
//
// Two estimates are made and the larger is taken. The first is the interval
// between order statistics, which supposes independent samples. On a shared
// machine they are not: a neighbour that computes for ten seconds moves all
// samples of these ten seconds together, and the first estimate is then far
// too small. The second therefore takes the medians of eight consecutive
// stretches of time and the t interval of their mean.
func halfWidth(samples []time.Duration) time.Duration {
	n := len(samples)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	lo, hi := medianRanks(n)
	half := (sorted[hi] - sorted[lo]) / 2
	if n < 2*segments {
		return half
	}
	var sum, sq float64
	for k := range segments {
		part := slices.Sorted(slices.Values(samples[k*n/segments : (k+1)*n/segments]))
		m := float64(median(part))
		sum += m
		sq += m * m
	}
	mean := sum / segments
	variance := max(0, (sq-sum*mean)/(segments-1))
	return max(half, time.Duration(tSegments*math.Sqrt(variance/segments)))
}

// medianRanks returns the indexes of the order statistics that enclose the
// median with at least 95 % probability (the whole range where n is too small
// for that): the largest lo with P(Binomial(n, 1/2) <= lo) <= 2.5 %.
func medianRanks(n int) (lo, hi int) {
	// The probabilities grow from 2^-n; the logarithm keeps them above zero.
	logp := -float64(n) * math.Ln2
	cum := math.Exp(logp)
	for lo+1 < n/2 {
		logp += math.Log(float64(n-lo)) - math.Log(float64(lo+1))
		if cum += math.Exp(logp); cum > 0.025 {
			break
		}
		lo++
	}
	return lo, n - 1 - lo
}

// median of sorted values; the mean of the middle two where their number is even.
func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return sorted[n/2-1] + (sorted[n/2]-sorted[n/2-1])/2
}

// rank is the index of the q-quantile by the nearest-rank rule.
func rank(q float64, n int) int {
	return min(n-1, max(0, int(math.Ceil(q*float64(n)))-1))
}
