package profiler

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

// confidence of the intervals that decide when a number is tight.
const confidence = 0.95

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
	l.WallUS = document.Micros(report.Percentile(w, 0.5))
	l.P99US = document.Micros(report.Percentile(w, 0.99))
	series := wall
	if len(cpu) > 0 {
		l.CPUUS = document.Micros(median(cpu))
		series = cpu
	}
	l.HalfWidthUS = document.Micros(halfWidth(series))
	return l
}

// mean of samples, 0 of none.
func mean(samples []time.Duration) document.Micros {
	sum := time.Duration(0)
	for _, d := range samples {
		sum += d
	}
	return document.Micros(sum / time.Duration(max(1, len(samples))))
}

// drift returns the standard deviation of the means of stretches of samples in time order; 0
// where there are too few samples.
func drift(samples []time.Duration) document.Micros {
	if len(samples) < 2*formats.Stretches {
		return 0
	}
	means := stretches(samples, func(part []time.Duration) time.Duration { return mean(part).D() })
	return document.Micros(stat.StdDev(means, nil))
}

// stretches returns a figure of each of eight consecutive parts of samples in time order.
func stretches(samples []time.Duration, figure func([]time.Duration) time.Duration) []float64 {
	out, n := make([]float64, formats.Stretches), len(samples)
	for k := range out {
		out[k] = float64(figure(samples[k*n/formats.Stretches : (k+1)*n/formats.Stretches]))
	}
	return out
}

// median of samples in any order.
func median(samples []time.Duration) time.Duration {
	return report.Percentile(slices.Sorted(slices.Values(samples)), 0.5)
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
	lo, hi, _ := report.MedianInterval(slices.Sorted(slices.Values(samples)), confidence)
	half := (hi - lo) / 2
	if n < 2*formats.Stretches {
		return half
	}
	medians := stretches(samples, median)
	_, left, right := report.MeanInterval(medians, confidence)
	return max(half, time.Duration((right-left)/2))
}
