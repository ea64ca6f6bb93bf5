package sim_test

import (
	"math"
	"testing"
	"time"

	"inferplan/testkit/policytest"
)

// Requests wait at the front end as in an M/D/1 queue, and beyond its rate they are late whatever the devices could do.
func TestRequestsWaitAtTheFrontEnd(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * time.Microsecond, SLO: time.Second, RPS: 1000})
	for _, load := range []float64{.3, .6, .8} {
		sc := scenario(t, plan, load, 200*time.Second)
		sc.FrontEnd = ms
		r := replicateOnce(t, sc).Report
		expected := load / (2 * (1 - load)) // ms
		if got := r.Latency.MeanUS.D().Seconds() * 1e3; math.Abs(got-.01-expected) > .05*expected {
			t.Errorf("at %v of its rate requests wait %.3f ms for the front end, expected %.3f", load, got-.01, expected)
		}
	}
	sc := scenario(t, plan, 1.5, 30*time.Second)
	if r := replicateOnce(t, sc).Report; r.Attainment < 1 {
		t.Errorf("without a front end %v are in time", r.Attainment)
	}
	sc.FrontEnd = ms
	if r := replicateOnce(t, sc).Report; r.Attainment > .2 {
		t.Errorf("at 1.5 times the front end's rate %v are in time", r.Attainment)
	}
}

// Runs on the front end's machine take up no more of it than their devices have, however many requests come: those that
// are refused have no runs. Counted for every request, runs would keep the front end busy at 1.1 times its capacity here.
func TestRefusedRequestsHaveNoRunsAtTheFrontEnd(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * time.Microsecond, SLO: time.Second, RPS: 1000})
	sc := scenario(t, plan, 2, 100*time.Second)
	sc.FrontEnd, sc.FrontEndRuns, sc.FrontEndRunShare = 50*time.Microsecond, 500*time.Microsecond, .5
	r := replicateOnce(t, sc).Report
	if r.Attainment < 1 || r.Latency.P99US.D() > 100*time.Millisecond {
		t.Errorf("at twice the planned rate %v are in time, p99 %v", r.Attainment, r.Latency.P99US.D())
	}

	// Up to the planned rate they take what they take.
	sc = scenario(t, plan, .9, 100*time.Second)
	sc.FrontEnd = 550 * time.Microsecond
	whole := replicateOnce(t, sc).Report
	sc.FrontEnd, sc.FrontEndRuns, sc.FrontEndRunShare = 50*time.Microsecond, 500*time.Microsecond, .5
	if parts := replicateOnce(t, sc).Report; parts.Latency.MeanUS != whole.Latency.MeanUS {
		t.Errorf("mean latency %v in two parts, %v in one", parts.Latency.MeanUS.D(), whole.Latency.MeanUS.D())
	}
}
