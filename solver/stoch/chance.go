package stoch

import (
	"fmt"
	"math"
)

// Chance is the constraint P(X <= limit) >= Level for a normal X whose mean and variance are sums over the chosen
// items (QLM, equation 12). CommonSD is the standard deviation of a factor with mean 1 that the whole sum shares.
type Chance struct{ Level, CommonSD float64 }

// Z returns the number of standard deviations that the level requires.
func (c Chance) Z() float64 { return Normal{0, 1}.Quantile(c.Level) }

// Tangent returns the coefficients of a linear row in the mean and the variance of X, for a linear program. The row
// implies the constraint P(X <= limit) >= Level and touches it at the variance touchVariance:
//
//	perMean*mean + perVariance*variance + constant <= limit
//
// The root of the variance is concave, so its tangent lies above it. The common factor is added to the root and
// not inside it, which is conservative, too. The level must be at least one half, and touchVariance above 0; else it
// returns an error.
func (c Chance) Tangent(touchVariance float64) (perMean, perVariance, constant float64, err error) {
	z := c.Z()
	if !(z >= 0) || math.IsInf(z, 1) { // also NaN
		return 0, 0, 0, fmt.Errorf("a chance constraint as a row: found level %g, expected 0.5 to less than 1", c.Level)
	}
	if !(touchVariance > 0) || math.IsInf(touchVariance, 1) {
		return 0, 0, 0, fmt.Errorf("a chance constraint as a row: found the variance %g to touch at, expected more than 0", touchVariance)
	}

	// The bound is mean + z*CommonSD*mean + z*sqrt(variance), and sqrt(variance) <= root/2 + variance/(2*root).
	root := math.Sqrt(touchVariance)
	return 1 + z*c.CommonSD, z / (2 * root), z * root / 2, nil
}
