package arrivals

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/formats"
	"inferplan/formats/document"
)

// The processes take a rate in requests per second and stop before end. If end <= 0 they never stop. A rate that
// is not positive gives no requests.

// Poisson returns arrivals with exponential gaps.
func Poisson(rng *rand.Rand, model int32, rps float64, end time.Duration) Source {
	return newProcess(model, rps, end, rng.ExpFloat64)
}

// Gamma returns arrivals with gamma-distributed gaps of the given coefficient of variation: below 1 smoother than
// Poisson, above 1 burstier. A cv of 0 gives even gaps, without the offset of Uniform. rps is the mean rate in
// requests per second, model the index that the requests get, and end their end.
func Gamma(rng *rand.Rand, model int32, rps, cv float64, end time.Duration) Source {
	switch {
	case cv == 0:
		return newProcess(model, rps, end, func() float64 { return 1 })
	case cv == 1:
		return Poisson(rng, model, rps, end)
	}
	shape := 1 / (cv * cv)
	g := distuv.Gamma{Alpha: shape, Beta: shape, Src: rng}
	return newProcess(model, rps, end, g.Rand)
}

// Uniform returns a source of evenly spaced arrivals for a model, rps a second until end, the first after half a
// gap.
func Uniform(model int32, rps float64, end time.Duration) Source {
	p := newProcess(model, rps, end, func() float64 { return 1 }).(*process)
	p.nextArrival = p.mean / 2
	p.skip = true
	return p
}

// Process returns the arrivals that a document describes. If spec is nil, they are Poisson. Traces are opened with
// OpenTrace. rps is the rate in requests per second, model the index that the requests get, and end their end.
func Process(spec *formats.Arrivals, rng *rand.Rand, model int32, rps float64, end time.Duration) (Source, error) {
	if spec == nil {
		spec = &formats.Arrivals{}
	}
	switch spec.Process {
	case "", "poisson":
		return Poisson(rng, model, rps, end), nil
	case "gamma":
		if !(spec.CV > 0) {
			return nil, &document.Error{Path: "arrivals.cv", Found: fmt.Sprint(spec.CV), Expected: "a positive number with process gamma"}
		}
		return Gamma(rng, model, rps, spec.CV, end), nil
	case "uniform":
		return Uniform(model, rps, end), nil
	}
	return nil, &document.Error{Path: "arrivals.process", Found: fmt.Sprintf("the text %q", spec.Process), Expected: "poisson, gamma or uniform"}
}

// process adds up gaps of mean 1 times the mean gap. The sum is kept as a
// float of nanoseconds: 2^53 ns are 104 days, within which it is exact enough
// for the gaps not to drift.
type process struct {
	gap         func() float64
	nextArrival float64 // ns
	mean        float64 // ns
	end         float64 // ns
	model       int32
	skip        bool // at is the first arrival already
}

// newProcess returns a random source of requests for a model at rps requests per second until end. gap draws the
// time between two arrivals in units of the mean. An end of 0 stands for no end; without a positive rate there are
// no requests.
func newProcess(model int32, rps float64, end time.Duration, gap func() float64) Source {
	p := &process{gap: gap, model: model, mean: 1e9 / rps, end: float64(end)}
	if end <= 0 {
		p.end = math.MaxInt64 / 2 // half of the longest time, so that sums do not overflow
	}
	if !(rps > 0) {
		p.end = 0
	}
	return p
}

// Next sets r to the next request, and returns false at the end of the process. If p.skip is set, the next arrival
// was drawn already.
func (p *process) Next(r *Request) bool {
	if p.nextArrival >= p.end {
		return false
	}
	if p.skip {
		p.skip = false
	} else {
		p.nextArrival += p.gap() * p.mean
	}
	arrivedAt := math.Floor(p.nextArrival) // math.Round for a number that is not negative, in fewer steps
	if p.nextArrival-arrivedAt >= 0.5 {
		arrivedAt++
	}
	if !(arrivedAt < p.end) { // also when the sum is no number
		p.nextArrival = p.end
		return false
	}
	*r = Request{ArrivedAt: time.Duration(arrivedAt), Model: p.model}
	return true
}
