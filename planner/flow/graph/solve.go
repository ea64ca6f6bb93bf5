package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// solveResult is a solution with its value, and the bound that is proven.
type solveResult struct {
	solution     *solution
	problem      *problem // the problem that the levels belong to. If it is nil, it is that of the documents.
	value, bound float64  // value and bound of the objective
	stoppedBy    milp.StoppedBy
	nodes        int64
	iterations   int64
}

// stopReason returns why the search for the largest value ended, by the gap to the bound and the gap that is asked for.
func (r *solveResult) stopReason(requestedGap float64) milp.StoppedBy {
	return kind.StopReason(milp.RelativeGap(milp.Maximize, r.value, r.bound), requestedGap)
}

// planSearch solves planning problems.
type planSearch struct {
	problem *problem
	solver  milp.Solver
	gap     float64 // relative gap at which a solve may end
	seed    int32
	// onImproved is called with every better plan. It may be nil.
	onImproved func(value, bound float64)
}

// maxTieNodes limits the branching when fewer devices are looked for at the same objective.
const maxTieNodes = 2000

// throughput finds the largest rate factor, a common factor on the rates of all applications, that the devices carry within the
// deadlines, then the fewest devices that carry it. The value of the result is the factor. If there is no plan, it returns
// terms.ErrNoPlan.
func (s *planSearch) throughput(ctx context.Context) (*solveResult, error) {
	if s.problem.hasTimeSharedPool() {
		return s.throughputWithSharing(ctx)
	}
	result, err := s.maxRateFactor(ctx)
	if err != nil {
		return nil, err
	}

	// Make that factor 1, and look for fewer devices.
	s.scaledTo(result.value).useFewerDevices(ctx, result)
	if v := s.problem.rateFactor(result.solution); v > result.value {
		result.value = v
	}
	result.bound = max(result.bound, result.value)
	return result, nil
}

// scaledTo returns a search for plans that carry the rates at a factor: its problem has them as weights, and a price of 1 for
// every device, so that the cheapest plan has the fewest.
func (s *planSearch) scaledTo(factor float64) *planSearch {
	scaledProblem := *s.problem
	scaledProblem.apps, scaledProblem.pools = slices.Clone(s.problem.apps), slices.Clone(s.problem.pools)
	for a := range scaledProblem.apps {
		scaledProblem.apps[a].weight *= factor * (1 - 1e-9)
	}
	for k := range scaledProblem.pools {
		scaledProblem.pools[k].price = 1
	}
	return s.withProblem(&scaledProblem)
}

// maxRateFactor finds the largest common factor of all rates that the devices carry within the deadlines: by
// listed deployments or, if there are too many, by the mixed-integer program.
func (s *planSearch) maxRateFactor(ctx context.Context) (*solveResult, error) {
	result, err := s.byDeployments(func(l *deploymentSolver) (*solveResult, error) { return l.throughput(ctx) })
	if !errors.Is(err, errTooManyDeployments) {
		return result, err
	}
	maxFactor, err := s.factorBound(ctx) // the lower this upper bound, the easier is the program
	if err != nil {
		return nil, err
	}
	if result, err = s.solveProgram(ctx, programQuery{goal: goalMaxRate, maxFactor: maxFactor}, milp.Options{}); err != nil {
		return nil, err
	}
	// The program's value and bound are in parts of maxFactor. The value is computed again from the devices of the solution, without the
	// solver's tolerance.
	result.value, result.bound = s.problem.rateFactor(result.solution), result.bound*maxFactor
	return result, nil
}

// cheapest finds the least price at which the given rates are carried, then the fewest devices at that price,
// then the plan of these that carries most. If there are too many deployments to list, the mixed-integer
// program finds the first two.
func (s *planSearch) cheapest(ctx context.Context) (*solveResult, error) {
	result, err := s.byDeployments(func(l *deploymentSolver) (*solveResult, error) {
		result, err := l.cheapest(ctx)
		if err == nil {
			l.raiseRateAtSamePrice(ctx, result)
		}
		return result, err
	})
	if !errors.Is(err, errTooManyDeployments) {
		return result, err
	}
	if result, err = s.solveProgram(ctx, programQuery{goal: goalMinPrice, maxFactor: 1}, milp.Options{}); err != nil {
		return nil, err
	}
	result.value = s.problem.price(result.solution)

	// Look for fewer devices at the same price.
	s.fewestByProgram(ctx, programQuery{maxPrice: result.value * (1 + 1e-9)}, result)
	result.bound = min(result.bound, result.value)
	return result, nil
}

// useFewerDevices replaces the solution by one with fewer devices at the same rates, if it finds one. The problem of s
// has these rates as weights and a price of 1 for every device, so its cheapest plan has the fewest devices. Errors are
// ignored: the solution stays.
func (s *planSearch) useFewerDevices(ctx context.Context, result *solveResult) {
	exact := *s
	exact.gap = 0
	smaller, err := exact.byDeployments(func(l *deploymentSolver) (*solveResult, error) { return l.cheapest(ctx) })
	switch {
	case errors.Is(err, errTooManyDeployments):
		s.fewestByProgram(ctx, programQuery{}, result)
	case err == nil:
		result.replaceIfSmaller(smaller)
	}
}

