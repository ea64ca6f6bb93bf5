package reactive_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"inferplan/bench/ppipe/reactive"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

const ms = time.Millisecond

func simulate(t *testing.T, plan *formats.Plan, name string, load float64, faults ...sim.Fault) *sim.Result {
	t.Helper()
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Policy = formats.PolicySpec{Name: name}
	sc.Duration, sc.Load, sc.Verify, sc.Faults = 2*time.Second, load, true, faults
	res, err := sim.Replicate(context.Background(), sc, 2)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Every stage decides for itself: a batch ends with its stage, and its requests
// are sent on, or dropped, by what is left of their deadlines then.
func TestDecidesAtEveryStage(t *testing.T) {
	plan := policytest.Pooled{High: 1, Low: 1, Batch: 3, HighTime: 10 * ms, LowTime: 10 * ms, Bytes: 125_000, SLO: 100 * ms}.Plan()
	for _, c := range []struct {
		finished   time.Duration
		sent, lost int
	}{{22 * ms, 3, 0}, {30 * ms, 0, 3}} {
		p, err := reactive.New(policytest.Compile(t, plan), nil)
		if err != nil {
			t.Fatal(err)
		}
		var out policy.Actions
		handle := func(now time.Duration, ev policy.Event) []policy.Action {
			out.Reset()
			p.Handle(now, &ev, &out)
			return out.List
		}
		var got []policy.Action
		for req := range int32(3) {
			got = handle(0, policy.Event{Kind: policy.Arrival, Req: req, Deadline: 47 * ms})
		}
		// 22 ms here, 0.3 ms for the transfer, 22 ms behind it: in time.
		if len(got) != 2 || got[0].Kind != policy.Dispatch || got[0].Size != 3 || got[0].HopCount != 1 {
			t.Fatalf("three that fit: %+v, want one dispatch of a single hop, and no wake", got)
		}
		got = handle(c.finished, policy.Event{Kind: policy.BatchFinished, Batch: got[0].Batch, Hop: 0, Device: 0, End: c.finished})
		sent, lost := 0, 0
		for _, a := range got {
			switch a.Kind {
			case policy.Drop:
				lost++
			case policy.Dispatch:
				sent += int(a.Size)
				if _, hops := out.BatchOf(&a); hops[0].Stage != 1 || hops[0].Uplink < 0 || hops[0].Downlink < 0 {
					t.Errorf("sent on along %+v, want stage 1 over both links", hops[0])
				}
			}
		}
		if sent != c.sent || lost != c.lost {
			t.Errorf("finished at %v: %d sent on and %d dropped, want %d and %d: %+v", c.finished, sent, lost, c.sent, c.lost, got)
		}
	}
}

// Where the network is the bottleneck's neighbour, reserving both ends of a
// transfer keeps transfers short and requests in time; reacting does not.
func TestReservationBeatsReaction(t *testing.T) {
	plan := policytest.Pooled{High: 8, Low: 24, PerNode: 4, Batch: 1, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 20, SLO: 60 * ms}.Plan()
	ours, theirs := simulate(t, plan, reserve.Name, 0.9), simulate(t, plan, reactive.Name, 0.9)
	t.Logf("reserve: attainment %.3f, transfers %v, p99 %v; reactive: %.3f, %v, %v", ours.Report.Attainment, ours.Transfers.Mean, ours.Transfers.P99,
		theirs.Report.Attainment, theirs.Transfers.Mean, theirs.Transfers.P99)
	if ours.Report.Attainment < theirs.Report.Attainment || ours.Transfers.Mean > theirs.Transfers.Mean || ours.Transfers.P99 > theirs.Transfers.P99 {
		t.Errorf("the reactive policy does better")
	}
}

func TestSurvivesLosses(t *testing.T) {
	plan := policytest.Pooled{High: 3, Low: 9, Batch: 2, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 19, SLO: 200 * ms}.Plan()
	res := simulate(t, plan, reactive.Name, 0.6, sim.Fault{At: time.Second, Device: 0}, sim.Fault{At: time.Second, Device: 5}, sim.Fault{At: 1300 * ms, Device: 0, ComesBack: true})
	if res.Report.Attainment < 0.9 || res.Transfers.Count == 0 {
		t.Errorf("attainment %.3f with %d transfers", res.Report.Attainment, res.Transfers.Count)
	}
}

func TestNoParameters(t *testing.T) {
	tables := policytest.Compile(t, policytest.Hundred().Plan())
	if _, err := reactive.New(tables, map[string]float64{"x": 1}); err == nil || !strings.Contains(err.Error(), `unknown parameter "x"`) {
		t.Errorf("got %v", err)
	}
}

// A recorded run under jitter, with a device that fails, replays call by call.
func TestReplays(t *testing.T) {
	plan := policytest.Pooled{High: 3, Low: 9, Batch: 4, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 19, SLO: 200 * ms}.Plan()
	plan.Policy.Name = reactive.Name
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Verify = 1.1, 2*time.Second, true
	sc.Faults = []sim.Fault{{At: 500 * ms, Device: 0}, {At: time.Second, Device: 0, ComesBack: true}}
	sc.Service = func(seed uint64) (sim.Service, error) {
		return sim.JitterService(sc.Tables, sim.Lognormal, 0.2, seed), nil
	}
	cfg, err := sc.Config(0)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	rec := conform.NewRecorder(cfg.Policy, &log)
	cfg.Policy = rec
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := reactive.New(sc.Tables, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conform.Replay(bytes.NewReader(log.Bytes()), again); err != nil || n < 1000 {
		t.Errorf("%d calls replayed: %v", n, err)
	}
}
