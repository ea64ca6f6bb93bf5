package stoch

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
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

// Draw draws one value by inversion.
func Draw(d Dist, rng *rand.Rand) float64 { return d.Quantile(rng.Float64()) }

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

// LogT is heavy-tailed: log X is Mu + Sigma T, with T of Student's distribution
// with Nu degrees of freedom. Its mean and variance are infinite, so it is of use
// with a maximum only (Clamp).
type LogT struct{ Mu, Sigma, Nu float64 }

func (l LogT) student() distuv.StudentsT {
	return distuv.StudentsT{Mu: l.Mu, Sigma: l.Sigma, Nu: l.Nu}
}

// Mean is infinite.
func (l LogT) Mean() float64 { return math.Inf(1) }

// Var is infinite.
func (l LogT) Var() float64 { return math.Inf(1) }

// CDF is 0 up to 0.
func (l LogT) CDF(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return l.student().CDF(math.Log(x))
}

// Quantile is 0 at 0 and infinite at 1.
func (l LogT) Quantile(p float64) float64 {
	switch {
	case p <= 0:
		return 0
	case p >= 1:
		return math.Inf(1)
	}
	return math.Exp(l.student().Quantile(p))
}

// Empirical is the distribution of samples, each equally likely.
type Empirical struct {
	sorted         []float64
	mean, variance float64
}

// NewEmpirical copies the samples.
func NewEmpirical(samples []float64) (*Empirical, error) {
	if len(samples) == 0 {
		return nil, errors.New("an empirical distribution needs samples, found none")
	}
	e := &Empirical{sorted: slices.Clone(samples)}
	for i, x := range samples {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("sample %d: found %v, expected a finite number", i, x)
		}
	}
	slices.Sort(e.sorted)
	e.mean, e.variance = stat.PopMeanVariance(e.sorted, nil)
	return e, nil
}

// Mean is that of the samples.
func (e *Empirical) Mean() float64 { return e.mean }

// Var is that of the samples (divided by their number).
func (e *Empirical) Var() float64 { return e.variance }

// CDF is the share of samples up to x.
func (e *Empirical) CDF(x float64) float64 {
	at, _ := slices.BinarySearchFunc(e.sorted, x, func(s, x float64) int {
		if s <= x {
			return -1
		}
		return 1
	})
	return float64(at) / float64(len(e.sorted))
}

// Quantile is one of the samples.
func (e *Empirical) Quantile(p float64) float64 {
	n := len(e.sorted)
	return e.sorted[min(max(int(math.Ceil(p*float64(n)))-1, 0), n-1)]
}
