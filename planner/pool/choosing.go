package pool

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// overPrice is what devices beyond those there are cost where bundles have a price.
const overPrice = 100

// price is what a bundle costs by a wish, and whether bundles cost anything.
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

// choose picks one bundle per model; nil where it finds no choice that fits.
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

// pick is the indexes of one bundle per model: by swaps from the parts of bundles that
// fit, and where those do not get there by the program of whole ones.
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

// picking is the program that picks bundles of each model within the devices: any
// choice, or where bundles have a price the cheapest.
type picking struct {
	m      *milp.Model
	over   milp.Var // devices beyond those there are
	priced bool
	pools  []milp.Row // -1 for empty pools
	z      []milp.Var // of each bundle: the part of it that is picked
}

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

// parts picks parts of bundles. It is nil where not even parts fit, so that whole
// bundles do not; what devices are worth then is kept.
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

// whole picks whole bundles, within the nodes that are left; nil where it finds none.
func (x *bundling) whole(ctx context.Context, q *picking) ([]float64, error) {
	for _, z := range q.z {
		q.m.SetInteger(z, true)
	}
	o := milp.Options{Gap: x.o.Gap, MaxNodes: x.nodes, MaxIterations: x.nodes * iterationsPer, HeuristicEffort: heuristicEffort, Seed: x.o.Seed}
	if !q.priced {
		o.Enough = 1e-9 // any that fits
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

// picked is the part of each bundle.
func (q *picking) picked(sol *milp.Solution) []float64 {
	parts := make([]float64, len(q.z))
	for i, v := range q.z {
		parts[i] = sol.At(v)
	}
	return parts
}
