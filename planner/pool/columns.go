package pool

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Column generation: the linear program over all templates, without listing
// them. A program over some is solved, its duals price the models' templates,
// those that take less than they are worth join, until there are none. The
// search for one that pays is by relaxation first; the exact search runs only
// where that finds none, and so the last round proves that none is left out.

// columnSteps bounds the steps of one exact search; where it is not enough the
// relaxation's bound stands in, and the bound of the program is a little loose.
const columnSteps = 400_000_000

// enumerable is how many stage sequences are listed one by one at most.
const enumerable = 1_000_000

// largeCluster is the number of devices from which on whole replicas lose so
// little that listing every template, which serves the proof, is not worth a
// tenth as many. Nor is it with many models, where bundles prove as much.
const largeCluster = 5000

// sequences estimates the number of templates before the SLO is looked at.
func (p *Problem) sequences() float64 {
	total := 0.0
	for d := range p.Models {
		m := &p.Models[d]
		for _, b := range m.BatchSizes() {
			options := 0.0
			for k := range m.Costs {
				for v := range m.Costs[k] {
					if p.Pools[k].Count > 0 && v < p.Pools[k].MaxShares && m.Costs[k][v].At(b) != nil {
						options++
					}
				}
			}
			n, ways := 1.0, options // blocks that cuts can lie between
			for _, c := range m.CutBytes {
				if c >= 0 {
					n++
				}
			}
			for s := 1; s <= p.MaxPartitions && ways > 0; s++ {
				total += ways
				ways *= options * max(n-float64(s), 0) / float64(s)
			}
		}
	}
	return total
}

// generates tells whether the templates are too many to list. On time-shared
// pools they are listed all the same: the rule for blocking needs them.
func (p *Problem) generates() bool {
	most := float64(enumerable)
	if p.devices() >= largeCluster || p.many() {
		most /= 10
	}
	return p.sequences() > most && !p.timed()
}

// columns is a column generation under way.
type columns struct {
	*catalogue
	s       milp.Solver
	prices  []float64   // per pool, of all its devices; nil where throughput is looked for
	pricers [][]*pricer // per model and batch size; nil where there are sieves
	sieves  []*sieve    // per model
	have    map[string]bool
	rounds  int
}

// generate returns templates that hold an optimum of the linear program over
// all templates, with that program's solution and proven bound, and others of
// little loss besides. extra are templates to have in any case.
func (p *Problem) generate(ctx context.Context, s milp.Solver, prices []float64, extra []stages.Template) (*columns, *relaxation, error) {
	c := &columns{catalogue: &catalogue{Problem: p, partial: true}, s: s, prices: prices, have: map[string]bool{}}
	sifted := sifts(p)
	for d := range p.Models {
		begin := c.begin
		if sifted {
			begin = c.beginSieve
		}
		if err := begin(d); err != nil {
			return nil, nil, err
		}
	}
	for i := range extra {
		c.add(&extra[i])
	}
	c.setUnits()
	r, err := c.solve(ctx)
	if err != nil {
		return c, nil, err
	}
	if sifted {
		return c, r, nil // bundles take what they need from the sieves
	}
	if err := c.enrich(ctx, r); err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// begin makes the pricers of a model, and its first templates: the cheapest where
// all devices of a pool cost the same.
func (c *columns) begin(d int) error {
	perDevice := make([]float64, len(c.Pools))
	for k := range c.Pools {
		perDevice[k] = 1 / float64(max(c.Pools[k].Count, 1))
	}
	var list []*pricer
	found := false
	for _, b := range c.Models[d].BatchSizes() {
		q := c.pricer(d, b)
		if q == nil {
			continue
		}
		list = append(list, q)
		q.set(perDevice)
		if t, _ := q.relaxed(); t != nil {
			found = true
			c.add(t)
		}
	}
	// Where the relaxation met none within the limits, the exact search tells.
	for i := 0; i < len(list) && !found; i++ {
		if t, _ := list[i].exact(math.Inf(1), columnSteps); t != nil {
			found = true
			c.add(t)
		}
	}
	c.pricers = append(c.pricers, list)
	if found {
		return nil
	}
	_, tooBig, err := c.enumerate(d)
	if err != nil {
		tooBig = 0
	}
	return c.noPipeline(d, tooBig)
}

// beginSieve is begin where all templates of the model go into a sieve.
func (c *columns) beginSieve(d int) error {
	s, tooBig, err := sieveOf(c.Problem, d)
	if err != nil {
		return err
	}
	if s.len() == 0 {
		return c.noPipeline(d, tooBig)
	}
	c.sieves = append(c.sieves, s)
	perDevice := make([]float64, len(c.Pools))
	for k := range c.Pools {
		perDevice[k] = 1 / float64(max(c.Pools[k].Count, 1))
	}
	_, err = c.sift(d, perDevice, math.Inf(1))
	return err
}

// sift adds, of each batch size of a model, the template that takes least, where that
// is below a limit. It returns what all of the model's templates take at least.
func (c *columns) sift(d int, perDevice []float64, limit float64) (least float64, err error) {
	least = math.Inf(1)
	list, cost := c.sieves[d].cheapest(perDevice)
	for i, v := range cost {
		if least = min(least, v); v < limit {
			t, err := c.sieves[d].template(c.Problem, list[i])
			if err != nil {
				return 0, err
			}
			c.add(t)
		}
	}
	return least, nil
}

// add keeps a template that is new.
func (c *columns) add(t *stages.Template) bool {
	k := t.Key()
	if c.have[k] {
		return false
	}
	c.have[k] = true
	c.templates = append(c.templates, *t)
	return true
}

// shortfall is what a unit of a floor that is not reached costs the program.
const shortfall = 1000

// solve adds columns until none pays.
func (c *columns) solve(ctx context.Context) (*relaxation, error) {
	l := c.master(c.prices, all(len(c.templates)), -1, true)
	var short []milp.Var
	for d := range c.Models {
		if l.floors[d] >= 0 {
			worse := -float64(shortfall)
			if c.prices != nil {
				worse = shortfall
			}
			short = append(short, l.m.AddColumn("", 0, milp.Inf, worse, milp.Entry{Row: l.floors[d], Coef: 1}))
		}
	}
	var basis *milp.Basis
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("generating pipelines: %w", context.Cause(ctx))
		}
		c.rounds++
		sol, err := c.s.Solve(ctx, l.m, milp.Options{Basis: basis})
		if err != nil {
			return nil, fmt.Errorf("solving the relaxation over %d pipelines: %w", len(c.templates), err)
		}
		if sol.Status != milp.Optimal {
			return nil, fmt.Errorf("solving the relaxation: the solver ended with %s", sol.Status)
		}
		basis = sol.Basis
		w := l.weights(sol.RowDuals)
		before := len(c.templates)
		least := make([]float64, len(c.Models))
		if w.scaled || c.prices != nil {
			for d := range c.Models {
				if least[d], err = c.price(ctx, d, w.price, w.worth[d], false); err != nil {
					return nil, err
				}
			}
		}
		if len(c.templates) > before {
			for i := before; i < len(c.templates); i++ {
				l.add(&c.templates[i])
			}
			continue
		}
		for _, v := range short {
			if sol.At(v) > 1e-7 {
				return nil, errInfeasible
			}
		}
		r := l.relaxation(sol, all(len(c.templates)))
		l.prove(w, least, r)
		return r, nil
	}
}

