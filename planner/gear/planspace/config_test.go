package planspace

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A set is listed if and only if it fits and no other that fits holds it.
func TestMaximalSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(-1, 6), 1, 6).Draw(t, "sizes")
		limit := rapid.Int64Range(0, 15).Draw(t, "limit")
		fits := func(set uint32) bool {
			total := int64(0)
			for k, size := range sizes {
				if set&(1<<k) != 0 {
					if size < 0 {
						return false
					}
					total += size
				}
			}
			return set > 0 && (limit == 0 || total <= limit)
		}
		var want []uint32
		for set := range uint32(1) << len(sizes) {
			maximal := fits(set)
			for other := range uint32(1) << len(sizes) {
				maximal = maximal && !(other != set && other&set == set && fits(other))
			}
			if maximal {
				want = append(want, set)
			}
		}
		if got := maximalSets(sizes, limit); !slices.Equal(got, want) {
			t.Fatalf("%b, expected %b", got, want)
		}
	})
}

// Every composition comes once, and as many as there are said to be.
func TestEachCompositionComesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, k := rapid.IntRange(0, 6).Draw(t, "machines"), rapid.IntRange(1, 5).Draw(t, "sets")
		seen := map[string]bool{}
		EachComposition(n, k, func(counts []int) {
			total := 0
			for _, c := range counts {
				total += c
			}
			if total != n || len(counts) != k || slices.Min(counts) < 0 {
				t.Fatalf("%v is no way to give %d machines %d sets", counts, n, k)
			}
			seen[fmt.Sprint(counts)] = true
		})
		if float64(len(seen)) != Compositions(n, k) {
			t.Fatalf("%d ways, expected %v", len(seen), Compositions(n, k))
		}
	})
}
