package gear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// The devices of least price on several kinds. What the relaxation comes to grows with
// every kind's number of devices and is concave in them: its prices at one choice of
// numbers bound it at all others. So a small program over the numbers, to which those
// bounds are added where they were missing, ends at the least price at which the
// relaxation reaches the target (Benders). From there on upwards, the numbers of a
// price at which the relaxation comes to most are planned for, until a plan holds.

// Of the search: plans tried in all, and how far below the target a relaxation may
// be and still count as reaching it (linear programs are solved to no more).
const (
	pricesTried = 24
	reaches     = 1e-7
)

// tangent is what the relaxation comes to at most on numbers of devices by kind.
type tangent struct {
	at     []int
	value  float64   // there; of a range that is not served, what is missing, below 0
	by     []float64 // with one more device of a kind, at most
	slack  float64   // by which the tangent may be above the value: a node's NIC serves several devices
	served bool      // that all ranges are
}

// tangent solves the relaxation, range by range.
func (x *mixed) tangent(ctx context.Context, seeds [][]int) (*tangent, error) {
	p := x.p
	t := &tangent{by: make([]float64, len(p.Kinds)), served: true}
	for k := range p.Kinds {
		t.at = append(t.at, p.Kinds[k].Devices)
	}
	home := make([]int, len(p.Kinds))
	for c, conf := range x.all {
		home[conf.Kind] = c
	}
	solve := func(r int, serve bool) (*program, *milp.Solution, error) {
		g := x.newProgram(x.all, []int{r}, false, -1)
		if g.serve = serve; serve {
			g.m.SetObj(g.short[0], -1)
		}
		for _, i := range seeds[r] {
			g.column(0, i)
		}
		sol, _, err := g.generate(ctx, x.chains, home)
		if err != nil {
			return nil, nil, fmt.Errorf("bounding the accuracy at %.6g requests per second: %w", p.Edges[r], err)
		}
		if !serve {
			seeds[r] = g.columns[0]
		}
		return g, sol, nil
	}
	add := func(g *program, sol *milp.Solution, factor float64) {
		t.value += factor * sol.Value
		for k, row := range g.devices {
			if row >= 0 {
				t.by[k] += factor * math.Abs(sol.RowDuals[row])
			}
		}
		for k := range p.Kinds {
			for _, in := range []bool{false, true} {
				if row, ok := g.nic[0][nic{k, in}]; ok {
					price, each := factor*math.Abs(sol.RowDuals[row]), float64(max(1, p.Blocks.Pools[k].PerNode))
					t.by[k] += price / each
					t.slack += price * ((float64(t.at[k])+each-1)/each - x.nics(k, false))
				}
			}
		}
	}
	for r := range p.Edges {
		g, sol, err := solve(r, false)
		if err != nil {
			return nil, err
		}
		if sol.X[g.short[0]] > 1e-7 {
			*t = tangent{at: t.at, by: make([]float64, len(p.Kinds))}
			if g, sol, err = solve(r, true); err != nil {
				return nil, err
			}
			add(g, sol, 1)
			return t, nil
		}
		add(g, sol, p.Weights[r]/max(p.Weights[r], 1e-6))
	}
	return t, nil
}

// shop looks for numbers of devices.
type shop struct {
	*search
	price    []float64 // by kind
	full     []int     // devices there are
	seeds    [][]int   // by range: cascades that relaxations used
	tangents map[string]*tangent
	order    []*tangent

	tried   int
	best    *Outcome // of the plans tried that hold, on bought devices
	bought  []int
	missing error // of the last that did not
}

// cheapest finds the devices of least price that hold target and SLO.
func (s *search) cheapest(ctx context.Context) (*Outcome, error) {
	c := &shop{search: s, tangents: map[string]*tangent{}, seeds: make([][]int, len(s.p.Edges))}
	smallest := math.Inf(1)
	for k := range s.p.Kinds {
		c.price, c.full = append(c.price, s.p.Kinds[k].Price), append(c.full, s.p.Kinds[k].Devices)
		if s.p.Kinds[k].Of < 0 {
			smallest = min(smallest, s.p.Kinds[k].Price)
		}
	}
	if w, err := s.waysOf(s.p); err != nil || w.staged == nil {
		return nil, err
	}
	if t, err := c.at(ctx, c.full); err != nil {
		return nil, err
	} else if !t.served {
		return s.once(ctx, s.p) // says which range is not
	} else if !c.reached(t) {
		return nil, s.p.short(t.value)
	}
	least, err := c.above(ctx, 0)
	if err != nil {
		return nil, err
	}
	fails, all := math.Nextafter(least, 0), c.sum(c.full)
	for level, step := least, smallest; c.best == nil; level, step = min(all, level+step), 2*step {
		if err := c.try(ctx, level); err != nil {
			return nil, err
		}
		if c.best == nil && level >= all {
			return nil, c.missing
		}
		if c.best == nil {
			fails = level
		}
	}
	for c.tried < pricesTried {
		next, err := c.above(ctx, fails)
		if err != nil {
			return nil, err
		}
		below := c.best.Value * (1 - 1e-9)
		if next >= below {
			break
		}
		level := min(max(next, (fails+c.best.Value)/2), below)
		before := c.best
		if err := c.try(ctx, level); err != nil {
			return nil, err
		}
		if c.best == before {
			fails = level
		}
	}
	if err := c.fewer(ctx); err != nil {
		return nil, err
	}
	out := c.best
	out.ValueBound, out.Proved = min(least, out.Value), out.Value <= least*(1+1e-9)
	return out, nil
}

