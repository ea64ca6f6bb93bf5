package reserve_test

import (
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/testkit/policytest"
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
		p := reserve.New(tables, reserve.Options{DropHopeless: true, GuardTime: c.guard})
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

// Under an SLO of few milliseconds the guard takes no more than half of what the
// batch leaves of it: a plan that keeps its margin is servable with the guards
// that every plan of measured times has.
func TestGuardUnderShortSLO(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		slo, service, at time.Duration // at: the latest arrival after which the device is free in time
		want             policy.ActionKind
	}{
		{4000 * us, 2000 * us, 0, policy.Dispatch}, {2500 * us, 1500 * us, 0, policy.Dispatch}, {500 * us, 300 * us, 0, policy.Dispatch},
		{4000 * us, 2000 * us, 990 * us, policy.Dispatch}, {4000 * us, 2000 * us, 1010 * us, policy.Drop},
		{100_000 * us, 60_000 * us, 31_990 * us, policy.Dispatch}, {100_000 * us, 60_000 * us, 32_010 * us, policy.Drop}, // 2 ms + 10 %
	} {
		plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: c.service, SLO: c.slo, RPS: 10})
		tables, err := policy.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		opt, err := reserve.ParseOptions(reserve.WithGuards(nil))
		if err != nil {
			t.Fatal(err)
		}
		p := reserve.New(tables, opt)
		var out policy.Actions
		p.Handle(c.at, &policy.Event{Kind: policy.Arrival, Deadline: c.slo}, &out)
		if len(out.List) == 0 || out.List[0].Kind != c.want {
			t.Errorf("SLO %v, service %v, %v late: %+v, want action %d", c.slo, c.service, c.at, out.List, c.want)
		}
	}
}
