package pareto

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Front returns the indexes of the Pareto-optimal points, those for which no other one costs at most as much and has at
// least the value, by rising cost and value. Of equal points the first is listed. Points of infinite cost are left out.
func Front[V cmp.Ordered](cost []float64, value []V) []int {
	// Sort by rising cost and, of equal costs, by falling value.
	order := make([]int, 0, len(value))
	for i := range value {
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
		case value[a] > value[b]:
			return -1
		case value[a] < value[b]:
			return 1
		}
		return a - b
	})

	// Keep the points that raise the value.
	front := order[:0]
	for _, i := range order {
		if n := len(front); n == 0 || value[i] > value[front[n-1]] {
			front = append(front, i)
		}
	}
	return front
}

// UndominatedPoints returns the indexes, in order, of the points that no other one dominates: needs no more of any kind
// (needs, by point and kind) and has at least the value. Of equal points the first is listed. It takes up to the square
// of the number of points. It fails only if ctx ends.
func UndominatedPoints[V cmp.Ordered](ctx context.Context, needs [][]float64, value []V) ([]int, error) {
	// Sort by rising sum of the needs: only a point before another one can dominate that.
	order, total := make([]int, len(value)), make([]float64, len(value))
	for i := range order {
		order[i] = i
		for _, n := range needs[i] {
			total[i] += n
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(total[a], total[b]), cmp.Compare(value[b], value[a]), cmp.Compare(a, b))
	})
	var undominated []int
next:
	for n, i := range order {
		if n%contextCheckInterval == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for previous := len(undominated) - 1; previous >= 0; previous-- { // the nearest points are the likeliest to dominate
			if k := undominated[previous]; value[k] >= value[i] && AllAtMost(needs[k], needs[i]) {
				continue next
			}
		}
		undominated = append(undominated, i)
	}
	slices.Sort(undominated)
	return undominated, nil
}

// contextCheckInterval is the number of points after which UndominatedPoints checks its context.
const contextCheckInterval = 256

// AllAtMost reports whether every need in a is at most that in b.
func AllAtMost[T cmp.Ordered](a, b []T) bool {
	for m := range a {
		if a[m] > b[m] {
			return false
		}
	}
	return true
}
