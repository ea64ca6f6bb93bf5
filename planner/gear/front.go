package gear

import (
	"context"

	"inferplan/solver/pareto"
)

// ParetoFront returns the indexes of the cascades on the Pareto front by rising cost and accuracy. Of equal ones
// the first is kept. Cascades of infinite cost are left out.
func Pareto(cost []float64, list []Cascade) []int { return pareto.Front(cost, rightAnswers(list)) }

// correctCounts returns how many samples each cascade answers correctly.
func rightAnswers(list []Cascade) []int32 {
	out := make([]int32, len(list))
	for i := range list {
		out[i] = list[i].Correct
	}
	return out
}

// pruneCascades leaves out the cascades that another one beats in accuracy without sending more samples to any
// model. Whatever a model costs, they are on no front.
func prune(ctx context.Context, list []Cascade, models int) ([]Cascade, error) {
	reach := make([][]float64, len(list))
	flat := make([]float64, len(list)*models)
	for i := range list {
		reach[i] = flat[i*models : (i+1)*models]
		for k, m := range list[i].Models {
			reach[i][m] = float64(list[i].Reach[k])
		}
	}
	some, err := pareto.Undominated(ctx, reach, rightAnswers(list))
	return chosen(list, some), err
}

// selectCascades returns the cascades at some indexes.
func chosen(list []Cascade, some []int) []Cascade {
	out := make([]Cascade, len(some))
	for n, i := range some {
		out[n] = list[i]
	}
	return out
}
