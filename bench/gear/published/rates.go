package published

import (
	"math/rand/v2"
	"time"

	"inferplan/formats/arrivals"
)

// Rates are requests per second, second by second.
type Rates []float64

// Peak is the highest rate.
func (r Rates) Peak() float64 {
	most := 0.0
	for _, q := range r {
		most = max(most, q)
	}
	return most
}

// Total is the number of requests expected.
func (r Rates) Total() float64 {
	sum := 0.0
	for _, q := range r {
		sum += q
	}
	return sum
}

// Duration is how long the rates last.
func (r Rates) Duration() time.Duration { return time.Duration(len(r)) * time.Second }

// Even yields request k, from 1, when the integral of the rates reaches k - 0.5.
func (r Rates) Even() arrivals.Source { return arrivals.Evenly(r) }

// Poisson yields a Poisson process with these rates.
func (r Rates) Poisson(rng *rand.Rand) arrivals.Source { return arrivals.PoissonOf(r, rng) }

// Around are n of the rates, step seconds apart, with the highest among them
// after a third, and their peak scaled to a rate: a burst that fits into seconds.
func (r Rates) Around(n, step int, peak float64) Rates {
	at := 0
	for i := range r {
		if r[i] > r[at] {
			at = i
		}
	}
	var out Rates
	for k := range n {
		i := min(max(at+(k-n/3)*step, 0), len(r)-1)
		out = append(out, r[i]*peak/r.Peak())
	}
	return out
}
