package gear

import "math/bits"

// maximalSets returns the maximal sets of items that fit within a limit together, as bit sets in rising order. An
// item of size below 0 is in no set. A limit of 0 means that there is none.
func maximalSets(sizes []int64, limit int64) (sets []uint32) {
	fits := func(set uint32) bool {
		total := int64(0)
		for rest := set; rest > 0; rest &= rest - 1 {
			one := sizes[bits.TrailingZeros32(rest)]
			if total += one; one < 0 {
				return false
			}
		}
		return limit == 0 || total <= limit
	}

	// A set that fits is maximal if it fits with no other item.
	for set := uint32(1); set < 1<<len(sizes); set++ {
		if !fits(set) {
			continue
		}
		maximal := true
		for m := range sizes {
			if one := uint32(1) << m; set&one == 0 && fits(set|one) {
				maximal = false
			}
		}
		if maximal {
			sets = append(sets, set)
		}
	}
	return sets
}

// compositions returns the number of ways to give each of n machines one of k sets: C(n+k-1, k-1).
func compositions(n, k int) float64 {
	c := 1.0
	for i := 1; i < k; i++ {
		c = c * float64(n+i) / float64(i)
	}
	return c
}

// eachComposition calls visit for every way to give each of n machines one of k sets, k being at least 1. counts
// has the number of machines by set, and is only valid during the call.
func eachComposition(n, k int, visit func(counts []int)) {
	counts := make([]int, k)
	var fill func(at, left int)
	fill = func(at, left int) {
		if at == k-1 {
			counts[at] = left
			visit(counts)
			return
		}
		for c := range left + 1 {
			counts[at] = c
			fill(at+1, left-c)
		}
	}
	fill(0, n)
}

// normaliseShares divides flows by their sum. The sum is 1 but for rounding. If it is 0, all flows become equal.
func toShares(flows []float64) {
	total := 0.0
	for _, f := range flows {
		total += f
	}
	for k := range flows {
		if total > 0 {
			flows[k] /= total
		} else {
			flows[k] = 1 / float64(len(flows))
		}
	}
}
