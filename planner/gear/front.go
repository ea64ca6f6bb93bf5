package gear

import (
	"cmp"
	"slices"
)

// pareto returns the indexes of the Pareto front of n points by rising cost and
// value. Of equal points the first stands.
func pareto(n int, cost func(int) float64, value func(int) int32) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(value(b), value(a)), cmp.Compare(a, b))
	})
	best := int32(-1)
	front := order[:0]
	for _, i := range order {
		if v := value(i); v > best {
			best = v
			front = append(front, i)
		}
	}
	return front
}

// undominated returns the indexes of cascades that no other one beats in
// accuracy without more work of some model, most accurate first.
func undominated(list []Cascade, work [][]float64) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	total := make([]float64, len(list))
	for i := range total {
		total[i] = sum(work[i])
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[b].Correct, list[a].Correct), cmp.Compare(total[a], total[b]), cmp.Compare(a, b))
	})
	var kept []int
next:
	for _, i := range order {
		for _, k := range kept {
			if total[k] <= total[i] && covers(work[k], work[i]) {
				continue next
			}
		}
		kept = append(kept, i)
	}
	return kept
}

// covers tells whether a needs no more than b of any model.
func covers(a, b []float64) bool {
	for m := range a {
		if a[m] > b[m] {
			return false
		}
	}
	return true
}
