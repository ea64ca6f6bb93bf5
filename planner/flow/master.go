package flow

import (
	"context"
	"fmt"
	"math"

	"inferplan/solver/milp"
)

// master is the linear program over covers: every place is served once, every
// model deployed at most once, pools, deadlines and floors are kept. It is solved
// over few covers. Those that its duals price below what they are worth join.
//
// It is for the least price at a rate, or for the least share of all pools that a
// rate takes: above 1 the rate is out of reach.
type master struct {
	*layout
	solver milp.Solver
	seed   int32
	share  bool // the share of the pools, not the price
	m      *milp.Model
	serve  []milp.Row // by place
	once   []milp.Row // by model
	taken  []milp.Row // by pool
	within []milp.Row // by path, in parts of its budget
	exact  []milp.Row // by application; -1: no floor
	least  float64    // no solution is below it
	rounds int64
}

func (y *layout) master(s *search, share bool) *master {
	x := &master{layout: y, solver: s.solver, seed: s.seed, share: share, m: milp.New("covers")}
	p := y.p
	for range y.apps {
		x.serve = append(x.serve, x.m.AddEQ("", 1, milp.Term{Var: x.m.AddVar("", 0, 1, x.dear()), Coef: 1}))
	}
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
	if share {
		v := x.m.AddVar("share", 0, milp.Inf, 1)
		for k, row := range x.taken {
			x.m.SetRowBounds(row, -milp.Inf, 0)
			x.m.AddTerm(row, v, -float64(p.pools[k].count))
		}
	}
	return x
}

// dear is what it costs to leave a place unserved: more than all devices.
func (x *master) dear() float64 {
	if x.share {
		return 10
	}
	return 2 * x.most()
}

// most is what no plan exceeds.
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

// price is what a cover costs in the program.
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

// join adds a cover to the program.
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

// part is what a serving's modules on a path take of its budget at a level.
func (x *master) part(s *serving, level int, w along) float64 {
	most := x.p.models[s.model].levels[level].most
	return float64(waiting*w.times) * most.Seconds() / max(x.paths[w.path].budget.Seconds(), 1e-9)
}

// solve finds the bound, and by how much each cover exceeds it.
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

// priced prices all covers. Of every serving and level the cover that is furthest
// below its worth joins, and their number is returned. The bound is that of
// Lagrange: it holds with any duals of the right sign.
func (x *master) priced(duals []float64) int {
	down := func(row milp.Row) float64 { return min(0, duals[row]) }
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

// pricedOf prices the covers of a serving. They stand level after level.
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
		if c.level != level {
			end()
			level, worst, late = c.level, -1, base
			for _, w := range s.along {
				late -= down(x.within[w.path]) * x.part(s, level, w)
			}
		}
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

// allowance is how much of the logarithm of accuracy may be lost.
func (a *app) allowance() float64 { return -math.Log(a.floor) + 1e-9 }
