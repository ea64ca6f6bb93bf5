package pareto

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Front returns the indexes of the points that no other one beats, by rising cost and value.
// Of equal ones the first stands. Points of infinite cost are left out.
func Front[V cmp.Ordered](cost []float64, value []V) []int {
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
	front := order[:0]
	for _, i := range order {
		if n := len(front); n == 0 || value[i] > value[front[n-1]] {
			front = append(front, i)
		}
	}
	return front
}

// Undominated returns the indexes of the points that no other one beats in value without
// more need of some kind. Of equal ones the first stands. It takes up to the square of their
// number; an error is that of the context.
func Undominated[V cmp.Ordered](ctx context.Context, needs [][]float64, value []V) ([]int, error) {
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
	var kept []int
next:
	for n, i := range order {
		if n%looksEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for at := len(kept) - 1; at >= 0; at-- { // the nearest ones first: they are the likeliest
			if k := kept[at]; value[k] >= value[i] && NoMore(needs[k], needs[i]) {
				continue next
			}
		}
		kept = append(kept, i)
	}
	slices.Sort(kept)
	return kept, nil
}

// looksEvery is after how many points Undominated looks at its context.
const looksEvery = 256

// NoMore tells whether a is no more than b of any kind.
func NoMore[T cmp.Ordered](a, b []T) bool {
	for m := range a {
		if a[m] > b[m] {
			return false
		}
	}
	return true
}
