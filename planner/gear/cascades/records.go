package cascades

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"inferplan/formats"
	"inferplan/planner/lists"
)

// Samples are the answers of all models to the same samples, with certainties as levels. Both are by model and
// sample.
type Samples struct {
	N       int
	Levels  [][]uint8
	Correct [][]bool
}

// Thresholds returns the quantiles 1/grid, 2/grid, … of a model's certainties, by which a cascade may decide to forward
// a sample. Threshold j, counted from 1, forwards about j/grid of the samples. Equal thresholds are not merged, so that
// a level means the same share for every model.
func Thresholds(certainty []float64, grid int) []float64 {
	byCertainty := slices.Clone(certainty)
	slices.Sort(byCertainty)
	thresholds := make([]float64, 0, grid-1)
	for j := 1; j < grid; j++ {
		thresholds = append(thresholds, byCertainty[min(len(byCertainty)-1, j*len(byCertainty)/grid)])
	}
	return thresholds
}

// CertaintyLevels returns, for every certainty (of a model's answer to a sample), its level: the number of thresholds
// that the certainty is not below. thresholds ascend, so the search finds the first that is above it.
func CertaintyLevels(certainty, thresholds []float64) []uint8 {
	levels := make([]uint8, len(certainty))
	for i, c := range certainty {
		levels[i] = uint8(sort.Search(len(thresholds), func(k int) bool { return thresholds[k] > c }))
	}
	return levels
}

// GradeRecords turns the records of a family's models (certainty and correctness of every answer) into samples with
// levels of certainty, from 0 to grid-1. Thresholds between levels are quantiles of the planning samples, by model.
// They apply to these and to the held-out samples, which follow the planning samples in the records.
func GradeRecords(r *formats.Records, family []string, grid int) (thresholds [][]float64, planning, heldOut *Samples, err error) {
	if grid < 2 || grid > formats.MaxGrid {
		return nil, nil, nil, fmt.Errorf("a grid of %d quantiles, expected 2 to %d", grid, formats.MaxGrid)
	}
	planning = &Samples{N: r.PlanningSamples}
	heldOut = &Samples{N: r.Samples - r.PlanningSamples}
	for _, name := range family {
		m := r.FindModel(name)
		if m == nil {
			return nil, nil, nil, fmt.Errorf("the records have no model %q", name)
		}
		modelThresholds := Thresholds(m.Certainty[:r.PlanningSamples], grid)
		levels := CertaintyLevels(m.Certainty, modelThresholds)
		correct := lists.Filled(r.Samples, func(i int) bool { return m.Correct[i] == '1' })
		thresholds = append(thresholds, modelThresholds)
		planning.Levels = append(planning.Levels, levels[:r.PlanningSamples])
		planning.Correct = append(planning.Correct, correct[:r.PlanningSamples])
		heldOut.Levels = append(heldOut.Levels, levels[r.PlanningSamples:])
		heldOut.Correct = append(heldOut.Correct, correct[r.PlanningSamples:])
	}
	return thresholds, planning, heldOut, nil
}

// Replay runs a cascade, given as models and the levels below which each but the last forwards, over samples. It
// returns how many samples reach each of its models, and how many are answered correctly.
func (s *Samples) Replay(models, levels []uint8) (reachCounts []int, correct int) {
	reachCounts = make([]int, len(models))
	s.EachSample(models, levels, func(_, askedModels int, isCorrect bool) {
		for k := range askedModels {
			reachCounts[k]++
		}
		if isCorrect {
			correct++
		}
	})
	return reachCounts, correct
}

// EachSample replays a cascade over the samples: it calls visit with the index of every sample, the number of models
// that it reaches, and whether the last of them answers it correctly. A model forwards a sample if its level of
// certainty is below the model's entry of levels; the last model has none and answers all.
func (s *Samples) EachSample(models, levels []uint8, visit func(sample, askedModels int, isCorrect bool)) {
	for i := range s.N {
		for k, m := range models {
			if k == len(models)-1 || s.Levels[m][i] >= levels[k] {
				visit(i, k+1, s.Correct[m][i])
				break
			}
		}
	}
}

// IsPresent reports whether there are samples.
func (s *Samples) IsPresent() bool { return s != nil && s.N > 0 }

// hardenedErrors is the distance, in standard errors, of the mean work of hardened samples above that of all: the
// end of a one-sided interval of 95 %.
const hardenedErrors = 1.645

// HardenedFor returns samples for trials that are harder for a cascade than the measured ones, since future samples may
// reach the large models more often. It leaves out the samples of least work until the mean work per sample is at the
// upper end of its 95 % confidence interval. seconds has the least device time of a sample, by model. If all samples
// take the same work, it returns s itself.
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
