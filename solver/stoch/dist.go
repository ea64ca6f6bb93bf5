package stoch

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Normal is the normal distribution, which QLM assumes for output lengths (equation 3). With Sigma 0 it is a
// constant.
type Normal struct{ Mu, Sigma float64 }

// CDF returns P(X <= x), exactly. Without spread (Sigma 0) it is 0 below the mean and 1 from it on. The function Phi is
// faster and approximate.
func (n Normal) CDF(x float64) float64 {
	if n.Sigma == 0 {
		if x < n.Mu {
			return 0
		}
		return 1
	}
	return 0.5 * math.Erfc((n.Mu-x)/(n.Sigma*math.Sqrt2))
}

// Quantile returns the smallest x with CDF(x) >= p. It is infinite at 0 and 1.
func (n Normal) Quantile(p float64) float64 {
	if n.Sigma == 0 {
		return n.Mu
	}
	return n.Mu + n.Sigma*distuv.UnitNormal.Quantile(p)
}
