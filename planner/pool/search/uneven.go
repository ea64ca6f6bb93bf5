package search

import (
	"context"
	"errors"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/solver/milp"
)

// SolveUneven is Solve if the devices behind a NIC need not have equal parts of it. In a pool that is one node,
// some devices may run whole models and leave the NIC to the others, which then pass more. It solves once for
// each number of devices off the NIC, in each exclusive pool that is one node, one pool at a time. It returns
// the plan of the largest objective, and of equal ones the plan with the fewest devices off the NIC. The bound
// is the largest of all these solves.
func SolveUneven(ctx context.Context, p *problem.Problem, s milp.Solver, o problem.Options) (*problem.Outcome, error) {
	bestOutcome, err := Solve(ctx, p, s, o)
	// With a running plan, or too many templates to list, only even parts are planned for.
	if err != nil || o.RunningPlan != nil || templates.NeedsColumns(p) {
		return bestOutcome, err
	}
	for k := range p.Pools {
		pool := &p.Pools[k]
		// Only devices that share one card, in a single node, can leave it to each other.
		if pool.TimeShared || pool.Gbps <= 0 || pool.Count < 2 || pool.Count > pool.PerNode {
			continue
		}
		for offNIC := 1; offNIC < pool.Count && ctx.Err() == nil; offNIC++ {
			o.Progress = nil
			split := splitOffNIC(p, k, offNIC)
			other, err := Solve(ctx, &split.problem, s, o)
			if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
				continue
			}
			if err != nil {
				return nil, err
			}
			split.mergePools(other)

			// Keep the better plan, with the sum of the work and the larger bound. The proof must hold for both solves.
			bound, stoppedBy := max(bestOutcome.Bound, other.Bound), bestOutcome.StoppedBy
			if stoppedBy == milp.StoppedByProof {
				stoppedBy = other.StoppedBy
			}
			numTemplates, phases := bestOutcome.Templates+other.Templates, slices.Concat(bestOutcome.Phases, other.Phases)
			if other.Value > bestOutcome.Value*(1+1e-9) {
				bestOutcome = other
			}
			bestOutcome.Templates, bestOutcome.Phases, bestOutcome.Bound, bestOutcome.StoppedBy = numTemplates, phases, bound, stoppedBy
		}
	}
	if ctx.Err() != nil {
		bestOutcome.StoppedBy = milp.StoppedByInterrupt
	}
	return bestOutcome, nil
}

// splitPool is a problem in which the last devices of a pool, which is one node, are a pool of their own: the
// last pool, from and to which no data passes.
type splitPool struct {
	problem             problem.Problem
	nicPool, offNICPool int // the pool with the NIC, and the pool of the devices off it
}

// splitOffNIC returns a copy of problem p in which the last numOffNIC devices of pool k leave the network card of their
// node to the others. They are a pool of their own, the last one, and run whole models only, because these pass no data to
// other devices. The pool must be a single node. Models have the same times on both pools.
func splitOffNIC(p *problem.Problem, k, numOffNIC int) *splitPool {
	split := &splitPool{problem: *p, nicPool: k, offNICPool: len(p.Pools)}
	split.problem.Pools = slices.Clone(p.Pools)

	// The devices that remain in pool k, all on the one node, share its card evenly: PerNode is the number that share one.
	split.problem.Pools[k].Count -= numOffNIC
	split.problem.Pools[k].PerNode = split.problem.Pools[k].Count
	offPool := p.Pools[k]
	offPool.Count, offPool.WholeModelsOnly = numOffNIC, true
	split.problem.Pools = append(split.problem.Pools, offPool)

	// The times of the new pool, which come last by pool, are those of pool k.
	split.problem.Models = slices.Clone(p.Models)
	for d := range split.problem.Models {
		split.problem.Models[d].ShareCosts = append(slices.Clone(split.problem.Models[d].ShareCosts), split.problem.Models[d].ShareCosts[k])
	}
	return split
}

// mergePools makes an outcome of the split problem one of the problem as given. There, some devices of a pool had left the
// network card (NIC) of their node to the others, and were a pool of their own. Their stages go back to the pool that they
// were split from, of which they are the last devices.
func (w *splitPool) mergePools(outcome *problem.Outcome) {
	numOnNIC := w.problem.Pools[w.nicPool].Count // the devices of that pool which come first
	for i := range outcome.Pipelines {
		pipeline := &outcome.Pipelines[i]
		pipeline.Stages = slices.Clone(pipeline.Stages) // the search's own templates stay as they are
		for si := range pipeline.Stages {
			if pipeline.Stages[si].Pool != w.offNICPool {
				continue
			}
			pipeline.Stages[si].Pool = w.nicPool
			for r := range pipeline.Placement[si] {
				pipeline.Placement[si][r].FirstDevice += numOnNIC
			}
		}
	}
	// The limits say what one more device of a kind would bring. Both pools are of one kind, so there may be two limits of one
	// name. One more device could be on the NIC or off it, whichever brings more: limits come by falling gain, so the first
	// of the two stays.
	var limits []formats.Limit
	for _, l := range outcome.Limits {
		if !slices.ContainsFunc(limits, func(o formats.Limit) bool { return o.Constraint == l.Constraint }) {
			limits = append(limits, l)
		}
	}
	outcome.Limits = limits
}
