package reserve_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// forgetfulPolicy forgets the paths that heads wait for, so that every decision probes.
type forgetfulPolicy struct {
	*reserve.Policy
	known *int
}

func (p forgetfulPolicy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	*p.known += p.ForgetWaits()
	p.Policy.Handle(now, ev, out)
}

// Following the path that a head waits for decides as probing does, under
// every load, and with guards; jitter moves reservations under it.
func TestFollowsWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		load   float64
		jitter float64
		params map[string]float64
	}{
		{"half", 0.5, 0, nil},
		{"planned", 0.95, 0, nil},
		{"over", 1.2, 0, nil},
		{"guarded", 0.95, 0, map[string]float64{"guard_us": 2000, "guard_share": 0.1}},
		{"jitter", 0.95, 0.1, nil},
	} {
		hundred := policytest.Hundred()
		hundred.Batch, hundred.SLO, hundred.Params = 4, 150*time.Millisecond, c.params
		var reports []*formats.Report
		known := 0
		for _, probes := range []bool{false, true} {
			sc, err := sim.NewScenario(hundred.Plan())
			if err != nil {
				t.Fatal(err)
			}
			sc.Load, sc.Duration = c.load, 2*time.Second
			cfg, err := sc.Config(0)
			if err != nil {
				t.Fatal(err)
			}
			if c.jitter > 0 {
				cfg.Service = sim.JitterService(sc.Tables, sim.Lognormal, c.jitter, 1)
			}
			p := cfg.Policy.(*reserve.Policy)
			if probes {
				cfg.Policy = forgetfulPolicy{p, &known}
			}
			res, err := sim.Run(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			reports = append(reports, res.Report)
		}
		if known < 100 {
			t.Errorf("%s: the path was known before %d events, which proves nothing", c.name, known)
		}
		a, b := reports[0], reports[1]
		if a.ProbesPerBatch >= b.ProbesPerBatch {
			t.Errorf("%s: %v probes a batch following, %v probing", c.name, a.ProbesPerBatch, b.ProbesPerBatch)
		}
		a.ProbesPerBatch, b.ProbesPerBatch = 0, 0 // all else is the same
		if c.jitter == 0 && !reflect.DeepEqual(a, b) {
			t.Errorf("%s: following %+v %v, probing %+v %v", c.name, a.Counts, a.Models[0].BatchSizes, b.Counts, b.Models[0].BatchSizes)
		}
		if d := a.Attainment - b.Attainment; d < -0.005 || d > 0.005 {
			t.Errorf("%s: attainment %v following, %v probing", c.name, a.Attainment, b.Attainment)
		}
	}
}
