package graph

import (
	"context"
	"fmt"
	"math"

	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// objectiveBound returns a bound of the objective that holds for every plan: no plan reaches a larger rate
// factor (common to all rates), or a lower price. If no bound is known, it returns NaN.
//
// It leaves out all waits. A request in time spends at most its SLO in batches, so the mean over all requests
// in time does too, and batches of any sizes may be mixed. A plan only has to serve a share of its requests in
// time, which is the attainment. So F, the factor on the rates that are served in time, is the attainment times
// the rate factor. A path that at most 1 - attainment of the requests take has no deadline: all of them may be late.
//
// It is a linear program over the rates f of each choice at each level:
//
//	Σ over a path of maxTime(level)·f ≤ F·SLO;   Σ_k rate(template)·devices ≥ Σ f of that level
//
// For throughput, F is maximized in parts of maxFactor, an upper bound of it. For prices, the rate factor is 1, so F is
// the attainment, and the devices of each kind are whole.
func (r *resolvedProblem) objectiveBound(ctx context.Context, solver milp.Solver, attainment float64) (float64, error) {
	b := &fluidProgram{problem: r.problem, m: milp.New("bound of applications"), attainment: attainment, fixedRates: r.objective != "throughput", maxFactor: 1}
	if !b.fixedRates {
		b.maxFactor = r.problem.factorCeiling()
	}
	if !(b.maxFactor > 0) {
		return math.NaN(), nil
	}
	b.addFactor()
	b.addDevices()
	for a := range r.problem.apps {
		b.addApplication(&r.problem.apps[a])
	}
	// sol.Bound holds with any gap. With a small part of the plan's gap it is also close.
	sol, err := solver.Solve(ctx, b.m, milp.Options{Gap: r.input.Values.Number("gap") / 4, Seed: int32(r.input.Seed % math.MaxInt32)})
	if err != nil {
		return math.NaN(), fmt.Errorf("bounding applications: %w", err)
	}
	switch {
	case sol.Status == milp.Infeasible || !sol.Feasible():
		// Whether there is a plan is not the question here: the caller has one.
		return math.NaN(), nil
	case b.fixedRates:
		return sol.Bound, nil
	}
	// The program gives F in parts of maxFactor. Its rows hold only up to the solver's tolerance of 1e-7.
	maxServedFactor := sol.Bound * b.maxFactor * (1 + 1e-7)
	return maxServedFactor / attainment, nil
}

// fluidProgram is the program of a bound without queueing. Rates are in units of maxFactor.
type fluidProgram struct {
	problem       *problem
	m             *milp.Model
	attainment    float64 // share of the requests that must be in time
	fixedRates    bool    // the price is minimized, not the rate factor maximized
	maxFactor     float64 // upper bound of the rate factor
	factor        milp.Var
	levelCapacity [][]milp.Row // devices of a level carry its rates, by model and level
}

// addFactor adds the rate factor (the common factor on the rates of all applications) in parts of maxFactor: it is to be maximized or, if
// the rates are given, fixed to the share of requests that must be in time, because a plan may give up the others.
func (b *fluidProgram) addFactor() {
	b.factor = b.m.AddVar("factor", 0, 1, 0)
	if b.fixedRates {
		b.m.SetBounds(b.factor, b.attainment, b.attainment)
		return
	}
	b.m.SetSense(milp.Maximize)
	b.m.SetObj(b.factor, 1)
}

// addDevices adds, for each level of a model (a limit on its batch times, with a template for a device of each pool), a variable by pool
// for the devices that run the model at this level, in fractions. The row levelCapacity limits the rate at the level to what these devices
// carry; the program counts all rates in units of maxFactor. With fixed rates, all devices of a pool sum to a whole number, which costs the
// pool's price.
func (b *fluidProgram) addDevices() {
	p := b.problem
	poolCapacity := make([]milp.Row, len(p.pools))
	for k := range p.pools {
		poolCapacity[k] = b.m.AddLE("devices "+p.pools[k].kind, float64(p.pools[k].count))
		if b.fixedRates {
			b.m.SetRowBounds(poolCapacity[k], -milp.Inf, 0)
			b.m.AddTerm(poolCapacity[k], b.m.AddInt("whole devices", 0, float64(p.pools[k].count), p.pools[k].price), -1)
		}
	}
	// What the devices of each level carry, as a part of the largest rate factor.
	b.levelCapacity = make([][]milp.Row, len(p.models))
	for u := range p.models {
		for l := range p.models[u].levels {
			row := b.m.AddGE("capacity of "+p.models[u].name, 0)
			for k, t := range p.models[u].levels[l].templates {
				if t.rate > 0 && p.pools[k].count > 0 {
					n := b.m.AddVar("devices", 0, float64(p.pools[k].count), 0)
					b.m.AddTerm(poolCapacity[k], n, 1)
					b.m.AddTerm(row, n, t.rate/b.maxFactor)
				}
			}
			b.levelCapacity[u] = append(b.levelCapacity[u], row)
		}
	}
}

// addApplication adds to the bound's program the rates f at which each choice of a module (a model that can do its task) runs at each level
// (a limit on batch times). They count like the variable factor, in parts of the largest rate factor, and those of a module sum to it. The
// rows levelCapacity, in which addDevices has what the devices of a level carry, must not fall below 0 with these rates taken off.
//
// Every request in time keeps the SLO on its path, and the accuracy has its floor. So both hold on average over the requests, which is
// all that the rows demand.
func (b *fluidProgram) addApplication(app *app) {
	times := make([][]milp.Term, len(app.modules)) // in batches, by module
	var losses []milp.Term
	for i := range app.modules {
		n := &app.modules[i]
		moduleRate := b.m.AddEQ("rate of "+n.name, 0, milp.Term{Var: b.factor, Coef: -1})
		for c := range n.choices {
			u := n.choices[c].model
			for l, level := range b.problem.models[u].levels {
				f := b.m.AddVar("", 0, 1, 0)
				b.m.AddTerm(moduleRate, f, 1)
				b.m.AddTerm(b.levelCapacity[u][l], f, -n.visitShare*app.weight)
				times[i] = append(times[i], milp.Term{Var: f, Coef: level.maxTime.Seconds()})
				losses = append(losses, milp.Term{Var: f, Coef: n.choices[c].accuracyLoss()})
			}
		}
	}

	// A share of 1 - attainment of the requests may be late. A path that at most so many take has no deadline.
	for _, path := range app.paths {
		if app.isRarePath(path, 1-b.attainment) {
			continue
		}
		row := b.m.AddLE("deadline of "+app.name, 0, milp.Term{Var: b.factor, Coef: -app.slo.Seconds()})
		for _, i := range path {
			for _, t := range times[i] {
				b.m.AddTerm(row, t.Var, t.Coef)
			}
		}
	}
	if app.accuracyFloor > 0 {
		// As logarithms: Σ loss·f ≤ -ln(floor)·factor, with a tolerance.
		b.m.AddLE("accuracy of "+app.name, 1e-9, append(losses, milp.Term{Var: b.factor, Coef: math.Log(app.accuracyFloor)})...)
	}
}

// isRarePath returns whether at most a share maxShare of the requests takes the path: one of its modules has no
// more visitors. All of them may then be late, and the path needs no deadline.
func (a *app) isRarePath(path []int, maxShare float64) bool {
	return lists.Contains(len(path), func(i int) bool { return a.modules[path[i]].visitShare <= maxShare+1e-12 })
}

// boundScope names, for the user, the plans that the bound holds for. If it holds for all plans, it returns "".
// The program behind the bound gives each module one mix of batches. If requests skip modules, plans could
// choose batches by the way of a request.
func (r *resolvedProblem) boundScope() string {
	for a := range r.problem.apps {
		for i := range r.problem.apps[a].modules {
			if r.problem.apps[a].modules[i].visitShare < 1 {
				return "whose batches do not depend on the way of a request"
			}
		}
	}
	return ""
}
