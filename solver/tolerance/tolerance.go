package tolerance

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Values describes measured values, as far as it matters for fresh ones.
type Values struct {
	Mean       float64
	Deviation  float64 // standard deviation of one value, such that means of many values vary accordingly
	N          float64 // number of values
	EffectiveN float64 // number of independent values that determine the deviation as well
}

// IndependentValues describes at least two values that are independent of each other.
func IndependentValues(list []float64) Values {
	mean, deviation := stat.MeanStdDev(list, nil)
	count := float64(len(list))
	return Values{mean, deviation, count, count}
}

// Limits for correlated values: the largest correlation that is assumed, and the least effective number.
const (
	maxCorrelation = .9
	minEffectiveN  = 3
)

// CorrelatedValues returns the mean, the deviation and the effective number of a list of values that come in runs of
// the length `run`, at least 2. Those of a run follow each other and are correlated. At a correlation r of neighbours, n
// values are as good as n(1-r)/(1+r) independent ones, and their mean varies as if each had the variance v (1+r)/(1-r)
// in place of v (Bayley and Hammersley 1946, for a first-order autoregression). So the mean has the variance
// v (1+r)/(1-r) / n, by which the mean square of the deviations from it is less than v.
//
// A correlation that is estimated from n values is too small by about (1+3r)/n (Kendall 1954). The correction adds
// (2+3r)/biasCount. That is on the safe side if biasCount is the length of a run, since a larger correlation gives a
// larger deviation. With the number of all values as biasCount the correlation may stay too small.
func CorrelatedValues(list []float64, run, biasCount int) Values {
	values := Values{Mean: stat.Mean(list, nil), N: float64(len(list)), EffectiveN: float64(len(list))}

	// Estimate the correlation of neighbours, the mean product over the mean square, and correct it for its bias.
	squares, products, pairs := 0.0, 0.0, 0.0
	for i, value := range list {
		squares += (value - values.Mean) * (value - values.Mean)
		if i%run > 0 {
			products += (value - values.Mean) * (list[i-1] - values.Mean)
			pairs++
		}
	}
	if squares == 0 {
		return values
	}
	correlation := products / squares * values.N / pairs
	correlation = min(max(0, correlation+(2+3*correlation)/float64(biasCount)), maxCorrelation)

	// Estimate the variance of a value from the squares, which are expected to sum to its (N - inflation)-fold, and inflate it.
	inflation := (1 + correlation) / (1 - correlation)
	variance := squares / max(values.N-inflation, 1)
	values.Deviation = math.Sqrt(variance * inflation)
	values.EffectiveN = max(values.N/inflation, minEffectiveN)
	return values
}

// ScaleCount returns the description of `factor` times as many values like these.
func (v Values) ScaleCount(factor float64) Values {
	v.N, v.EffectiveN = factor*v.N, factor*v.EffectiveN
	return v
}

// SeldomAbove reports, from measured values, whether the mean of freshCount fresh values of the same kind exceeds a
// limit with at most the given chance. It is careful: if the true chance is larger, it returns true with a chance of at
// most 1 - confidence (a one-sided tolerance bound by the noncentral t distribution). If the values do not vary, it
// compares their mean with the limit.
func (v Values) SeldomAbove(limit, freshCount, chance, confidence float64) bool {
	distance := limit - v.Mean
	switch {
	case v.Deviation == 0:
		return distance >= 0
	case distance <= 0:
		return false
	}

	// Suppose that the mean of fresh values exceeds the limit with just the given chance. Then the true mean lies criticalDistance
	// deviations below the limit. The distance of the measured mean varies around that as a noncentral t, in standard errors of a
	// mean of N values. If it is so large that it would hardly come about by chance, the true chance is smaller. The degrees of
	// freedom are those of the deviation, which EffectiveN independent values would determine as well.
	root := math.Sqrt(v.N)
	criticalDistance := deviationsAbove(chance) / math.Sqrt(freshCount)
	t := distuv.NoncentralT{Nu: v.EffectiveN - 1, Mu: criticalDistance * root}
	return t.CDF(distance/v.Deviation*root) >= confidence
}

// Wander returns by how much the mean of freshCount fresh values exceeds that of as many others with the given
// chance. The estimate is as often too small as too large.
func (v Values) Wander(freshCount, chance float64) float64 {
	return deviationsAbove(chance) * v.Deviation * math.Sqrt(2/freshCount)
}

// deviationsAbove returns the number of standard deviations that a normal value exceeds with a chance.
func deviationsAbove(chance float64) float64 { return distuv.UnitNormal.Quantile(1 - chance) }
