package report

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Percentile returns the p-quantile (0 < p <= 1) of sorted samples by the
// nearest-rank rule; 0 without samples.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[Rank(len(sorted), p)-1]
}

// Median returns the median of samples in any order, the lower one of two; 0 without samples.
func Median(samples []time.Duration) time.Duration {
	return Percentile(slices.Sorted(slices.Values(samples)), 0.5)
}

// PercentileReordering returns the p-quantile of samples as Percentile does, but they need not be sorted: it
// selects it (Hoare's Find, 1961) and changes their order.
func PercentileReordering(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	index := Rank(len(samples), p) - 1
	for lo, hi := 0, len(samples)-1; lo < hi; {
		// Divide the range at a pivot, and go on in the part with the index.
		pivot := middleRank(samples[lo], samples[lo+(hi-lo)/2], samples[hi])
		i, j := lo, hi
		for i <= j {
			for samples[i] < pivot {
				i++
			}
			for samples[j] > pivot {
				j--
			}
			if i <= j {
				samples[i], samples[j] = samples[j], samples[i]
				i++
				j--
			}
		}
		switch {
		case index <= j:
			hi = j
		case index >= i:
			lo = i
		default:
			return samples[index]
		}
	}
	return samples[index]
}

// middleRank returns the index of the median of three.
func middleRank(a, b, c time.Duration) time.Duration {
	return max(min(a, b), min(max(a, b), c))
}

// Rank returns the position, from 1, of the percentile in a sorted list of n: ceil(p*n) within 1..n, corrected for
// products such as 0.07*100 = 7.000000000000001.
func Rank(n int, p float64) int {
	x := p * float64(n)
	return min(max(int(math.Ceil(x-1e-12*x)), 1), n)
}

// MedianInterval returns a confidence interval of the median of the distribution that the sorted samples came
// from. It consists of order statistics, so it assumes nothing about the distribution. If there are too few
// samples for that confidence (fewer than 6 for 0.95), ok is false, and the interval is the range of the samples.
func MedianInterval(sorted []time.Duration, confidence float64) (lo, hi time.Duration, ok bool) {
	return PercentileInterval(sorted, 0.5, confidence)
}

// PercentileInterval returns a confidence interval of the p-quantile of the distribution from which the samples
// come, which are sorted. It is the narrowest pair of order statistics x(i), x(j) that each exclude at most half of
// 1-confidence, as the number of samples below the true quantile is binomial. ok is false if there are too few
// samples.
func PercentileInterval(sorted []time.Duration, p, confidence float64) (lo, hi time.Duration, ok bool) {
	n := len(sorted)
	if n == 0 {
		return 0, 0, false
	}
	b := distuv.Binomial{N: float64(n), P: p}
	tail := (1 - confidence) / 2
	// x(i) lies above the percentile with probability P(B <= i-1), and x(j)
	// below it with P(B >= j) = 1 - P(B <= j-1).
	i := searchRank(n+1, func(k int) bool { return b.CDF(float64(k-1)) > tail }) - 1 // largest valid i
	j := searchRank(n+1, func(k int) bool { return 1-b.CDF(float64(k-1)) <= tail })  // smallest valid j
	ok = i >= 1 && j <= n
	return sorted[max(i, 1)-1], sorted[min(j, n)-1], ok
}

// searchRank returns the smallest k from 1 to limit for which f holds, or limit if there is none. f is false up to
// some k and true from there on.
func searchRank(limit int, f func(int) bool) int {
	lo, hi := 1, limit
	for lo < hi {
		if mid := (lo + hi) / 2; f(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// Wilson returns the ends of the confidence interval of a probability, if k of n independent trials succeeded:
// Wilson's score interval (E. B. Wilson 1927). confidence is for example 0.95. Without trials the interval is 0 to 1.
// If none or all succeeded, its end is exactly 0 or 1.
func Wilson(k, n int64, confidence float64) (lo, hi float64) {
	if n <= 0 {
		return 0, 1
	}
	lo, hi = WilsonOf(float64(k)/float64(n), float64(n), confidence)
	if k == 0 {
		lo = 0
	}
	if k == n {
		hi = 1
	}
	return lo, hi
}

// WilsonOf returns the score interval of a share that was seen in n independent values. n need not be a whole
// number.
func WilsonOf(share, n, confidence float64) (lo, hi float64) {
	z := distuv.UnitNormal.Quantile(1 - (1-confidence)/2)
	mid := (share + z*z/(2*n)) / (1 + z*z/n)
	halfWidth := z / (1 + z*z/n) * math.Sqrt(max(0, share*(1-share)/n+z*z/(4*n*n)))
	return max(mid-halfWidth, 0), min(mid+halfWidth, 1)
}

// MeanInterval returns the mean of independent values and its Student-t interval. With fewer than two values, both
// ends are the mean.
func MeanInterval(values []float64, confidence float64) (mean, lo, hi float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	mean, std := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return mean, mean, mean
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(values) - 1)}.Quantile(1 - (1-confidence)/2)
	halfWidth := t * std / math.Sqrt(float64(len(values)))
	return mean, mean - halfWidth, mean + halfWidth
}
