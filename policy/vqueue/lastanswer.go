package vqueue

import (
	"math"
	"slices"

	"inferplan/solver/stoch"
)

// sharedErrorCases is the number of values of the shared error over which AllAnsweredBy averages.
const sharedErrorCases = 15

// AllAnsweredBy returns the time by which all of requestCount requests are answered with the given probability. The requests
// start one after the other, spread evenly over `work` seconds from start on. All starts share one normal error
// with standard deviation sigma. A residence (time from start to answer) is independent of the others. Times are in
// seconds from now. The receiver estimates how long requests of one kind take on one kind of device (request completion time).
func (r *RCT) AllAnsweredBy(probability, start, work, sigma float64, requestCount int) float64 {
	cdf := r.residenceCDF()

	// allEndedBy returns the probability that all requests have ended, as a mean over quantiles of the shared
	// error.
	allEndedBy := func(answeredBy float64) float64 {
		sum := 0.0
		for errorCase := range sharedErrorCases {
			// Given the shared error the answers are independent, so that their probabilities multiply.
			sharedError := sigma * stoch.Normal{Sigma: 1}.Quantile((float64(errorCase)+0.5)/sharedErrorCases)
			product := 1.0
			for i := 0; i < requestCount && product > 0; i++ {
				product *= cdf(answeredBy - max(0, start+work*float64(i)/float64(requestCount)+sharedError))
			}
			sum += product / sharedErrorCases
		}
		return sum
	}

	// Double the upper end until it is likely enough, then bisect to one part in a thousand.
	low, high := 0.0, max(start, 0)+work+1
	for allEndedBy(high) < probability && high < 1e9 {
		low, high = high, 2*high
	}
	for high-low > 1e-3*high {
		if mid := (low + high) / 2; allEndedBy(mid) < probability {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

const (
	// minTailResidences is the number of residences from which on their tail is continued, and minTailSample the
	// number that the tail needs to be fitted.
	minTailResidences = 16
	minTailSample     = 20
)

// tailStart returns the index in Residences at which the tail begins, the last eighth, which the fitted distribution continues.
func (r *RCT) tailStart() int { return len(r.Residences) - len(r.Residences)/8 }

const (
	// minTailShape and maxTailShape bound the shape of a tail, because few residences determine it badly.
	minTailShape = -1
	maxTailShape = 0.3
)

// plottingOffset is by how much the rank of a sample, counted from 1, is lowered to estimate its quantile (Hosking and Wallis).
const plottingOffset = 0.35

// fitTail sets TailScale and TailShape by fitting a generalised Pareto distribution to the excesses of residences (seconds from start to
// answer) over the start of the tail, by probability-weighted moments (Hosking and Wallis, Technometrics 29, 1987).
// measured has all residences of the calibration run, of which r.Residences keeps only quantiles; these say where the tail starts.
// Answers that end at a token limit have a shape below 0. It is called at the end of a calibration.
func (r *RCT) fitTail(measured []float64) {
	if len(r.Residences) < minTailResidences {
		return
	}

	// Find the excesses over the start of the tail.
	threshold := r.Residences[r.tailStart()]
	var excesses []float64
	for _, residence := range measured {
		if residence > threshold {
			excesses = append(excesses, residence-threshold)
		}
	}
	if len(excesses) < minTailSample {
		return
	}
	slices.Sort(excesses)

	// Compute shape and scale from the mean and the mean weighted by the estimated probability to exceed each of the sorted excesses.
	mean, weightedMean, excessCount := 0.0, 0.0, float64(len(excesses))
	for i, excess := range excesses {
		mean += excess / excessCount
		weightedMean += excess * (1 - (float64(i)+1-plottingOffset)/excessCount) / excessCount
	}
	r.TailShape = min(max(2-mean/(mean-2*weightedMean), minTailShape), maxTailShape)
	r.TailScale = mean * (1 - r.TailShape)
}

// tailExceedance returns the probability that a residence (start to answer) exceeds the start of the tail by more than `excess` seconds,
// given that it is in the tail, by the fitted generalised Pareto distribution. Near shape 0 that is an exponential one; with a shape below 0
// it ends at a largest residence. The receiver (RCT) estimates request completion times.
// Without a fit (scale 0) the probability falls exponentially, at the rate that leads from the first recorded residence of the tail to the last.
func (r *RCT) tailExceedance(excess float64) float64 {
	residenceCount := len(r.Residences)
	switch scale, shape := r.TailScale, r.TailShape; {
	case scale == 0:
		// The recorded residences are at the middles of equal parts, so number i is exceeded with probability 1 - (i+0.5)/residenceCount. Over
		// the length of the recorded tail the probability falls from firstExceedance to lastExceedance, by which the exponential is determined.
		lastExceedance, firstExceedance := 0.5/float64(residenceCount), 1-(float64(r.tailStart())+0.5)/float64(residenceCount)
		tailLength := max(1e-9, r.Residences[residenceCount-1]-r.Residences[r.tailStart()]) // above 0 even if all are equal
		return math.Exp(-excess * math.Log(firstExceedance/lastExceedance) / tailLength)
	case math.Abs(shape) < 1e-6:
		return math.Exp(-excess / scale)
	default:
		return math.Pow(max(0, 1+shape*excess/scale), -1/shape) // 0 beyond the largest residence of a shape below 0
	}
}

// residenceCDF returns the distribution function of residences (seconds from start to answer) with a full batch.
// Between the recorded residences it is linear. The last eighth is continued by the fitted tail, because the largest of many requests
// matters here. With too few residences it is normal.
func (r *RCT) residenceCDF() func(residence float64) float64 {
	residenceCount := len(r.Residences)
	if residenceCount < minTailResidences {
		mean, variance := r.Residence(1)
		return stoch.Normal{Mu: mean, Sigma: math.Sqrt(variance)}.CDF
	}

	// exceedance returns the probability that a residence exceeds the recorded one with an index.
	exceedance, tailStart := func(index int) float64 { return 1 - (float64(index)+0.5)/float64(residenceCount) }, r.tailStart()
	return func(residence float64) float64 {
		if residence >= r.Residences[tailStart] {
			return 1 - exceedance(tailStart)*r.tailExceedance(residence-r.Residences[tailStart])
		}
		// Interpolate between the recorded residences. Below the first one nothing is known, so the probability is 0.
		index, _ := slices.BinarySearch(r.Residences, residence)
		if index == 0 {
			return 0
		}
		part := (residence - r.Residences[index-1]) / max(r.Residences[index]-r.Residences[index-1], 1e-9)
		return 1 - exceedance(index-1) + part/float64(residenceCount)
	}
}
