package gear

import (
	"fmt"
	"slices"
	"sort"

	"inferplan/formats"
)

// Samples are the answers of all models to one set of samples, certainties as
// levels: [model][sample].
type Samples struct {
	N       int
	Levels  [][]uint8
	Correct [][]bool
}

// Thresholds are the quantiles 1/grid, 2/grid, … of a model's certainties:
// threshold j forwards about j/grid of the samples. Equal ones stay in place, so
// that a level is the same share for every model.
func Thresholds(certainty []float64, grid int) []float64 {
	sorted := slices.Clone(certainty)
	slices.Sort(sorted)
	out := make([]float64, 0, grid-1)
	for j := 1; j < grid; j++ {
		out = append(out, sorted[min(len(sorted)-1, j*len(sorted)/grid)])
	}
	return out
}

// levelsOf counts, for every certainty, the thresholds that it reaches.
func levelsOf(certainty, thresholds []float64) []uint8 {
	out := make([]uint8, len(certainty))
	for i, c := range certainty {
		out[i] = uint8(sort.Search(len(thresholds), func(k int) bool { return thresholds[k] > c }))
	}
	return out
}

// Grade turns records into levels: thresholds from the samples planned on,
// applied to these and to the samples held out.
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

// Replay runs a cascade over samples: how many reach each of its models, and
// how many are answered right.
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

// each visits every sample: how many models of a cascade it reaches, and whether the last
// of them answers it right.
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
