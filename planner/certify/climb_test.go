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
		holds := rapid.SliceOfN(rapid.IntRange(1, 120), n, n).Draw(t, "steps that hold")
		from := rapid.SliceOfN(rapid.IntRange(1, 120), n, n).Draw(t, "from")
		carried := rapid.SliceOfN(rapid.IntRange(100, 150), n, n).Draw(t, "carried")
		c := &Climb{Together: rapid.Bool().Draw(t, "together"), failed: make([]bool, n), steps: from}
		if c.Together {
			c.steps = slices.Repeat(from[:1], n)
		}
		for i := range carried {
			c.Carried = append(c.Carried, float64(carried[i])*Step)
		}
		var passed []float64
		for slices.Min(c.steps) >= 1 {
			loads, short := c.loads(c.steps), make([]bool, n)
			for i := range loads {
				short[i] = loads[i] > float64(holds[i])*Step+1e-9
			}
			if !slices.Contains(short, true) {
				passed = loads
			}
			if !c.next(short) {
				break
			}
		}
		for i := range holds {
			want := min(float64(holds[i])*Step, c.Carried[i])
			if c.Together {
				want = min(float64(slices.Min(holds))*Step, slices.Min(c.Carried))
			}
			if passed == nil || passed[i] < want-1e-9 && (!c.Together || passed[i] < c.Carried[i]) {
				t.Fatalf("%v hold of %v carried; passed at %v", holds, c.Carried, passed)
			}
		}
	})
}

// The nearest setting that was not tried comes next, until none is left.
func TestGridGoesToTheNearest(t *testing.T) {
	g := Grid{Costs: []int{2, 1}}
	at, ok := []int{0, 1}, true
	var order [][]int
	for {
		g.Try(at)
		order = append(order, at)
		if at, ok = g.Nearest([]int{0, 1}, []int{2, 3}); !ok {
			break
		}
	}
	want := [][]int{{0, 1}, {0, 0}, {0, 2}, {1, 1}, {1, 0}, {1, 2}}
	if !slices.EqualFunc(order, want, slices.Equal) {
		t.Errorf("tried %v, want %v", order, want)
	}
	if Halvings(8) != 4 || Halvings(0) != 0 {
		t.Errorf("8 can be halved %d times, 0 %d times", Halvings(8), Halvings(0))
	}
}
