package sim_test

import (
	"errors"
	"testing"
	"time"

	"inferplan/sim"
	"inferplan/testkit/policytest"
	"inferplan/testkit/workflows"
)

// Runs have no more requests than their budget allows, and leave it as it is if they would.
func TestRunsStayWithinTheirBudget(t *testing.T) {
	sc := scenario(t, policytest.Hundred().Plan(), 0.5, time.Second)
	sc.Budget = &sim.Budget{Remaining: 1e5}
	runs := &sim.Replications{Scenario: sc}
	made, err := 0, error(nil)
	for err == nil {
		before := sc.Budget.Remaining
		if err = runs.Extend(t.Context(), made+1); err != nil {
			if sc.Budget.Remaining != before {
				t.Errorf("%v left of %v, though nothing ran", sc.Budget.Remaining, before)
			}
			break
		}
		made++
	}
	over, ok := errors.AsType[*sim.OverBudgetError](err)
	if !ok || over.Runs != 1 || over.Duration != time.Second || made == 0 {
		t.Fatalf("after %d runs: %v", made, err)
	}
	offered := float64(runs.Pool().Report.Requests)
	if offered > 1.1e5 || offered+over.Requests < .8e5 {
		t.Errorf("%v requests, one more run %v, of a budget of 1e5", offered, over.Requests)
	}
	if sc.Budget = nil; runs.Extend(t.Context(), made+1) != nil {
		t.Error("a scenario without a budget has a bound")
	}
}

// A request of workflows counts for what their policy takes, one that asks language models for more.
func TestBudgetOfWorkflows(t *testing.T) {
	within := func(fleet workflows.Fleet, requests float64) bool {
		tables := fleet.Tables()
		sc := &sim.Scenario{Tables: tables, Rates: make([]float64, len(tables.Models)), Load: 1, Duration: time.Second, Budget: &sim.Budget{Remaining: 10_000}}
		sc.Rates[0] = requests
		return sc.CheckBudget(1) == nil
	}
	batches, iterations := workflows.Fleet{Devices: 20, Gigabytes: 40}, workflows.Fleet{Devices: 20, Gigabytes: 40, Generations: true}
	if !within(batches, 570) || within(batches, 610) || !within(iterations, 1050) || within(iterations, 1150) {
		t.Error("a budget allows other numbers of requests than 10000 / 17 and 10000 / 9")
	}
}
