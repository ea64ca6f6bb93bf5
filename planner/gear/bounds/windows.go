package bounds

import (
	"math"

	"inferplan/planner/gear/cascades"
)

// maxWindows limits the windows that measured rates are cut into. Of more seconds, several form one window.
const maxWindows = 2048

// MeasuredBound returns the accuracy that no plan exceeds on the measured rates (requests of every second of a trace),
// if all requests together keep the SLO. It holds even for plans that could not hold a rate forever.
//
// Requests that arrive in a window of time and are in time are answered within the window and the SLO after it. A
// window of n requests thus has windowSeconds + SLO of the pooled devices for a mixture of cascades, which is the same
// for all its requests, because nothing is better. The rates are cut into windows of 1, 2, 4, … basic windows, such
// that the sum of their bounds is the least. A late request is charged a price in accuracy, as in BoundOverRequests,
// and costs no time.
//
// It also bounds the mean of random streams: the best of a window is concave in its requests and its work, so chance in
// the arrivals does not raise it.
func (p *PooledDevices) MeasuredBound() float64 {
	freeCost := make([]float64, len(p.problem.Models)) // late requests are worked on when devices are idle
	options, maxLateShare := p.lateCascades(freeCost), 1-p.problem.Percentile
	windowSeconds := (len(p.problem.MeasuredRates) + maxWindows - 1) / maxWindows // of a basic window, for at most maxWindows of them
	cumulativeRequests := []float64{0}                                            // requests that arrived until the end of each basic window
	for second := 0; second < len(p.problem.MeasuredRates); second += windowSeconds {
		cumulativeRequests = append(cumulativeRequests, cumulativeRequests[len(cumulativeRequests)-1]+cascades.Sum(p.problem.MeasuredRates[second:min(second+windowSeconds, len(p.problem.MeasuredRates))]))
	}

	// The cut into windows of the least bound, by dynamic programming over their ends: bestUntil has the least sum of correct
	// answers, less the price of late requests, until the end of each basic window.
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
