package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// The devices of the least price. The optimum of the relaxation grows with the number of devices of every kind and
// is concave in it, so its duals at one choice of counts bound it at all others. A small program over the counts
// gets these bounds as rows when they are violated, and ends at the least price at which the relaxation reaches
// the target (Benders decomposition). If the SLO is over all requests, the row says that the pooled devices must
// be worth what the target needs at least.
//
// From that price upwards plans are made for counts by rising price. Counts that nowhere exceed failed ones are
// left out. So the first plan is the cheapest. If many fail, the price rises in steps that double, and is then
// bisected.

// steppedAfter is the number of plans after which the price rises in steps, and maxPlansTried that of all plans.
// targetTolerance is the distance below the target at which a relaxation still counts as reaching it, because
// programs are only solved to that precision.
const (
	risingTried = 24
	pricesTried = 36
	reaches     = 1e-7
)

// deviceCut bounds the relaxation from above, by numbers of devices:
//
//	value(n) ≤ value + Σ_k gainPerDevice(k) · (n(k) - devices(k))
type tangent struct {
	at     []int     // by kind: counts at which it was computed
	value  float64   // of the relaxation at these counts; if a range is not served, minus the unserved share
	by     []float64 // by kind: value of one more device at most
	least  float64   // the target is reached only if Σ_k gainPerDevice(k) · n(k) is at least this
	served bool      // whether the relaxation serves all ranges
}

// shortfall returns by how much the counts of the cut miss requiredGain.
func (t *tangent) missing() float64 {
	missing := t.least
	for k, n := range t.at {
		missing -= t.by[k] * float64(n)
	}
	return missing
}

// deviceCut solves the relaxation of all ranges at the problem's counts and returns the cut. startCascades, by
// range, are the cascades to start from, and are set to those used.
func (x *fleet) tangent(ctx context.Context, seeds [][]int) (*tangent, error) {
	p := x.p
	t := &tangent{at: p.devices(), by: make([]float64, len(p.Kinds)), served: true}
	slack := 0.0 // by which the cut may be too low, because one NIC serves several devices

	// addDuals adds the value and the duals of a range.
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

	// Solve range by range. If one cannot be served, the cut is that of its unserved share.
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

	// What the counts must add up to.
	if t.least = -t.value - slack; t.served {
		t.least += p.Target - reaches
	}
	for k, n := range t.at {
		t.least += t.by[k] * float64(n)
	}
	return t, nil
}

// deviceCounts returns the number of devices of every kind.
func (p *Problem) devices() (n []int) {
	for k := range p.Kinds {
		n = append(n, p.Kinds[k].Devices)
	}
	return n
}

// scaleHalvings is the number of halvings in the search for the least worth of pooled devices that reaches a
// target.
const scaleSteps = 8

// deviceCut returns the cut for an SLO over all requests: counts that reach the target are worth at least
// requiredGain at the prices of pooled devices. available has the most devices of each kind.
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
		return t // fewer devices reach the target at these prices, so the cut rules nothing out
	}

	// Bisect the factor on the devices at which the bound reaches the target.
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

// deviceSearch searches for the cheapest numbers of devices.
type shop struct {
	*search
	price    []float64           // by kind
	full     []int               // by kind: number of devices in the cluster
	seeds    [][]int             // by range: cascades that relaxations used
	tangents map[string]*tangent // by counts
	order    []*tangent          // in the order in which they were computed

	tried   int      // plans that were simulated
	best    *Outcome // cheapest plan so far
	failed  [][]int  // counts without a plan
	floor   float64  // only higher prices are tried
	missing error    // why the last counts have no plan
	whole   bool     // no member runs in stages
}

// planCheapest returns a plan on the devices of least price that keeps target and SLO.
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

	// All devices together must reach the target.
	if t, err := c.at(ctx, c.full); err != nil {
		return nil, err
	} else if !t.served {
		return s.once(ctx, s.p) // fails, and names the range
	} else if !c.reached(t) {
		return nil, s.p.short(t.value)
	}

	// Search by rising price, with an early plan in case of an interrupt.
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

	// Set the bounds.
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

// priceBounds are lower bounds of the price: of all plans, and of those that pass trials.
type prices struct{ least, tried float64 }

// planByPrice plans on counts by rising price until there is a plan that no cheaper counts can beat. If many fail,
// the price rises in steps. smallest is the price of the cheapest device, and the first step.
func (c *shop) byPrice(ctx context.Context, smallest float64) (b prices, err error) {
	low, all := 0.0, true // failedPrice failed last; allRuledOut: trials ruled out every plan so far
	for step := smallest; c.best == nil || c.tried < pricesTried; {
		// After many plans raise the least price: in doubling steps or, with a plan, by bisection.
		if c.tried >= risingTried {
			if c.floor = min(low+step, c.sum(c.full)*(1-1e-6)); c.best != nil { // the price of all devices is always tried
				c.floor = (low + c.best.Value) / 2
			}
			step *= 2
		}

		// Plan on the next counts.
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
		if b.least == 0 && !ruledOut { // the first price that the relaxation does not rule out
			b.least = c.sum(next)
		}
	}
	return b, nil
}

// priceOf returns the price of numbers of devices.
func (c *shop) sum(n []int) float64 {
	total := 0.0
	for k := range n {
		total += c.price[k] * float64(n[k])
	}
	return total
}

// planOn plans on numbers of devices. It returns whether the relaxation rules out that any placement there reaches
// the target, and whether trials do.
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

// keepIfCheaper keeps a plan if it is the cheapest so far. Devices that hold nothing are removed first.
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

// findEarlyOnAll looks for an early plan on all devices.
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

// cutAt returns the cut at numbers of devices. Each is computed once.
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

// solveCut computes the cut at the inputs' numbers of devices, with a space for bounds.
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

// reachesTarget reports whether the relaxation reaches the target at the counts of a cut.
func (c *shop) reached(t *tangent) bool { return t.served && t.value >= c.p.Target-reaches }

// countProgram returns the program over numbers of devices that minimises their price. Its rows rule out counts at
// which the relaxation misses the target or a plan failed. Fewer devices never reach more, so all counts that
// nowhere exceed such counts are ruled out, too.
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

	// addAbove requires that the count of some kind exceeds the given one.
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

	// Counts without a plan, and cuts.
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

// nextCounts returns the counts of least price that were not tried and at which the relaxation reaches the target.
// If there are none, it returns nil.
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
