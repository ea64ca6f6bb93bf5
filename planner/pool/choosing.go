package pool

import (
	"context"
	"fmt"

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
	parts, err := x.parts(ctx, choices, &w)
	if err != nil || parts == nil {
		return nil, err
	}
	at := x.settling(choices, parts, &w).settle()
	if at == nil {
		return nil, nil
	}
	var list []count
	for _, i := range at {
		list = append(list, choices[i].list...)
	}
	return x.recount(list), nil
}

// parts solves the program that picks parts of bundles of each model within the
// devices: any choice, or where bundles have a price the cheapest. It is nil where not
// even parts fit, so that whole bundles do not.
func (x *bundling) parts(ctx context.Context, choices []bundle, w *wish) ([]float64, error) {
	m := milp.New("bundles")
	_, priced := x.price(&bundle{}, w)
	over := m.AddVar("over", -1, milp.Inf, 1) // devices beyond those there are
	if priced {
		m.SetBounds(over, 0, milp.Inf)
		m.SetObj(over, overPrice)
	}
	one, pools := make([]milp.Row, len(x.Models)), make([]milp.Row, len(x.Pools))
	for d := range one {
		one[d] = m.AddEQ("one "+x.Models[d].Name, 1)
	}
	for k := range pools {
		if n := float64(x.Pools[k].Count); n > 0 {
			pools[k] = m.AddLE("devices "+x.Pools[k].Kind, 1-w.idle[k]/n, milp.Term{Var: over, Coef: -1})
		}
	}
	moves := milp.Row(-1)
	if x.stay != nil {
		moves = m.AddLE("moves", w.most, milp.Term{Var: over, Coef: -max(w.most, 1)})
	}
	z := make([]milp.Var, len(choices))
	for i := range choices {
		b := &choices[i]
		price, _ := x.price(b, w)
		entries := []milp.Entry{{Row: one[b.model], Coef: 1}}
		for k, v := range b.use {
			if v > 0 {
				entries = append(entries, milp.Entry{Row: pools[k], Coef: v / float64(x.Pools[k].Count)})
			}
		}
		if moves >= 0 && b.move > 0 {
			entries = append(entries, milp.Entry{Row: moves, Coef: b.move})
		}
		z[i] = m.AddColumn("", 0, 1, price, entries...)
	}
	sol, err := x.s.Solve(ctx, m, milp.Options{Seed: x.o.Seed})
	if err != nil {
		return nil, fmt.Errorf("solving the relaxation over %d bundles: %w", len(choices), err)
	}
	x.spent.Iterations += sol.Stats.Iterations
	if !sol.Feasible() || sol.At(over) > 1e-9 {
		return nil, nil
	}
	parts := make([]float64, len(choices))
	for i, v := range z {
		parts[i] = sol.At(v)
	}
	return parts, nil
}
