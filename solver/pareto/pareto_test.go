package pareto_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/pareto"
)

// The third point costs more than the second and is worth no more. Half of the first and half
// of the last are worth more than the second, at the same cost.
func Example() {
	cost, value := []float64{1, 2, 2.5, 3}, []int{10, 11, 11, 20}
	front := pareto.Front(cost, value)
	var e pareto.Envelope
	for _, i := range front {
		e.Add(cost[i], float64(value[i]))
	}
	fmt.Println(front, e.At(2))
	// Output: [0 1 3] 15
}

// drawPoints are points on a small lattice, so that many are equal.
func drawPoints(t *rapid.T, kinds int) (needs [][]float64, cost []float64, value []int32) {
	for range rapid.IntRange(0, 12).Draw(t, "points") {
		one, total := make([]float64, kinds), 0.0
		for k := range one {
			one[k] = float64(rapid.IntRange(0, 4).Draw(t, "need"))
			total += one[k]
		}
		if rapid.IntRange(0, 9).Draw(t, "free") == 0 {
			total = math.Inf(1)
		}
		needs, cost, value = append(needs, one), append(cost, total), append(value, rapid.Int32Range(0, 4).Draw(t, "value"))
	}
	return needs, cost, value
}

// A point is on the front if and only if no other costs no more and is worth no less.
func TestFrontHasUnbeatenPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, cost, value := drawPoints(t, 1)
		front := pareto.Front(cost, value)
		for n := 1; n < len(front); n++ {
			if a, b := front[n-1], front[n]; cost[a] >= cost[b] || value[a] >= value[b] {
				t.Fatalf("%v does not rise", front)
			}
		}
		for i := range cost {
			on := !math.IsInf(cost[i], 1)
			for k := range cost {
				if k != i && cost[k] <= cost[i] && value[k] >= value[i] && (cost[k] < cost[i] || value[k] > value[i] || k < i) {
					on = false
				}
			}
			if on != slices.Contains(front, i) {
				t.Fatalf("costs %v, values %v: point %d is on the front: %v, of %v", cost, value, i, on, front)
			}
		}
	})
}

// A point is kept if and only if no other is worth no less and needs no more of any kind.
func TestUndominatedPointsAreUnbeaten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs, _, value := drawPoints(t, 3)
		kept, _ := pareto.UndominatedPoints(t.Context(), needs, value)
		for i := range needs {
			stands := true
			for k := range needs {
				same := value[k] == value[i] && slices.Equal(needs[k], needs[i])
				if k != i && value[k] >= value[i] && pareto.AllAtMost(needs[k], needs[i]) && (!same || k < i) {
					stands = false
				}
			}
			if stands != slices.Contains(kept, i) {
				t.Fatalf("needs %v, values %v: point %d stands: %v, of %v", needs, value, i, stands, kept)
			}
		}
	})
}

// The envelope is the best mixture of two points at every budget.
func TestEnvelopeIsBestMixture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, cost, value := drawPoints(t, 1)
		var e pareto.Envelope
		for _, i := range pareto.Front(cost, value) {
			e.Add(cost[i], float64(value[i]))
		}
		budget, best := rapid.Float64Range(0, 6).Draw(t, "budget"), math.NaN()
		for i := range cost {
			for k := range cost {
				if cost[i] > budget || math.IsInf(cost[k], 1) {
					continue
				}
				part := 1.0 // of k
				if cost[k] > budget {
					part = (budget - cost[i]) / (cost[k] - cost[i])
				}
				if mean := float64(value[i])*(1-part) + float64(value[k])*part; !(best >= mean) {
					best = mean
				}
			}
		}
		if got := e.At(budget); math.Abs(got-best) > 1e-9 || math.IsNaN(got) != math.IsNaN(best) {
			t.Fatalf("%v at %v of costs %v with values %v, expected %v", got, budget, cost, value, best)
		}
	})
}
