package stoch

import (
	"math"
	"slices"
)

// normalPlusValue is a normal variable plus an independent one that has each of some values equally often.
type normalPlusValue struct {
	normal Normal
	values []float64
}

// NormalPlusValue returns the distribution of n plus an independent variable that has each of the values equally
// often. There must be at least one value.
func NormalPlusValue(n Normal, values []float64) Dist { return &normalPlusValue{n, values} }

// Mean implements Dist.
func (p *normalPlusValue) Mean() float64 { return p.normal.Mu + p.valuesMean() }

// valuesMean returns the mean of the values.
func (p *normalPlusValue) valuesMean() float64 {
	sum := 0.0
	for _, v := range p.values {
		sum += v
	}
	return sum / float64(len(p.values))
}

// Var implements Dist.
func (p *normalPlusValue) Var() float64 {
	mean, sum := p.valuesMean(), 0.0
	for _, v := range p.values {
		sum += (v - mean) * (v - mean)
	}
	return p.normal.Var() + sum/float64(len(p.values))
}

// CDF implements Dist: it returns the mean, over the values, of the chance that the normal variable is at most x less
// the value.
func (p *normalPlusValue) CDF(x float64) float64 {
	sum := 0.0
	for _, v := range p.values {
		switch excess := x - p.normal.Mu - v; {
		case p.normal.Sigma > 0:
			sum += Phi(excess / p.normal.Sigma)
		case excess >= 0:
			sum++
		}
	}
	return sum / float64(len(p.values))
}

// halvings narrow a quantile to a part in 2^50 of its interval.
const halvings = 50

// Quantile implements Dist. It bisects between the quantile of the normal variable plus the least value, and that plus
// the largest. For a probability of 0 or less, or 1 and more, it is infinite.
func (p *normalPlusValue) Quantile(probability float64) float64 {
	if !(probability > 0) {
		return math.Inf(-1)
	}
	if probability >= 1 {
		return math.Inf(1)
	}
	q := p.normal.Quantile(probability)
	lo, hi := q+slices.Min(p.values), q+slices.Max(p.values)
	for range halvings {
		if mid := (lo + hi) / 2; p.CDF(mid) < probability {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
