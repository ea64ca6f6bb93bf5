package stoch

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// OneSidedMean returns the mean of independent values, and a distance: with the given confidence the true mean is at
// least the mean less the distance, by Student's distribution. For a single value the distance is infinite.
func OneSidedMean(values []float64, confidence float64) (mean, distance float64) {
	// The distance is the quantile of Student's distribution, times the standard error of the mean.
	mean, deviation := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return mean, math.Inf(1)
	}
	count := float64(len(values))
	student := distuv.StudentsT{Sigma: 1, Nu: count - 1}
	return mean, student.Quantile(confidence) * deviation / math.Sqrt(count)
}
