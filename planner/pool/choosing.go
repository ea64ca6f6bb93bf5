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

// choosing is the program that picks one bundle per model within the devices: any
// choice, or where bundles have a price a cheap one.
type choosing struct {
	*bundling
	choices []bundle
	m       *milp.Model
	over    milp.Var // devices beyond those there are
	z       []milp.Var
	priced  bool
	looks   int
	close   float64 // gap at which a look ends
}

// choosing builds the program.
func (x *bundling) choosing(choices []bundle, w *wish) *choosing {
	c := &choosing{bundling: x, choices: choices, m: milp.New("bundles"), looks: bundleLooks, close: 1e-4}
	if w.moves {
		c.looks, c.close = stayLooks, 0.5/max(w.most, 1) // half a device
	}
	_, c.priced = x.price(&bundle{}, w)
	c.over = c.m.AddVar("over", -1, milp.Inf, 1)
	if c.priced {
		c.m.SetBounds(c.over, 0, milp.Inf)
		c.m.SetObj(c.over, overPrice)
	}
	one := make([]milp.Row, len(x.Models))
	for d := range one {
		one[d] = c.m.AddEQ("one "+x.Models[d].Name, 1)
	}
	pools := make([]milp.Row, len(x.Pools))
	for k := range pools {
		if n := float64(x.Pools[k].Count); n > 0 {
			pools[k] = c.m.AddLE("devices "+x.Pools[k].Kind, 1-w.idle[k]/n, milp.Term{Var: c.over, Coef: -1})
		}
	}
	moves := milp.Row(-1)
	if x.stay != nil {
		moves = c.m.AddLE("moves", w.most, milp.Term{Var: c.over, Coef: -max(w.most, 1)})
	}
	c.z = make([]milp.Var, len(choices))
	for i := range choices {
		b := &choices[i]
		c.z[i] = c.m.AddBool("", 0)
		if c.priced {
			price, _ := x.price(b, w)
			c.m.SetObj(c.z[i], price)
		}
		if moves >= 0 && b.move > 0 {
			c.m.AddTerm(moves, c.z[i], b.move)
		}
		c.m.AddTerm(one[b.model], c.z[i], 1)
		for k, v := range b.use {
			if v > 0 {
				c.m.AddTerm(pools[k], c.z[i], v/float64(x.Pools[k].Count))
			}
		}
	}
	return c
}

// choose picks one bundle per model; nil where it finds no choice that fits.
func (x *bundling) choose(ctx context.Context, choices []bundle, w wish) (*counts, error) {
	c := x.choosing(choices, &w)
	relaxed, err := c.relax(ctx)
	if err != nil || relaxed == nil {
		return nil, err
	}
	// Models that the relaxation does not split keep their bundle at first; the
	// others, and in later rounds some more, are chosen anew.
	open := make([]bool, len(x.Models))
	for i, v := range c.z {
		if f := relaxed.At(v); f > 1e-6 && f < 1-1e-6 {
			open[choices[i].model] = true
		}
	}
	sol, at, next := relaxed, relaxed.X, 0
	for round := range c.looks {
		if ctx.Err() != nil {
			return nil, nil
		}
		if sol, err = c.look(ctx, at, open, round > 0); err != nil || !sol.Feasible() {
			return nil, err
		}
		if !c.priced && sol.At(c.over) <= 1e-9 {
			break
		}
		at = sol.X
		clear(open)
		for range min(bundleOpen, len(open)) {
			open[next%len(open)] = true
			next += 7 // models far apart
			if len(open)%7 == 0 && next%len(open) == 0 {
				next++
			}
		}
	}
	if sol.At(c.over) > 1e-9 {
		return nil, nil
	}
	var list []count
	for i := range choices {
		if sol.At(c.z[i]) > 0.5 {
			list = append(list, choices[i].list...)
		}
	}
	return x.recount(list), nil
}

// relax solves the program over parts of bundles; nil where not even those fit, so
// that whole ones do not.
func (c *choosing) relax(ctx context.Context) (*milp.Solution, error) {
	relaxed := c.m.Clone()
	for _, v := range c.z {
		relaxed.SetInteger(v, false)
	}
	sol, err := c.s.Solve(ctx, relaxed, milp.Options{Seed: c.o.Seed})
	if err != nil {
		return nil, fmt.Errorf("solving the relaxation over %d bundles: %w", len(c.choices), err)
	}
	c.count(sol)
	if !sol.Feasible() || sol.At(c.over) > 1e-9 {
		return nil, nil
	}
	return sol, nil
}

// look solves the program over the bundles of some models; the others keep theirs
// of a point, which may be a start.
func (c *choosing) look(ctx context.Context, at []float64, open []bool, start bool) (*milp.Solution, error) {
	part := c.m.Clone()
	for i, v := range c.z {
		if !open[c.choices[i].model] {
			f := math.Round(at[v])
			part.SetBounds(v, f, f)
		}
	}
	o := c.work(bundleNodes)
	o.AbsGap, o.HeuristicEffort = c.close, heuristicEffort
	if start {
		o.Start = at
	}
	sol, err := c.s.Solve(ctx, part, o)
	if err != nil {
		return nil, fmt.Errorf("choosing among %d bundles: %w", len(c.choices), err)
	}
	c.count(sol)
	return sol, nil
}

// count adds what a solve took.
func (x *bundling) count(sol *milp.Solution) {
	x.spent.Nodes += sol.Stats.Nodes
	x.spent.Iterations += sol.Stats.Iterations
}