// try plans for the best numbers of devices up to a price.
func (c *shop) try(ctx context.Context, price float64) error {
	n, err := c.most(ctx, price)
	if n == nil || err != nil {
		return err
	}
	return c.plan(ctx, n)
}

// fewer takes single devices off the plan as long as it holds.
func (c *shop) fewer(ctx context.Context) error {
	order := upTo(len(c.price))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.price[b], c.price[a]) })
	for at := 0; at < len(order) && c.tried < pricesTried; {
		n := slices.Clone(c.bought)
		if n[order[at]]--; n[order[at]] < 0 {
			at++
			continue
		}
		t, err := c.at(ctx, n)
		if err != nil {
			return err
		}
		before := c.best
		if c.reached(t) {
			if err := c.plan(ctx, n); err != nil {
				return err
			}
		}
		if c.best == before {
			at++
		}
	}
	return nil
}

// sum is what numbers of devices cost.
func (c *shop) sum(n []int) float64 {
	total := 0.0
	for k := range n {
		total += c.price[k] * float64(n[k])
	}
	return total
}

// on is the problem on numbers of devices.
func (c *shop) on(n []int) *Problem {
	p := *c.p
	p.Kinds = slices.Clone(p.Kinds)
	for k := range n {
		p.Kinds[k].Devices = n[k]
	}
	return &p
}

// plan plans on numbers of devices; those that nothing stands on are not paid for.
func (c *shop) plan(ctx context.Context, n []int) error {
	c.tried++
	out, err := c.once(ctx, c.on(n))
	if _, none := errors.AsType[*Infeasible](err); none {
		c.missing = err
		return nil
	}
	if err != nil {
		return err
	}
	if used := out.compact(); out.Placement == nil && !slices.Equal(used, n) {
		p := *out.Problem
		p.Kinds = c.on(used).Kinds
		out.Problem = &p
		w, err := c.waysOf(&p)
		if err != nil {
			return err
		}
		bounds, _, err := c.boundsOnKinds(ctx, &p, w)
		if err != nil {
			return err
		}
		out.bound(bounds)
		n = used
	}
	out.Priced = true
	if out.Value = c.sum(n); c.best == nil || out.Value < c.best.Value {
		c.best, c.bought = out, n
	}
	return nil
}

// at is the relaxation on numbers of devices.
func (c *shop) at(ctx context.Context, n []int) (*tangent, error) {
	key := fmt.Sprint(n)
	if t := c.tangents[key]; t != nil {
		return t, nil
	}
	w, err := c.waysOf(c.on(n))
	if err != nil {
		return nil, err
	}
	x, err := c.boundOf(w.p, w)
	if err != nil {
		return nil, err
	}
	t, err := x.tangent(ctx, c.seeds)
	if err == nil {
		c.tangents[key], c.order = t, append(c.order, t)
	}
	return t, err
}

// reached tells whether the relaxation reaches the target.
func (c *shop) reached(t *tangent) bool { return t.served && t.value >= c.p.Target-reaches }

// numbers is the program over numbers of devices: what is known rules out those at
// which the relaxation falls short of the target, and, as fewer devices never reach
// more, all that are nowhere above such.
func (c *shop) numbers() (*milp.Model, []milp.Var) {
	m := milp.New("devices")
	var n []milp.Var
	for k := range c.full {
		n = append(n, m.AddInt("", 0, float64(c.full[k]), 0))
	}
	for _, t := range c.order {
		if c.reached(t) {
			continue
		}
		target := 0.0
		if t.served {
			target = c.p.Target - reaches
		}
		missing := target - t.value - t.slack
		if rhs := missing; missing > 0 {
			var terms []milp.Term
			for k := range n {
				terms = append(terms, milp.Term{Var: n[k], Coef: t.by[k] / missing})
				rhs += t.by[k] * float64(t.at[k])
			}
			m.AddGE("", rhs/missing, terms...)
		}
		var more []milp.Term
		for k := range n {
			if t.at[k] < c.full[k] {
				z := m.AddBool("", 0)
				more = append(more, milp.Term{Var: z, Coef: 1})
				m.AddLE("", 0, milp.Term{Var: z, Coef: float64(t.at[k] + 1)}, milp.Term{Var: n[k], Coef: -1})
			}
		}
		m.AddGE("", 1, more...)
	}
	return m, n
}

