package balance_test

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"

	"inferplan/testkit/balance"
)

// Two machines take both kinds of work, one takes the second kind only. The first kind keeps
// the two busy, so that the second goes to the third.
func ExampleMachines_Split() {
	m := balance.NewMachines(2, []balance.Group{{Takes: 0b11, Count: 2}, {Takes: 0b10, Count: 1}})
	work := []float64{1.8, .6}
	shares, loads := m.Split(work)
	fmt.Printf("load %.2f, of the machines %.2f\n", m.Load(work), loads)
	fmt.Printf("shares %.2f and %.2f\n", shares[0], shares[1])
	// Output:
	// load 0.90, of the machines [0.90 0.90 0.60]
	// shares [0.50 0.50] and [0.00 0.00 1.00]
}

// drawn are up to four groups of machines for up to four kinds.
func drawn(t *rapid.T) (kinds int, groups []balance.Group) {
	kinds = rapid.IntRange(1, 4).Draw(t, "kinds")
	for range rapid.IntRange(1, 4).Draw(t, "groups") {
		groups = append(groups, balance.Group{Takes: uint32(rapid.IntRange(0, 1<<kinds-1).Draw(t, "takes")), Count: rapid.IntRange(0, 3).Draw(t, "count")})
	}
	return kinds, groups
}

// The split's busiest machine has the load that no split can be below. Every split keeps to
// the machines that take the kind.
func TestSplitReachesLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds, groups := drawn(t)
		m := balance.NewMachines(kinds, groups)
		work := make([]float64, kinds)
		for kind := range work {
			if len(balance.Taking(groups, kind)) > 0 {
				work[kind] = rapid.Float64Range(0, 1).Draw(t, "work")
			}
		}
		want := m.Load(work)
		shares, loads := m.Split(work)
		again := make([]float64, len(loads))
		for kind := range shares {
			for k, machine := range balance.Taking(groups, kind) {
				again[machine] += shares[kind][k] * work[kind]
			}
			if len(shares[kind]) > 0 && math.Abs(floats.Sum(shares[kind])-1) > 1e-9 {
				t.Fatalf("shares of kind %d sum to %v", kind, floats.Sum(shares[kind]))
			}
		}
		if len(loads) > 0 && math.Abs(slices.Max(loads)-want) > 1e-6*max(1, want) || !floats.EqualApprox(again, loads, 1e-9) {
			t.Fatalf("loads %v, by the shares %v, expected %v at most", loads, again, want)
		}
	})
}

// Work that no machine takes has an infinite load.
func TestLoadOfWorkThatNoneTakes(t *testing.T) {
	m := balance.NewMachines(2, []balance.Group{{Takes: 0b01, Count: 3}})
	if got := m.Load([]float64{.5, 1e-9}); !math.IsInf(got, 1) {
		t.Errorf("load %v, expected none", got)
	}
	if got := m.Load([]float64{.6, 0}); math.Abs(got-.2) > 1e-15 {
		t.Errorf("load %v, expected .2", got)
	}
}

// The machines that are listed are those of the groups that take the kind.
func TestTaking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds, groups := drawn(t)
		var takes []uint32
		for _, g := range groups {
			takes = append(takes, slices.Repeat([]uint32{g.Takes}, g.Count)...)
		}
		total, listed := 0, 0
		for _, set := range takes {
			total += bits.OnesCount32(set)
		}
		for kind := range kinds {
			for _, machine := range balance.Taking(groups, kind) {
				if listed++; takes[machine]&(1<<kind) == 0 {
					t.Fatalf("machine %d of %b does not take kind %d", machine, takes, kind)
				}
			}
		}
		if listed != total {
			t.Fatalf("%d machines listed, expected %d", listed, total)
		}
	})
}
