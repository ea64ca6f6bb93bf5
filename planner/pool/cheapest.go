package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// Cheapest plans for the least price of the whole devices that carry every
// model's floor (MinRPS, above 0 for each): prices are per device of each pool.
// Value and Bound of the outcome are prices, and Bound is a lower one. At the
// price found, the plan of most throughput is taken.
//
// The steps are those of Solve with the sense turned: a linear program over all
// templates proves a least price and prices the models' rates; a plan that uses
// a template costs at least that template's loss more; integer programs over
// the basis, a small pool and the survivors give plans and raise the bound.
func Cheapest(ctx context.Context, p *Problem, prices []float64, s milp.Solver, o Options) (*Outcome, error) {
	o.Effort = max(o.Effort, 1)
	templates, err := p.list()
	if err != nil {
		return nil, err
	}
	c := &cheapest{
		search: &search{p: p, s: s, o: o, u: p.units(templates), templates: templates, out: &Outcome{Templates: len(templates)}},
		prices: prices, price: math.Inf(1),
	}
	for k := range p.Pools {
		c.unit += prices[k] * float64(p.Pools[k].Count)
	}
	c.whole = !slices.ContainsFunc(prices, func(v float64) bool { return v != math.Trunc(v) })
	if !(c.unit > 0) {
		return nil, errors.New("planning for the least price: no device has a price")
	}
	choices, unruled, err := c.relax(ctx)
	if errors.Is(err, errInfeasible) {
		return nil, c.nearest(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	if err := c.choose(ctx, choices, unruled); err != nil {
		return nil, err
	}
	if c.best == nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("planning ended before the first plan was found: %w", context.Cause(ctx))
		}
		return nil, c.nearest(ctx, false)
	}
	if err := c.most(ctx); err != nil {
		return nil, err
	}
	return c.finish(ctx)
}

// cheapest is a search for the least price. Prices are in units: parts of the
// price of all devices.
type cheapest struct {
	*search
	prices []float64
	unit   float64
	whole  bool    // all prices are whole numbers, and so is that of a plan
	lower  float64 // proven over the allowed templates
	beside float64 // proven over the other choices of the blocking rule
	price  float64 // of the best plan
}

// bound is the proven least price.
func (c *cheapest) bound() float64 {
	b := min(c.lower, c.beside, c.price)
	if c.whole {
		b = min(math.Ceil(b*c.unit-1e-6)/c.unit, c.price)
	}
	return b
}

// candidate is a choice of the blocking rule with its relaxation.
type candidate struct {
	rule    *blocking
	allowed []int
	lp      *relaxation
}

// maxCandidates bounds the choices of the blocking rule that integer programs
// are solved for.
const maxCandidates = 16

// relax solves the linear program for every choice that the blocking rule
// leaves: by rising price. unruled is the bound where some choices were left
// out, else +Inf.
func (c *cheapest) relax(ctx context.Context) (list []candidate, unruled float64, err error) {
	unruled = math.Inf(1)
	choices, exact := c.p.blockings(c.templates)
	if choices == nil {
		choices = []*blocking{nil}
	}
	for _, b := range choices {
		if b != nil && len(b.unserved(c.p, c.templates)) > 0 {
			continue
		}
		set := c.under(b)
		r, err := c.leastPrice(ctx, set)
		if errors.Is(err, errInfeasible) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		list = append(list, candidate{b, set, r})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.lp.value, b.lp.value) })
	if !exact {
		r, err := c.leastPrice(ctx, c.under(nil))
		if err != nil {
			return nil, 0, err
		}
		unruled = r.bound
	}
	if len(list) == 0 {
		return nil, 0, errInfeasible
	}
	return list, unruled, nil
}

// choose plans under each choice that may still be cheaper than the best plan.
func (c *cheapest) choose(ctx context.Context, list []candidate, unruled float64) error {
	rest := make([]float64, len(list)+1) // least bound of the choices from here on
	rest[len(list)] = math.Inf(1)
	for i := len(list) - 1; i >= 0; i-- {
		rest[i] = min(rest[i+1], list[i].lp.bound)
	}
	var best candidate
	proven := unruled
	for i := range list {
		c.lp, c.allowed, c.rule = list[i].lp, list[i].allowed, list[i].rule
		c.lower, c.beside = c.lp.bound, min(proven, rest[i+1])
		if c.best != nil && (i >= maxCandidates*c.o.Effort || c.lower >= c.price*(1-proof) || ctx.Err() != nil) {
			c.beside = min(proven, rest[i])
			break
		}
		c.weigh()
		c.phase("relaxation", len(c.allowed), milp.Stats{})
		before := c.best
		if err := c.plan(ctx); err != nil {
			return err
		}
		if c.best != before {
			best = list[i]
		}
		proven = min(proven, c.lower)
		c.beside = min(proven, rest[i+1])
		if c.best != nil && c.done(ctx) {
			break
		}
	}
	// What follows works on the choice of the best plan.
	c.lower = math.Inf(1)
	c.done(ctx)
	if c.best == nil {
		return nil
	}
	c.lp, c.allowed, c.rule = best.lp, best.allowed, best.rule
	c.weigh()
	if c.rule != nil {
		for d, e := range c.rule.exempt {
			if e {
				c.out.Exempt = append(c.out.Exempt, d)
			}
		}
	}
	return nil
}

