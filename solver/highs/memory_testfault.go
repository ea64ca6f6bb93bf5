//go:build cgo && testfault

package highs

// long inferplan_highs_fail_allocation(long n);
import "C"

// FailAllocation lets one C++ allocation on this thread fail, after n others. If n is negative, none fails. It
// returns how many allocations were left before the failure.
func FailAllocation(n int) (left int) { return int(C.inferplan_highs_fail_allocation(C.long(n))) }
