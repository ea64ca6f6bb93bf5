package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// The devices of least price. What the relaxation comes to grows with
// every kind's number of devices and is concave in them: its prices at one choice of
// numbers bound it at all others. So a small program over the numbers, to which those
// bounds are added where they were missing, ends at the least price at which the
// relaxation reaches the target (Benders). Where the SLO is for all requests together, the pooled
// devices have to be worth what the target needs at least. From there on upwards numbers of devices are
// planned for by rising price, without those that are no more of any kind than some that
// did not hold. The first plan is the cheapest then. Where many fail, prices rise in
// steps that double and then halve.

// Of the search: plans tried by rising price, plans tried in all, and how far below the
// target a relaxation may be and still count as reaching it (linear programs are solved
// to no more).
const (
	risingTried = 24
	pricesTried = 36
	reaches     = 1e-7
)

// tangent is what the relaxation comes to at most on numbers of devices by kind.
type tangent struct {
	at     []int
	value  float64   // there; of a range that is not served, what is missing, below 0
	by     []float64 // with one more device of a kind, at most
	least  float64   // what numbers of devices have to add up to, each times by, to reach the target
	served bool      // that all ranges are
}

// missing returns how much the numbers lack to reach the target.
func (t *tangent) missing() float64 {
	missing := t.least
	for k, n := range t.at {
		missing -= t.by[k] * float64(n)
	}
	return missing
}

// tangent solves the relaxation, range by range.
func (x *fleet) tangent(ctx context.Context, seeds [][]int) (*tangent, error) {
	p := x.p
	t := &tangent{at: p.devices(), by: make([]float64, len(p.Kinds)), served: true}
	slack := 0.0 // by which the tangent may be above the value: a node's NIC serves several devices
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
					slack += price * ((float64(t.at[k])+each-1)/each - x.nics(k))
				}
			}
		}
	}
	for r := range p.Edges {
		g, sol, _, err := x.relax(ctx, r, false, seeds[r])
		if err != nil {
			return nil, err
		}
		seeds[r] = g.columns[0]
		if sol.X[g.short[0]] > 1e-7 {
			*t = tangent{at: t.at, by: make([]float64, len(p.Kinds))}
			if g, sol, _, err = x.relax(ctx, r, true, seeds[r]); err != nil {
				return nil, err
			}
			slack = 0
			add(g, sol, 1)
			break
		}
		add(g, sol, p.Weights[r]/max(p.Weights[r], 1e-6))
	}
	if t.least = -t.value - slack; t.served {
		t.least += p.Target - reaches
	}
	for k, n := range t.at {
		t.least += t.by[k] * float64(n)
	}
	return t, nil
}

// devices are those of every kind.
func (p *Problem) devices() (n []int) {
	for k := range p.Kinds {
		n = append(n, p.Kinds[k].Devices)
	}
	return n
}

// scaleSteps is the number of halvings in the search for the least worth of pooled devices that reaches a target.
const scaleSteps = 8

// tangent bounds numbers of devices where the SLO is for all requests together: those that reach the target are worth
// at least its least. full are the most of each kind.
func (p *pooled) tangent(full []int) *tangent {
	t, slack, low, high := &tangent{at: p.devices(), by: slices.Clone(p.seconds)}, 0.0, 1.0, 0.0
	for n, price := range p.wires {
		each := float64(max(1, p.Blocks.Pools[n.kind].PerNode))
		t.by[n.kind] += price / each
		slack += price * (each - 1) / each
	}
	for k, n := range full {
		high += t.by[k] * float64(n)
	}
	if p.most(low) >= p.Target-reaches {
		return t // devices worth as much reach the target: these prices rule nothing out
	}
	for range scaleSteps {
		if mid := (low + high) / 2; p.most(mid) >= p.Target-reaches {
			high = mid
		} else {
			low = mid
		}
	}
	t.least = low - slack
	return t
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
	best    *Outcome // of the plans tried that hold
	failed  [][]int  // numbers on which none did
	floor   float64  // no price up to this is looked at
	missing error    // of the last that did not hold
	whole   bool     // no member runs in stages
}

