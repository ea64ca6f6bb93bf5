package queue

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/planner/queue/verify"
)

// certifiedRequests is the number of requests in a run of a certification, if the limits of its duration
// allow so many.
const certifiedRequests = 2000

// newTest returns the test of a plan's rates by simulation. Settings that the request leaves out get defaults, by which a run lasts a
// minute to an hour. A plan for a trace is an error, because a test needs fresh random arrivals, which a trace cannot give.
func newTest(plan *formats.Plan, requested kind.TestSettings) (*certify.Test, error) {
	requested, err := requested.WithDefaults(plan, certifiedRequests, time.Minute, time.Hour)
	if err != nil {
		return nil, err
	}
	if plan.Arrivals != nil && plan.Arrivals.Trace != "" {
		return nil, &document.Error{Path: "arrivals.trace", Found: plan.Arrivals.Trace, Expected: "a process of arrivals, for --certify", Hint: "plan simulate --trace plays it"}
	}
	return certify.NewTestWith(plan, requested)
}

// certifyPlan simulates a plan on behalf of --certify, and stores in it the highest of a grid of loads (factors on the planned rates) at
// which every model and class has the requested share of its requests in time. If that is below 1, it adds a warning to the plan.
func certifyPlan(ctx context.Context, plan *formats.Plan, requested kind.TestSettings) error {
	test, err := newTest(plan, requested)
	if err != nil {
		return err
	}
	if err := test.StoreHighestLoad(ctx); err != nil {
		return err
	}
	if cert := plan.Certificate; cert.LoadFactor < 1 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g for every model and class at %.2f of the planned rates: the plan judges classes pooled over their models", cert.Attainment, cert.LoadFactor))
	}
	return nil
}

// solveTested solves for a plan and tests it with fresh random numbers, on runs as long as those of the search. If the test fails, it
// solves again with a larger reserve, the part of the allowed late requests that the search holds back. A plan for a trace of arrivals is
// not tested. A plan for the most goodput that starts from one that runs was compared with that on fresh random numbers already, and is not
// tested again: a test would lower the value of one of them alone.
func solveTested(ctx context.Context, p *kind.Problem, requested kind.TestSettings, solve kind.SolveFunc) (*kind.Result, error) {
	if p.RunningPlan != nil && p.Values.Word("objective") == "goodput" {
		res, err := withRuleCheck(solve)(ctx, p, p.Progress)
		if err == nil {
			res.Plan.Objective.Basis = formats.BasisSimulation
		}
		return res, err
	}
	return certify.SolveUntilConfirmed(ctx, p, withRuleCheck(solve), func(plan *formats.Plan) (*certify.Test, string, error) {
		if plan.Arrivals != nil && plan.Arrivals.Trace != "" {
			return nil, "arrivals are those of a trace, which the search did not play", nil
		}

		// The test has other random numbers than the search, and runs as long as those that the plan states.
		freshRequest := certify.WithFreshSeed(requested)
		if planRuns := formats.QueueOf(plan).Runs; freshRequest.Duration == 0 && planRuns != nil {
			freshRequest.Duration = planRuns.DurationUS.D()
		}
		test, err := newTest(plan, freshRequest)
		return test, "", err
	})
}

// withRuleCheck returns a solver that calls solve and turns its plan into an error if the plan breaks a rule that `plan check` would
// report as an error. So the planner never returns a plan that its own check refutes. A test that lowers the plan's rates later does not
// check it again.
func withRuleCheck(solve kind.SolveFunc) kind.SolveFunc {
	return func(ctx context.Context, p *kind.Problem, progress func(kind.Progress)) (*kind.Result, error) {
		res, err := solve(ctx, p, progress)
		if err != nil {
			return nil, err
		}
		for _, f := range verify.Check(&kind.CheckInput{Plan: res.Plan, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}) {
			if f.Severity == kind.Error {
				reason := fmt.Sprintf("the best layout that was found breaks a rule of plan check: %s (%s: found %s, expected %s)", f.Message, f.Path, f.Found, f.Expected)
				return nil, &kind.InfeasibleError{Constraint: f.Constraint, Reason: reason, RefutedBySimulation: true}
			}
		}
		return res, nil
	}
}
