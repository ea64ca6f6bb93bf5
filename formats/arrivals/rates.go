package arrivals

import (
	"math/rand/v2"
	"time"
)

// Evenly yields request k, from 1, when the integral of rates, one a second, reaches
// k - 0.5.
func Evenly(rates []float64) Source {
	return &rateSource{rates: rates, wantedRequests: .5, gap: func() float64 { return 1 }}
}

// PoissonOf yields a Poisson process with these rates, one a second.
func PoissonOf(rates []float64, rng *rand.Rand) Source {
	return &rateSource{rates: rates, wantedRequests: rng.ExpFloat64(), gap: rng.ExpFloat64}
}

// rateSource walks along the integral of the rates in steps of gap.
type rateSource struct {
	rates          []float64
	second         int
	passedRequests float64 // integral up to the second
	wantedRequests float64
	gap            func() float64
}

// Next sets r to the next request, and returns false after the last second. rates has the requests expected in each
// second. The next request comes when their running total reaches wantedRequests, which grows by a draw of gap per
// request. Next looks for the second in which that happens, and for the point within it. passedRequests is the total
// of the seconds before s.second.
func (s *rateSource) Next(r *Request) bool {
	for s.second < len(s.rates) && s.passedRequests+s.rates[s.second] < s.wantedRequests {
		s.passedRequests += s.rates[s.second]
		s.second++
	}
	if s.second == len(s.rates) {
		return false
	}
	seconds := float64(s.second) + (s.wantedRequests-s.passedRequests)/s.rates[s.second]
	*r = Request{ArrivedAt: time.Duration(seconds * float64(time.Second))}
	s.wantedRequests += s.gap()
	return true
}
