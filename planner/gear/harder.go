package gear

import "math"

// Samples held out are a sample, too: of those that will come as many more may go on to the large
// models as chance allows. So a gear is tried with them as hard as that: without so many of those
// which ask the first model alone that the mean work of a request is at the upper end of its
// interval.

// harderBy is how many standard errors the mean work of a request is above that of all samples.
const harderBy = 1.645

// harder returns samples as hard for a cascade as the interval of their mean work allows; seconds are
// what a sample takes of each model at least.
func (s *Samples) harder(c *Cascade, seconds []float64) *Samples {
	first := seconds[c.Models[0]]
	work, squares := 0.0, 0.0
	alone := make([]bool, s.N) // asks the first model alone
	s.each(c.Models, c.Levels, func(i, asked int, _ bool) {
		of := 0.0
		for _, m := range c.Models[:asked] {
			of += seconds[m]
		}
		work, squares, alone[i] = work+of, squares+of*of, asked == 1
	})
	n := float64(s.N)
	mean := work / n
	variance := squares/n - mean*mean
	if variance < 1e-9*mean*mean { // less is rounding: all take the same
		return s
	}
	more := harderBy * math.Sqrt(variance/n)
	without := int(math.Round(n * more / (mean + more - first)))
	out := &Samples{Levels: make([][]uint8, len(s.Levels)), Correct: make([][]bool, len(s.Levels))}
	for i := range s.N {
		if without > 0 && alone[i] {
			without--
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
// batch within the SLO, or alone if none is.
func leastSeconds(p *Problem) []float64 {
	out := make([]float64, len(p.Models))
	for m := range out {
		model := &p.Models[m]
		if _, out[m] = cheapestBatch(p, Variant{Times: model.Times, Means: model.Means}); math.IsInf(out[m], 1) {
			out[m] = model.Times[0].Seconds()
		}
	}
	return out
}
