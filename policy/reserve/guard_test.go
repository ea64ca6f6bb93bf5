package reserve_test

import (
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/policytest"
	"inferplan/policy/reserve"
)

// A head that waits for a fuller batch is woken early by the guard, and a wake
// that comes late by no more than twice the guard still serves it; one that
// comes later than that finds the deadline out of reach.
func TestLateWakeSpendsTheGuard(t *testing.T) {
	const ms = time.Millisecond
	plan := policytest.Single(1, true, policytest.Model{Batch: 4, First: 10 * ms, More: time.Microsecond, SLO: 100 * ms, RPS: 10})
	for _, c := range []struct {
		guard, late time.Duration
		want        policy.ActionKind
	}{
		{5 * ms, 0, policy.Dispatch}, {5 * ms, 4 * ms, policy.Dispatch}, {5 * ms, 6 * ms, policy.Dispatch}, {5 * ms, 11 * ms, policy.Drop}, {0, 1 * ms, policy.Drop},
	} {
		tables, err := policy.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		p := reserve.New(tables, reserve.Options{Shed: true, GuardTime: c.guard})
		var out policy.Actions
		p.Handle(0, &policy.Event{Kind: policy.Arrival, Deadline: 100 * ms}, &out)
		if len(out.List) != 1 || out.List[0].Kind != policy.Wake {
			t.Fatalf("guard %v: on arrival %+v, want a wake", c.guard, out.List)
		}
		wake := out.List[0]
		if want := 90*ms - time.Microsecond - 2*c.guard + 1; wake.At != want {
			t.Errorf("guard %v: wake at %v, want %v", c.guard, wake.At, want)
		}
		out.Reset()
		p.Handle(wake.At+c.late, &policy.Event{Kind: policy.Timer, Value: int64(wake.Tag)}, &out)
		if len(out.List) == 0 || out.List[0].Kind != c.want {
			t.Errorf("guard %v, wake late by %v: %+v, want action %d", c.guard, c.late, out.List, c.want)
		}
	}
}
