package lists

import (
	"math"
	"slices"
	"testing"
)

// TestLists compares every function with its result on a short list, and on an empty one.
func TestLists(t *testing.T) {
	list := []float64{3, 1, 2}
	value := func(i int) float64 { return list[i] }
	isLarge := func(i int) bool { return list[i] > 1 }
	for _, c := range []struct {
		name        string
		got, wanted float64
	}{
		{"Sum", Sum(3, value), 6}, {"Sum of none", Sum(0, value), 0}, {"Total", Total(list), 6}, {"Total of none", Total([]float64{}), 0},
		{"Max", Max(0, 3, value), 3}, {"Max of none", Max(7, 0, value), 7}, {"Max below the first", Max(9, 3, value), 9},
		{"Min", Min(math.Inf(1), 3, value), 1}, {"Min of none", Min(7, 0, value), 7},
		{"Count", float64(Count(3, isLarge)), 2}, {"Count of none", float64(Count(0, isLarge)), 0},
	} {
		if c.got != c.wanted {
			t.Errorf("%s: found %v, expected %v", c.name, c.got, c.wanted)
		}
	}
	if !Contains(3, isLarge) || Contains(0, isLarge) || Contains(3, func(i int) bool { return list[i] > 3 }) {
		t.Error("Contains does not say whether an entry matches")
	}
	if got := Matching(3, isLarge); !slices.Equal(got, []int{0, 2}) || Matching(0, isLarge) != nil {
		t.Errorf("Matching: found %v, expected 0 and 2, and nil of none", got)
	}
	if got := Map(3, value); !slices.Equal(got, list) || Map(0, value) != nil {
		t.Errorf("Map: found %v, expected %v, and nil of none", got, list)
	}
	if got := Filled(3, value); !slices.Equal(got, list) || Filled(0, value) == nil {
		t.Errorf("Filled: found %v, expected %v, and an empty list of none", got, list)
	}
	if got := Indexes(3); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("Indexes: found %v", got)
	}
}