// solve solves a program over numbers of devices; nil: there are none.
func (c *shop) solve(ctx context.Context, m *milp.Model, n []milp.Var) ([]int, error) {
	sol, err := solve(ctx, c.solver, m, milp.Options{})
	if err != nil {
		return nil, fmt.Errorf("choosing devices: %w", err)
	}
	if sol.X == nil {
		return nil, nil
	}
	var out []int
	for k := range n {
		out = append(out, int(math.Round(sol.X[n[k]])))
	}
	return out, nil
}

// above is the least price above another at which the relaxation reaches the target;
// infinite: there is none.
func (c *shop) above(ctx context.Context, price float64) (float64, error) {
	for {
		m, n := c.numbers()
		var terms []milp.Term
		for k := range n {
			m.SetObj(n[k], c.price[k])
			terms = append(terms, milp.Term{Var: n[k], Coef: c.price[k]})
		}
		if price > 0 {
			m.AddGE("", price*(1+1e-9), terms...)
		}
		got, err := c.solve(ctx, m, n)
		if err != nil {
			return 0, err
		}
		if got == nil {
			return math.Inf(1), nil
		}
		t, err := c.at(ctx, got)
		if err != nil {
			return 0, err
		}
		if c.reached(t) {
			return c.sum(got), nil
		}
	}
}

// most are the numbers of devices up to a price at which the relaxation comes to
// most, of those the cheapest; nil: it reaches the target with none.
func (c *shop) most(ctx context.Context, price float64) ([]int, error) {
	for {
		m, n := c.numbers()
		m.SetSense(milp.Maximize)
		value := m.AddVar("", -milp.Inf, 1, 1)
		var terms []milp.Term
		for k := range n {
			m.SetObj(n[k], -1e-6*c.price[k]/c.sum(c.full))
			terms = append(terms, milp.Term{Var: n[k], Coef: c.price[k]})
		}
		m.AddLE("", price*(1+1e-9), terms...)
		for _, t := range c.order {
			if !t.served {
				continue
			}
			terms, rhs := []milp.Term{{Var: value, Coef: 1}}, t.value+t.slack
			for k := range n {
				terms = append(terms, milp.Term{Var: n[k], Coef: -t.by[k]})
				rhs -= t.by[k] * float64(t.at[k])
			}
			m.AddLE("", rhs, terms...)
		}
		got, err := c.solve(ctx, m, n)
		if got == nil || err != nil {
			return nil, err
		}
		known := c.tangents[fmt.Sprint(got)] != nil
		t, err := c.at(ctx, got)
		if err != nil {
			return nil, err
		}
		if known {
			if !c.reached(t) {
				return nil, nil
			}
			return got, nil
		}
	}
}

// compact leaves devices out that nothing stands on and numbers the others anew. It
// returns how many there are of each kind.
func (out *Outcome) compact() []int {
	p := out.Problem
	models := uint32(1)<<len(p.Models) - 1
	used := make([]int, len(p.Kinds))
	var configs []Config
	for k := range p.Kinds {
		stands := map[int]bool{} // by device: a stage
		for _, c := range out.Chains {
			for s := range c.Devices {
				for _, d := range c.Devices[s] {
					stands[d] = stands[d] || c.Chain.Stages[s].Kind == k
				}
			}
		}
		now, d := map[int]int{}, 0
		for _, c := range out.Configs {
			if c.Kind != k {
				continue
			}
			kept := c
			kept.Count = 0
			for range c.Count {
				if c.Set&models != 0 || stands[d] {
					now[d] = used[k]
					used[k]++
					kept.Count++
				}
				d++
			}
			if kept.Count > 0 {
				configs = append(configs, kept)
			}
		}
		for c := range out.Chains {
			chain := &out.Chains[c]
			chain.Devices = slices.Clone(chain.Devices)
			for s := range chain.Devices {
				if chain.Chain.Stages[s].Kind == k {
					chain.Devices[s] = slices.Clone(chain.Devices[s])
					for i, d := range chain.Devices[s] {
						chain.Devices[s][i] = now[d]
					}
				}
			}
		}
	}
	out.Configs = configs
	for k := range p.Kinds { // units are made of another kind's devices
		if kind := &p.Kinds[k]; kind.Of >= 0 {
			used[kind.Of] += kind.Span * used[k]
			used[k] = kind.Devices
		}
	}
	return used
}
