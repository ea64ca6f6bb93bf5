package bundles

import (
	"context"
	"fmt"
	"math"

	"inferplan/planner/lists"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/solver/milp"
)

// overPrice is the cost of using more devices than there are, if bundles have prices.
const overPrice = 100

// bundlePrice returns the cost of a bundle (pipelines of one model) in the program that picks one bundle for each model.
// If the limits ask for the fewest moves, it is the number of devices that the bundle must load, divided by the limit
// on them. If the goal is a price, it is the price of the bundle's devices. Otherwise hasPrice is false: any choice that
// fits the devices is good.
func (x *bundleSearch) bundlePrice(b *bundle, limits *bundleLimits) (price float64, hasPrice bool) {
	if limits.fewestMoves {
		return b.movedDevices / max(limits.maxMoved, 1), true
	}
	poolCosts := x.incumbent.Goal.PoolCosts()
	for k, v := range b.devices {
		if poolCosts != nil {
			price += poolCosts[k] * v / float64(max(x.problem.Pools[k].Count, 1))
		}
	}
	return price, poolCosts != nil
}

// chooseBundles picks one bundle (pipelines that carry its rate) for each model and returns the plan of all
// these pipelines. If no choice fits the devices, it returns nil.
func (x *bundleSearch) chooseBundles(ctx context.Context, choices []bundle, limits bundleLimits) (*placement.Plan, error) {
	chosen, err := x.pickBundles(ctx, choices, &limits)
	if chosen == nil || err != nil {
		return nil, err
	}
	var pipelines []placement.PlanPipeline
	for _, i := range chosen {
		pipelines = append(pipelines, choices[i].pipelines...)
	}
	return placement.Recompute(x.catalogue, pipelines), nil
}

// pickBundles returns the index of one bundle for each model such that all fit the devices. It first solves the
// program with fractions of bundles, and rounds these by swaps. If that finds no choice, it solves the integer
// program over whole bundles. If that finds none either, it returns nil. The integer program is left out in a
// re-plan and in a hurry.
func (x *bundleSearch) pickBundles(ctx context.Context, choices []bundle, limits *bundleLimits) ([]int, error) {
	program := x.newBundleProgram(choices, limits)
	parts, err := x.solveParts(ctx, program)
	if parts == nil || err != nil {
		return nil, err
	}
	rounder := x.newBundleRounder(choices, parts, limits)
	if chosen := rounder.round(); chosen != nil || x.incumbent.Replan != nil || x.options.Hurry || x.remainingNodes <= 0 {
		return chosen, nil
	}
	parts, err = x.solveWhole(ctx, program)
	if parts == nil || err != nil {
		return nil, err
	}
	return x.newBundleRounder(choices, parts, limits).round(), nil
}

// bundleProgram picks one bundle of each model within the devices: the cheapest choice if bundles have prices,
// else any.
type bundleProgram struct {
	m         *milp.Model
	overuse   milp.Var // use beyond the devices that there are, in parts of them
	hasPrices bool
	poolRows  []milp.Row // by pool; -1 for empty pools
	partVars  []milp.Var // by bundle: the part of it that is picked
}

