package trials

import (
	"inferplan/formats/report"
	"inferplan/planner/gear/cascades"
)

// heldOutConfidence is the confidence of these intervals.
const heldOutConfidence = .95

// HeldOutAccuracy returns the plan's accuracy on the held-out samples, which planning did not see: the mean
// over the ranges of rates by weight, with a confidence interval. It returns false if there are none.
func (plan *Plan) HeldOutAccuracy() (heldOut cascades.HeldOutAccuracy, ok bool) {
	p := plan.Problem
	if p.HeldOutSamples == nil || p.HeldOutSamples.N == 0 {
		return heldOut, false
	}
	correctShares := make([]float64, p.HeldOutSamples.N) // by sample: share of the requests, over the ranges, that would be answered correctly

	// Replay the gear of each range.
	for r := range plan.Gears {
		n, c := 0, &plan.Gears[r].Cascade
		p.HeldOutSamples.EachSample(c.Models, c.Levels, func(i, _ int, ok bool) {
			if ok {
				correctShares[i] += p.RangeWeights[r]
				n++
			}
		})
		heldOut.Accuracy += p.RangeWeights[r] * float64(n) / float64(len(correctShares))
	}
	heldOut.Accuracy = min(1, heldOut.Accuracy) // more is rounding

	// The interval, by the variance between samples.
	squares := 0.0
	for _, x := range correctShares {
		squares += x * x / float64(len(correctShares))
	}
	heldOut.Low, heldOut.High = wilsonInterval(heldOut.Accuracy, squares-heldOut.Accuracy*heldOut.Accuracy, float64(len(correctShares)))
	return heldOut, true
}

// wilsonInterval returns Wilson's interval of the mean of n values from 0 to 1. Values of less variance than zeros
// and ones count as more values.
func wilsonInterval(mean, variance, n float64) (low, high float64) {
	if binaryVariance := mean * (1 - mean); variance > 1e-12 && variance < binaryVariance {
		n *= binaryVariance / variance
	}
	return report.WilsonOf(mean, n, heldOutConfidence)
}
