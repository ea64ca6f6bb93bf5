package queueing

import "math"

const (
	maxTerms   = 60   // of a sum whose terms fall like x^k / k!, for x of a few units
	maxPlaces  = 2000 // with more places a server loses only what it has no time for
	bisections = 50
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
// be in proportion to it, where V is the work that a request finds, in requests. load is how many times as fast as the
// server works requests arrive. g has g(0) = 1 and g' = load (g(x) - g(x-1)); between the whole numbers n and n+1 that is
//
//	g(n+t) = e^(load t) sum over k <= n of g(n-k) (-load t)^k / k!
//
// It goes up by whole numbers, and then by the rest of x; x counts as at most maxPlaces. If g is too large to matter, it
// returns infinity.
func workDistribution(load, x float64) float64 {
	steps := int(min(x, maxPlaces))
	var history [maxTerms + 1]float64 // g(n) at n modulo the length
	history[0] = 1
	for n := range steps {
		value := workDistributionStep(&history, n, load, 1)
		if value > 1e15 {
			return math.Inf(1)
		}
		history[(n+1)%len(history)] = value
	}
	return workDistributionStep(&history, steps, load, min(x, maxPlaces)-float64(steps))
}

// workDistributionStep returns g(n+t), for t up to 1, from the values up to g(n), by the sum above. history has g(i) at
// i modulo its length; the sum is cut off after maxTerms terms, which are then negligible.
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
