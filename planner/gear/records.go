package gear

import (
	"fmt"
	"slices"
	"sort"

	"inferplan/formats"
)

// Samples are the answers of all models to the same samples, with certainties as levels. Both are by model and
// sample.
type Samples struct {
	N       int
	Levels  [][]uint8
	Correct [][]bool
}

// Thresholds returns the quantiles 1/grid, 2/grid, … of a model's certainties. Threshold j forwards about j/grid
// of the samples. Equal ones are kept, so that a level is the same share for every model.
func Thresholds(certainty []float64, grid int) []float64 {
	sorted := slices.Clone(certainty)
	slices.Sort(sorted)
	out := make([]float64, 0, grid-1)
	for j := 1; j < grid; j++ {
		out = append(out, sorted[min(len(sorted)-1, j*len(sorted)/grid)])
	}
	return out
}

// certaintyLevels returns, for every certainty, the number of thresholds that it reaches.
func levelsOf(certainty, thresholds []float64) []uint8 {
	out := make([]uint8, len(certainty))
	for i, c := range certainty {
		out[i] = uint8(sort.Search(len(thresholds), func(k int) bool { return thresholds[k] > c }))
	}
	return out
}

// GradeRecords turns records into levels. Thresholds come from the planning samples and apply to these and to the
// held-out samples.
func Grade(r *formats.Records, family []string, grid int) (thresholds [][]float64, planned, heldOut *Samples, err error) {
	if grid < 2 || grid > formats.MaxGrid {
		return nil, nil, nil, fmt.Errorf("a grid of %d quantiles, expected 2 to %d", grid, formats.MaxGrid)
	}
	planned = &Samples{N: r.Planning}
	heldOut = &Samples{N: r.Samples - r.Planning}
	for _, name := range family {
		m := r.Find(name)
		if m == nil {
			return nil, nil, nil, fmt.Errorf("the records have no model %q", name)
		}
		t := Thresholds(m.Certainty[:r.Planning], grid)
		levels := levelsOf(m.Certainty, t)
		correct := make([]bool, r.Samples)
		for i := range correct {
			correct[i] = m.Correct[i] == '1'
		}
		thresholds = append(thresholds, t)
		planned.Levels = append(planned.Levels, levels[:r.Planning])
		planned.Correct = append(planned.Correct, correct[:r.Planning])
		heldOut.Levels = append(heldOut.Levels, levels[r.Planning:])
		heldOut.Correct = append(heldOut.Correct, correct[r.Planning:])
	}
	return thresholds, planned, heldOut, nil
}

// Replay runs a cascade over samples. It returns how many reach each of its models, and how many are answered
// correctly.
func (s *Samples) Replay(models, levels []uint8) (reach []int, correct int) {
	reach = make([]int, len(models))
	s.each(models, levels, func(_, asked int, right bool) {
		for k := range asked {
			reach[k]++
		}
		if right {
			correct++
		}
	})
	return reach, correct
}

// eachSample calls visit with every sample, the number of models of a cascade that it reaches, and whether the
// last of them answers it correctly.
func (s *Samples) each(models, levels []uint8, visit func(sample, asked int, right bool)) {
	for i := range s.N {
		for k, m := range models {
			if k == len(models)-1 || s.Levels[m][i] >= levels[k] {
				visit(i, k+1, s.Correct[m][i])
				break
			}
		}
	}
}