// paying is how much less than its worth a template must cost to join.
const paying = 1e-9

// price adds the templates of a model that cost less than they are worth, and
// returns what all of its templates cost at least: exact where none was added.
// With only the relaxation asked for, it adds what that finds.
func (c *columns) price(ctx context.Context, d int, price []float64, worth float64, relaxed bool) (float64, error) {
	perDevice := make([]float64, len(price))
	for k := range price {
		perDevice[k] = price[k] * c.u.rps[d] / float64(max(c.Pools[k].Count, 1))
	}
	limit := worth * (1 - paying)
	if c.sieves != nil {
		return c.sift(d, perDevice, limit)
	}
	least := math.Inf(1)
	added := false
	for _, q := range c.pricers[d] {
		q.set(perDevice)
		t, cost := q.relaxed()
		if t != nil && (cost < limit || relaxed) {
			added = c.add(t) || added
		}
		least = min(least, q.least())
	}
	if added || relaxed || least >= limit {
		return least, nil
	}
	least = limit
	for _, q := range c.pricers[d] {
		if q.least() >= limit {
			continue
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("generating pipelines: %w", context.Cause(ctx))
		}
		t, ok := q.exact(limit, columnSteps)
		if !ok {
			least = min(least, q.least())
		}
		if t != nil {
			c.add(t)
		}
	}
	return least, nil
}

// Variations around the optimum, for integer programs.
const (
	perturbations = 6
	perturbation  = 0.25
)

// enrich adds templates of little loss: what pays at prices a little off the
// optimal ones, and the stages of the optimum at other shares, which waste less
// of a device where little of it is needed.
func (c *columns) enrich(ctx context.Context, r *relaxation) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range perturbations {
		price := slices.Clone(r.price)
		for k := range price {
			price[k] *= 1 + perturbation*(2*rnd.Float64()-1)
		}
		for d := range c.Models {
			if ctx.Err() != nil {
				return fmt.Errorf("generating pipelines: %w", context.Cause(ctx))
			}
			if _, err := c.price(ctx, d, price, r.worth[d], true); err != nil {
				return err
			}
		}
	}
	for _, i := range r.used {
		t := c.templates[i]
		for _, q := range c.pricers[t.Model] {
			if q.Batch != t.Batch {
				continue
			}
			path := slices.Clone(t.Stages)
			var vary func(s int)
			vary = func(s int) {
				if s == len(path) {
					if t := q.template(path); t != nil {
						c.add(t)
					}
					return
				}
				for _, a := range q.arcs {
					if a.Pool == t.Stages[s].Pool {
						path[s].Share = a.Share
						vary(s + 1)
					}
				}
			}
			vary(0)
		}
	}
	return nil
}
