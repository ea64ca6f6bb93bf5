package queuetest_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"inferplan/solver/stoch"
	"inferplan/testkit/queuetest"
)

// requireNear compares with a Monte Carlo estimate: within five of its standard errors
// and .2 % of the estimate.
func requireNear(t *testing.T, what string, got float64, draws []float64, statistic func([]float64) (value, sd float64)) {
	t.Helper()
	want, sd := statistic(draws)
	if math.Abs(got-want) > 5*sd+2e-3*math.Abs(want) {
		t.Errorf("%s: %g, Monte Carlo %g with standard error %.2g", what, got, want, sd)
	}
}

func meanOf(x []float64) (float64, float64) {
	m, s := stat.MeanStdDev(x, nil)
	return m, s / math.Sqrt(float64(len(x)))
}

func varianceOf(x []float64) (float64, float64) {
	m, v := stat.MeanVariance(x, nil)
	sq := make([]float64, len(x))
	for i, y := range x {
		sq[i] = (y - m) * (y - m)
	}
	return v, stat.StdDev(sq, nil) / math.Sqrt(float64(len(x)))
}

// compareWithDraws holds a distribution against draws.
func compareWithDraws(t *testing.T, name string, d *queuetest.NormalPlusValue, draws []float64) {
	t.Helper()
	requireNear(t, name+" mean", d.Mean(), draws, meanOf)
	requireNear(t, name+" variance", d.Var(), draws, varianceOf)
	slices.Sort(draws)
	n := float64(len(draws))
	for _, p := range []float64{0.05, 0.25, 0.5, 0.9, 0.99} {
		x := draws[int(p*n)]
		below := 0
		for below < len(draws) && draws[below] <= x {
			below++
		}
		share := float64(below) / n
		if got := d.CDF(x); math.Abs(got-share) > 5*math.Sqrt(share*(1-share)/n)+4e-3 {
			t.Errorf("%s: CDF(%g) is %.4f, Monte Carlo %.4f", name, x, got, share)
		}
		if q := d.Quantile(p); d.CDF(q) < p-1e-9 || d.CDF(q-1e-6*math.Abs(q)-1e-9) > p+2e-3 {
			t.Errorf("%s: Quantile(%g) is %g, where the CDF goes from %.4f to %.4f", name, p, q, d.CDF(q-1e-6*math.Abs(q)-1e-9), d.CDF(q))
		}
	}
}

// TestNormalPlusValueMatchesDraws holds a normal variable plus one of some values against draws.
func TestNormalPlusValueMatchesDraws(t *testing.T) {
	values := []float64{0.5, 1, 1, 2, 8, 40}
	for _, n := range []stoch.Normal{{Mu: 10, Sigma: 3}, {Mu: -2, Sigma: 0.2}} {
		rng, draws := rand.New(rand.NewPCG(3, 7)), make([]float64, 40_000)
		for i := range draws {
			draws[i] = n.Mu + n.Sigma*rng.NormFloat64() + values[rng.IntN(len(values))]
		}
		compareWithDraws(t, "plus", &queuetest.NormalPlusValue{Normal: n, Values: values}, draws)
	}
	sure := queuetest.NormalPlusValue{Normal: stoch.Normal{Mu: 1}, Values: []float64{1, 3}}
	if sure.CDF(1.9) != 0 || sure.CDF(2) != 0.5 || sure.CDF(4) != 1 || math.Abs(sure.Quantile(0.75)-4) > 1e-9 {
		t.Errorf("without spread: %g, %g, %g, quantile %g", sure.CDF(1.9), sure.CDF(2), sure.CDF(4), sure.Quantile(0.75))
	}
	if !math.IsInf(sure.Quantile(0), -1) || !math.IsInf(sure.Quantile(1), 1) {
		t.Errorf("quantiles 0 and 1: %g, %g", sure.Quantile(0), sure.Quantile(1))
	}
}
