package gear

import (
	"cmp"
	"math"
	"slices"
)

// standardErrors lie between the mean work of samples and that of hardened ones: a one-sided interval of .95.
const standardErrors = 1.645

// hardened returns samples as hard for a cascade as the interval of their mean work allows. Those that will come may go on
// to the large models more often than those that were measured. So the samples of least work are left out
// until the mean work is at the upper end of its interval. seconds are what a sample takes of each model at least.
func (s *Samples) hardened(c *Cascade, seconds []float64) *Samples {
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
	if variance < 1e-9*mean*mean { // less is rounding: all take the same
		return s
	}
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

// leastSeconds returns what a sample takes of every model at least, in seconds: in the cheapest
// batch within the SLO on any kind, or alone if none is.
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
