package certify

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/testkit/policytest"
)

// planAt is a plan of one device that runs requests of 10 ms one by one, at a rate under an SLO of 50 ms.
// It attains .99 up to about 50 rps.
func planAt(rps float64) *formats.Plan {
	const ms = time.Millisecond
	plan := policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: 50 * ms, RPS: rps})
	plan.Arrivals = &formats.Arrivals{Process: "poisson"}
	plan.Objective = formats.Objective{Name: "gpus", Value: 1}
	return plan
}

func prepareTest(plan *formats.Plan) (*Test, string, error) {
	test, err := NewTestWith(plan, WithFreshSeed(kind.TestSettings{Runs: 3, Duration: 20 * time.Second, Seed: 1}))
	return test, "", err
}

// A plan that other random numbers refute is made anew with more kept back, until one passes.
func TestRefutedPlanIsMadeAgain(t *testing.T) {
	infeasible := &kind.InfeasibleError{Constraint: "devices"}
	for _, c := range []struct {
		name    string
		rates   []float64 // of the plan that each solve returns; 0: there is none
		holds   bool
		warning string
		err     error
	}{
		{"the first passes", []float64{20}, true, "", nil},
		{"the third passes", []float64{95, 90, 20}, true, "", nil},
		{"none passes", []float64{95, 94, 93, 92}, false, "does not confirm the rates", nil},
		{"no plan keeps more back", []float64{95, 0}, false, "does not confirm the rates", nil},
		{"no plan at all", []float64{0}, false, "", infeasible},
	} {
		t.Run(c.name, func(t *testing.T) {
			var surpluses []float64
			solve := func(_ context.Context, p *kind.Problem, _ func(kind.Progress)) (*kind.Result, error) {
				surpluses = append(surpluses, p.ReservedMisses)
				rps := c.rates[len(surpluses)-1]
				if rps == 0 {
					return nil, infeasible
				}
				return &kind.Result{Plan: planAt(rps)}, nil
			}
			res, err := SolveUntilConfirmed(t.Context(), &kind.Problem{}, solve, prepareTest)
			if !errors.Is(err, c.err) || len(surpluses) != len(c.rates) {
				t.Fatalf("%d solves, expected %d: %v", len(surpluses), len(c.rates), err)
			}
			for i, surplus := range surpluses {
				if math.Abs(surplus-reservedStep*float64(i)) > 1e-9 {
					t.Errorf("solve %d keeps back %v", i, surplus)
				}
			}
			if err != nil {
				return
			}
			plan := res.Plan
			if (plan.Objective.Basis == formats.BasisSimulation) != c.holds || plan.Certificate == nil || c.holds != (plan.Certificate.LoadFactor == 1) {
				t.Errorf("basis %q, certified %+v", plan.Objective.Basis, plan.Certificate)
			}
			if text := strings.Join(plan.Warnings, " "); (c.warning == "") != (text == "") || !strings.Contains(text, c.warning) {
				t.Errorf("warnings %q", plan.Warnings)
			}
		})
	}
}

// Runs last until enough requests of the rarest model came to say how many of them are late, within twice the usual length.
func TestRunsHaveEnoughRequestsOfRareModels(t *testing.T) {
	for _, c := range []struct {
		name     string
		rates    []float64
		share    float64
		requests float64
	}{
		{"equal rates", []float64{50, 50}, .99, 20_000},
		{"a tenth of the rate", []float64{90, 10}, .99, 30_000},
		{"a tenth of the rate, and a tenth may be late", []float64{90, 10}, .9, 20_000},
		{"a hundredth of the rate", []float64{990, 10}, .99, 40_000},
		{"none may be late", []float64{90, 10}, 1, 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			var models []policytest.Model
			for _, rps := range c.rates {
				models = append(models, policytest.Model{Batch: 1, First: time.Millisecond, SLO: 50 * time.Millisecond, RPS: rps})
			}
			plan := policytest.Single(1, false, models...)
			if got := runRequests(plan, []float64{c.share, c.share}); math.Abs(got-c.requests) > 1e-6 {
				t.Errorf("%.6f requests, expected %.0f", got, c.requests)
			}
		})
	}
}

// A plan for the most goodput states what the test shows where the search saw more, and is not made anew.
func TestHoldRestatesGoodput(t *testing.T) {
	for _, c := range []struct{ stated, least, most float64 }{{95, 5, 90}, {15, 15, 15}} {
		solves := 0
		solve := func(context.Context, *kind.Problem, func(kind.Progress)) (*kind.Result, error) {
			solves++
			bound := 100.
			plan := planAt(95)
			plan.Objective = formats.Objective{Name: "goodput", Value: c.stated, Bound: &bound}
			return &kind.Result{Plan: plan}, nil
		}
		res, err := SolveUntilConfirmed(t.Context(), &kind.Problem{}, solve, prepareTest)
		if err != nil || solves != 1 {
			t.Fatalf("%d solves: %v", solves, err)
		}
		if o := res.Plan.Objective; o.Value < c.least || o.Value > c.most || o.Basis != formats.BasisSimulation {
			t.Errorf("a goodput of %g became %+v", c.stated, o)
		}
	}
}

// Once there is a plan, a context that ends leaves it, marked as interrupted; a plan without a test says why.
func TestHoldWithoutATest(t *testing.T) {
	solve := func(context.Context, *kind.Problem, func(kind.Progress)) (*kind.Result, error) {
		return &kind.Result{Plan: planAt(20), StoppedBy: "proved"}, nil
	}
	ended, end := context.WithCancel(t.Context())
	end()
	res, err := SolveUntilConfirmed(ended, &kind.Problem{}, solve, prepareTest)
	if err != nil || res.StoppedBy != "interrupt" || res.Plan.StoppedBy != "interrupt" || res.Plan.Certificate != nil {
		t.Errorf("interrupted: %+v, %v", res, err)
	}
	res, err = SolveUntilConfirmed(t.Context(), &kind.Problem{}, solve, func(*formats.Plan) (*Test, string, error) { return nil, "of a reason", nil })
	if err != nil || res.Plan.Certificate != nil || !strings.Contains(strings.Join(res.Plan.Assumptions, " "), "not tested by simulation: of a reason") {
		t.Errorf("untested: %+v, %v", res.Plan.Assumptions, err)
	}
}

// Where a plan leaves room for runs that take longer, rates that hold as profiled alone do not
// pass, and the latencies of one that passes are as profiled.
func TestHoldWhereRunsTakeLonger(t *testing.T) {
	confirmed := func(rps, drift float64) (*formats.Plan, bool) {
		plan := planAt(rps)
		plan.Drift = drift
		test, _, err := prepareTest(plan)
		if err != nil {
			t.Fatal(err)
		}
		passes, err := test.confirmPlan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return plan, passes
	}
	if _, passes := confirmed(45, 0); !passes {
		t.Error("45 requests a second do not hold with runs as profiled")
	}
	if _, passes := confirmed(45, .3); passes {
		t.Error("45 requests a second hold with runs that take 1.3 times as long")
	}
	room, passes := confirmed(20, .3)
	none, _ := confirmed(20, 0)
	with, without := room.Certificate.Models[0].P50US, none.Certificate.Models[0].P50US
	if !passes || with != without {
		t.Errorf("20 requests a second: passes %v, p50 %v with room for longer runs, %v without", passes, with, without)
	}
	if said := strings.Join(room.Assumptions, "\n"); !strings.Contains(said, "30.0 % longer") || len(none.Assumptions) > 0 {
		t.Errorf("assumed %q with room for longer runs, %q without", said, none.Assumptions)
	}
}
