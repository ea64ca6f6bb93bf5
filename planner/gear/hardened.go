package gear

import (
	"cmp"
	"math"
	"slices"
)

// hardenedErrors is the distance, in standard errors, of the mean work of hardened samples above that of all: the
// end of a one-sided interval of 95 %.
const standardErrors = 1.645

// hardenedFor returns samples as hard for a cascade as the interval of their mean work allows. Future samples may
// reach the large models more often than the measured ones did. So the samples of least work are left out until
// the mean work is at the upper end of its interval. seconds has the least time of a sample, by model.
func (s *Samples) hardened(c *Cascade, seconds []float64) *Samples {
	// The work of each sample, and its mean.
	total, squares := 0.0, 0.0
	work, order := make([]float64, s.N), make([]int, s.N)
	s.each(c.Models, c.Levels, func(i, asked int, _ bool) {
		for _, m := range c.Models[:asked] {
			work[i] += seconds[m]
		}
		order[i] = i
		total, squares = total+work[i], squares+work[i]*work[i]
	})
	n := float64(s.N)
	mean := total / n
	variance := squares/n - mean*mean
	if variance < 1e-9*mean*mean { // rounding only: all samples take the same work
		return s
	}

	// Leave out the samples of least work.
	target := mean + standardErrors*math.Sqrt(variance/n)
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(work[i], work[j]) })
	omitted := make([]bool, s.N)
	for _, i := range order[:s.N-1] {
		if total >= target*n {
			break
		}
		omitted[i] = true
		total, n = total-work[i], n-1
	}

	// Copy the others.
	out := &Samples{Levels: make([][]uint8, len(s.Levels)), Correct: make([][]bool, len(s.Levels))}
	for i := range s.N {
		if omitted[i] {
			continue
		}
		for m := range s.Levels {
			out.Levels[m], out.Correct[m] = append(out.Levels[m], s.Levels[m][i]), append(out.Correct[m], s.Correct[m][i])
		}
		out.N++
	}
	return out
}

// minSecondsPerSample returns the least time of a sample of every model, in seconds: in the cheapest batch within
// the SLO on any kind. If no batch keeps the SLO, it is the time of a batch of one.
func leastSeconds(p *Problem) []float64 {
	out := make([]float64, len(p.Models))
	for m := range out {
		out[m] = math.Inf(1)
		for _, v := range p.Models[m].On {
			_, per := cheapestBatch(p, v)
			out[m] = min(out[m], per)
		}
		if math.IsInf(out[m], 1) {
			out[m] = p.Models[m].Times[0].Seconds()
		}
	}
	return out
}