// leastPrice solves the linear program over a set of templates: the least price
// of the parts of devices that carry the floors.
func (c *cheapest) leastPrice(ctx context.Context, set []int) (*relaxation, error) {
	p := c.p
	m := milp.New("least price")
	floors := make([]milp.Row, len(p.Models))
	for d := range p.Models {
		floors[d] = m.AddGE("floor "+p.Models[d].Name, p.Models[d].MinRPS/c.u.rps[d])
	}
	pools := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		pools[k] = m.AddLE("devices "+p.Pools[k].Kind, 1)
	}
	x := make([]milp.Var, len(set))
	for i, ti := range set {
		t := &c.templates[ti]
		entries := []milp.Entry{{Row: floors[t.Model], Coef: 1}}
		obj := 0.0
		for k := range p.Pools {
			if v := t.use(k); v > 0 {
				v *= c.u.rps[t.Model]
				entries = append(entries, milp.Entry{Row: pools[k], Coef: v / float64(p.Pools[k].Count)})
				obj += v * c.prices[k] / c.unit
			}
		}
		x[i] = m.AddColumn("", 0, milp.Inf, obj, entries...)
	}
	sol, err := c.s.Solve(ctx, m, milp.Options{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("solving for the least price over %d pipelines: %w", len(set), err)
	case sol.Status == milp.Infeasible:
		return nil, errInfeasible
	case sol.Status != milp.Optimal && ctx.Err() != nil:
		return nil, fmt.Errorf("solving for the least price: %w", context.Cause(ctx))
	case sol.Status != milp.Optimal:
		return nil, fmt.Errorf("solving for the least price: the solver ended with %s", sol.Status)
	}
	r := &relaxation{value: sol.Value, price: make([]float64, len(p.Pools)), worth: make([]float64, len(p.Models))}
	for i, ti := range set {
		if v := sol.At(x[i]); v > 1e-9 {
			r.used, r.rate = append(r.used, ti), append(r.rate, v)
		}
	}
	// By weak duality, whatever the solver's tolerances: with scarcities >= 0 of
	// the pools and no rate worth more than its devices cost,
	// price >= sum worth * floor - sum scarcity.
	for k := range p.Pools {
		scarcity := math.Abs(sol.RowDuals[pools[k]])
		r.price[k] = c.prices[k]*float64(p.Pools[k].Count)/c.unit + scarcity
		r.bound -= scarcity
	}
	for d := range p.Models {
		r.worth[d] = math.Abs(sol.RowDuals[floors[d]])
	}
	for _, ti := range set {
		t := &c.templates[ti]
		r.worth[t.Model] = min(r.worth[t.Model], p.cost(c.u, t, r.price))
	}
	for d := range p.Models {
		r.bound += r.worth[d] * p.Models[d].MinRPS / c.u.rps[d]
	}
	r.bound = max(r.bound, 0)
	return r, nil
}

func (c *cheapest) phase(name string, n int, st milp.Stats) {
	ph := Phase{Name: name, Pipelines: n, Nodes: st.Nodes, Iterations: st.Iterations, Bound: c.bound() * c.unit}
	if c.best != nil {
		ph.Value = c.price * c.unit
	}
	c.out.Phases = append(c.out.Phases, ph)
	if c.o.Progress != nil {
		pr := Progress{Phase: name, Value: math.NaN(), Bound: ph.Bound, Detail: fmt.Sprintf("%d pipelines", n)}
		if c.best != nil {
			pr.Value = ph.Value
		}
		c.o.Progress(pr)
	}
}

