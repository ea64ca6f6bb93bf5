package stoch

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Dist is the distribution of one quantity.
type Dist interface {
	Mean() float64
	Var() float64
	// CDF is P(X <= x).
	CDF(x float64) float64
	// Quantile is the smallest x with CDF(x) >= p, for p from 0 to 1.
	Quantile(p float64) float64
}

// Normal is the normal distribution, as QLM takes it for output lengths
// (equation 3). Sigma 0 is a constant.
type Normal struct{ Mu, Sigma float64 }

// Mean is Mu.
func (n Normal) Mean() float64 { return n.Mu }

// Var is the square of Sigma.
func (n Normal) Var() float64 { return n.Sigma * n.Sigma }

// CDF is exact. Package-level Phi is the fast one.
func (n Normal) CDF(x float64) float64 {
	if n.Sigma == 0 {
		if x < n.Mu {
			return 0
		}
		return 1
	}
	return 0.5 * math.Erfc((n.Mu-x)/(n.Sigma*math.Sqrt2))
}

// Quantile is infinite at 0 and 1.
func (n Normal) Quantile(p float64) float64 {
	if n.Sigma == 0 {
		return n.Mu
	}
	return n.Mu + n.Sigma*distuv.UnitNormal.Quantile(p)
}
