package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"inferplan/solver/milp"
)

// errNoPlan is returned when a program has no solution.
var errNone = errors.New("no plan")

// solveResult is a solution with its value, and the bound that is proven.
type found struct {
	*picked
	p            *problem // the problem that the levels belong to. If it is nil, it is that of the documents.
	value, bound float64  // value and bound of the objective
	stopped      milp.StoppedBy
	nodes        int64
	iterations   int64
}

// planSearch solves planning problems.
type search struct {
	p      *problem
	solver milp.Solver
	gap    float64 // relative gap at which a solve may end
	seed   int32
	// onImproved is called with every better plan. It may be nil.
	improved func(value, bound float64)
}

// maxTieNodes limits the branching when fewer devices are looked for at the same objective.
const tieNodes = 2000

// throughput finds the largest rate factor, then the fewest devices that carry it.
func (s *search) throughput(ctx context.Context) (*found, error) {
	if s.p.shares() {
		return s.inTurns(ctx)
	}
	out, err := s.highest(ctx)
	if err != nil {
		return nil, err
	}

	// Make that factor 1, and look for fewer devices.
	scaled := *s.p
	scaled.apps = append([]app(nil), s.p.apps...)
	for a := range scaled.apps {
		scaled.apps[a].weight *= out.value * (1 - 1e-9)
	}
	s.fewer(ctx, &scaled, out)
	if v := s.p.factor(out.picked); v > out.value {
		out.value = v
	}
	out.bound = max(out.bound, out.value)
	return out, nil
}

// maxRateFactor finds the largest rate factor: by listed deployments, or, if there are too many, by the
// mixed-integer program.
func (s *search) highest(ctx context.Context) (*found, error) {
	if l := s.listed(); l != nil {
		out, err := l.throughput(ctx)
		if !errors.Is(err, errMany) {
			return l.counted(out), err
		}
	}
	top, err := s.top(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.one(ctx, ask{goal: most, top: top}, milp.Options{})
	if err != nil {
		return nil, err
	}
	out.value, out.bound = s.p.factor(out.picked), out.bound*top
	return out, nil
}

// cheapest finds the least price at rate factor 1, then the fewest devices at that price, then the plan of
// these that carries most. If there are too many deployments to list, the mixed-integer program finds the
// first two.
func (s *search) cheapest(ctx context.Context) (*found, error) {
	if l := s.listed(); l != nil {
		out, err := l.cheapest(ctx, 1)
		if err == nil {
			l.roomier(ctx, out)
		}
		if !errors.Is(err, errMany) {
			return l.counted(out), err
		}
	}
	out, err := s.one(ctx, ask{goal: least, top: 1}, milp.Options{})
	if err != nil {
		return nil, err
	}
	out.value = s.p.price(out.picked)

	// Look for fewer devices at the same price.
	quiet := *s
	quiet.gap, quiet.improved = 0, nil
	less, err := quiet.one(ctx, ask{goal: fewest, top: 1, spend: out.value * (1 + 1e-9)}, milp.Options{MaxNodes: tieNodes})
	if err == nil && less.used() < out.used() {
		out.picked = less.picked
	}
	out.bound = min(out.bound, out.value)
	return out, nil
}

// useFewerDevices replaces the solution by one with fewer devices at the same rates, if it finds one.
func (s *search) fewer(ctx context.Context, p *problem, out *found) {
	quiet := *s
	quiet.p, quiet.gap, quiet.improved = p, 0, nil
	if l := quiet.listed(); l != nil {
		// With a price of 1 for every device, the cheapest plan has the fewest.
		p.pools = slices.Clone(p.pools)
		for k := range p.pools {
			p.pools[k].price = 1
		}
		less, err := l.cheapest(ctx, 1)
		if err == nil && less.used() < out.used() {
			out.picked = less.picked
		}
		if !errors.Is(err, errMany) {
			return
		}
	}
	less, err := quiet.one(ctx, ask{goal: fewest, top: 1}, milp.Options{MaxNodes: tieNodes})
	if err == nil && less.used() < out.used() {
		out.picked = less.picked
	}
}

// factorBound returns an upper bound of the rate factor: the optimum with fractions of devices and mixed
// levels. The bound is the unit of the program's rates, and a small one makes the program tight. So it
// solves again with the new bound, until that stops falling.
func (s *search) top(ctx context.Context) (float64, error) {
	top := s.p.ceiling()
	if !(top > 0) {
		return 0, errNone
	}
	for range 12 {
		sol, err := s.solver.Solve(ctx, s.p.program(ask{goal: most, top: top, relax: true}).m, milp.Options{Seed: s.seed})
		switch {
		case err != nil:
			return 0, fmt.Errorf("bounding the rate: %w", err)
		case sol.Status == milp.Infeasible || sol.Status == milp.Optimal && sol.Value <= 0:
			return 0, errNone
		case sol.Status != milp.Optimal:
			return top, ctx.Err()
		}
		was := top
		top *= min(1, sol.Value*(1+1e-7))
		if top > was*.995 {
			break
		}
	}
	return top, nil
}

// maxDeviceRate returns the largest rate that one device of pool k has for a module, in requests per
// second, whatever time its batches take.
func (p *problem) fastest(n *node, k int) float64 {
	most := 0.0
	for _, c := range n.of {
		for _, l := range p.models[c.model].levels {
			most = max(most, l.best[k].rate)
		}
	}
	return most
}

// solveProgram solves the mixed-integer program of a query. It checks the deadlines exactly: paths that are
// late by less than the solver's tolerance are excluded, and the program is solved again.
func (s *search) one(ctx context.Context, q ask, o milp.Options) (*found, error) {
	o.Gap, o.Seed = s.gap, s.seed
	if s.improved != nil {
		o.Incumbent = func(in milp.Incumbent) { s.improved(in.Value*q.top, in.Bound*q.top) }
	}
	out := &found{}
	for {
		x := s.p.program(q)
		sol, err := s.solver.Solve(ctx, x.m, o)
		if err != nil {
			return nil, fmt.Errorf("solving the program of applications: %w", err)
		}
		out.nodes, out.iterations = out.nodes+sol.Stats.Nodes, out.iterations+sol.Stats.Iterations

		// Return errors of the solver, of an infeasible program, and of an interruption.
		switch {
		case sol.Status == milp.Infeasible:
			return nil, errNone
		case !sol.Feasible() && ctx.Err() != nil:
			return nil, ctx.Err()
		case !sol.Feasible():
			return nil, fmt.Errorf("the solver stopped without a plan: %v", sol.Status)
		}

		// Check the deadlines, and exclude what is late.
		out.picked, out.value, out.bound, out.stopped = x.read(sol), sol.Value, sol.Bound, sol.StoppedBy
		late := s.late(out.picked, q.goal)
		if len(late) == 0 {
			return out, nil
		}
		q.barred = append(q.barred, late...)
	}
}

// latePaths returns the paths that exceed their budgets. Goals that give up the SLOs have none.
func (s *search) late(x *picked, g goal) []barred {
	var out []barred
	if g == soonest || g == lacking {
		return nil
	}
	for a := range s.p.apps {
		for _, path := range s.p.apps[a].paths {
			if s.p.along(x, a, path) > s.p.apps[a].budget() {
				out = append(out, barred{a, path, x})
			}
		}
	}
	return out
}