// plan runs the integer programs of one choice until the gap closes or the work is done.
func (c *cheapest) plan(ctx context.Context) error {
	basis := slices.Clone(c.lp.used)
	if _, err := c.integer(ctx, "basis", basis, basisNodes); err != nil || c.done(ctx) {
		return err
	}
	ranked := c.ranked()
	small := c.pick(ranked, basis, poolPerModel)
	solved, err := c.integer(ctx, "pool", small, poolNodes)
	if err != nil || c.done(ctx) {
		return err
	}
	var survivors []int
	for _, i := range ranked {
		if c.lp.bound+c.loss[i] < c.price {
			survivors = append(survivors, i)
		}
	}
	if solved && subset(survivors, small) {
		return nil
	}
	if len(survivors) > maxSurvivors*c.o.Effort {
		survivors = c.pick(ranked, basis, widePerModel*c.o.Effort)
	}
	if _, err := c.integer(ctx, "survivors", survivors, survivorNodes); err != nil {
		return err
	}
	c.done(ctx)
	return nil
}

// done tells whether to stop, and notes why.
func (c *cheapest) done(ctx context.Context) bool {
	gap := math.Inf(1)
	if c.best != nil && c.price > 0 {
		gap = (c.price - c.bound()) / c.price
	}
	switch {
	case gap <= proof:
		c.stopped = milp.StoppedByProof
	case gap <= c.o.Gap:
		c.stopped = milp.StoppedByGap
	case ctx.Err() != nil:
		c.stopped = milp.StoppedByInterrupt
	default:
		c.stopped = milp.StoppedByWork
		return false
	}
	return true
}

