package graph

import (
	"context"
	"fmt"
	"iter"
	"math"

	"inferplan/planner/lists"
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
	problem       *problem
	layout        *moduleLayout
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

// newCoverProgram returns the linear program that chooses deployments (a set of modules served by one model, at a limit on its batch
// times, on given devices), still without any of these: addDeployment adds them as columns. It minimizes their price or, with
// minimizeShare, the largest share of a pool that they take; a share above 1 means that the rates are out of reach.
func (y *moduleLayout) newCoverProgram(s *planSearch, minimizeShare bool) *coverProgram {
	x := &coverProgram{problem: y.problem, layout: y, solver: s.solver, seed: s.seed, minimizeShare: minimizeShare, program: milp.New("covers")}
	p := y.problem

	// Every module is served once. Leaving it unserved is allowed at a prohibitive cost, so that the
	// program is always feasible: more than all devices cost or, for the share of the pools, far more than 1.
	unservedCost := 2 * x.maxCost()
	if minimizeShare {
		unservedCost = 10
	}
	x.servedOnce = lists.Map(len(y.appOf), func(int) milp.Row {
		return x.program.AddEQ("", 1, milp.Term{Var: x.program.AddVar("", 0, 1, unservedCost), Coef: 1})
	})

	// Limits: one deployment per model, the devices of each pool, the budget of each path, the accuracy of
	// each application.
	// The deployments of a model are at most one, in sum.
	x.deployedOnce = lists.Map(len(p.models), func(int) milp.Row { return x.program.AddLE("", 1) })
	x.poolCapacity = lists.Map(len(p.pools), func(k int) milp.Row { return x.program.AddLE("", float64(p.pools[k].count)) })
	x.pathBudget = lists.Map(len(y.paths), func(int) milp.Row { return x.program.AddLE("", 1) })
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

// maxCost returns a cost that no plan exceeds: the price of all devices or, if the share of the pools is minimized, 1.
func (x *coverProgram) maxCost() float64 {
	if x.minimizeShare {
		return 1
	}
	return lists.Sum(len(x.problem.pools), func(k int) float64 { return float64(x.problem.pools[k].count) * x.problem.pools[k].price })
}

// addDeployment adds deployment c of module set s (modules that one model serves together) as a column of the program: it serves the
// modules of the set, deploys its model, and takes devices, parts of the paths' time budgets, and accuracy. It costs the price of its
// devices. If a share of the pools is minimized, it costs nothing itself, as the pools' rows count its devices.
func (x *coverProgram) addDeployment(s *moduleSet, c *deployment) {
	cost := 0.0
	for k, n := range c.devices {
		if !x.minimizeShare {
			cost += float64(n) * x.problem.pools[k].price
		}
	}
	v := x.program.AddVar("", 0, milp.Inf, cost)
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
	moduleTime := x.problem.moduleTime(&x.problem.models[s.model].levels[level])
	return float64(use.moduleCount) * moduleTime.Seconds() / max(x.layout.paths[use.path].budget.Seconds(), 1e-9)
}

// solve solves the linear program and adds deployments of negative reduced cost (those that could improve it) until there are none. It
// leaves in lowerBound a cost that no plan is below, and in every deployment its reduced cost: a plan with it costs at least lowerBound
// plus that.
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

// rowDuals has the duals of the program's rows, by row.
type rowDuals []float64

// ofLimit returns the dual of a row with an upper limit. It is at most 0: a dual of the wrong sign is cut
// off.
func (d rowDuals) ofLimit(row milp.Row) float64 { return min(0, d[row]) }

// priceAll sets, by the duals of a solution of the program, lowerBound and the reduced cost of every deployment: a plan costs at least
// lowerBound, and at least lowerBound + reducedCost if it has the deployment. Per module set and level, it adds to the program the
// deployment with the most negative reduced cost, which may improve it most, and returns how many it added.
//
// The bound is that of Lagrange's relaxation, which holds for any duals of the right sign. If a plan breaks no row, its cost is at least
//
//	dualValue + Σ over its deployments of (cost - Σ over rows of dual·coefficient),
//
// and the difference in brackets is the deployment's reduced cost before the last step of this function.
func (x *coverProgram) priceAll(duals rowDuals) int {
	poolDuals := x.poolDuals(duals)
	x.lowerBound = x.dualValue(duals, poolDuals)

	// A device costs the dual of its pool and, if the objective is the price, its price.
	deviceCosts := make([]float64, len(poolDuals))
	for k := range deviceCosts {
		deviceCosts[k] = poolDuals[k]
		if !x.minimizeShare {
			deviceCosts[k] += x.problem.pools[k].price
		}
	}

	// Set the reduced costs set by set, and find the least one of each model, at most 0.
	minReducedCost, added := make([]float64, len(x.problem.models)), 0
	for i := range x.layout.moduleSets {
		s := &x.layout.moduleSets[i]
		added += x.priceModuleSet(s, deviceCosts, duals)
		minReducedCost[s.model] = lists.Min(minReducedCost[s.model], len(s.deployments), func(c int) float64 { return s.deployments[c].reducedCost })
	}

	// A plan has at most one deployment of each model, so in the worst case the one of the least reduced cost, if that is negative. The
	// bound counts it for every model. So a plan with another deployment of the model is dearer than the bound by the difference.
	for _, reducedCost := range minReducedCost {
		x.lowerBound += reducedCost
	}
	for i := range x.layout.moduleSets {
		s := &x.layout.moduleSets[i]
		for c := range s.deployments {
			s.deployments[c].reducedCost -= minReducedCost[s.model]
		}
	}
	return added
}

// poolDuals returns, by pool, the worth of one of its devices by the duals of a solution, at least 0. If the share of the pools is
// minimized, the worth of all devices may sum to at most 1, which is the dual constraint of the share. The solver keeps that up to its
// tolerance only, so the values are scaled.
func (x *coverProgram) poolDuals(duals rowDuals) []float64 {
	poolDuals, total := make([]float64, len(x.problem.pools)), 0.0
	for k, row := range x.poolCapacity {
		poolDuals[k] = -duals.ofLimit(row)
		total += poolDuals[k] * float64(x.problem.pools[k].count)
	}
	if x.minimizeShare {
		for k := range poolDuals {
			poolDuals[k] /= max(1, total)
		}
	}
	return poolDuals
}

// dualValue returns the sum of all rows' right-hand sides times their duals, which is the part of priceAll's lower bound that does not
// depend on deployments. poolDuals has the negated duals of the pools' rows, so these are subtracted. If the share of the pools is
// minimized, the right-hand sides of the pools are 0.
func (x *coverProgram) dualValue(duals rowDuals, poolDuals []float64) float64 {
	sum := 0.0
	if !x.minimizeShare {
		for k, dual := range poolDuals {
			sum -= dual * float64(x.problem.pools[k].count)
		}
	}
	// The right-hand sides of the next three kinds of rows are 1. The first are equations, so their duals have any sign.
	for _, row := range x.servedOnce {
		sum += duals[row]
	}
	for _, rows := range [][]milp.Row{x.deployedOnce, x.pathBudget} {
		for _, row := range rows {
			sum += duals.ofLimit(row)
		}
	}
	for a, row := range x.accuracyFloor {
		if row >= 0 {
			sum += duals.ofLimit(row) * x.problem.apps[a].accuracyAllowance()
		}
	}
	return sum
}

// priceTolerance is how far below 0 a reduced cost must be for its deployment to be added, in parts of
// maxCost.
const priceTolerance = 1e-7

// priceModuleSet sets the reduced cost of every deployment (a level, which limits batch times, and devices) of module set s, the modules
// that one model serves together:
//
//	reducedCost = commonCost - Σ_path dual(path)·budgetShare(level, path) + Σ_pool deviceCost(pool)·devices(pool)
//
// budgetShare is the part of the path's time that the modules take at the level, and deviceCosts has, by pool, the price of a device plus
// its dual. For every level it adds to the program the deployment with the least reduced cost if that is negative by more than rounding:
// then it may lower the program's cost. It returns how many it added.
func (x *coverProgram) priceModuleSet(s *moduleSet, deviceCosts []float64, duals rowDuals) int {
	commonCost, added := x.commonCost(s, duals), 0
	// sameLevel has all deployments of one level.
	for sameLevel := range byLevel(s.deployments) {
		// What the paths' budgets cost is the same for all deployments of a level.
		levelCost := commonCost
		for _, use := range s.pathUses {
			levelCost -= duals.ofLimit(x.pathBudget[use.path]) * x.budgetShare(s, sameLevel[0].level, use)
		}

		// Price the devices, and find the cheapest deployment.
		cheapest := &sameLevel[0]
		for i := range sameLevel {
			d := &sameLevel[i]
			d.reducedCost = levelCost
			for k, n := range d.devices {
				d.reducedCost += deviceCosts[k] * float64(n)
			}
			if d.reducedCost < cheapest.reducedCost {
				cheapest = d
			}
		}
		if cheapest.reducedCost < -priceTolerance*x.maxCost() {
			x.addDeployment(s, cheapest)
			added++
		}
	}
	return added
}

// commonCost returns the part of the reduced cost that all deployments of module set s have in common: what they pay for deploying the
// model and for accuracy, less what serving their modules is worth. A row that is an upper limit has a dual of at most 0, by which
// its use is paid for. The row of a module is an equation, whose dual is as it is, and positive if serving the module lowers the cost.
func (x *coverProgram) commonCost(s *moduleSet, duals rowDuals) float64 {
	sum := -duals.ofLimit(x.deployedOnce[s.model])
	for _, t := range s.members {
		sum -= duals[x.servedOnce[t.module]]
	}
	for a, row := range x.accuracyFloor {
		if row >= 0 { // the application has a floor
			sum -= duals.ofLimit(row) * s.accuracyLoss[a]
		}
	}
	return sum
}

// byLevel yields the deployments of each level (limit on batch times) as a list. Those of one level stand
// together.
func byLevel(deployments []deployment) iter.Seq[[]deployment] {
	return func(yield func([]deployment) bool) {
		for first := 0; first < len(deployments); {
			next := first + 1
			for next < len(deployments) && deployments[next].level == deployments[first].level {
				next++
			}
			if !yield(deployments[first:next]) {
				return
			}
			first = next
		}
	}
}

// accuracyAllowance returns how much of the logarithm of accuracy an application may lose: -ln(floor), with
// a tolerance.
func (a *app) accuracyAllowance() float64 { return -math.Log(a.accuracyFloor) + 1e-9 }
