package knapsack_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/solver/knapsack"
)

// Both lists would rather have their second choice, but there is room for one of them.
func ExampleBestChoices() {
	lists := [][]knapsack.Choice{
		{{Value: 1, Weight: 0}, {Value: 2, Weight: .3}},
		{{Value: 1, Weight: 0}, {Value: 4, Weight: .5}},
	}
	fmt.Println(knapsack.BestChoices(lists, .6, 100))
	// Output: [0 1]
}

// parts is how many parts of 1 the tests count weights in.
const parts = 1e4

// The knapsack takes what trying everything takes.
func TestBestChoicesAgreesWithBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := make([][]knapsack.Choice, rapid.IntRange(1, 4).Draw(t, "lists"))
		for r := range lists {
			lists[r] = make([]knapsack.Choice, rapid.IntRange(1, 4).Draw(t, "choices"))
			weight, value := 0, 0
			for k := range lists[r] {
				weight, value = weight+rapid.IntRange(0, 200).Draw(t, "weight"), value+rapid.IntRange(0, 50).Draw(t, "value")
				lists[r][k] = knapsack.Choice{Weight: float64(weight) / parts, Value: float64(value) / 1000}
			}
		}
		room := float64(rapid.IntRange(0, 500).Draw(t, "room")) / parts
		best, fits := math.Inf(-1), false
		var try func(r int, weight, value float64)
		try = func(r int, weight, value float64) {
			if weight > room+1e-9 {
				return
			}
			if r == len(lists) {
				best, fits = max(best, value), true
				return
			}
			for _, c := range lists[r] {
				try(r+1, weight+c.Weight, value+c.Value)
			}
		}
		try(0, 0, 0)
		weight, value := 0.0, 0.0
		for r, k := range knapsack.BestChoices(lists, room, parts) {
			weight, value = weight+lists[r][k].Weight, value+lists[r][k].Value
			if !fits && k != 0 {
				t.Fatalf("list %d has choice %d where nothing fits", r, k)
			}
		}
		if fits && (weight > room+1e-9 || math.Abs(value-best) > 1e-9) {
			t.Fatalf("value %v with weight %v, expected %v in %v", value, weight, best, room)
		}
	})
}

// Room for k units takes a choice of k units, however their product rounds:
// 3 units of a ten-thousandth are a little less than 3.
func TestBestTakesAllOfTheRoom(t *testing.T) {
	for k := range 501 {
		room := float64(k) / parts
		if got := knapsack.BestChoices([][]knapsack.Choice{{{Value: 0}, {Weight: room, Value: 1}}}, room, parts); got[0] != 1 {
			t.Errorf("room for %d units: choice %d", k, got[0])
		}
	}
}
