package queueing

import "math"

// terms are enough for e^-x of x up to a few units in double precision.
const terms = 60

// Lost returns the share of requests that a server turns away. Requests come as a Poisson process, load times as
// fast as the server works. All take the same time, and one is turned away if the work before it is more than
// so many requests. It is exact for load > 0 and places >= 0 (M/D/1 with limited waiting).
//
// Where V is the work of the server that turns nobody away, P(V <= x) is in proportion to a function g up to the
// limit: g' = load (g(x) - g(x-1)), g(0) = 1. It is also in that proportion here, and the server is idle with probability
// 1 / (1 + load g(places)).
func Lost(load, places float64) float64 {
	g := growth(load, places)
	return 1 - 1/(1/g+load)
}

// growth returns g(x) of Lost. On the interval from n to n+1 the solution of its equation is
//
//	g(n+t) = e^(load t) sum over k <= n of g(n-k) (-load t)^k / k!
//
// It ends early, with infinity, where g is too large to matter.
func growth(load, x float64) float64 {
	whole := int(x)
	at := make([]float64, 1, whole+1) // g(0), g(1), ...
	at[0] = 1
	for n := range whole {
		next := step(at, n, load, 1)
		if next > 1e15 {
			return math.Inf(1)
		}
		at = append(at, next)
	}
	return step(at, whole, load, x-float64(whole))
}

// step returns g(n+t) from g(0) to g(n).
func step(at []float64, n int, load, t float64) float64 {
	sum, factor := 0.0, 1.0
	for k := 0; k <= min(n, terms); k++ {
		sum += at[n-k] * factor
		factor *= -load * t / float64(k+1)
	}
	return math.Exp(load*t) * sum
}

// MostLoad returns the highest load at which a server turns away at most the share lost, below 1, of the requests.
func MostLoad(places, lost float64) float64 {
	low, high := 0.0, 1/(1-lost) // a server answers no more than it works
	for range 50 {
		if load := (low + high) / 2; Lost(load, places) > lost {
			high = load
		} else {
			low = load
		}
	}
	return high
}
