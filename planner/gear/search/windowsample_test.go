package search

import (
	"context"
	"slices"
	"testing"

	"inferplan/planner/gear/ranges"
)

// What climbs on a part of the rates is followed as far as the whole allows: the plan is
// more accurate than before, and keeps the SLO on streams that nothing was tried on.
func TestClimbOnAPartIsFollowed(t *testing.T) {
	refused := 0
	for _, c := range []struct {
		devices, every int
	}{{3, 15}, {3, 20}, {2, 120}} {
		p := burstyProblem(t, c.devices, 1, c.every)
		p.OverRequests = false // so that nothing climbs yet
		plan, err := Solve(context.Background(), p, programs, Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		q := *plan.Problem
		q.OverRequests, q.MeasuredRates = true, p.MeasuredRates
		plan.Problem = &q
		calm := q
		calm.MeasuredRates = slices.Repeat(p.MeasuredRates[:c.every-5], 3) // without the bursts: too much will be climbed
		climbed, refusedSteps, err := ranges.ClimbBySample(context.Background(), plan, &q, &calm, 7)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d devices: %.4f to %.4f, %d steps refused", c.devices, plan.Accuracy, climbed.Accuracy, refusedSteps)
		refused += refusedSteps
		if before, after := freshAccuracy(t, plan, p), freshAccuracy(t, climbed, p); after <= before {
			t.Errorf("%d devices: %.4f on fresh streams, %.4f before", c.devices, after, before)
		}
		onFreshStreams(t, climbed, 1)
	}
	if refused == 0 {
		t.Error("the rates as a whole refused no step, expected some")
	}
}
