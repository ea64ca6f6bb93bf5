package stoch

import (
	"fmt"

	"gonum.org/v1/gonum/mathext"
)

// order is the k-th smallest of n independent draws.
type order struct {
	d              Dist
	k, n           float64
	mean, variance float64
}

// Order is the distribution of the k-th smallest of n independent draws, k from 1.
func Order(d Dist, k, n int) (Dist, error) {
	if k < 1 || k > n {
		return nil, fmt.Errorf("order statistic %d of %d: expected 1 to %d", k, n, n)
	}
	o := &order{d: d, k: float64(k), n: float64(n)}
	o.mean, o.variance = moments(o, o.Quantile(1e-14), o.Quantile(1-1e-14))
	return o, nil
}

// Max is the distribution of the largest of n independent draws: QLM's completion
// of a group (equation 5).
func Max(d Dist, n int) (Dist, error) { return Order(d, n, n) }

func (o *order) Mean() float64 { return o.mean }
func (o *order) Var() float64  { return o.variance }

func (o *order) CDF(x float64) float64 {
	switch p := o.d.CDF(x); {
	case p <= 0:
		return 0
	case p >= 1:
		return 1
	default:
		return mathext.RegIncBeta(o.k, o.n-o.k+1, p)
	}
}

func (o *order) Quantile(p float64) float64 {
	if p <= 0 || p >= 1 {
		return o.d.Quantile(p)
	}
	return o.d.Quantile(mathext.InvRegIncBeta(o.k, o.n-o.k+1, p))
}
