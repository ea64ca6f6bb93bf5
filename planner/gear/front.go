package gear

import (
	"cmp"
	"math"
	"slices"
)

// Pareto returns the indexes of the Pareto front of cascades by rising cost and
// accuracy. Of equal ones the first stands; those of infinite cost are left out.
func Pareto(cost []float64, list []Cascade) []int {
	order := make([]int, 0, len(list))
	for i := range list {
		if !math.IsInf(cost[i], 1) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch { // written out: it is called a million times
		case cost[a] < cost[b]:
			return -1
		case cost[a] > cost[b]:
			return 1
		case list[a].Correct != list[b].Correct:
			return int(list[b].Correct) - int(list[a].Correct)
		}
		return a - b
	})
	best := int32(-1)
	front := order[:0]
	for _, i := range order {
		if v := list[i].Correct; v > best {
			best = v
			front = append(front, i)
		}
	}
	return front
}

// undominated returns the indexes of cascades that no other one beats in
// accuracy without more work of some model.
func undominated(list []Cascade, work [][]float64) []int {
	order := upTo(len(list))
	total := totals(work)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(total[a], total[b]), cmp.Compare(list[b].Correct, list[a].Correct), cmp.Compare(a, b))
	})
	var kept []int
next:
	for _, i := range order {
		for at := len(kept) - 1; at >= 0; at-- { // the nearest ones first: they are the likeliest
			if k := kept[at]; list[k].Correct >= list[i].Correct && covers(work[k], work[i]) {
				continue next
			}
		}
		kept = append(kept, i)
	}
	slices.Sort(kept)
	return kept
}

// covers tells whether a needs no more than b of any model.
func covers[T cmp.Ordered](a, b []T) bool {
	for m := range a {
		if a[m] > b[m] {
			return false
		}
	}
	return true
}

// prune leaves out cascades that another one beats in accuracy without bringing
// more samples to any model: whatever a model costs, they are on no front.
func prune(list []Cascade, models int) []Cascade {
	reach := make([][]float64, len(list))
	flat := make([]float64, len(list)*models)
	for i := range list {
		reach[i] = flat[i*models : (i+1)*models]
		for k, m := range list[i].Models {
			reach[i][m] = float64(list[i].Reach[k])
		}
	}
	return chosen(list, undominated(list, reach))
}

// chosen are some of a list.
func chosen(list []Cascade, some []int) []Cascade {
	out := make([]Cascade, len(some))
	for n, i := range some {
		out[n] = list[i]
	}
	return out
}
