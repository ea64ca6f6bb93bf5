package queuetest

import (
	"math"
	"slices"

	"inferplan/policy/vqueue"
	"inferplan/solver/stoch"
)

// AnswerTime returns the distribution of the seconds to the answer of a request that waits behind seconds of work with
// unknown answers and then runs in a full batch. Instruments and tests hold it against what requests take.
func AnswerTime(r *vqueue.RCT, work float64) *NormalPlusValue {
	wait := WaitDistribution(r, work)
	if len(r.Residences) > 0 {
		return &NormalPlusValue{wait, r.Residences}
	}
	mean, variance := r.Residence(1)
	return &NormalPlusValue{stoch.Normal{Mu: wait.Mu, Sigma: math.Hypot(wait.Sigma, math.Sqrt(variance))}, []float64{mean}}
}

// WaitDistribution returns the distribution of the seconds that a request waits behind seconds of work, if the lengths
// of the answers in that work are not known. It varies with those answers, with other disturbances of the instance (both
// are in NoiseVariance), and with the error of the fit.
func WaitDistribution(r *vqueue.RCT, work float64) stoch.Normal {
	wait := r.MeanWait(work)
	return stoch.Normal{Mu: wait, Sigma: math.Sqrt(r.WaitVariance(work) + r.CommonSD*r.CommonSD*wait*wait)}
}

// NormalPlusValue is the distribution of a normal variable plus an independent one that has each of some values equally
// often. There must be at least one value.
type NormalPlusValue struct {
	Normal stoch.Normal
	Values []float64
}

// Mean returns the mean of the sum.
func (p *NormalPlusValue) Mean() float64 { return p.Normal.Mu + p.valuesMean() }

// valuesMean returns the mean of the values.
func (p *NormalPlusValue) valuesMean() float64 {
	sum := 0.0
	for _, v := range p.Values {
		sum += v
	}
	return sum / float64(len(p.Values))
}

// Var returns the variance of the sum.
func (p *NormalPlusValue) Var() float64 {
	mean, sum := p.valuesMean(), 0.0
	for _, v := range p.Values {
		sum += (v - mean) * (v - mean)
	}
	return p.Normal.Sigma*p.Normal.Sigma + sum/float64(len(p.Values))
}

// CDF returns P(X <= x): the mean, over the values, of the chance that the normal variable is at most x less
// the value.
func (p *NormalPlusValue) CDF(x float64) float64 {
	sum := 0.0
	for _, v := range p.Values {
		switch excess := x - p.Normal.Mu - v; {
		case p.Normal.Sigma > 0:
			sum += stoch.Phi(excess / p.Normal.Sigma)
		case excess >= 0:
			sum++
		}
	}
	return sum / float64(len(p.Values))
}

// halvings narrow a quantile to a part in 2^50 of its interval.
const halvings = 50

// Quantile returns the smallest x with CDF(x) >= probability. It bisects between the quantile of the normal variable plus the least value, and that plus
// the largest. For a probability of 0 or less, or 1 and more, it is infinite.
func (p *NormalPlusValue) Quantile(probability float64) float64 {
	if !(probability > 0) {
		return math.Inf(-1)
	}
	if probability >= 1 {
		return math.Inf(1)
	}
	q := p.Normal.Quantile(probability)
	lo, hi := q+slices.Min(p.Values), q+slices.Max(p.Values)
	for range halvings {
		if mid := (lo + hi) / 2; p.CDF(mid) < probability {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
