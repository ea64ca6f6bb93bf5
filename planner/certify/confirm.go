package certify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/milp"
)

const (
	maxPlans     = 4    // plans of a problem, each with more reserved misses
	reservedStep = 0.15 // share of the requests that may miss, by which every further plan reserves more
)

// SolveUntilConfirmed makes a plan and tests, with random numbers that the search has not seen, whether
// the plan attains its shares at its rates. prepare returns the test of a plan. If it returns a
// reason instead, the plan is not tested and notes the reason.
//
//  1. A plan that passes gets its certificate. A plan for the most goodput, whose requests may be
//     late, states the goodput of the test if that is less than the goodput of the search.
//  2. If a plan fails, the search is repeated with more reserved misses (Problem.ReservedMisses).
//  3. If no plan passes, the last one states the load at which it holds.
//
// If ctx ends once there is a plan, that plan is returned, marked as interrupted.
func SolveUntilConfirmed(ctx context.Context, p *kind.Problem, solve kind.SolveFunc, prepare func(*formats.Plan) (test *Test, reason string, err error)) (*kind.Result, error) {
	problem := *p

	// Solve and test, until a plan passes.
	var res *kind.Result
	for range maxPlans {
		newResult, err := solve(ctx, &problem, p.Progress)
		if _, infeasible := errors.AsType[*kind.InfeasibleError](err); res != nil && (infeasible || ctx.Err() != nil) {
			break // with more reserved misses there is no plan, or no time for one: the plan before stands
		}
		if err != nil {
			return nil, err
		}
		res = newResult
		if ctx.Err() != nil {
			return planOrError(ctx, res, nil)
		}
		test, reason, err := prepare(res.Plan)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			res.Plan.Assumptions = append(res.Plan.Assumptions, "rates are not tested by simulation: "+reason)
			return res, nil
		}
		passes, err := test.confirmPlan(ctx)
		if passes || err != nil {
			return planOrError(ctx, res, err)
		}
		problem.ReservedMisses += reservedStep
	}

	// No plan passed: find the load at which the last one holds.
	test, _, err := prepare(res.Plan)
	if err != nil {
		return nil, err
	}
	if err := test.StoreHighestLoad(ctx); err != nil {
		return planOrError(ctx, res, err)
	}
	res.Plan.Warnings = append(res.Plan.Warnings, fmt.Sprintf("simulation with other random numbers does not confirm the rates at a confidence of %g: the mean of its runs attains what is asked at %s of them",
		confidence, kind.FormatPercent(res.Plan.Certificate.LoadFactor)))
	return res, nil
}

// confirmPlan tests the plan at its rates by simulation and reports whether it passes. If it does, its certificate is
// stored, and its objective rests on simulation. A plan for the most goodput promises no attainment: it always passes,
// and the goodput that it states is lowered to that of the test.
func (t *Test) confirmPlan(ctx context.Context) (bool, error) {
	if t.plan.Objective.Name == "goodput" {
		return true, t.lowerGoodput(ctx)
	}
	result, failed, err := t.Confirm(ctx, slices.Repeat([]float64{1}, len(t.Shares)))
	if err != nil || slices.Contains(failed, true) {
		return false, err
	}
	t.StoreCertificate(1, result.Report)
	t.plan.Objective.Basis = formats.BasisSimulation
	return true, t.StoreSlowdowns(ctx)
}

// lowerGoodput simulates the plan and lowers the goodput (requests in time per second) that it states to that of
// the runs, if that is less, because the search chose its best layout by luck in part.
func (t *Test) lowerGoodput(ctx context.Context) error {
	result, err := sim.Replicate(ctx, t.Scenario, t.Settings.Runs)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	goodput := 0.0
	for i, model := range t.plan.ServedModels() {
		goodput += model.RPS * result.Report.Models[i].Attainment
	}
	o := &t.plan.Objective
	o.Basis = formats.BasisSimulation
	if goodput >= o.Value {
		return nil
	}
	o.Value = goodput
	if o.Bound != nil {
		gap := milp.RelativeGap(milp.Maximize, goodput, *o.Bound)
		o.Gap = &gap
	}
	return nil
}

// planOrError returns the result of a solve that has a plan, after the plan's test ended with err (nil if it succeeded).
// If ctx has ended, it returns the plan, marked as interrupted, whatever the error. Otherwise it returns err or, without
// an error, the plan.
func planOrError(ctx context.Context, res *kind.Result, err error) (*kind.Result, error) {
	if ctx.Err() == nil {
		if err != nil {
			return nil, err
		}
		return res, nil
	}
	res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.StatusOf(milp.StoppedByInterrupt)
	res.Plan.StoppedBy = res.StoppedBy
	return res, nil
}

// WithFreshSeed returns the settings of a test with another seed than that of the search.
func WithFreshSeed(settings kind.TestSettings) kind.TestSettings {
	settings.Seed = cmp.Or(settings.Seed, 1) + 1
	return settings
}
