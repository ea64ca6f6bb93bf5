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
	n := float64(len(list))
	return Values{mean, deviation, n, n}
}

// Limits for correlated values: the largest correlation that is assumed, and the least effective number.
const (
	maxCorrelation = .9
	minEffectiveN  = 3
)

// CorrelatedValues returns the mean, the deviation and the effective number of a list of values that come in runs of
// the length `run`. Those of a run follow each other and are correlated. At a correlation r, n values are as good as
// n(1-r)/(1+r) independent ones, and their mean varies as if each had (1+r)/(1-r) times the variance (Bayley and
// Hammersley 1946, for a first-order autoregression). The deviations from their own mean show too little of that.
//
// An estimated correlation of n values is too small by about (1+3r)/n (Kendall 1954). The correction adds (2+3r)/n, which
// is 1/n more and on the safe side: a larger correlation gives a larger deviation. The caller chooses that n, biasCount: the
// length of a run is on the safe side, and the number of all values is not.
func CorrelatedValues(list []float64, run, biasCount int) Values {
	v := Values{Mean: stat.Mean(list, nil), N: float64(len(list)), EffectiveN: float64(len(list))}

	// Estimate the correlation of neighbours, corrected for its bias.
	squares, products, pairs := 0.0, 0.0, 0.0
	for i, x := range list {
		squares += (x - v.Mean) * (x - v.Mean)
		if i%run > 0 {
			products += (x - v.Mean) * (list[i-1] - v.Mean)
			pairs++
		}
	}
	if squares == 0 {
		return v
	}
	r := products / squares * v.N / pairs
	r = min(max(0, r+(2+3*r)/float64(biasCount)), maxCorrelation)

	// Inflate the variance.
	inflation := (1 + r) / (1 - r)
	v.Deviation = math.Sqrt(squares / max(v.N-inflation, 1) * inflation)
	v.EffectiveN = max(v.N/inflation, minEffectiveN)
	return v
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
	if v.Deviation == 0 || distance <= 0 {
		return v.Deviation == 0 && distance >= 0
	}
	// Both distances are in standard errors of the mean: Mu is how far the true mean lies below a limit that fresh means
	// exceed with just that chance, and the argument of the CDF is how far the measured mean lies below the limit.
	root := math.Sqrt(v.N)
	t := distuv.NoncentralT{Nu: v.EffectiveN - 1, Mu: deviationsAbove(chance) / math.Sqrt(freshCount) * root}
	return t.CDF(distance/v.Deviation*root) >= confidence
}

// Wander returns by how much the mean of freshCount fresh values exceeds that of as many others with the given
// chance. The estimate is as often too small as too large.
func (v Values) Wander(freshCount, chance float64) float64 {
	return deviationsAbove(chance) * v.Deviation * math.Sqrt(2/freshCount)
}

// deviationsAbove returns the number of standard deviations that a normal value exceeds with a chance.
func deviationsAbove(chance float64) float64 { return distuv.UnitNormal.Quantile(1 - chance) }
