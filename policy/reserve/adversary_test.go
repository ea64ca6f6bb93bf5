package reserve_test

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/reserve"
	"inferplan/testkit/policytest"
)

// Whatever an interpreter may do to it within the contract, the policy answers or
// drops every request once, sends nothing to a device that is gone, keeps its
// timelines whole, and does the same when it is told the same again.
func TestAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := drawPlan(t)
		tables, err := policy.Compile(plan)
		if err != nil {
			t.Fatalf("%v", err)
		}
		opt := reserve.Options{
			DropHopeless: rapid.Bool().Draw(t, "shed"), SendWhenFree: rapid.Bool().Draw(t, "eager"), DecideAhead: time.Duration(rapid.IntRange(0, 2).Draw(t, "ahead")) * ms,
			GuardTime: time.Duration(rapid.IntRange(0, 4).Draw(t, "guard")) * ms, GuardShare: float64(rapid.IntRange(0, 2).Draw(t, "guard share")) / 10,
			QueueLimit: rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "queue limit"),
		}
		pol := reserve.New(tables, opt)
		var log bytes.Buffer
		rec := conform.NewRecorder(pol, &log)
		foe := &policytest.Adversary{Tables: tables, Policy: rec, Rand: seeded.New(rapid.Uint64().Draw(t, "seed"), "adversary"), Check: pol.CheckTimelines}
		if err := foe.Run(rapid.IntRange(10, 600).Draw(t, "steps")); err != nil {
			t.Fatalf("%v", err)
		}
		if n := pol.WaitingRequests(); n > 0 {
			t.Fatalf("%d requests still wait with the policy", n)
		}
		if err := rec.Close(); err != nil {
			t.Fatalf("%v", err)
		}
		if _, err := conform.Replay(&log, reserve.New(tables, opt)); err != nil {
			t.Fatalf("told the same again: %v", err)
		}
	})
}
