package pool

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Column generation: the linear program over all templates, of which only some are in the
// program. It is solved, its duals price the templates in the models' sieves, those that take
// less than they are worth join, until there are none. So the last round proves that none is
// left out.

// enumerable is the most stage sequences whose templates are all in the linear program.
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

// limitBlocks leaves models fewer places to cut at, those that the fewest bytes cross, where
// the problem has more than siftable stage sequences: as many as it may have. It returns how many
// blocks a model counts as; 0: as it has.
func (p *Problem) limitBlocks() int {
	if p.sequences() <= siftable {
		return 0
	}
	with := func(n int) *Problem {
		q := *p
		q.Models = slices.Clone(p.Models)
		q.PrePartition(n, stages.ByBytes)
		return &q
	}
	most := 0
	for d := range p.Models {
		most = max(most, p.Models[d].NumBlocks())
	}
	n := max(sort.Search(most, func(n int) bool { return with(n+1).sequences() > siftable }), 1)
	p.Models = with(n).Models
	return n
}

// generates says whether the templates are too many for one program. On time-shared
// pools all are in it: the rule for blocking needs them.
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
	s      milp.Solver
	prices []float64 // per pool, of all its devices; nil where throughput is looked for
	sieves []*sieve  // per model
	have   map[string]bool
	rounds int
}

// generate returns templates that hold an optimum of the linear program over
// all templates, with that program's solution and proven bound, and others of
// little loss besides. extra are templates to have in any case.
func (p *Problem) generate(ctx context.Context, s milp.Solver, prices []float64, extra []stages.Template) (*columns, *relaxation, error) {
	c := &columns{catalogue: &catalogue{Problem: p, partial: true}, s: s, prices: prices, have: map[string]bool{}}
	for d := range p.Models {
		if err := c.begin(d); err != nil {
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
	if p.many() {
		return c, r, nil // bundles take what they need from the sieves
	}
	if err := c.enrich(r); err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// begin puts all templates of a model into a sieve, and of each batch size into the program the
// one that is cheapest where all devices of a pool cost the same.
func (c *columns) begin(d int) error {
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
				if least[d], err = c.price(d, w.price, w.worth[d]*(1-paying)); err != nil {
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

// price adds, of each batch size of a model, the template that costs least, where that is below a
// limit. It returns what all of the model's templates cost at least.
func (c *columns) price(d int, price []float64, limit float64) (float64, error) {
	return c.sift(d, c.perDevice(d, price), limit)
}

// perDevice returns what a device of each pool costs for a unit of a model's rate, at prices of all
// devices of each pool.
func (c *columns) perDevice(d int, price []float64) []float64 {
	out := make([]float64, len(price))
	for k := range price {
		out[k] = price[k] * c.u.rps[d] / float64(max(c.Pools[k].Count, 1))
	}
	return out
}

// nearlyPaying is how many templates of each model join for integer programs, those that cost least
// at the prices of the optimum.
const nearlyPaying = 2000

// enrich adds templates of little loss.
func (c *columns) enrich(r *relaxation) error {
	for d := range c.Models {
		for _, i := range c.sieves[d].least(c.perDevice(d, r.price), nearlyPaying) {
			t, err := c.sieves[d].template(c.Problem, i)
			if err != nil {
				return err
			}
			c.add(t)
		}
	}
	return nil
}
