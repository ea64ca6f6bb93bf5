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

// Summarize computes the latency of a block from its samples, which are in the order in which they were taken. cpu
// may be nil (GPUs). The half width is that of the 95 % interval of the median: of CPU times if there are any,
// else of wall times.
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
		l.CPUUS = document.Micros(report.Median(cpu))
		series = cpu
	}
	l.HalfWidthUS = document.Micros(halfWidth(series))
	return l
}

// mean returns the mean of samples, or 0 without any.
func mean(samples []time.Duration) document.Micros {
	sum := time.Duration(0)
	for _, d := range samples {
		sum += d
	}
	return document.Micros(sum / time.Duration(max(1, len(samples))))
}

// drift returns how much the time of a run changes slowly over the measurement: the standard deviation of the means
// of consecutive stretches of samples. It is 0 if there are fewer samples than stretches. With few samples a stretch
// has one or two, and its mean also differs by chance: then the figure is on the safe side.
func drift(samples []time.Duration) document.Micros {
	if len(samples) < formats.Stretches {
		return 0
	}
	means := stretchFigures(samples, func(part []time.Duration) time.Duration { return mean(part).D() })
	return document.Micros(stat.StdDev(means, nil))
}

// stretchFigures divides samples, which are in time order, into consecutive parts of equal length (formats.Stretches
// of them), and returns the figure of each part.
func stretchFigures(samples []time.Duration, figure func([]time.Duration) time.Duration) []float64 {
	out, n := make([]float64, formats.Stretches), len(samples)
	for k := range out {
		out[k] = float64(figure(samples[k*n/formats.Stretches : (k+1)*n/formats.Stretches]))
	}
	return out
}

// halfWidth returns half the 95 % interval of the median of samples in time order. It is the larger of two
// estimates.
//
// The first is the interval between order statistics, which assumes independent samples. On a shared machine they are
// not independent: a neighbour that computes for ten seconds shifts all samples of these ten seconds together, and
// the first estimate is then far too small. The second is the t interval of the mean of the medians of eight
// consecutive stretches of time. (formats.Stretches is eight.)
func halfWidth(samples []time.Duration) time.Duration {
	n := len(samples)
	if n == 0 {
		return 0
	}
	lo, hi, _ := report.MedianInterval(slices.Sorted(slices.Values(samples)), confidence)
	halfInterval := (hi - lo) / 2
	if n < 2*formats.Stretches {
		return halfInterval
	}
	medians := stretchFigures(samples, report.Median)
	_, lower, upper := report.MeanInterval(medians, confidence)
	return max(halfInterval, time.Duration((upper-lower)/2))
}
