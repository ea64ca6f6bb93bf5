package cascades

import (
	"slices"

	"inferplan/formats/seeded"
	"inferplan/planner/lists"
	"inferplan/policy/gear"
)

// EqualRanges returns the upper edges of n equal ranges of rates up to a peak.
func EqualRanges(peak float64, n int) []float64 {
	return lists.Filled(n, func(i int) float64 { return peak * float64(i+1) / float64(n) })
}

// ZipfWeights returns weights in proportion to 1, 1/2, 1/3, … that sum to 1, so low rates are common.
func ZipfWeights(n int) []float64 {
	weights := lists.Filled(n, func(i int) float64 { return 1 / float64(i+1) })
	return Normalise(weights)
}

// UniformWeights returns equal weights that sum to 1.
func UniformWeights(n int) []float64 {
	return Normalise(make([]float64, n))
}

// HistogramWeights returns weights that sum to 1, from a histogram.
func HistogramWeights(histogram []float64) []float64 {
	return Normalise(slices.Clone(histogram))
}

// MeasuredWeights returns the share of the requests that arrive while the rate is in each of n equal ranges up to a
// peak rate. rates are the measured counts of requests in each second. Rates above the peak count in the last range.
func MeasuredWeights(rates []float64, peak float64, n int) []float64 {
	weights := make([]float64, n)
	for _, rate := range rates {
		weights[min(n-1, max(0, int(rate/peak*float64(n))))] += rate
	}
	return Normalise(weights)
}

// ServedWeights returns the share of the requests that the gear (cascade) of each of n equal ranges up to a peak
// serves, when measured counts of requests per second go through the rule by which the policy switches gears. The rule
// is slow to leave the gear of a high rate. So rates near the edge of two ranges are mostly served by the faster, less
// accurate gear, which MeasuredWeights does not show. Queues are assumed to be short enough to switch. seed is that of
// the random arrivals within seconds.
func ServedWeights(rates []float64, peak float64, n int, seed uint64) []float64 {
	var options gear.Options
	options.Window, options.Hysteresis = gear.WindowFor(peak / float64(n))
	return Normalise(gear.RequestsByGear(rates, EqualRanges(peak, n), options, seeded.New(seed, "gear/served")))
}

// Normalise divides the values of a list, which are not negative, by their sum, in place, and returns the list. If the
// sum is 0, all values become equal. Weights and shares are made by it.
func Normalise(list []float64) []float64 {
	total := lists.Total(list)
	for i := range list {
		if total > 0 {
			list[i] /= total
		} else {
			list[i] = 1 / float64(len(list))
		}
	}
	return list
}

// Measured rates of up to maxSimulatedRequests requests are simulated as a whole for the few tries of one cascade
// for all ranges. The many choices of gears per range are only simulated on up to manyRequests.
const (
	maxSimulatedRequests = 4_000_000
	manyRequests         = 400_000
)

// HasManyRequests reports whether a simulation of the measured rates takes long.
func (p *Problem) HasManyRequests() bool { return lists.Total(p.MeasuredRates) > manyRequests }

// SimulatesMeasured reports whether plans are simulated on the measured rates.
func (p *Problem) SimulatesMeasured() bool {
	return p.OverRequests && lists.Total(p.MeasuredRates) > 0 && lists.Total(p.MeasuredRates) <= maxSimulatedRequests
}
