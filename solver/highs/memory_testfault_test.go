//go:build cgo && testfault

package highs_test

import (
	"runtime"
	"testing"

	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// An exception in C++, at whatever allocation, ends a run of HiGHS and not the process: the model is solved again.
func TestExceptionEndsARun(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, m := range []*milp.Model{bigKnapsack(), knapsackModel(), transportModel(8)} {
		want := solve(t, m, milp.Options{Gap: .01})
		const many = 1 << 40
		highs.FailAllocation(many)
		solve(t, m, milp.Options{Gap: .01})
		all := many - highs.FailAllocation(-1)
		for n := 0; n < all; n += 1 + n/4 {
			highs.FailAllocation(n)
			got, err := highs.Solver{}.Solve(ctx, m, milp.Options{Gap: .01})
			if left := highs.FailAllocation(-1); left >= 0 {
				t.Errorf("%s: allocation %d did not fail, %d are left", m.Name, n, left)
			}
			if err != nil || !got.Feasible() || got.Value < want.Value*.98 {
				t.Errorf("%s: allocation %d failed: %+v, %v, expected about %v", m.Name, n, got, err, want.Value)
			}
		}
		t.Log(m.Name, all, "allocations")
	}
}
