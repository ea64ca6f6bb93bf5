package stoch

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// FitNormal has the mean and standard deviation of the samples.
func FitNormal(samples []float64) (Normal, error) {
	if len(samples) < 2 {
		return Normal{}, fmt.Errorf("fitting a normal distribution: found %d samples, expected at least 2", len(samples))
	}
	mu, sigma := stat.MeanStdDev(samples, nil)
	return Normal{mu, sigma}, nil
}

// FitLogT is the most likely log-t distribution. Samples must be above 0. The
// degrees of freedom are searched from 1 to 100.
func FitLogT(samples []float64) (LogT, error) {
	if len(samples) < 3 {
		return LogT{}, fmt.Errorf("fitting a log-t distribution: found %d samples, expected at least 3", len(samples))
	}
	logs := make([]float64, len(samples))
	for i, x := range samples {
		if !(x > 0) || math.IsInf(x, 1) {
			return LogT{}, fmt.Errorf("fitting a log-t distribution: sample %d: found %g, expected more than 0", i, x)
		}
		logs[i] = math.Log(x)
	}
	// The likelihood has one peak along log nu: golden section.
	const ratio = 0.6180339887498949
	lo, hi := 0.0, math.Log(100)
	a, b := hi-ratio*(hi-lo), lo+ratio*(hi-lo)
	fitA, likeA := fitStudent(logs, math.Exp(a))
	fitB, likeB := fitStudent(logs, math.Exp(b))
	for hi-lo > 1e-3 {
		if likeA >= likeB {
			hi, b, fitB, likeB = b, a, fitA, likeA
			a = hi - ratio*(hi-lo)
			fitA, likeA = fitStudent(logs, math.Exp(a))
		} else {
			lo, a, fitA, likeA = a, b, fitB, likeB
			b = lo + ratio*(hi-lo)
			fitB, likeB = fitStudent(logs, math.Exp(b))
		}
	}
	if likeA >= likeB {
		return fitA, nil
	}
	return fitB, nil
}

// fitStudent is location and scale for these degrees of freedom by expectation
// and maximisation, and the log-likelihood.
func fitStudent(logs []float64, nu float64) (LogT, float64) {
	mu, sigma := stat.MeanStdDev(logs, nil)
	sigma = max(sigma, 1e-9)
	for range 200 {
		var sw, sx float64
		for _, x := range logs {
			r := (x - mu) / sigma
			w := (nu + 1) / (nu + r*r)
			sw, sx = sw+w, sx+w*x
		}
		next, ss := sx/sw, 0.0
		for _, x := range logs {
			r := (x - mu) / sigma
			ss += (nu + 1) / (nu + r*r) * (x - next) * (x - next)
		}
		scale := max(math.Sqrt(ss/float64(len(logs))), 1e-9)
		done := math.Abs(next-mu) < 1e-9*scale && math.Abs(scale-sigma) < 1e-9*scale
		mu, sigma = next, scale
		if done {
			break
		}
	}
	t, like := distuv.StudentsT{Mu: mu, Sigma: sigma, Nu: nu}, 0.0
	for _, x := range logs {
		like += t.LogProb(x)
	}
	return LogT{mu, sigma, nu}, like
}
