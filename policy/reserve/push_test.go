package reserve_test

import (
	"context"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// sharedNIC is two models whose first stages stand on one node, and send over its NIC.
func sharedNIC(t *testing.T, bytes [2]int64, slo [2]time.Duration) *policy.Tables {
	t.Helper()
	plan := &formats.Plan{Kind: formats.PlanPool}
	promised := &formats.PoolPlan{}
	plan.Section = promised
	plan.Pools = []formats.Pool{
		{Device: "first", Count: 4, MaxShares: 1, PerNode: 2, NICGbps: 1, Sharing: formats.SharingExclusive},
		{Device: "last", Count: 6, MaxShares: 1, PerNode: 1, NICGbps: 1, Sharing: formats.SharingExclusive},
	}
	// Node 0 has a device of each model, node 1 another one.
	for m, infer := range []time.Duration{5 * ms, 20 * ms} {
		name := []string{"quick", "slow"}[m]
		promised.Models = append(promised.Models, formats.Served{Model: name, SLOUS: document.Micros(slo[m]), RPS: 1})
		stage := func(device string, infer time.Duration, runs ...formats.Placement) formats.Stage {
			s := formats.Stage{Device: device, Share: 1, InferUS: policytest.Times(infer, 0, 1), Placement: runs}
			for _, r := range runs {
				s.Replicas += r.Replicas
			}
			return s
		}
		one := func(first, replicas int) formats.Placement {
			return formats.Placement{FirstDevice: first, PerDevice: 1, Replicas: replicas}
		}
		first, last := stage("first", infer, one(m, 1), one(2+m, 1)), stage("last", infer, one(3*m, 3))
		first.Cut = &formats.Cut{Bytes: bytes[m]}
		plan.Deployment = append(plan.Deployment, formats.Deployed{Model: name, Pipelines: []formats.Pipeline{{Batch: 1, Stages: []formats.Stage{first, last}}}})
	}
	return policytest.Compile(t, plan)
}

// An uplink that is reserved for later does not keep a batch off the device that is
// idle now, if its transfer is over by then.
func TestUplinkReservedForLater(t *testing.T) {
	// A megabit takes 1 ms.
	d := &driver{t: t, p: reserve.New(sharedNIC(t, [2]int64{125_000, 125_000}, [2]time.Duration{100 * ms, 100 * ms}), reserve.Options{})}
	slow := policy.Event{Kind: policy.Arrival, Model: 1, Req: 1, Deadline: 100 * ms}
	d.play([]step{
		{0, slow, "dispatch [1] on 1 until 20ms 7 until 41ms"},
		{0, arrivalEvent(2, 100*ms), "dispatch [2] on 0 until 5ms 4 until 11ms"},
		{5 * ms, finishEvent(1, 0, 0, 5*ms), ""},
		// Device 0 is idle, and so is device 2 of the other node: the first will do.
		{5 * ms, arrivalEvent(3, 105*ms), "dispatch [3] on 0 until 10ms 4 until 16ms"},
	})
}

// A transfer may push one that is reserved for a little later, as long as what it
// pushes still ends in time. Else the batch waits until the other has its place.
func TestPushesWhatHasTime(t *testing.T) {
	for _, c := range []struct {
		name string
		slo  time.Duration // of the slow model, whose path takes 50 ms
		want string
	}{
		{"time enough", 60 * ms, "dispatch [3] on 0 until 19ms 4 until 34ms"},
		{"none to lose", 51 * ms, "wake 0 at 15ms"},
	} {
		d := &driver{t: t, p: reserve.New(sharedNIC(t, [2]int64{1_250_000, 1_250_000}, [2]time.Duration{100 * ms, c.slo}), reserve.Options{})}
		slow := func(req int32) policy.Event {
			return policy.Event{Kind: policy.Arrival, Model: 1, Req: req, Deadline: c.slo}
		}
		d.handle(0, slow(1))
		d.handle(0, slow(2))
		if got := d.handle(14*ms, arrivalEvent(3, 114*ms)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// Where models share NICs batches push each other, and nobody is late.
func TestNobodyIsLateForAPush(t *testing.T) {
	tables := sharedNIC(t, [2]int64{250_000, 750_000}, [2]time.Duration{40 * ms, 90 * ms})
	sc := &sim.Scenario{Tables: tables, Duration: 20 * time.Second, Load: 0.9, Rates: []float64{380, 95}, Seed: 1, Verify: true}
	cfg, err := sc.Config(0)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuditor(t, tables, reserve.DefaultOptions(), true)
	cfg.Policy = a
	res, err := sim.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if res.Report.Late > 0 || a.pushed < 100 {
		t.Errorf("%d late, %d times pushed: expected nobody late, and pushes that show it", res.Report.Late, a.pushed)
	}
}