// integer solves the program over a set of templates, keeps a cheaper plan, and
// raises the bound by what the program proves.
func (c *cheapest) integer(ctx context.Context, name string, set []int, nodes int64) (solved bool, err error) {
	set = slices.Clone(set)
	started := c.best != nil
	if started {
		// A plan under another choice is no start where it breaks this one.
		for _, n := range c.best.list {
			started = started && !math.IsInf(c.loss[n.template], 1)
		}
	}
	if started {
		for _, n := range c.best.list {
			set = append(set, n.template)
		}
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := c.p.mip(c.u, c.templates, set, 0, 0)
	q.m.SetSense(milp.Minimize)
	q.m.SetObj(q.theta, 0)
	// Whole devices that stay idle are not paid for.
	q.m.SetOffset(1)
	idle := make([]milp.Var, len(c.p.Pools))
	for k := range c.p.Pools {
		idle[k] = -1
		if n := c.p.Pools[k].Count; n > 0 {
			idle[k] = q.m.AddInt("idle "+c.p.Pools[k].Kind, 0, float64(n), -c.prices[k]/c.unit)
			q.m.AddTerm(q.pools[k], idle[k], 1)
		}
	}
	o := milp.Options{
		Gap:             max(c.o.Gap/2, proof),
		MaxNodes:        nodes * int64(c.o.Effort),
		MaxIterations:   min(nodes*iterationsPer, columnsWork/int64(q.m.NumVars())) * int64(c.o.Effort),
		Seed:            c.o.Seed,
		HeuristicEffort: heuristicEffort,
	}
	if started {
		if o.Start = q.start(c.u, c.best); o.Start != nil {
			o.Start[q.theta] = 0
			for k, n := range c.p.wholePools(c.templates, c.best) {
				if idle[k] >= 0 {
					o.Start[idle[k]] = float64(c.p.Pools[k].Count - n)
				}
			}
		}
	}
	sol, err := c.s.Solve(ctx, q.m, o)
	if err != nil {
		return false, fmt.Errorf("solving for the least price over %d pipelines: %w", len(set), err)
	}
	if sol.Feasible() {
		if plan := q.read(c.p, c.u, c.templates, sol); plan != nil {
			if price := c.priceOf(plan); price < c.price {
				c.best, c.price = plan, price
			}
		}
	}
	proven := math.Inf(-1)
	switch sol.Status {
	case milp.Optimal, milp.Gap:
		proven, solved = sol.Bound, true
	case milp.Infeasible:
		proven, solved = math.Inf(1), true
	default:
		if !math.IsNaN(sol.Bound) {
			proven = sol.Bound
		}
	}
	outside := math.Inf(1)
	for _, i := range c.allowed {
		if _, ok := slices.BinarySearch(set, i); !ok {
			outside = min(outside, c.loss[i])
		}
	}
	c.lower = min(max(c.lower, min(proven, c.lp.bound+outside)), c.price)
	c.phase(name, len(set), sol.Stats)
	return solved, nil
}

// wholePools counts the whole devices that a plan takes of every pool.
func (p *Problem) wholePools(templates []Template, plan *counts) []int {
	parts := make([]float64, len(p.Pools)) // of pools whose stages share freely
	slots := map[slotKey]float64{}
	for _, c := range plan.list {
		for si, s := range templates[c.template].Stages {
			switch {
			case p.Pools[s.Pool].Time:
				parts[s.Pool] += c.rps / s.Rate
			case p.Rounding == Fractional:
				parts[s.Pool] += float64(c.replicas[si]) / float64(s.Share)
			default:
				slots[slotKey{c.model, si, s.Pool}] += float64(c.replicas[si]) / float64(s.Share)
			}
		}
	}
	out := make([]int, len(p.Pools))
	for k, v := range parts {
		out[k] = int(math.Ceil(v*(1-1e-9) - 1e-9))
	}
	for key, v := range slots {
		out[key.pool] += int(math.Ceil(v - 1e-9))
	}
	return out
}

// priceOf is the price of a plan's devices, in units.
func (c *cheapest) priceOf(plan *counts) float64 {
	sum := 0.0
	for k, n := range c.p.wholePools(c.templates, plan) {
		sum += c.prices[k] * float64(n)
	}
	return sum / c.unit
}

// within is the problem on the devices that a plan pays for.
func (c *cheapest) within(plan *counts) *Problem {
	q := *c.p
	q.Pools = slices.Clone(c.p.Pools)
	for k, n := range c.p.wholePools(c.templates, plan) {
		q.Pools[k].Count = n
	}
	return &q
}

// most looks, on the devices paid for, for the plan of most throughput.
func (c *cheapest) most(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	p := c.within(c.best)
	var set []int
	for _, i := range c.pick(c.ranked(), c.lp.used, poolPerModel) {
		if !slices.ContainsFunc(c.templates[i].Stages, func(s Stage) bool { return p.Pools[s.Pool].Count == 0 }) {
			set = append(set, i)
		}
	}
	for _, n := range c.best.list {
		set = append(set, n.template)
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := p.mip(c.u, c.templates, set, 1e6, 0)
	sol, err := c.s.Solve(ctx, q.m, milp.Options{
		Gap: 1e-3, MaxNodes: sumNodes * int64(c.o.Effort), MaxIterations: sumNodes * iterationsPer * int64(c.o.Effort),
		Seed: c.o.Seed, Start: q.start(c.u, c.best),
	})
	if err != nil {
		return fmt.Errorf("solving for the most throughput at the least price: %w", err)
	}
	if sol.Feasible() {
		if plan := q.read(p, c.u, c.templates, sol); plan != nil && plan.value > c.best.value && c.priceOf(plan) <= c.price {
			c.best = plan
		}
	}
	c.phase("most throughput", len(set), sol.Stats)
	return nil
}

// finish places the plan and writes the outcome. Time-shared pools are cut to
// the devices paid for, exclusive ones only where whole devices pack.
func (c *cheapest) finish(ctx context.Context) (*Outcome, error) {
	paid := c.within(c.best)
	p := *c.p
	p.Pools = slices.Clone(c.p.Pools)
	for k := range p.Pools {
		if p.Pools[k].Time {
			p.Pools[k].Count = paid.Pools[k].Count
		}
	}
	plan, where, warnings := p.place(c.templates, c.best)
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: %d pipelines do not fit their devices one by one", len(c.best.list))
	}
	o := c.out
	o.Warnings = append(o.Warnings, warnings...)
	o.RPS = plan.rps
	o.Pipelines = p.pipelines(c.templates, plan, where)
	used := make([]int, len(p.Pools))
	for i := range o.Pipelines {
		for si, s := range o.Pipelines[i].Stages {
			for _, r := range o.Pipelines[i].Placed[si] {
				used[s.Pool] = max(used[s.Pool], r.First+(r.Replicas+r.PerDevice-1)/r.PerDevice)
			}
		}
	}
	for k, n := range used {
		o.Value += c.prices[k] * float64(n)
	}
	o.Bound = min(c.bound()*c.unit, o.Value)
	o.StoppedBy = c.stopped
	if c.stopped == milp.StoppedByProof && o.Value > o.Bound*(1+10*proof) {
		o.StoppedBy = milp.StoppedByWork // shares needed one more device than their sum
	}
	if ctx.Err() != nil {
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}

// nearest explains why the floors cannot be carried, and the largest part of
// them that a plan of whole devices was found for.
func (c *cheapest) nearest(ctx context.Context, relaxed bool) error {
	free := *c.p
	free.Models = slices.Clone(c.p.Models)
	for d := range free.Models {
		free.Models[d].MinRPS = 0
	}
	x, err := newSearch(ctx, &free, c.s, Options{Gap: c.o.Gap, Effort: c.o.Effort, Seed: c.o.Seed})
	if err != nil {
		return err
	}
	x.p = c.p
	if !relaxed {
		return x.tooFewDevices(ctx)
	}
	err = x.floorsTooHigh(ctx)
	var inf *Infeasible
	if errors.As(err, &inf) {
		if load := x.wholeFactor(ctx, &free); load > 0 {
			inf.Load = load
		}
	}
	return err
}
