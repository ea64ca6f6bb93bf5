package kind

import (
	"cmp"
	"fmt"
	"math"

	"inferplan/formats"
)

// Traffic has the requests that a served plan got, by a report of it.
type Traffic struct {
	Running *formats.Plan
	Report  *formats.Report
}

// minTrafficShare is the least part of its weight that a model keeps if few or none asked for it: a plan without it could
// not answer the next request.
const minTrafficShare = 0.01

// RateOf returns the requests per second for a model with a class. ok is false if the report does not have it.
func (t *Traffic) RateOf(key formats.ModelClass) (rps float64, ok bool) {
	for i := range t.Report.Models {
		if m := &t.Report.Models[i]; m.Key() == key {
			return m.OfferedRPS, true
		}
	}
	return 0, false
}

// ModelRate returns the requests per second for a model, with all its classes.
func (t *Traffic) ModelRate(model string) (rps float64, ok bool) {
	for i := range t.Report.Models {
		if m := &t.Report.Models[i]; m.Model == model {
			rps, ok = rps+m.OfferedRPS, true
		}
	}
	return rps, ok
}

// Weights returns weights that are to each other as the rates are. Those without a rate (NaN) stay as they are, the
// sum stays, and a weight of 0 stands for 1.
func Weights(weights, rates []float64) []float64 {
	out := make([]float64, len(weights))
	weightSum, rateSum := 0.0, 0.0
	for i := range weights {
		if out[i] = cmp.Or(weights[i], 1); !math.IsNaN(rates[i]) {
			weightSum, rateSum = weightSum+out[i], rateSum+rates[i]
		}
	}
	for i := range out {
		if rateSum > 0 && !math.IsNaN(rates[i]) {
			out[i] = max(weightSum*rates[i]/rateSum, minTrafficShare*out[i])
		}
	}
	return out
}

// RateLine says at which rate something was asked for, and at which it was planned.
func RateLine(subject string, found, planned float64) string {
	return fmt.Sprintf("%s: asked for at %s rps, and planned for %s", subject, FormatNumber(found), FormatNumber(planned))
}
