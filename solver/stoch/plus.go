package stoch

import (
	"math"
	"slices"
)

// normalPlusValue is a normal variable plus an independent one that has each of some values equally often.
type plus struct {
	normal Normal
	values []float64
}

// NormalPlusValue returns the distribution of n plus an independent variable that has each of the values equally
// often. There must be at least one value.
func Plus(n Normal, values []float64) Dist { return &plus{n, values} }

// Mean implements Dist.
func (p *plus) Mean() float64 { return p.normal.Mu + p.mean() }

// valuesMean returns the mean of the values.
func (p *plus) mean() float64 {
	sum := 0.0
	for _, v := range p.values {
		sum += v
	}
	return sum / float64(len(p.values))
}

// Var implements Dist.
func (p *plus) Var() float64 {
	mean, sum := p.mean(), 0.0
	for _, v := range p.values {
		sum += (v - mean) * (v - mean)
	}
	return p.normal.Var() + sum/float64(len(p.values))
}

// CDF implements Dist.
func (p *plus) CDF(x float64) float64 {
	sum := 0.0
	for _, v := range p.values {
		switch late := x - p.normal.Mu - v; {
		case p.normal.Sigma > 0:
			sum += Phi(late / p.normal.Sigma)
		case late >= 0:
			sum++
		}
	}
	return sum / float64(len(p.values))
}

// halvings narrow a quantile to a part in 2^50 of its interval.
const halvings = 50

// Quantile implements Dist.
func (p *plus) Quantile(share float64) float64 {
	if !(share > 0) {
		return math.Inf(-1)
	}
	if share >= 1 {
		return math.Inf(1)
	}
	q := p.normal.Quantile(share)
	lo, hi := q+slices.Min(p.values), q+slices.Max(p.values)
	for range halvings {
		if mid := (lo + hi) / 2; p.CDF(mid) < share {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
