package cascades

import (
	"cmp"
	"math"
	"slices"
)

// hardenedErrors is the distance, in standard errors, of the mean work of hardened samples above that of all: the
// end of a one-sided interval of 95 %.
const hardenedErrors = 1.645

// HardenedFor returns samples as hard for a cascade as the interval of their mean work allows. Future samples
// may reach the large models more often than the measured ones did. So the samples of least work are left out
// until the mean work is at the upper end of its interval. Trials on these samples allow for that. seconds has
// the least time of a sample, by model.
func (s *Samples) HardenedFor(c *Cascade, seconds []float64) *Samples {
	// The work of each sample, and its mean.
	total, squares := 0.0, 0.0
	work, order := make([]float64, s.N), make([]int, s.N)
	s.EachSample(c.Models, c.Levels, func(i, askedModels int, _ bool) {
		for _, m := range c.Models[:askedModels] {
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
	target := mean + hardenedErrors*math.Sqrt(variance/n)
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
	harder := &Samples{Levels: make([][]uint8, len(s.Levels)), Correct: make([][]bool, len(s.Levels))}
	for i := range s.N {
		if omitted[i] {
			continue
		}
		for m := range s.Levels {
			harder.Levels[m], harder.Correct[m] = append(harder.Levels[m], s.Levels[m][i]), append(harder.Correct[m], s.Correct[m][i])
		}
		harder.N++
	}
	return harder
}
