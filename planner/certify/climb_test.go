package certify

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A climb over models that fall short above known loads ends at these loads, from wherever it
// starts; where all have the same load, at the least of them.
func TestClimbFindsTheHighestLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "models")
		numbers := func(least, most int, label string) []float64 {
			loads := make([]float64, n)
			for i := range loads {
				loads[i] = grid.Load(rapid.IntRange(least, most).Draw(t, label))
			}
			return loads
		}
		holds := numbers(1, 270, "holds")
		c := &LoadClimb{SameLoad: rapid.Bool().Draw(t, "together"), StartLoads: numbers(1, 270, "from"), MaxLoads: numbers(240, 300, "carried")}
		if c.SameLoad {
			c.StartLoads = slices.Repeat(c.StartLoads[:1], n)
		}
		c.startSearch()
		var passed []float64
		tests := 0
		for slices.Min(c.candidates) >= 1 {
			tests++
			loads, short := c.loadsOf(c.candidates), make([]bool, n)
			for i := range loads {
				short[i] = loads[i] > holds[i]+1e-9
			}
			if !slices.Contains(short, true) {
				passed = loads
			}
			if !c.advance(short) {
				break
			}
		}
		if tests > 60 {
			t.Errorf("%d tests", tests)
		}
		for i := range holds {
			want := min(holds[i], c.MaxLoads[i])
			if c.SameLoad {
				want = min(slices.Min(holds), slices.Min(c.MaxLoads))
			}
			if passed == nil || passed[i] < want-1e-9 {
				t.Fatalf("%v hold of %v carried; passed at %v", holds, c.MaxLoads, passed)
			}
		}
	})
}

// The nearest setting that was not tried comes next, until none is left.
func TestGridGoesToTheNearest(t *testing.T) {
	g := SettingGrid{Costs: []int{2, 1}}
	at, ok := []int{0, 1}, true
	var order [][]int
	for {
		g.MarkTried(at)
		order = append(order, at)
		if at, ok = g.NearestUntried([]int{0, 1}, []int{2, 3}); !ok {
			break
		}
	}
	want := [][]int{{0, 1}, {0, 0}, {0, 2}, {1, 1}, {1, 0}, {1, 2}}
	if !slices.EqualFunc(order, want, slices.Equal) {
		t.Errorf("tried %v, want %v", order, want)
	}
	if CountHalvings(8) != 4 || CountHalvings(0) != 0 {
		t.Errorf("8 can be halved %d times, 0 %d times", CountHalvings(8), CountHalvings(0))
	}
}
