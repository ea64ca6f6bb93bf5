package lists

import "cmp"

// number is the types that can be added up.
type number interface {
	~int | ~int32 | ~int64 | ~uint64 | ~float64
}

// Sum returns the sum of the values of 0 to n-1, added in this order.
func Sum[V number](n int, value func(i int) V) (sum V) {
	for i := range n {
		sum += value(i)
	}
	return sum
}

// Total returns the sum of the entries of a list, added in their order.
func Total[V number](list []V) (sum V) {
	for _, v := range list {
		sum += v
	}
	return sum
}

// Max returns the largest of least and the values of 0 to n-1.
func Max[V cmp.Ordered](least V, n int, value func(i int) V) V {
	for i := range n {
		least = max(least, value(i))
	}
	return least
}

// Min returns the smallest of most and the values of 0 to n-1.
func Min[V cmp.Ordered](most V, n int, value func(i int) V) V {
	for i := range n {
		most = min(most, value(i))
	}
	return most
}

// Count returns how many of 0 to n-1 match.
func Count(n int, matches func(i int) bool) (count int) {
	for i := range n {
		if matches(i) {
			count++
		}
	}
	return count
}

// Contains reports whether one of 0 to n-1 matches.
func Contains(n int, matches func(i int) bool) bool {
	for i := range n {
		if matches(i) {
			return true
		}
	}
	return false
}

// Matching returns those of 0 to n-1 that match, rising. If none does, it returns nil.
func Matching(n int, matches func(i int) bool) (matching []int) {
	for i := range n {
		if matches(i) {
			matching = append(matching, i)
		}
	}
	return matching
}

// Map returns the values of 0 to n-1. If n is 0, it returns nil, so that a document leaves the list out.
func Map[V any](n int, value func(i int) V) []V {
	if n <= 0 {
		return nil
	}
	return Filled(n, value)
}

// Filled returns the values of 0 to n-1. If n is 0, the list is empty, but not nil.
func Filled[V any](n int, value func(i int) V) []V {
	list := make([]V, n)
	for i := range list {
		list[i] = value(i)
	}
	return list
}

// Indexes returns the numbers from 0 to n-1.
func Indexes(n int) []int { return Filled(n, func(i int) int { return i }) }
