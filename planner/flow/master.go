package flow

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// coverProgram is the restricted master of the linear program over deployments. A deployment serves a set
// of modules by one model, at one level, on given devices. Rows: every module is served once, every model
// is deployed at most once, and pools, time budgets and accuracy floors are kept.
//
// The objective is the price or, with minimizeShare, the largest share of the pools that the rates take. A
// share above 1 means that the rates are out of reach. The program starts with few deployments. Those whose
// reduced cost is negative are added.
type master struct {
	*layout
	solver milp.Solver
	seed   int32
	share  bool // the objective is the share of the pools, not the price
	m      *milp.Model
	serve  []milp.Row // by module
	once   []milp.Row // by model
	taken  []milp.Row // by pool
	within []milp.Row // by path, in parts of its time budget
	exact  []milp.Row // by application. If an application has no floor, it is -1.
	least  float64    // no solution costs less
	rounds int64      // solves of the program
}

// newCoverProgram returns the program without deployments.
func (y *layout) master(s *search, share bool) *master {
	x := &master{layout: y, solver: s.solver, seed: s.seed, share: share, m: milp.New("covers")}
	p := y.p

	// Every module is served once. Leaving it unserved is allowed at a prohibitive cost, so that the
	// program is always feasible.
	for range y.apps {
		x.serve = append(x.serve, x.m.AddEQ("", 1, milp.Term{Var: x.m.AddVar("", 0, 1, x.dear()), Coef: 1}))
	}

	// Limits: one deployment per model, the devices of each pool, the budget of each path, the accuracy of
	// each application.
	for range p.models {
		x.once = append(x.once, x.m.AddLE("", 1))
	}
	for k := range p.pools {
		x.taken = append(x.taken, x.m.AddLE("", float64(p.pools[k].count)))
	}
	for range y.paths {
		x.within = append(x.within, x.m.AddLE("", 1))
	}
	for a := range p.apps {
		row := milp.Row(-1)
		if p.apps[a].floor > 0 {
			row = x.m.AddLE("", p.apps[a].allowance())
		}
		x.exact = append(x.exact, row)
	}

	// In place of its devices, each pool is limited to the share that the objective minimizes.
	if share {
		v := x.m.AddVar("share", 0, milp.Inf, 1)
		for k, row := range x.taken {
			x.m.SetRowBounds(row, -milp.Inf, 0)
			x.m.AddTerm(row, v, -float64(p.pools[k].count))
		}
	}
	return x
}

// unservedCost returns the cost of leaving a module unserved: more than all devices cost.
func (x *master) dear() float64 {
	if x.share {
		return 10
	}
	return 2 * x.most()
}

// maxCost returns a cost that no plan exceeds: that of all devices, or the share 1.
func (x *master) most() float64 {
	if x.share {
		return 1
	}
	sum := 0.0
	for k := range x.p.pools {
		sum += float64(x.p.pools[k].count) * x.p.pools[k].price
	}
	return sum
}

// deploymentCost returns the cost of a deployment in the objective.
func (x *master) price(c *cover) float64 {
	if x.share {
		return 0
	}
	sum := 0.0
	for k, n := range c.devices {
		sum += float64(n) * x.p.pools[k].price
	}
	return sum
}

// addDeployment adds a deployment of s as a column of the program.
func (x *master) join(s *serving, c *cover) {
	v := x.m.AddVar("", 0, milp.Inf, x.price(c))
	for _, t := range s.parts {
		x.m.AddTerm(x.serve[t.place], v, 1)
	}
	x.m.AddTerm(x.once[s.model], v, 1)
	for k, n := range c.devices {
		if n > 0 {
			x.m.AddTerm(x.taken[k], v, float64(n))
		}
	}
	for _, w := range s.along {
		x.m.AddTerm(x.within[w.path], v, x.part(s, c.level, w))
	}
	for a, row := range x.exact {
		if row >= 0 && s.loss[a] > 0 {
			x.m.AddTerm(row, v, s.loss[a])
		}
	}
}

// budgetShare returns the part of a path's budget that the modules of s on that path take at a level.
func (x *master) part(s *serving, level int, w along) float64 {
	most := x.p.models[s.model].levels[level].most
	return float64(waiting*w.times) * most.Seconds() / max(x.paths[w.path].budget.Seconds(), 1e-9)
}

