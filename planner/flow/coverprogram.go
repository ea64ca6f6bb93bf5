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
type coverProgram struct {
	*moduleLayout
	solver        milp.Solver
	seed          int32
	minimizeShare bool // the objective is the share of the pools, not the price
	program       *milp.Model
	servedOnce    []milp.Row // by module
	deployedOnce  []milp.Row // by model
	poolCapacity  []milp.Row // by pool
	pathBudget    []milp.Row // by path, in parts of its time budget
	accuracyFloor []milp.Row // by application. If an application has no floor, it is -1.
	lowerBound    float64    // no solution costs less
	rounds        int64      // solves of the program
}

// newCoverProgram returns the program without deployments.
func (y *moduleLayout) newCoverProgram(s *planSearch, minimizeShare bool) *coverProgram {
	x := &coverProgram{moduleLayout: y, solver: s.solver, seed: s.seed, minimizeShare: minimizeShare, program: milp.New("covers")}
	p := y.p

	// Every module is served once. Leaving it unserved is allowed at a prohibitive cost, so that the
	// program is always feasible.
	for range y.appOf {
		x.servedOnce = append(x.servedOnce, x.program.AddEQ("", 1, milp.Term{Var: x.program.AddVar("", 0, 1, x.unservedCost()), Coef: 1}))
	}

	// Limits: one deployment per model, the devices of each pool, the budget of each path, the accuracy of
	// each application.
	for range p.models {
		x.deployedOnce = append(x.deployedOnce, x.program.AddLE("", 1))
	}
	for k := range p.pools {
		x.poolCapacity = append(x.poolCapacity, x.program.AddLE("", float64(p.pools[k].count)))
	}
	for range y.paths {
		x.pathBudget = append(x.pathBudget, x.program.AddLE("", 1))
	}
	for a := range p.apps {
		row := milp.Row(-1)
		if p.apps[a].accuracyFloor > 0 {
			row = x.program.AddLE("", p.apps[a].accuracyAllowance())
		}
		x.accuracyFloor = append(x.accuracyFloor, row)
	}

	// In place of its devices, each pool is limited to the share that the objective minimizes.
	if minimizeShare {
		v := x.program.AddVar("share", 0, milp.Inf, 1)
		for k, row := range x.poolCapacity {
			x.program.SetRowBounds(row, -milp.Inf, 0)
			x.program.AddTerm(row, v, -float64(p.pools[k].count))
		}
	}
	return x
}

// unservedCost returns the cost of leaving a module unserved: more than all devices cost.
func (x *coverProgram) unservedCost() float64 {
	if x.minimizeShare {
		return 10
	}
	return 2 * x.maxCost()
}

// maxCost returns a cost that no plan exceeds: that of all devices, or the share 1.
func (x *coverProgram) maxCost() float64 {
	if x.minimizeShare {
		return 1
	}
	sum := 0.0
	for k := range x.p.pools {
		sum += float64(x.p.pools[k].count) * x.p.pools[k].price
	}
	return sum
}

// deploymentCost returns the cost of a deployment in the objective.
func (x *coverProgram) deploymentCost(c *deployment) float64 {
	if x.minimizeShare {
		return 0
	}
	sum := 0.0
	for k, n := range c.devices {
		sum += float64(n) * x.p.pools[k].price
	}
	return sum
}

// addDeployment adds a deployment of s as a column of the program.
func (x *coverProgram) addDeployment(s *moduleSet, c *deployment) {
	v := x.program.AddVar("", 0, milp.Inf, x.deploymentCost(c))
	for _, t := range s.members {
		x.program.AddTerm(x.servedOnce[t.module], v, 1)
	}
	x.program.AddTerm(x.deployedOnce[s.model], v, 1)
	for k, n := range c.devices {
		if n > 0 {
			x.program.AddTerm(x.poolCapacity[k], v, float64(n))
		}
	}
	for _, w := range s.pathUses {
		x.program.AddTerm(x.pathBudget[w.path], v, x.budgetShare(s, c.level, w))
	}
	for a, row := range x.accuracyFloor {
		if row >= 0 && s.accuracyLoss[a] > 0 {
			x.program.AddTerm(row, v, s.accuracyLoss[a])
		}
	}
}

// budgetShare returns the part of a path's budget that the modules of s on that path take at a level.
func (x *coverProgram) budgetShare(s *moduleSet, level int, use pathUse) float64 {
	maxTime := x.p.models[s.model].levels[level].maxTime
	return float64(batchTimesPerModule*use.modules) * maxTime.Seconds() / max(x.paths[use.path].budget.Seconds(), 1e-9)
}

// solve adds deployments until none has a negative reduced cost. It sets lowerBound and the reduced cost of
// every deployment.
func (x *coverProgram) solve(ctx context.Context) error {
	var basis *milp.Basis
	for {
		sol, err := x.solver.Solve(ctx, x.program, milp.Options{Seed: x.seed, Basis: basis})
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
		if x.priceAll(sol.RowDuals) == 0 {
			return nil
		}
	}
}

