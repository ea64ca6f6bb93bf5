package bounds

import (
	"math"

	"inferplan/planner/lists"
)

// maxWindows limits the windows that measured rates are cut into. Of more seconds, several form one window.
const maxWindows = 2048

// MeasuredBound returns the accuracy that no plan exceeds on the measured rates (requests of every second of a trace),
// if all requests together keep the SLO. It holds even for plans that could not hold a rate forever.
//
// Cut time into windows. A request that is in time is answered within the window of its arrival or the SLO after it, so
// the n requests of a window share windowSeconds + SLO seconds of the pooled devices. At best all get one mixture of
// cascades, because the envelope is concave. The sum of the windows' best accuracies, for any cut, is a bound, so the
// cut of the least sum is chosen, of windows of 1, 2, 4, … basic windows. A late request is charged a price in
// accuracy, and the lateness allowed is added back at that price, as in BoundOverRequests. Late requests take none of
// these seconds, as they may be worked on at any time.
//
// The bound also holds for the mean of random streams: the best of a window is concave in its requests and its work, so
// chance in the arrivals does not raise it.
func (p *PooledDevices) MeasuredBound() float64 {
	freeCost := make([]float64, len(p.problem.Models)) // by model: a late sample costs 0
	options, maxLateShare := p.lateCascades(freeCost), 1-p.problem.Percentile
	windowSeconds := (len(p.problem.MeasuredRates) + maxWindows - 1) / maxWindows // of a basic window, for at most maxWindows of them
	cumulativeRequests := []float64{0}                                            // requests that arrived until the end of each basic window
	for second := 0; second < len(p.problem.MeasuredRates); second += windowSeconds {
		cumulativeRequests = append(cumulativeRequests, cumulativeRequests[len(cumulativeRequests)-1]+lists.Total(p.problem.MeasuredRates[second:min(second+windowSeconds, len(p.problem.MeasuredRates))]))
	}

	// For each price find the cut into windows of the least sum, by dynamic programming over their ends. bestUntil has, by end of
	// a basic window, the least sum until then of what windows reach: correct answers less the price of late requests.
	requests := cumulativeRequests[len(cumulativeRequests)-1]
	return minOverPrices(func(price float64) float64 {
		envelope, bestUntil := envelopeAtPrice(options, price), make([]float64, len(cumulativeRequests))
		for end := 1; end < len(cumulativeRequests); end++ {
			bestUntil[end] = math.Inf(1)
			// The last window before this end has 1, 2, 4, … basic windows.
			for length := 1; length <= end; length *= 2 {
				n, value := cumulativeRequests[end]-cumulativeRequests[end-length], bestUntil[end-length]
				if n > 0 {
					deviceSeconds := p.deviceScale * (float64(length*windowSeconds) + p.problem.SLO.Seconds())
					value += n * envelope.At(deviceSeconds/n)
				}
				bestUntil[end] = min(bestUntil[end], value)
			}
		}
		return bestUntil[len(bestUntil)-1]/requests + price*maxLateShare
	})
}

// The prices of lateness that the search covers, and its number of steps.
const (
	minLatePrice, maxLatePrice = 1e-3, 1e3
	priceSteps                 = 40
)

// minOverPrices returns the least of a bound on the accuracy over the prices that late requests may be charged, as each
// price gives a valid bound. It is a golden-section search on the logarithm of the price from minLatePrice to
// maxLatePrice, since the bound is convex in the price. A price of 0 is tried, too.
func minOverPrices(boundAt func(price float64) float64) float64 {
	lowest := boundAt(0)
	low, high := math.Log(minLatePrice), math.Log(maxLatePrice)
	for range priceSteps {
		lower, upper := low+(high-low)*.382, low+(high-low)*.618
		atLower, atUpper := boundAt(math.Exp(lower)), boundAt(math.Exp(upper))
		if lowest = min(lowest, atLower, atUpper); atLower <= atUpper {
			high = upper
		} else {
			low = lower
		}
	}
	return lowest
}
