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

// Runs on the front end's machine occupy it as long as they last, whatever the batches are. Beside runs that take all the
// share that requests leave them, requests pass; and those that are refused have no runs.
func TestRunsOccupyTheFrontEnd(t *testing.T) {
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 500 * time.Microsecond, SLO: time.Second, RPS: 1000})
	for _, c := range []struct {
		load       float64
		perRun     float64 // part of the front end that a run occupies
		maxShare   float64
		overloaded bool
	}{
		{.9, .5, 1, false}, // .9 (.5 + .5 · .5) of the front end
		{1.2, .5, 1, false},
		{1.5, .5, 1, true}, // 1.5 · .5 + .5 · .75, as runs take .75 of the device's time
		{1.5, .5, .2, false},
		{1.9, 0, 1, false},
	} {
		sc := scenario(t, plan, c.load, 100*time.Second)
		sc.FrontEnd, sc.FrontEndRuns, sc.FrontEndRunShare = 500*time.Microsecond, []float64{c.perRun}, c.maxShare
		r := replicateOnce(t, sc).Report
		if isLate := r.Attainment < .9; isLate != c.overloaded {
			t.Errorf("at load %v with runs that occupy %v, at most %v: %v are in time", c.load, c.perRun, c.maxShare, r.Attainment)
		}
	}

	// More requests than the device serves are refused, and have no runs.
	sc := scenario(t, plan, 3, 100*time.Second)
	sc.FrontEnd, sc.FrontEndRuns, sc.FrontEndRunShare = 100*time.Microsecond, []float64{.5}, 1
	if r := replicateOnce(t, sc).Report; r.Attainment < .6 {
		t.Errorf("at 1.5 times what the device serves %v are in time, expected two of three", r.Attainment)
	}
}
