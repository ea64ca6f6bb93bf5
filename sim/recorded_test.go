package sim_test

import (
	"math"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// fixedArrivals are arrivals at given times.
type fixedArrivals struct {
	times     []time.Duration
	nextIndex int
}

func (f *fixedArrivals) Next(r *arrivals.Request) bool {
	if f.nextIndex == len(f.times) {
		return false
	}
	*r = arrivals.Request{ArrivedAt: f.times[f.nextIndex]}
	f.nextIndex++
	return true
}

// A recorded trace comes at the rate asked for, with the gaps it had relative
// to one another, whatever the load; the first run starts where it does.
func TestTraceIsPlayedAtTheRate(t *testing.T) {
	sc := scenario(t, policytest.Hundred().Plan(), 1, 20*time.Second)
	var err error
	if sc.RecordedArrivals, err = sim.RecordArrivals(&fixedArrivals{times: []time.Duration{0, 1 * ms, 2 * ms, 30 * ms, 60 * ms}}, len(sc.Tables.Models)); err != nil {
		t.Fatal(err)
	}
	times := func(load float64, run int) []time.Duration {
		at := *sc
		at.Load = load
		cfg, err := at.Config(run)
		if err != nil {
			t.Fatal(err)
		}
		var out []time.Duration
		var r arrivals.Request
		for cfg.Source.Next(&r) {
			if len(out) > 0 && r.ArrivedAt < out[len(out)-1] {
				t.Fatalf("load %v, run %d: %v after %v", load, run, r.ArrivedAt, out[len(out)-1])
			}
			out = append(out, r.ArrivedAt)
		}
		return out
	}
	rps := sc.Tables.Models[0].RPS
	for _, load := range []float64{0.5, 1, 1.3} {
		for run := range 3 {
			got := times(load, run)
			if want := rps * load * sc.Duration.Seconds(); math.Abs(float64(len(got))/want-1) > 0.01 {
				t.Errorf("load %v, run %d: %d requests, want %.0f", load, run, len(got), want)
			}
		}
	}
	a, b := times(0.5, 0), times(1, 0)
	for i := range a {
		if d := a[i] - 2*b[i]; d < -3 || d > 3 {
			t.Fatalf("request %d at %v at half the load, at %v at the whole", i, a[i], b[i])
		}
	}
	if gap, next := b[1]-b[0], b[3]-b[2]; b[0] != 0 || math.Abs(float64(next)/float64(gap)-28) > 0.1 {
		t.Errorf("first at %v, gaps %v and %v, which were 1 and 28", b[0], gap, next)
	}
	if c := times(1, 1); c[0] != 0 || len(c) == len(b) && c[1] == b[1] && c[3] == b[3] && times(1, 2)[1] == b[1] && times(1, 2)[3] == b[3] {
		t.Errorf("further runs start as the first does")
	}
	if _, err := sim.RecordArrivals(&fixedArrivals{times: []time.Duration{0}}, 0); err == nil {
		t.Error("a request of a model that is not there was recorded")
	}
}