// newBundleProgram builds the program that picks bundles (pipelines of one model). Rows: one bundle for each
// model, the devices of each pool in parts of what it has, and the limit on moved devices. The variable overuse
// is the part by which devices are exceeded, and is minimised: if it stays above 0, the bundles do not fit, and
// the duals of the pool rows say which devices are scarce. Without prices it is the whole objective and may fall
// below 0: it is then minus the least part of its devices that any pool has free. With prices it is at least 0, and
// costs far more than the bundles.
func (x *bundleSearch) newBundleProgram(choices []bundle, limits *bundleLimits) *bundleProgram {
	// Whether bundles have prices depends on the goal and the limits alone, so any bundle tells it.
	program := &bundleProgram{m: milp.New("bundles")}
	_, program.hasPrices = x.bundlePrice(&bundle{}, limits)
	program.overuse = program.m.AddVar("over", -1, milp.Inf, 1)
	if program.hasPrices {
		program.m.SetBounds(program.overuse, 0, milp.Inf)
		program.m.SetObj(program.overuse, overPrice)
	}
	oneBundle := lists.Filled(len(x.problem.Models), func(d int) milp.Row { return program.m.AddEQ("one "+x.problem.Models[d].Name, 1) })

	// Rows of the pools, in parts of what each has, less the devices that must stay idle, and of the moved devices, if a
	// plan runs already. overuse loosens all of them: that of the moves, which counts devices, by this part of the limit,
	// or of 1 device if the limit is lower.
	for k := range x.problem.Pools {
		program.poolRows = append(program.poolRows, -1) // a pool without devices has no row
		if n := float64(x.problem.Pools[k].Count); n > 0 {
			program.poolRows[k] = program.m.AddLE("devices "+x.problem.Pools[k].Kind, 1-limits.idleDevices[k]/n, milp.Term{Var: program.overuse, Coef: -1})
		}
	}
	moveRow := milp.Row(-1)
	if x.incumbent.Replan != nil {
		moveRow = program.m.AddLE("moves", limits.maxMoved, milp.Term{Var: program.overuse, Coef: -max(limits.maxMoved, 1)})
	}

	// A column for each bundle. It takes only devices of pools that have some: modelBundles leaves out all others.
	for i := range choices {
		b := &choices[i]
		price, _ := x.bundlePrice(b, limits)
		entries := []milp.Entry{{Row: oneBundle[b.model], Coef: 1}}
		for k, v := range b.devices {
			if v > 0 {
				entries = append(entries, milp.Entry{Row: program.poolRows[k], Coef: v / float64(x.problem.Pools[k].Count)})
			}
		}
		if moveRow >= 0 && b.movedDevices > 0 {
			entries = append(entries, milp.Entry{Row: moveRow, Coef: b.movedDevices})
		}
		program.partVars = append(program.partVars, program.m.AddColumn("", 0, 1, price, entries...))
	}
	return program
}

// solveParts solves the program with fractions of bundles allowed, and returns the fraction of each. If not
// even fractions fit the devices, it returns nil, and sets scarcityPrices to what the devices of each pool are
// worth then, for covers at other prices.
func (x *bundleSearch) solveParts(ctx context.Context, program *bundleProgram) ([]float64, error) {
	sol, err := x.solver.Solve(ctx, program.m, milp.Options{Seed: x.options.Seed})
	if err != nil {
		return nil, fmt.Errorf("solving the relaxation over %d bundles: %w", len(program.partVars), err)
	}
	x.solverStats.Iterations += sol.Stats.Iterations

	// If devices are exceeded even so, the duals of the pool rows say how scarce each pool is.
	x.scarcityPrices = nil
	if !sol.Feasible() {
		return nil, nil
	}
	if sol.At(program.overuse) > 1e-9 {
		for _, r := range program.poolRows {
			scarcity := 0.0
			if r >= 0 {
				scarcity = math.Abs(sol.RowDuals[r])
			}
			x.scarcityPrices = append(x.scarcityPrices, scarcity)
		}
		return nil, nil
	}
	return program.partsOf(sol), nil
}

// solveWhole solves the program for whole bundles, one for each model, within the remaining nodes of the branch and bound.
// From these it takes the nodes that it used, but at least minProgramNodes, so that programs solved without branching use up
// the limit, too. It returns 1 for each bundle taken and 0 for the others. If it finds no choice, it returns nil.
func (x *bundleSearch) solveWhole(ctx context.Context, program *bundleProgram) ([]float64, error) {
	// The part of each bundle, from 0 to 1, becomes 0 or 1.
	for _, partVar := range program.partVars {
		program.m.SetInteger(partVar, true)
	}
	options := milp.Options{
		Gap: x.options.Gap, MaxNodes: x.remainingNodes, MaxIterations: x.remainingNodes * problem.IterationsPerNode,
		HeuristicEffort: problem.HeuristicEffort, Seed: x.options.Seed,
	}
	if !program.hasPrices {
		// The objective is overuse alone, the part by which devices are exceeded. The first choice that brings it to 0 or
		// below, but for rounding errors, fits and ends the search.
		options.TargetValue = 1e-9
	}
	sol, err := x.solver.Solve(ctx, program.m, options)
	if err != nil {
		return nil, fmt.Errorf("solving the program over %d bundles: %w", len(program.partVars), err)
	}
	x.remainingNodes -= max(sol.Stats.Nodes, minProgramNodes)
	x.solverStats.Iterations += sol.Stats.Iterations
	x.solverStats.Nodes += sol.Stats.Nodes
	if !sol.Feasible() {
		return nil, nil
	}
	return program.partsOf(sol), nil
}

// partsOf returns the value of each bundle's variable in a solution: the fraction of it that is taken.
func (q *bundleProgram) partsOf(sol *milp.Solution) []float64 {
	return lists.Filled(len(q.partVars), func(i int) float64 { return sol.At(q.partVars[i]) })
}