// priceAll computes the reduced costs of all deployments under the given duals. Per module set and level,
// it adds the deployment with the most negative one to the program, and returns how many it added. It also
// sets lowerBound, by Lagrange's relaxation: the bound is valid for any duals of the right sign, so rowDual
// cuts off duals of the wrong sign.
func (x *coverProgram) priceAll(duals []float64) int {
	rowDual := func(row milp.Row) float64 { return min(0, duals[row]) }

	// Price of a device: the dual of its pool. Under the objective of a share the prices must sum to at
	// most 1 over all pools (the dual constraint of the share). Otherwise the price in the objective comes
	// on top.
	poolPrice, totalPrice := make([]float64, len(x.p.pools)), 0.0
	for k, row := range x.poolCapacity {
		poolPrice[k] = -rowDual(row)
		totalPrice += poolPrice[k] * float64(x.p.pools[k].count)
	}
	x.lowerBound = 0
	for k := range poolPrice {
		if x.minimizeShare {
			poolPrice[k] /= max(1, totalPrice)
		} else {
			x.lowerBound -= poolPrice[k] * float64(x.p.pools[k].count)
			poolPrice[k] += x.p.pools[k].price
		}
	}

	// Sum up the bound: right-hand sides times duals.
	for _, row := range x.servedOnce {
		x.lowerBound += duals[row]
	}
	for _, rows := range [][]milp.Row{x.deployedOnce, x.pathBudget} {
		for _, row := range rows {
			x.lowerBound += rowDual(row)
		}
	}
	for a, row := range x.accuracyFloor {
		if row >= 0 {
			x.lowerBound += rowDual(row) * x.p.apps[a].accuracyAllowance()
		}
	}

	// Price the deployments set by set. setDual collects the duals of the rows that all deployments of a
	// set share.
	minReducedCost, added := make([]float64, len(x.p.models)), 0
	for i := range x.moduleSets {
		s := &x.moduleSets[i]
		setDual := -rowDual(x.deployedOnce[s.model])
		for _, t := range s.members {
			setDual -= duals[x.servedOnce[t.module]]
		}
		for a, row := range x.accuracyFloor {
			if row >= 0 {
				setDual -= rowDual(row) * s.accuracyLoss[a]
			}
		}
		added += x.addViolated(s, setDual, poolPrice, rowDual)
		for c := range s.deployments {
			minReducedCost[s.model] = min(minReducedCost[s.model], s.deployments[c].reducedCost)
		}
	}

	// A model has at most one deployment, so the bound falls by the least reduced cost of each model, if
	// that is negative. The reduced costs are relative to that bound.
	for _, b := range minReducedCost {
		x.lowerBound += b
	}
	for i := range x.moduleSets {
		for c := range x.moduleSets[i].deployments {
			x.moduleSets[i].deployments[c].reducedCost -= minReducedCost[x.moduleSets[i].model]
		}
	}
	return added
}

// addViolated computes the reduced cost of every deployment of s,
//
//	reducedCost = setDual - Σ_path dual(path)·budgetShare(level, path) + Σ_pool poolPrice(pool)·devices(pool),
//
// and adds to the program, for every level, the deployment with the least of them if that is negative. It
// returns how many it added. The deployments of s are sorted by level.
func (x *coverProgram) addViolated(s *moduleSet, setDual float64, poolPrice []float64, rowDual func(milp.Row) float64) int {
	added, cheapest, level, levelCost := 0, -1, -1, 0.0
	addCheapest := func() {
		if cheapest >= 0 {
			x.addDeployment(s, &s.deployments[cheapest])
			added++
		}
	}
	for i := range s.deployments {
		c := &s.deployments[i]

		// A new level begins: add the best deployment of the last one. What the paths' budgets cost is the
		// same for all deployments of a level.
		if c.level != level {
			addCheapest()
			level, cheapest, levelCost = c.level, -1, setDual
			for _, w := range s.pathUses {
				levelCost -= rowDual(x.pathBudget[w.path]) * x.budgetShare(s, level, w)
			}
		}

		// Price the devices, and remember the cheapest deployment of the level.
		c.reducedCost = levelCost
		for k, n := range c.devices {
			c.reducedCost += poolPrice[k] * float64(n)
		}
		if c.reducedCost < -1e-7*x.maxCost() && (cheapest < 0 || c.reducedCost < s.deployments[cheapest].reducedCost) {
			cheapest = i
		}
	}
	addCheapest()
	return added
}

// accuracyAllowance returns how much of the logarithm of accuracy an application may lose: -ln(floor), with
// a tolerance.
func (a *app) accuracyAllowance() float64 { return -math.Log(a.accuracyFloor) + 1e-9 }
