package certify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

const (
	mostPlans = 4    // of a problem, each with more kept back
	keepsBack = 0.15 // of the requests that may miss, with every further plan
)

// Hold plans, and tests with random numbers that the search has not seen whether the plan attains
// its shares at its rates. If it falls short, the search is repeated for less misses than may be.
// If no plan passes, the last one says at which load it holds. prepare makes the test of a plan;
// where it returns none, with a reason, the plan is not tested and says so.
func Hold(ctx context.Context, p *kind.Problem, solve kind.Solver, prepare func(*formats.Plan) (test *Test, untested string, err error)) (*kind.Result, error) {
	q := *p
	var res *kind.Result
	for range mostPlans {
		other, err := solve(ctx, &q, p.Progress)
		if _, infeasible := errors.AsType[*kind.InfeasibleError](err); res != nil && (infeasible || ctx.Err() != nil) {
			break
		}
		if err != nil {
			return nil, err
		}
		if res = other; ctx.Err() != nil {
			return interrupted(ctx, res, nil)
		}
		test, untested, err := prepare(res.Plan)
		if err != nil {
			return nil, err
		}
		if untested != "" {
			res.Plan.Assumptions = append(res.Plan.Assumptions, "rates are not tested by simulation: "+untested)
			return res, nil
		}
		held, err := test.hold(ctx)
		if held || err != nil {
			return interrupted(ctx, res, err)
		}
		q.Surplus += keepsBack
	}
	test, _, err := prepare(res.Plan)
	if err != nil {
		return nil, err
	}
	if err := test.Highest(ctx); err != nil {
		return interrupted(ctx, res, err)
	}
	if c := res.Plan.Certified; c != nil {
		res.Plan.Warnings = append(res.Plan.Warnings, fmt.Sprintf("simulation with other random numbers shows the attainment asked at %s of the rates only", kind.Percent(c.LoadFactor)))
	}
	return res, nil
}

// hold stores in a plan that passes what the runs showed, and returns whether it does.
func (t *Test) hold(ctx context.Context) (bool, error) {
	shown, short, err := t.Confirm(ctx, slices.Repeat([]float64{1}, len(t.Shares)))
	if err != nil || slices.Contains(short, true) {
		return false, err
	}
	t.Store(1, shown.Report)
	t.plan.Objective.Basis = formats.BasisSimulation
	return true, t.Strain(ctx)
}

// interrupted returns a plan that says so where ctx has ended, and an error otherwise.
func interrupted(ctx context.Context, res *kind.Result, err error) (*kind.Result, error) {
	if ctx.Err() == nil {
		if err != nil {
			return nil, err
		}
		return res, nil
	}
	res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.Status(milp.StoppedByInterrupt)
	res.Plan.StoppedBy = res.StoppedBy
	return res, nil
}

// Fresh is asked with another seed than that of the search for a plan.
func Fresh(asked kind.Asked) kind.Asked {
	asked.Seed = cmp.Or(asked.Seed, 1) + 1
	return asked
}
