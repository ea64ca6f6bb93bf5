package arrivals

import (
	"math/rand/v2"
	"time"
)

// Evenly yields request k, from 1, when the integral of rates, one a second, reaches
// k - 0.5.
func Evenly(rates []float64) Source {
	return &ofRates{rates: rates, want: .5, gap: func() float64 { return 1 }}
}

// PoissonOf yields a Poisson process with these rates, one a second.
func PoissonOf(rates []float64, rng *rand.Rand) Source {
	return &ofRates{rates: rates, want: rng.ExpFloat64(), gap: rng.ExpFloat64}
}

// ofRates walks along the integral of the rates in steps of gap.
type ofRates struct {
	rates  []float64
	second int
	passed float64 // integral up to the second
	want   float64
	gap    func() float64
}

func (s *ofRates) Next(r *Request) bool {
	for s.second < len(s.rates) && s.passed+s.rates[s.second] < s.want {
		s.passed += s.rates[s.second]
		s.second++
	}
	if s.second == len(s.rates) {
		return false
	}
	at := float64(s.second) + (s.want-s.passed)/s.rates[s.second]
	*r = Request{At: time.Duration(at * float64(time.Second))}
	s.want += s.gap()
	return true
}
