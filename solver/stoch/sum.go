package stoch

import (
	"fmt"
	"math"
	"math/bits"
	"math/cmplx"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
)

// Lattice is a distribution over multiples of a step.
type Lattice struct {
	first, step    float64
	cdf            []float64 // of first + i*step
	mean, variance float64
}

// maxCells bounds the memory of a sum.
const maxCells = 1 << 24

// Sum is the distribution of the sum of n independent draws, with each rounded to
// one of cells+1 points between its least and largest value, which must be finite.
func Sum(d Dist, n, cells int) (*Lattice, error) {
	lo, hi := d.Quantile(0), d.Quantile(1)
	if math.IsInf(lo, 0) || math.IsInf(hi, 0) {
		return nil, fmt.Errorf("a sum on a lattice: found values from %g to %g, expected finite ones: clamp the distribution", lo, hi)
	}
	if n < 1 || cells < 1 || n > maxCells/cells {
		return nil, fmt.Errorf("a sum of %d draws on %d cells: expected at least 1 of each and no more than %d in all", n, cells, maxCells)
	}
	l := &Lattice{first: float64(n) * lo, step: (hi - lo) / float64(cells)}
	size := 1 << bits.Len(uint(n*cells))
	p := make([]float64, size)
	below := 0.0
	for i := range cells + 1 {
		upto := d.CDF(lo + (float64(i)+0.5)*l.step)
		if i == cells {
			upto = 1
		}
		p[i], below = upto-below, upto
	}
	fft := fourier.NewFFT(size)
	freq := fft.Coefficients(nil, p)
	for i, c := range freq {
		freq[i] = cmplx.Pow(c, complex(float64(n), 0))
	}
	p = fft.Sequence(p, freq)[:n*cells+1]
	l.fill(p, float64(size))
	return l, nil
}

// fill takes the probabilities, scaled, and makes them sum to 1.
func (l *Lattice) fill(p []float64, scale float64) {
	l.cdf = make([]float64, len(p))
	total := 0.0
	for i, q := range p {
		q = max(q/scale, 0) // the transform leaves -1e-17
		total += q
		l.cdf[i] = total
		l.mean += q * float64(i)
		l.variance += q * float64(i) * float64(i)
	}
	l.mean /= total
	l.variance = max(l.variance/total-l.mean*l.mean, 0) * l.step * l.step
	l.mean = l.first + l.mean*l.step
	for i := range l.cdf {
		l.cdf[i] /= total
	}
}

// Mean is that of the rounded draws.
func (l *Lattice) Mean() float64 { return l.mean }

// Var is that of the rounded draws.
func (l *Lattice) Var() float64 { return l.variance }

// CDF is a step function.
func (l *Lattice) CDF(x float64) float64 {
	i := math.Floor((x-l.first)/l.step + 1e-9)
	switch {
	case x < l.first:
		return 0
	case i >= float64(len(l.cdf)-1) || l.step == 0:
		return 1
	}
	return l.cdf[int(i)]
}

// Quantile is a point of the lattice.
func (l *Lattice) Quantile(p float64) float64 {
	i, _ := slices.BinarySearch(l.cdf, p)
	return l.first + float64(min(i, len(l.cdf)-1))*l.step
}

// scaled is a distribution times a common factor.
type scaled struct {
	Dist
	factors        []float64
	mean, variance float64
}

// Common is d times an independent factor with mean 1 and this standard deviation:
// normal, cut at 4 standard deviations and never below 0.
func Common(d Dist, common float64) Dist {
	const nodes = 65
	s := &scaled{Dist: d, factors: make([]float64, nodes)}
	var m1, m2 float64
	for i := range s.factors { // nodes of equal probability
		f := max(1+common*Normal{0, 1}.Quantile((float64(i)+0.5)/nodes), 1e-6)
		s.factors[i] = f
		m1, m2 = m1+f/nodes, m2+f*f/nodes
	}
	// The nodes lose a little of the tails: stretch them to the standard deviation.
	stretch := 1.0
	if sd := math.Sqrt(m2 - m1*m1); sd > 0 {
		stretch = common / sd
	}
	for i, f := range s.factors {
		s.factors[i] = max(1+(f-m1)*stretch, 1e-6)
	}
	s.mean = d.Mean()
	s.variance = d.Var()*(1+common*common) + common*common*s.mean*s.mean
	return s
}

func (s *scaled) Mean() float64 { return s.mean }
func (s *scaled) Var() float64  { return s.variance }

func (s *scaled) CDF(x float64) float64 {
	sum := 0.0
	for _, f := range s.factors {
		sum += s.Dist.CDF(x / f)
	}
	return sum / float64(len(s.factors))
}

func (s *scaled) Quantile(p float64) float64 {
	x := s.Dist.Quantile(p)
	switch {
	case p <= 0:
		return min(x*s.factors[0], x*s.factors[len(s.factors)-1])
	case p >= 1:
		return max(x*s.factors[0], x*s.factors[len(s.factors)-1])
	}
	sd := math.Sqrt(s.variance)
	lo, hi := x-sd, x+sd
	for step := sd; s.CDF(lo) >= p && sd > 0; step *= 2 {
		lo -= step
	}
	for step := sd; s.CDF(hi) < p && sd > 0; step *= 2 {
		hi += step
	}
	for range 60 {
		if mid := (lo + hi) / 2; s.CDF(mid) >= p {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}
