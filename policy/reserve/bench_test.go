package reserve_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// call is one recorded call of a policy.
type call struct {
	now time.Duration
	ev  policy.Event
}

// callRecorder is a policy that keeps what another was told.
type callRecorder struct {
	policy.Policy
	calls      []call
	dispatched int
	wakes      int
}

func (r *callRecorder) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	r.calls = append(r.calls, call{now, *ev})
	r.Policy.Handle(now, ev, out)
	for i := range out.List {
		switch out.List[i].Kind {
		case policy.Dispatch:
			r.dispatched++
		case policy.Wake:
			r.wakes++
		}
	}
}

// recordRun simulates a plan and returns what its policy was told.
func recordRun(tb testing.TB, plan *formats.Plan, load float64, d time.Duration, service func(*policy.Tables) sim.Service) (*policy.Tables, *callRecorder) {
	tb.Helper()
	sc, err := sim.NewScenario(plan)
	if err != nil {
		tb.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Verify = load, d, true
	cfg, err := sc.Config(0)
	if err != nil {
		tb.Fatal(err)
	}
	if service != nil {
		cfg.Service = service(sc.Tables)
	}
	rec := &callRecorder{Policy: cfg.Policy}
	cfg.Policy = rec
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		tb.Fatal(err)
	}
	return sc.Tables, rec
}

func replay(p policy.Policy, calls []call, out *policy.Actions) {
	for i := range calls {
		out.Reset()
		p.Handle(calls[i].now, &calls[i].ev, out)
	}
}

func lognormal(cv float64) func(*policy.Tables) sim.Service {
	return func(t *policy.Tables) sim.Service { return sim.JitterService(t, sim.Lognormal, cv, 1) }
}

// Every event of a run is handled without allocation: replaying a run with
// jitter a second time, after the buffers have grown, allocates nothing.
func TestAllocatesNothing(t *testing.T) {
	shared := policytest.Single(3, true,
		policytest.Model{Batch: 4, First: 10 * time.Millisecond, More: 5 * time.Millisecond, SLO: 100 * time.Millisecond, RPS: 150},
		policytest.Model{Batch: 2, First: 3 * time.Millisecond, More: 2 * time.Millisecond, SLO: 50 * time.Millisecond, RPS: 150})
	for name, plan := range map[string]*formats.Plan{"pooled": policytest.Hundred().Plan(), "time-shared": shared} {
		tables, rec := recordRun(t, plan, 1.05, time.Second, lognormal(0.1))
		var out policy.Actions
		// The first of the measured runs warms the buffers of out; a policy's own
		// buffers must be large enough from New on.
		runs := 0
		policies := []policy.Policy{}
		for range 4 {
			policies = append(policies, reserve.New(tables, reserve.DefaultOptions()))
		}
		if n := testing.AllocsPerRun(2, func() { replay(policies[runs], rec.calls, &out); runs++ }); n != 0 {
			t.Errorf("%s: %v allocations in a run of %d events, want none", name, n, len(rec.calls))
		}
	}
}

// BenchmarkDispatch is the policy's cost on the 100-device cluster: all calls
// of a run, divided by the batches dispatched. The paper reports 9 us.
func BenchmarkDispatch(b *testing.B) {
	for _, c := range []struct {
		name    string
		batch   int
		load    float64
		service func(*policy.Tables) sim.Service
	}{
		{"batch=2/load=0.95", 2, 0.95, nil},
		{"batch=1/load=0.95", 1, 0.95, nil},
		{"batch=4/load=0.95", 4, 0.95, nil},
		{"batch=2/load=1.30", 2, 1.3, nil},
		{"batch=2/load=0.95/jitter=0.1", 2, 0.95, lognormal(0.1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			hundred := policytest.Hundred()
			hundred.Batch = c.batch
			hundred.SLO = 150 * time.Millisecond
			tables, rec := recordRun(b, hundred.Plan(), c.load, 4*time.Second, c.service)
			var out policy.Actions
			b.ReportAllocs()
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				p := reserve.New(tables, reserve.DefaultOptions())
				b.StartTimer()
				start := cputime.Used()
				replay(p, rec.calls, &out)
				spent += cputime.Used() - start
			}
			batches := float64(rec.dispatched) * float64(b.N)
			b.ReportMetric(float64(spent.Nanoseconds())/batches, "cpu-ns/batch")
			b.ReportMetric(float64(len(rec.calls))/float64(rec.dispatched), "events/batch")
		})
	}
}

// BenchmarkLongQueues is the cost per dispatched batch where an SLO of many
// service times lets overload fill the timelines: jitter moves what is reserved
// behind every run.
func BenchmarkLongQueues(b *testing.B) {
	for _, slo := range []time.Duration{150 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		for _, jitter := range []float64{0, 0.1} {
			b.Run(fmt.Sprintf("slo=%v/jitter=%v", slo, jitter), func(b *testing.B) {
				hundred := policytest.Hundred()
				hundred.Batch, hundred.SLO = 1, slo
				var service func(*policy.Tables) sim.Service
				if jitter > 0 {
					service = lognormal(jitter)
				}
				tables, rec := recordRun(b, hundred.Plan(), 1.5, slo+2*time.Second, service)
				var out policy.Actions
				b.ReportAllocs()
				var spent time.Duration
				for b.Loop() {
					p := reserve.New(tables, reserve.DefaultOptions())
					start := cputime.Used()
					replay(p, rec.calls, &out)
					spent += cputime.Used() - start
				}
				b.ReportMetric(float64(spent.Nanoseconds())/(float64(rec.dispatched)*float64(b.N)), "cpu-ns/batch")
			})
		}
	}
}
