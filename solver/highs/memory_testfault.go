//go:build cgo && testfault

package highs

// long inferplan_highs_fail_allocation(long n);
import "C"

// FailAllocation lets C++ fail to allocate once on this thread, after n times; below 0: never. It returns how many
// times were left.
func FailAllocation(n int) (left int) { return int(C.inferplan_highs_fail_allocation(C.long(n))) }
