package search

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/ranges"
	"inferplan/planner/gear/trials"
	"inferplan/solver/milp"
)

// Options steer a solve.
type Options struct {
	Seed uint64
	// AnyPlan accepts the first plan, and does not compute what would make an infeasible problem feasible.
	AnyPlan bool
	// Progress is called after every range that is done. It may be nil.
	Progress func(done, ranges int)

	// startLatency is the latency of a plan of less accuracy. A search for the least latency looks for no plan
	// below it. If it is 0, the search begins at the bound.
	startLatency time.Duration
}

// planSearch holds what the solves of one problem with different SLOs or devices share.
type planSearch struct {
	problem    *cascades.Problem
	options    *Options
	solver     milp.Solver // for linear programs
	cache      cascades.CascadeCache
	history    *trials.History
	lastInputs *planInputs // of the last SLO

	earlyPlan       *trials.Plan // early plan; nil if there is none
	proofBudget     *int         // number of requests that proofs may still simulate; nil if no proof is wanted
	enumeratedCount int          // largest number of cascades enumerated for any SLO
	laxInputs       *planInputs  // inputs without an SLO, for bounds
}

// Solve plans for the most accuracy, the least latency or the fewest devices, by what the problem asks for. If ctx
// ends after a plan was found, it returns the best so far, without the bounds for one more device.
func Solve(ctx context.Context, p *cascades.Problem, solver milp.Solver, o Options) (*trials.Plan, error) {
	return solveWithCache(ctx, p, solver, o, cascades.CascadeCache{}, trials.NewHistory(o.Seed))
}

// solveWithCache searches for the best plan of a problem by its goal, as Solve does: the most accurate, fastest or
// cheapest one. Solves of one problem for different target accuracies share the enumerated cascades in the cache and
// the trials (simulated runs) in the history. If ctx ends after a plan was found, it returns that plan.
func solveWithCache(ctx context.Context, p *cascades.Problem, solver milp.Solver, o Options, cache cascades.CascadeCache, history *trials.History) (*trials.Plan, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("planning gears: %w", err)
	}
	if solver == nil {
		return nil, errors.New("planning gears: no solver for linear programs")
	}

	// A proof by trials that no plan is better needs a budget of requests. The search for the least latency makes none.
	s := &planSearch{problem: p, options: &o, solver: solver, cache: cache, history: history}
	if budget := maxProofRequests; !o.AnyPlan && p.Goal() != cascades.LeastLatency {
		s.proofBudget = &budget
	}

	// Search by the goal.
	switch p.Goal() {
	case cascades.LeastLatency:
		return s.planFastest(ctx)
	case cascades.FewestDevices:
		return s.planCheapest(ctx)
	}
	plan, err := s.planMostAccurate(ctx, p)
	if err != nil {
		return nil, err
	}
	if o.AnyPlan {
		return plan, nil
	}

	// The other scope of the SLO, and the bounds for one more device.
	if p.ScopeUnspecified {
		if plan, err = s.tryOverRequests(ctx, plan); err != nil {
			return nil, err
		}
	}
	return trials.PlanOrError(ctx, plan, s.boundOneMoreDevice(ctx, plan))
}

// tryOverRequests returns the plan or, if one cascade for all ranges is more accurate under an SLO over all requests
// together, the plan for that scope of the SLO. It is called if the workload does not name the scope. A finished search
// for that scope has looked for single cascades itself, so its plan is taken without a comparison. If it is
// interrupted, the better plan stands.
func (s *planSearch) tryOverRequests(ctx context.Context, plan *trials.Plan) (*trials.Plan, error) {
	accuracy, err := ranges.SingleCascadeAccuracy(ctx, plan, s.options.Seed)
	if noneIsBetter := accuracy == 0; err != nil || noneIsBetter {
		return trials.PlanOrError(ctx, plan, err) // without the error, if the search was interrupted
	}
	q := *s.problem
	q.OverRequests = true
	overRequests, err := s.planMostAccurate(ctx, &q)
	if wasInterrupted := ctx.Err() != nil; err != nil || wasInterrupted && !ranges.IsBetter(overRequests, plan) {
		return trials.PlanOrError(ctx, plan, err)
	}
	return overRequests, nil
}
