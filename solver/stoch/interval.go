package stoch

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// OneSidedMean returns the mean of independent values, and a distance: with the given confidence the true mean is at
// least the mean less the distance, by Student's distribution. For a single value the distance is infinite.
func OneSidedMean(values []float64, confidence float64) (mean, distance float64) {
	mean, deviation := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return mean, math.Inf(1)
	}
	n := float64(len(values))
	t := distuv.StudentsT{Sigma: 1, Nu: n - 1}
	return mean, t.Quantile(confidence) * deviation / math.Sqrt(n)
}
