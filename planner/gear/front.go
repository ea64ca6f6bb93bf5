package gear

import (
	"cmp"
	"math"
	"slices"
)

// pareto returns the indexes of the Pareto front of cascades by rising cost and
// accuracy. Of equal ones the first stands; those of infinite cost are left out.
func pareto(cost []float64, list []Cascade) []int {
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
// accuracy without more work of some model, most accurate first.
func undominated(list []Cascade, work [][]float64) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	total := totals(work)
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
