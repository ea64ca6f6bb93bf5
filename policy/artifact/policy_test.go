package artifact_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

const ms = time.Millisecond

// A head is dropped at its first look where only less than the planned batch
// would be in time; once it has passed, it is served in what still can be.
func TestFirstLook(t *testing.T) {
	// One device, batches of four: 10 ms for one, 13, 16, 19 for four.
	tables := policytest.Compile(t, policytest.Single(1, false, policytest.Model{Batch: 4, First: 10 * ms, More: 3 * ms, SLO: 30 * ms, RPS: 100}))
	p, err := artifact.New(tables, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out policy.Actions
	at := func(now time.Duration, ev policy.Event) []policy.Action {
		out.Reset()
		p.Handle(now, &ev, &out)
		return out.List
	}
	arrive := func(now time.Duration, req int32, slo time.Duration) []policy.Action {
		return at(now, policy.Event{Kind: policy.Arrival, Req: req, ArrivedAt: now, Deadline: now + slo})
	}
	if got := arrive(0, 0, 18*ms); len(got) != 1 || got[0].Kind != policy.Drop || got[0].Reason != policy.ReasonDeadline {
		t.Fatalf("a head that four would make late: %+v, want a drop", got)
	}
	// It may wait until a batch of two would be late: 30 - 13 ms, and 1 us.
	got := arrive(0, 1, 30*ms)
	if len(got) != 1 || got[0].Kind != policy.Wake || got[0].At != 17*ms+time.Microsecond {
		t.Fatalf("a head alone: %+v, want a wake at 17.001 ms", got)
	}
	got = at(17*ms+time.Microsecond, policy.Event{Kind: policy.Timer, Value: 0})
	if len(got) != 1 || got[0].Kind != policy.Dispatch || got[0].Size != 1 {
		t.Fatalf("at the wake: %+v, want a batch of one", got)
	}
}

// Under the simulator every request is served or dropped, on both networks and with
// a device that comes and goes.
func TestUnderTheSimulator(t *testing.T) {
	for name, plan := range map[string]*formats.Plan{
		"two stages":    policytest.Hundred().Plan(),
		"one host":      policytest.Pooled{High: 3, Low: 9, Batch: 3, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 19, SLO: 200 * ms, OneHost: true}.Plan(),
		"a node of two": policytest.Pooled{High: 4, Low: 12, PerNode: 2, Batch: 2, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 20, SLO: 200 * ms}.Plan(),
	} {
		for _, network := range policy.Topologies() {
			sc, err := sim.NewScenarioOn(plan, network)
			if err != nil {
				t.Fatal(err)
			}
			sc.Policy = formats.PolicySpec{Name: artifact.Name}
			sc.Duration, sc.Load, sc.Verify = 2*time.Second, 0.8, true
			sc.Faults = []sim.Fault{{At: time.Second, Device: 1}, {At: 1200 * ms, Device: 1, ComesBack: true}}
			res, err := sim.Replicate(context.Background(), sc, 2)
			if err != nil {
				t.Fatalf("%s on %s: %v", name, network, err)
			}
			if r := res.Report; r.Attainment < 0.95 || res.Transfers.Count == 0 {
				t.Errorf("%s on %s: attainment %.3f with %d transfers", name, network, r.Attainment, res.Transfers.Count)
			}
		}
	}
}

func TestNoParameters(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	if _, err := artifact.New(tables, map[string]float64{"shed": 1}); err == nil || !strings.Contains(err.Error(), `unknown parameter "shed"`) {
		t.Errorf("got %v", err)
	}
}
