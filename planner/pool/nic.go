package pool

import (
	"context"
	"errors"
	"slices"

	"inferplan/solver/milp"
)

// SolveUneven is Solve if the devices behind a NIC need not have equal parts of it. In a pool that is one node,
// some devices may run whole models and leave the NIC to the others, which then pass more. It solves once for
// each number of devices off the NIC, in each exclusive pool that is one node, one pool at a time. It returns
// the plan of the largest objective, and of equal ones the plan with the fewest devices off the NIC. The bound
// is the largest of all these solves.
func SolveUneven(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	best, err := Solve(ctx, p, s, o)
	if err != nil || o.Running != nil || p.generates() {
		return best, err
	}
	for k := range p.Pools {
		pool := &p.Pools[k]
		if pool.Time || pool.Gbps <= 0 || pool.Count < 2 || pool.Count > pool.PerNode {
			continue
		}
		for off := 1; off < pool.Count && ctx.Err() == nil; off++ {
			o.Progress = nil
			w := p.offWire(k, off)
			out, err := Solve(ctx, &w.Problem, s, o)
			var none *Infeasible
			if errors.As(err, &none) {
				continue
			}
			if err != nil {
				return nil, err
			}
			w.join(out)

			// The best plan of both, with the work and the bound of both.
			bound, stopped := max(best.Bound, out.Bound), best.StoppedBy
			if stopped == milp.StoppedByProof {
				stopped = out.StoppedBy
			}
			if out.Value > best.Value*(1+1e-9) {
				out.Templates, out.Phases = best.Templates+out.Templates, slices.Concat(best.Phases, out.Phases)
				best = out
			} else {
				best.Templates, best.Phases = best.Templates+out.Templates, slices.Concat(best.Phases, out.Phases)
			}
			best.Bound, best.StoppedBy = bound, stopped
		}
	}
	if ctx.Err() != nil {
		best.StoppedBy = milp.StoppedByInterrupt
	}
	return best, nil
}

// splitPool is a problem in which the last devices of a pool, which is one node, are a pool of their own: the
// last pool, from and to which no data passes.
type offWire struct {
	Problem
	pool, lone int // the pool with the NIC, and the pool of the devices off it
}

// splitOffNIC returns the problem with the last off devices of pool k off the NIC.
func (p *Problem) offWire(k, off int) *offWire {
	w := &offWire{Problem: *p, pool: k, lone: len(p.Pools)}
	w.Pools = slices.Clone(p.Pools)
	w.Pools[k].Count -= off
	w.Pools[k].PerNode = w.Pools[k].Count
	lone := p.Pools[k]
	lone.Count, lone.OffWire = off, true
	w.Pools = append(w.Pools, lone)
	w.Models = slices.Clone(p.Models)
	for d := range w.Models {
		w.Models[d].Costs = append(slices.Clone(w.Models[d].Costs), w.Models[d].Costs[k])
	}
	return w
}

// mergePools moves the stages of an outcome that are off the NIC back into the pool, behind its first devices.
func (w *offWire) join(out *Outcome) {
	for i := range out.Pipelines {
		pl := &out.Pipelines[i]
		pl.Stages = slices.Clone(pl.Stages) // the search's own templates stay as they are
		for si := range pl.Stages {
			if pl.Stages[si].Pool != w.lone {
				continue
			}
			pl.Stages[si].Pool = w.pool
			for r := range pl.Placed[si] {
				pl.Placed[si][r].First += w.Pools[w.pool].Count
			}
		}
	}
	// One more device can be on the NIC or off it, whichever is worth more. Limits come by falling gain, so the
	// first of the two stays.
	seen := false
	out.Limits = slices.DeleteFunc(out.Limits, func(l Limit) bool {
		of := l.Pool == w.pool || l.Pool == w.lone
		gone := of && seen
		seen = seen || of
		return gone
	})
	for i := range out.Limits {
		if out.Limits[i].Pool == w.lone {
			out.Limits[i].Pool = w.pool
		}
	}
}
