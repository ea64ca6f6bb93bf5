package cascades

import (
	"context"

	"inferplan/planner/lists"
	"inferplan/solver/pareto"
)

// CascadeCache keeps pruned cascades by the set of usable models, as bits.
type CascadeCache map[uint32]prunedCascades

// prunedCascades are the cascades of some models that are on some front.
type prunedCascades struct {
	Cascades        []Cascade
	EnumeratedCount int // number before pruning
}

// PrunedOver returns the cascades over the usable models, by index, that no other one beats (more accurate, with no
// more samples at any model), with the number before that pruning. They are computed once for each set of models and
// stored in the cache, as problems with other SLOs or devices have the same cascades. A nil cache stores nothing.
func (c CascadeCache) PrunedOver(ctx context.Context, p *Problem, usable []bool) (prunedCascades, error) {
	usableBits := uint32(0)
	for m, ok := range usable {
		if ok {
			usableBits |= 1 << m
		}
	}
	found, ok := c[usableBits]
	if !ok {
		enumerated := Enumerate(p.PlanningSamples, p.Grid, usable)
		pruned, err := pruneCascades(ctx, enumerated, len(p.Models))
		if err != nil {
			return found, err
		}
		found = prunedCascades{pruned, len(enumerated)}
		if c != nil {
			c[usableBits] = found
		}
	}
	return found, nil
}

// pruneCascades returns the cascades of a list that no other one beats, in accuracy without more samples at any model.
// Whatever a sample costs at a model, the others are on no front (the most accurate cascades for each load), so
// planning never needs them. models is the size of the family.
func pruneCascades(ctx context.Context, list []Cascade, models int) ([]Cascade, error) {
	// By cascade and model: samples that reach the model, 0 if the cascade does not ask it.
	reachCounts := make([][]float64, len(list))
	flat := make([]float64, len(list)*models)
	for i := range list {
		reachCounts[i] = flat[i*models : (i+1)*models]
		for k, m := range list[i].Models {
			reachCounts[i][m] = float64(list[i].ReachCounts[k])
		}
	}
	undominated, err := pareto.UndominatedPoints(ctx, reachCounts, correctCounts(list))
	return selectCascades(list, undominated), err
}

// selectCascades returns the cascades at some indexes.
func selectCascades(list []Cascade, indexes []int) []Cascade {
	return lists.Filled(len(indexes), func(n int) Cascade { return list[indexes[n]] })
}

// correctCounts returns how many samples each cascade answers correctly.
func correctCounts(list []Cascade) []int32 {
	return lists.Filled(len(list), func(i int) int32 { return list[i].CorrectCount })
}

// ParetoFront returns the indexes of the cascades on the Pareto front by rising cost and accuracy. Of equal ones
// the first is kept. Cascades of infinite cost are left out.
func ParetoFront(cost []float64, list []Cascade) []int {
	return pareto.Front(cost, correctCounts(list))
}