// solve adds deployments until none has a negative reduced cost. It sets lowerBound and the reduced cost of
// every deployment.
func (x *master) solve(ctx context.Context) error {
	var basis *milp.Basis
	for {
		sol, err := x.solver.Solve(ctx, x.m, milp.Options{Seed: x.seed, Basis: basis})
		if err != nil {
			return fmt.Errorf("bounding with covers: %w", err)
		}
		x.rounds++
		if sol.Status != milp.Optimal {
			if err := ctx.Err(); err != nil {
				return err
			}
			return fmt.Errorf("bounding with covers: the solver ended with %v", sol.Status)
		}
		basis = sol.Basis
		if x.priced(sol.RowDuals) == 0 {
			return nil
		}
	}
}

// priceAll computes the reduced costs of all deployments under the given duals. Per module set and level,
// it adds the deployment with the most negative one to the program, and returns how many it added. It also
// sets lowerBound, by Lagrange's relaxation: the bound is valid for any duals of the right sign, so rowDual
// cuts off duals of the wrong sign.
func (x *master) priced(duals []float64) int {
	down := func(row milp.Row) float64 { return min(0, duals[row]) }

	// Price of a device: the dual of its pool. Under the objective of a share the prices must sum to at
	// most 1 over all pools (the dual constraint of the share). Otherwise the price in the objective comes
	// on top.
	weight, all := make([]float64, len(x.p.pools)), 0.0
	for k, row := range x.taken {
		weight[k] = -down(row)
		all += weight[k] * float64(x.p.pools[k].count)
	}
	x.least = 0
	for k := range weight {
		if x.share {
			weight[k] /= max(1, all)
		} else {
			x.least -= weight[k] * float64(x.p.pools[k].count)
			weight[k] += x.p.pools[k].price
		}
	}

	// Sum up the bound: right-hand sides times duals.
	for _, row := range x.serve {
		x.least += duals[row]
	}
	for _, rows := range [][]milp.Row{x.once, x.within} {
		for _, row := range rows {
			x.least += down(row)
		}
	}
	for a, row := range x.exact {
		if row >= 0 {
			x.least += down(row) * x.p.apps[a].allowance()
		}
	}

	// Price the deployments set by set. setDual collects the duals of the rows that all deployments of a
	// set share.
	below, joined := make([]float64, len(x.p.models)), 0
	for i := range x.sets {
		s := &x.sets[i]
		base := -down(x.once[s.model])
		for _, t := range s.parts {
			base -= duals[x.serve[t.place]]
		}
		for a, row := range x.exact {
			if row >= 0 {
				base -= down(row) * s.loss[a]
			}
		}
		joined += x.pricedOf(s, base, weight, down)
		for c := range s.covers {
			below[s.model] = min(below[s.model], s.covers[c].excess)
		}
	}

	// A model has at most one deployment, so the bound falls by the least reduced cost of each model, if
	// that is negative. The reduced costs are relative to that bound.
	for _, b := range below {
		x.least += b
	}
	for i := range x.sets {
		for c := range x.sets[i].covers {
			x.sets[i].covers[c].excess -= below[x.sets[i].model]
		}
	}
	return joined
}

// addViolated computes the reduced cost of every deployment of s,
//
//	reducedCost = setDual - Σ_path dual(path)·budgetShare(level, path) + Σ_pool poolPrice(pool)·devices(pool),
//
// and adds to the program, for every level, the deployment with the least of them if that is negative. It
// returns how many it added. The deployments of s are sorted by level.
func (x *master) pricedOf(s *serving, base float64, weight []float64, down func(milp.Row) float64) int {
	joined, worst, level, late := 0, -1, -1, 0.0
	end := func() {
		if worst >= 0 {
			x.join(s, &s.covers[worst])
			joined++
		}
	}
	for i := range s.covers {
		c := &s.covers[i]

		// A new level begins: add the best deployment of the last one. What the paths' budgets cost is the
		// same for all deployments of a level.
		if c.level != level {
			end()
			level, worst, late = c.level, -1, base
			for _, w := range s.along {
				late -= down(x.within[w.path]) * x.part(s, level, w)
			}
		}

		// Price the devices, and remember the cheapest deployment of the level.
		c.excess = late
		for k, n := range c.devices {
			c.excess += weight[k] * float64(n)
		}
		if c.excess < -1e-7*x.most() && (worst < 0 || c.excess < s.covers[worst].excess) {
			worst = i
		}
	}
	end()
	return joined
}

// accuracyAllowance returns how much of the logarithm of accuracy an application may lose: -ln(floor), with
// a tolerance.
func (a *app) allowance() float64 { return -math.Log(a.floor) + 1e-9 }
