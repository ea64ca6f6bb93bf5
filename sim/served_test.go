package sim_test

import (
	"context"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// A run takes what serving takes, where the plan says that, and more on a device that
// had nothing to do: in full after the gap that it was measured with, a part after less.
func TestServedTimes(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: time.Second, RPS: 50})
	stage := &plan.Deployment[0].Pipelines[0].Stages[0]
	latencies := func() (out []time.Duration) {
		t.Helper()
		sc := scenario(t, plan, 1, time.Second)
		pol, err := policies.New(plan.Policy, sc.Tables)
		if err != nil {
			t.Fatal(err)
		}
		at := []time.Duration{100 * ms, 101 * ms, 200 * ms, 213 * ms} // idle, busy, idle, 1 ms after the third's end
		var list []arrivals.Request
		for _, a := range at {
			list = append(list, arrivals.Request{ArrivedAt: a})
		}
		_, err = sim.Run(context.Background(), sim.Config{Tables: sc.Tables, Policy: pol, Source: arrivals.Slice(list), Verify: true,
			OnCompleted: func(arrived, answered time.Duration) { out = append(out, answered-arrived) }})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := func(got []time.Duration, expected ...time.Duration) {
		t.Helper()
		for i, d := range expected {
			if got[i] != d {
				t.Errorf("request %d took %v, expected %v", i, got[i], d)
			}
		}
	}
	want(latencies(), 10*ms, 19*ms, 10*ms, 10*ms)
	stage.MeanUS = []document.Micros{document.Micros(11 * ms)}
	want(latencies(), 11*ms, 21*ms, 11*ms, 11*ms)
	stage.IdleUS = document.Micros(1 * ms)
	want(latencies(), 12*ms, 22*ms, 12*ms, 11*ms+ms/5)
}
