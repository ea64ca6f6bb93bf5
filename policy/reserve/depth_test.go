package reserve_test

import (
	"context"
	"math"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// depthWatch notes how deep devices are and how long requests waited that were
// dropped.
type depthWatch struct {
	*reserve.Policy
	arrived map[int32]time.Duration
	deepest int32
	dropped int
	slow    int // dropped after half of the SLO
	slo     time.Duration
}

func (w *depthWatch) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.Arrival {
		w.arrived[ev.Req] = ev.ArrivedAt
	}
	w.Policy.Handle(now, ev, out)
	w.deepest = max(w.deepest, w.Depth())
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.Drop {
			w.dropped++
			if now-w.arrived[a.Req] > w.slo/2 {
				w.slow++
			}
		}
	}
}

// However long the SLO and the overload, a device has a bounded number of
// reservations; what is served in time is no less for that (it is more: jitter
// makes late starts uncertain), and most of what cannot be is told soon.
func TestDepthIsBounded(t *testing.T) {
	const slo = 3 * time.Second
	one := func(devices int) *formats.Plan {
		return policytest.Single(devices, false, policytest.Model{Batch: 2, First: 5 * time.Millisecond, More: 3 * time.Millisecond, SLO: slo, RPS: float64(devices) * 250})
	}
	pooled := policytest.Pooled{High: 2, Low: 6, Batch: 1, HighTime: 6 * time.Millisecond, LowTime: 18 * time.Millisecond, Bytes: 1 << 19, SLO: slo}.Plan()
	for name, plan := range map[string]*formats.Plan{"one stage": one(3), "two stages": pooled} {
		good := map[int32]float64{}
		for _, depth := range []int32{reserve.MaxDepth, math.MaxInt32} {
			sc, err := sim.NewScenario(plan)
			if err != nil {
				t.Fatal(err)
			}
			sc.Load, sc.Duration, sc.Verify = 1.5, 3*slo, true
			cfg, err := sc.Config(0)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Service = lognormal(0.1)(sc.Tables)
			w := &depthWatch{Policy: reserve.New(sc.Tables, reserve.DefaultOptions()), arrived: map[int32]time.Duration{}, slo: slo}
			w.SetMaxDepth(depth)
			cfg.Policy = w
			res, err := sim.Run(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			good[depth] = res.Report.Attainment
			t.Logf("%s: at most %d: %d reservations on a device, attainment %.4f, %d dropped, %d of them after half the SLO", name, depth, w.deepest, res.Report.Attainment, w.dropped, w.slow)
			switch {
			case depth != reserve.MaxDepth && w.deepest <= reserve.MaxDepth:
				t.Errorf("%s: %d reservations on a device without a bound: the test shows nothing", name, w.deepest)
			case depth == reserve.MaxDepth && w.deepest > depth:
				t.Errorf("%s: %d reservations on a device, want at most %d", name, w.deepest, depth)
			case w.dropped == 0 || w.slow > w.dropped/5:
				t.Errorf("%s: %d of %d requests were dropped after half of their SLO", name, w.slow, w.dropped)
			}
		}
		if bounded, free := good[reserve.MaxDepth], good[math.MaxInt32]; bounded < free-0.005 {
			t.Errorf("%s: attainment %.4f with bounded depth, %.4f without", name, bounded, free)
		}
	}
}
