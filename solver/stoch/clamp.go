package stoch

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/integrate/quad"
)

// clamped is a distribution whose values below lo are lo and above hi are hi.
type clamped struct {
	Dist
	lo, hi         float64
	mean, variance float64
}

// Clamp sets values below lo to lo and values above hi to hi: an answer has at
// least one token and ends at its maximum.
func Clamp(d Dist, lo, hi float64) (Dist, error) {
	if !(lo <= hi) || math.IsInf(lo, 0) || math.IsInf(hi, 0) {
		return nil, fmt.Errorf("a clamped distribution: found %g to %g, expected finite limits in this order", lo, hi)
	}
	if e, ok := d.(*Empirical); ok {
		cut := make([]float64, len(e.sorted))
		for i, x := range e.sorted {
			cut[i] = min(max(x, lo), hi)
		}
		return NewEmpirical(cut)
	}
	c := &clamped{Dist: d, lo: lo, hi: hi}
	c.mean, c.variance = moments(c, lo, hi)
	return c, nil
}

func (c *clamped) Mean() float64 { return c.mean }
func (c *clamped) Var() float64  { return c.variance }

func (c *clamped) CDF(x float64) float64 {
	switch {
	case x < c.lo:
		return 0
	case x >= c.hi:
		return 1
	}
	return c.Dist.CDF(x)
}

func (c *clamped) Quantile(p float64) float64 {
	return min(max(c.Dist.Quantile(p), c.lo), c.hi)
}

// moments integrates P(X > x) from lo to hi, which hold all of d: mean and
// variance. The panels lie between quantiles, and towards both ends they have
// half the probability each time.
func moments(d Dist, lo, hi float64) (mean, variance float64) {
	// The reference keeps the second integral small, so that nothing cancels.
	at := min(max(d.Quantile(0.5), lo), hi)
	var first, second float64
	panel := func(a, b float64) {
		if !(b > a) {
			return
		}
		first += quad.Fixed(func(x float64) float64 { return tailFrom(d, at, x) }, a, b, 16, quad.Legendre{}, 0)
		second += quad.Fixed(func(x float64) float64 { return 2 * (x - at) * tailFrom(d, at, x) }, a, b, 16, quad.Legendre{}, 0)
	}
	last := lo
	for _, p := range panelEnds {
		x := min(max(d.Quantile(p), last), hi)
		if last < at && x > at { // a panel must not straddle the reference
			panel(last, at)
			last = at
		}
		panel(last, x)
		last = x
	}
	if last < at {
		panel(last, at)
		last = at
	}
	panel(last, hi)
	mean = at + first
	return mean, max(second-first*first, 0)
}

// tailFrom is the derivative of E of (X - at): P(X > x) above the reference,
// -P(X <= x) below it.
func tailFrom(d Dist, at, x float64) float64 {
	if x < at {
		return -d.CDF(x)
	}
	return 1 - d.CDF(x)
}

// panelEnds are the probabilities between which moments integrates.
var panelEnds = func() []float64 {
	var low, ends []float64
	for p := 1.0 / 16; p > 1e-12; p /= 2 {
		low = append(low, p)
	}
	for i := len(low) - 1; i >= 0; i-- {
		ends = append(ends, low[i])
	}
	for k := 2; k < 15; k++ {
		ends = append(ends, float64(k)/16)
	}
	for _, p := range low {
		ends = append(ends, 1-p)
	}
	return ends
}()
