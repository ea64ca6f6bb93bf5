package queueing

import "math"

const (
	maxTerms   = 60   // of a sum whose terms fall like x^k / k!, for x of a few units
	maxPlaces  = 2000 // with more places a server loses only what it has no time for
	bisections = 50
	maxValue   = 1e15 // of g: beyond it 1/g no longer counts beside the load
)

// LostShare returns the share of requests that a server turns away. Requests arrive as a Poisson process, `load`
// times as fast as the server works. All take the same time, and a request is turned away if the work that it
// finds is more than `places` requests. For loads up to 2 the result is exact but for rounding (M/D/1 with limited
// waiting). It costs up to 60 operations for each place.
//
// If no request were turned away, the work V that a request finds would have P(V <= x) in proportion to a function
// g with g' = load (g(x) - g(x-1)) and g(0) = 1. Up to the limit it has that proportion here, too. The server is
// idle for the share 1 / (1 + load g(places)) of the time, so
//
//	LostShare = 1 - 1 / (1/g(places) + load)
func LostShare(load, places float64) float64 {
	return 1 - 1/(1/workDistribution(load, places)+load)
}

// workDistribution returns the function g(x) on which LostShare is built: if no request were turned away, P(V <= x) would
// be in proportion to it, where V is the work that a request finds, in requests. load is the rate of arrivals over the
// rate at which the server works. g has g(x) = 0 below 0, g(0) = 1, and g' = load (g(x) - g(x-1)). For a whole number n and
// t up to 1 the solution of that is
//
//	g(n+t) = e^(load t) sum over k <= n of g(n-k) (-load t)^k / k!
//
// The function computes g(1), g(2), … by this sum with t = 1, up to the whole part of x, and then g(x) with the rest of x
// as t. An x above maxPlaces counts as maxPlaces. If g exceeds maxValue, it returns infinity.
func workDistribution(load, x float64) float64 {
	x = min(x, maxPlaces)
	wholePart := int(x)
	var history [maxTerms + 1]float64 // the last values: g(n) at index n modulo the length
	history[0] = 1
	for n := range wholePart {
		value := workDistributionStep(&history, n, load, 1)
		if value > maxValue {
			return math.Inf(1)
		}
		history[(n+1)%len(history)] = value
	}
	return workDistributionStep(&history, wholePart, load, x-float64(wholePart))
}

// workDistributionStep returns g(n+t), for t up to 1, from the values up to g(n), by the sum of workDistribution. history
// has g(i) at index i modulo its length. The sum is cut off after maxTerms terms, which are then negligible because of k!.
func workDistributionStep(history *[maxTerms + 1]float64, n int, load, t float64) float64 {
	sum, factor := 0.0, 1.0
	for k := 0; k <= min(n, maxTerms); k++ {
		sum += history[(n-k)%len(history)] * factor
		factor *= -load * t / float64(k+1)
	}
	return math.Exp(load*t) * sum
}

// MaxLoad returns the highest load (arrivals of requests over the rate at which a server works) at which a server with
// this many places for waiting requests turns away at most the share lostShare, below 1, of the requests. It is found by
// bisection, and is never too low. With more than maxPlaces places it returns 1 / (1 - lostShare).
func MaxLoad(places, lostShare float64) float64 {
	low, high := 0.0, 1/(1-lostShare) // a server answers no more than it has time for
	if places > maxPlaces {
		return high
	}
	for range bisections {
		if load := (low + high) / 2; LostShare(load, places) > lostShare {
			high = load
		} else {
			low = load
		}
	}
	return high
}
