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
	slices.SortFunc(order, func(first, second int) int {
		switch { // written out, which is faster than cmp.Compare: it is called a million times
		case cost[first] < cost[second]:
			return -1
		case cost[first] > cost[second]:
			return 1
		case value[first] > value[second]:
			return -1
		case value[first] < value[second]:
			return 1
		}
		return first - second
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
	order, totalNeeds := make([]int, len(value)), make([]float64, len(value))
	for i := range order {
		order[i] = i
		for _, need := range needs[i] {
			totalNeeds[i] += need
		}
	}
	slices.SortFunc(order, func(first, second int) int {
		return cmp.Or(cmp.Compare(totalNeeds[first], totalNeeds[second]), cmp.Compare(value[second], value[first]), cmp.Compare(first, second))
	})

	// Keep each point that none of those kept before dominates.
	var undominated []int
next:
	for checkedPoints, point := range order {
		if checkedPoints%contextCheckInterval == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for previous := len(undominated) - 1; previous >= 0; previous-- { // the nearest points are the likeliest to dominate
			if other := undominated[previous]; value[other] >= value[point] && AllAtMost(needs[other], needs[point]) {
				continue next
			}
		}
		undominated = append(undominated, point)
	}
	slices.Sort(undominated)
	return undominated, nil
}

// contextCheckInterval is the number of points after which UndominatedPoints checks its context.
const contextCheckInterval = 256

// AllAtMost reports whether every element of a list is at most the one with the same index in limits, which is as long.
func AllAtMost[T cmp.Ordered](list, limits []T) bool {
	for i := range list {
		if list[i] > limits[i] {
			return false
		}
	}
	return true
}