// cheapest finds the devices of least price that hold target and SLO.
func (s *search) cheapest(ctx context.Context) (*Outcome, error) {
	c := &shop{search: s, tangents: map[string]*tangent{}, seeds: make([][]int, len(s.p.Edges))}
	smallest := math.Inf(1)
	for _, kind := range s.p.Kinds {
		c.price, c.full = append(c.price, kind.Price), append(c.full, kind.Devices)
		smallest = min(smallest, kind.Price)
	}
	w, err := s.waysOf(ctx, s.p)
	if err != nil || w.staged == nil {
		return nil, err
	}
	c.whole = len(w.chains) == 0
	if t, err := c.at(ctx, c.full); err != nil {
		return nil, err
	} else if !t.served {
		return s.once(ctx, s.p) // says which range is not
	} else if !c.reached(t) {
		return nil, s.p.short(t.value)
	}
	if err := c.earlyOnAll(ctx, w); err != nil {
		return nil, err
	}
	ends, err := c.byPrice(ctx, smallest)
	if early := s.orEarly(ctx, c.best); c.best == nil && early != nil {
		early.leaveOut(early.Problem)
		if err := c.take(ctx, early, c.full); err != nil {
			return nil, err
		}
	}
	out, err := kept(ctx, c.best, err)
	if err != nil {
		return nil, err
	}
	if out == nil {
		return nil, c.missing
	}
	out.ValueBound, out.Proved = min(ends.least, out.Value), out.Value <= ends.least*(1+1e-9)
	if out.TriedBound = 0; !c.p.Overall && c.whole {
		out.TriedBound = min(ends.tried, out.Value)
	}
	return out, nil
}

// prices are what bounds a price: no plan costs less than least, and none that trials accept
// less than tried.
type prices struct{ least, tried float64 }

// byPrice plans on numbers of devices by rising price, in steps of at least so much where
// many fail. It returns what bounds the price, once there is a plan.
func (c *shop) byPrice(ctx context.Context, smallest float64) (b prices, err error) {
	low, all := 0.0, true // low: the price that failed last; all: trials ruled out all before
	for step := smallest; c.best == nil || c.tried < pricesTried; {
		if c.tried >= risingTried {
			if c.floor = min(low+step, c.sum(c.full)*(1-1e-6)); c.best != nil { // all devices come last
				c.floor = (low + c.best.Value) / 2
			}
			step *= 2
		}
		next, err := c.next(ctx)
		if err != nil {
			return b, err
		}
		if next == nil || c.best != nil && c.sum(next) >= c.best.Value*(1-1e-9) {
			break
		}
		before := c.best
		if all = all && c.floor == 0; all {
			b.tried = c.sum(next)
		}
		ruledOut, failed, err := c.plan(ctx, next)
		if err != nil {
			return b, err
		}
		all = all && (ruledOut || failed)
		if c.best == before {
			low = c.sum(next)
		}
		if b.least == 0 && !ruledOut { // of rising prices the first that devices which never wait allow
			b.least = c.sum(next)
		}
	}
	return b, nil
}

// sum is what numbers of devices cost.
func (c *shop) sum(n []int) float64 {
	total := 0.0
	for k := range n {
		total += c.price[k] * float64(n[k])
	}
	return total
}

// plan plans on numbers of devices; those that nothing stands on are not paid for. It
// tells whether no placement reaches the target there, even if devices never wait, and
// whether none does in trials.
func (c *shop) plan(ctx context.Context, n []int) (ruledOut, tried bool, err error) {
	out, err := c.once(ctx, c.p.on(n))
	if inf, none := errors.AsType[*Infeasible](err); none {
		if c.missing, c.failed = err, append(c.failed, n); !inf.Fluid {
			c.tried++
		}
		return inf.Fluid, inf.Tried, nil
	}
	if err != nil {
		return false, false, err
	}
	c.tried++
	return false, false, c.take(ctx, out, n)
}

// take takes a plan on numbers of devices that is cheaper, without those that nothing stands on.
func (c *shop) take(ctx context.Context, out *Outcome, n []int) error {
	if used := out.compact(); !slices.Equal(used, n) {
		p, ctx := *out.Problem, context.WithoutCancel(ctx)
		p.Kinds = c.p.on(used).Kinds
		out.Problem = &p
		w, err := c.waysOf(ctx, &p)
		if err != nil {
			return err
		}
		bounds, total, _, err := c.boundsOf(ctx, &p, w)
		if err != nil {
			return err
		}
		out.bound(bounds, total)
		n = used
	}
	if out.Value = c.sum(n); c.best == nil || out.Value < c.best.Value {
		c.best = out
	}
	return nil
}

