package pool

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// overPrice is the cost of using more devices than there are, if bundles have prices.
const overPrice = 100

// bundlePrice returns what a bundle costs under the limits, and whether bundles have prices at all.
func (x *bundling) price(b *bundle, w *wish) (price float64, any bool) {
	if w.moves {
		return b.move / max(w.most, 1), true
	}
	unit := x.goal.cost()
	for k, v := range b.use {
		if unit != nil {
			price += unit[k] * v / float64(max(x.Pools[k].Count, 1))
		}
	}
	return price, unit != nil
}

// chooseBundles picks one bundle per model and returns their plan. If no choice fits, it returns nil.
func (x *bundling) choose(ctx context.Context, choices []bundle, w wish) (*counts, error) {
	at, err := x.pick(ctx, choices, &w)
	if at == nil || err != nil {
		return nil, err
	}
	var list []count
	for _, i := range at {
		list = append(list, choices[i].list...)
	}
	return x.recount(list), nil
}

// pickBundles returns the index of one bundle of each model. It rounds parts of bundles that fit by swaps. If
// that finds no choice, it rounds the solution of the integer program over whole bundles. If that finds none
// either, it returns nil.
func (x *bundling) pick(ctx context.Context, choices []bundle, w *wish) ([]int, error) {
	q := x.picking(choices, w)
	parts, err := x.parts(ctx, q)
	if parts == nil || err != nil {
		return nil, err
	}
	s := x.settling(choices, parts, w)
	if at := s.settle(); at != nil || x.stay != nil || x.o.Hurry || x.nodes <= 0 {
		return at, nil
	}
	parts, err = x.whole(ctx, q)
	if parts == nil || err != nil {
		return nil, err
	}
	return x.settling(choices, parts, w).settle(), nil
}

// bundleProgram picks one bundle of each model within the devices: the cheapest choice if bundles have prices,
// else any.
type picking struct {
	m      *milp.Model
	over   milp.Var // use beyond the devices that there are, in parts of them
	priced bool
	pools  []milp.Row // by pool; -1 for empty pools
	z      []milp.Var // by bundle: the part of it that is picked
}

// newBundleProgram builds the program over some bundles. Rows: one bundle per model, the devices of each pool,
// and the limit on moves.
func (x *bundling) picking(choices []bundle, w *wish) *picking {
	q := &picking{m: milp.New("bundles")}
	_, q.priced = x.price(&bundle{}, w)
	q.over = q.m.AddVar("over", -1, milp.Inf, 1)
	if q.priced {
		q.m.SetBounds(q.over, 0, milp.Inf)
		q.m.SetObj(q.over, overPrice)
	}
	one := make([]milp.Row, len(x.Models))
	for d := range one {
		one[d] = q.m.AddEQ("one "+x.Models[d].Name, 1)
	}

	// Rows of the pools and of the moves.
	for k := range x.Pools {
		q.pools = append(q.pools, -1)
		if n := float64(x.Pools[k].Count); n > 0 {
			q.pools[k] = q.m.AddLE("devices "+x.Pools[k].Kind, 1-w.idle[k]/n, milp.Term{Var: q.over, Coef: -1})
		}
	}
	moves := milp.Row(-1)
	if x.stay != nil {
		moves = q.m.AddLE("moves", w.most, milp.Term{Var: q.over, Coef: -max(w.most, 1)})
	}

	// A column for each bundle.
	for i := range choices {
		b := &choices[i]
		price, _ := x.price(b, w)
		entries := []milp.Entry{{Row: one[b.model], Coef: 1}}
		for k, v := range b.use {
			if v > 0 {
				entries = append(entries, milp.Entry{Row: q.pools[k], Coef: v / float64(x.Pools[k].Count)})
			}
		}
		if moves >= 0 && b.move > 0 {
			entries = append(entries, milp.Entry{Row: moves, Coef: b.move})
		}
		q.z = append(q.z, q.m.AddColumn("", 0, 1, price, entries...))
	}
	return q
}

// solveParts solves the program for parts of bundles and returns the part of each. If not even parts fit, it
// returns nil, and scarcityPrices holds what the devices are worth then.
func (x *bundling) parts(ctx context.Context, q *picking) ([]float64, error) {
	sol, err := x.s.Solve(ctx, q.m, milp.Options{Seed: x.o.Seed})
	if err != nil {
		return nil, fmt.Errorf("solving the relaxation over %d bundles: %w", len(q.z), err)
	}
	x.spent.Iterations += sol.Stats.Iterations
	if x.scarce = nil; !sol.Feasible() {
		return nil, nil
	}
	if sol.At(q.over) > 1e-9 {
		for _, r := range q.pools {
			worth := 0.0
			if r >= 0 {
				worth = math.Abs(sol.RowDuals[r])
			}
			x.scarce = append(x.scarce, worth)
		}
		return nil, nil
	}
	return q.picked(sol), nil
}

// solveWhole solves the program for whole bundles within the remaining nodes. If it finds none, it returns nil.
func (x *bundling) whole(ctx context.Context, q *picking) ([]float64, error) {
	for _, z := range q.z {
		q.m.SetInteger(z, true)
	}
	o := milp.Options{Gap: x.o.Gap, MaxNodes: x.nodes, MaxIterations: x.nodes * iterationsPer, HeuristicEffort: heuristicEffort, Seed: x.o.Seed}
	if !q.priced {
		o.Enough = 1e-9 // any choice that fits
	}
	sol, err := x.s.Solve(ctx, q.m, o)
	if err != nil {
		return nil, fmt.Errorf("solving the program over %d bundles: %w", len(q.z), err)
	}
	x.nodes -= max(sol.Stats.Nodes, pickLeast)
	x.spent.Iterations += sol.Stats.Iterations
	x.spent.Nodes += sol.Stats.Nodes
	if !sol.Feasible() {
		return nil, nil
	}
	return q.picked(sol), nil
}

// partsOf returns the part of each bundle in a solution.
func (q *picking) picked(sol *milp.Solution) []float64 {
	parts := make([]float64, len(q.z))
	for i, v := range q.z {
		parts[i] = sol.At(v)
	}
	return parts
}