// fewestByProgram replaces the solution by one with fewer devices that carries the rates within the limits of a query, if the
// mixed-integer program finds one.
func (s *planSearch) fewestByProgram(ctx context.Context, limits programQuery, result *solveResult) {
	exact := *s
	exact.gap, exact.onImproved = 0, nil
	limits.goal, limits.maxFactor = goalMinDevices, 1
	if smaller, err := exact.solveProgram(ctx, limits, milp.Options{MaxNodes: maxTieNodes}); err == nil {
		result.replaceIfSmaller(smaller)
	}
}

// replaceIfSmaller takes the solution of another result if that has fewer devices.
func (r *solveResult) replaceIfSmaller(other *solveResult) {
	if other.solution.deviceCount() < r.solution.deviceCount() {
		r.solution = other.solution
	}
}

// factorBound returns an upper bound on the rate factor (common to all rates): the optimum with fractions of devices and mixed levels.
// If no plan exists, it returns terms.ErrNoPlan. If a solve ends early, it returns the bound so far, with the error of ctx if that ended it.
//
// The program counts rates in parts of a bound of the factor, its maxFactor. Its rows f ≤ w let a choice that is taken to a part w carry at
// most the part w of that bound. So a lower bound allows less, and the program is solved again with its own optimum as the bound, until
// that stops falling.
func (s *planSearch) factorBound(ctx context.Context) (float64, error) {
	bound := s.problem.factorCeiling()
	if !(bound > 0) {
		return 0, terms.ErrNoPlan
	}
	// A fall of less than half a per cent ends the rounds. Their limit only guards against slow progress.
	for range 12 {
		sol, err := s.solver.Solve(ctx, s.problem.newProgram(programQuery{goal: goalMaxRate, maxFactor: bound, relaxed: true}).m, milp.Options{Seed: s.seed})
		switch {
		case err != nil:
			return 0, fmt.Errorf("bounding the rate: %w", err)
		case sol.Status == milp.Infeasible || sol.Status == milp.Optimal && sol.Value <= 0:
			return 0, terms.ErrNoPlan
		case sol.Status != milp.Optimal:
			return bound, ctx.Err()
		}
		// sol.Value is a part of the previous bound, up to the solver's tolerance.
		previousBound := bound
		bound *= min(1, sol.Value*(1+1e-7))
		if bound > previousBound*.995 {
			break
		}
	}
	return bound, nil
}

// maxDeviceRate returns the largest rate that one device of pool k has for a module, in requests per
// second, whatever time its batches take.
func (p *problem) maxDeviceRate(n *appModule, k int) float64 {
	maxRate := 0.0
	for _, c := range n.choices {
		maxRate = lists.Max(maxRate, len(p.models[c.model].levels), func(i int) float64 { return p.models[c.model].levels[i].templates[k].rate })
	}
	return maxRate
}

// solveProgram solves the mixed-integer program of a query, which has the goal and the limits. It then checks the deadlines exactly:
// paths that are late by less than the solver's tolerance are excluded, and the program is solved again. The result's value and bound are
// in the program's unit. If there is no solution, it returns terms.ErrNoPlan.
func (s *planSearch) solveProgram(ctx context.Context, q programQuery, o milp.Options) (*solveResult, error) {
	o.Gap, o.Seed = s.gap, s.seed
	if s.onImproved != nil {
		o.Incumbent = func(in milp.Incumbent) { s.onImproved(in.Value*q.maxFactor, in.Bound*q.maxFactor) }
	}
	result := &solveResult{}
	for {
		// Solve the program, without the paths that were late before.
		x := s.problem.newProgram(q)
		sol, err := s.solver.Solve(ctx, x.m, o)
		if err := terms.SolveError(ctx, sol, err, "the program of applications", "a plan"); err != nil {
			return nil, err
		}
		result.nodes, result.iterations = result.nodes+sol.Stats.Nodes, result.iterations+sol.Stats.Iterations

		// Check the deadlines, and exclude what is late.
		result.solution, result.value, result.bound, result.stoppedBy = x.readSolution(sol), sol.Value, sol.Bound, sol.StoppedBy
		latePaths := s.latePaths(result.solution, q.goal)
		if len(latePaths) == 0 {
			return result, nil
		}
		q.excludedPaths = append(q.excludedPaths, latePaths...)
	}
}

// latePaths returns the paths that exceed their time budgets in a solution, computed exactly. Goals that give
// up the SLOs (the least stretch, missing devices) have none.
func (s *planSearch) latePaths(x *solution, g goal) []excludedPath {
	var late []excludedPath
	if g == goalMinStretch || g == goalMissingDevices {
		return nil
	}
	for a := range s.problem.apps {
		for _, path := range s.problem.apps[a].paths {
			if s.problem.pathTime(x, a, path) > s.problem.apps[a].budget() {
				late = append(late, excludedPath{a, path, x})
			}
		}
	}
	return late
}