// earlyOnAll looks for an early plan on all devices.
func (c *shop) earlyOnAll(ctx context.Context, w *ways) error {
	if w.whole == nil || w.none != nil {
		return nil
	}
	top, _, err := w.whole.ranked(ctx, 1)
	if err != nil {
		return err
	}
	return c.findEarly(ctx, top[0])
}

// at is the relaxation on numbers of devices.
func (c *shop) at(ctx context.Context, n []int) (*tangent, error) {
	key := fmt.Sprint(n)
	if t := c.tangents[key]; t != nil {
		return t, nil
	}
	w, err := c.waysOf(ctx, c.p.on(n))
	if err != nil {
		return nil, err
	}
	x, err := c.boundOf(ctx, w.p, w)
	if err != nil {
		return nil, err
	}
	t, err := c.tangentOf(ctx, w, x)
	if err == nil {
		c.tangents[key], c.order = t, append(c.order, t)
	}
	return t, err
}

// tangentOf is the tangent of the ways on their numbers of devices, of a relaxation over a fleet.
func (c *shop) tangentOf(ctx context.Context, w *ways, x *fleet) (*tangent, error) {
	if !c.p.Overall {
		return x.tangent(ctx, c.seeds)
	}
	_, total, _, err := c.boundsOf(ctx, w.p, w)
	if err != nil {
		return nil, err
	}
	pool, err := w.p.pool(ctx, w.staged, x)
	if err != nil {
		return nil, err
	}
	t := pool.tangent(c.full)
	t.value, t.served = total, !math.IsNaN(total)
	return t, nil
}

// reached tells whether the relaxation reaches the target.
func (c *shop) reached(t *tangent) bool { return t.served && t.value >= c.p.Target-reaches }

// numbers is the program over numbers of devices, with their price: what is known rules
// out those at which the relaxation falls short of the target, or a plan did, and, as
// fewer devices never reach more, all that are nowhere above such.
func (c *shop) numbers() (m *milp.Model, n []milp.Var) {
	m = milp.New("devices")
	var price, some []milp.Term
	for k := range c.full {
		n = append(n, m.AddInt("", 0, float64(c.full[k]), c.price[k]))
		price, some = append(price, milp.Term{Var: n[k], Coef: c.price[k]}), append(some, milp.Term{Var: n[k], Coef: 1})
	}
	m.AddGE("", 1, some...)
	if c.floor > 0 {
		m.AddGE("", c.floor*(1+1e-9), price...)
	}
	above := func(at []int) {
		var more []milp.Term
		for k := range n {
			if at[k] < c.full[k] {
				z := m.AddBool("", 0)
				more = append(more, milp.Term{Var: z, Coef: 1})
				m.AddLE("", 0, milp.Term{Var: z, Coef: float64(at[k] + 1)}, milp.Term{Var: n[k], Coef: -1})
			}
		}
		m.AddGE("", 1, more...)
	}
	for _, at := range c.failed {
		above(at)
	}
	for _, t := range c.order {
		if c.reached(t) {
			continue
		}
		if missing := t.missing(); missing > 0 {
			var terms []milp.Term
			for k := range n {
				terms = append(terms, milp.Term{Var: n[k], Coef: t.by[k] / missing})
			}
			m.AddGE("", t.least/missing, terms...)
		}
		above(t.at)
	}
	return m, n
}

// next are the numbers of least price at which the relaxation reaches the target and that
// were not tried; nil: there are none.
func (c *shop) next(ctx context.Context) (n []int, err error) {
	for {
		m, n := c.numbers()
		sol, err := solve(ctx, c.solver, m, milp.Options{})
		if err != nil {
			return nil, fmt.Errorf("choosing devices: %w", err)
		}
		if sol.X == nil {
			return nil, nil
		}
		var got []int
		for k := range n {
			got = append(got, int(math.Round(sol.X[n[k]])))
		}
		if t, err := c.at(ctx, got); err != nil || c.reached(t) {
			return got, err
		}
	}
}
