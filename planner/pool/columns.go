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

// Column generation solves the linear program over all templates with only some of them in the program. The
// duals of each solution price every template of the models' tables. Templates that cost less than their rate is
// worth join the program, until there are none. So the last round proves that no template outside the program
// would improve it.

// maxEnumerated is the largest number of stage sequences for which all templates enter one linear program.
const enumerable = 1_000_000

// largeCluster is the number of devices from which on rounding to whole replicas loses so little that the proof
// over all templates is not worth listing them, unless they are ten times fewer. With many models the same
// holds, because bundles prove as much.
const largeCluster = 5000

// countSequences estimates the number of templates, without regard to the SLO.
func (p *Problem) sequences() float64 {
	total := 0.0
	for d := range p.Models {
		m := &p.Models[d]
		for _, b := range m.BatchSizes() {
			// The kinds and shares that a stage may run on at this batch size.
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

			// With s stages: choose s-1 cuts, and a kind and share for each stage.
			for s := 1; s <= p.MaxPartitions && ways > 0; s++ {
				total += ways
				ways *= options * max(n-float64(s), 0) / float64(s)
			}
		}
	}
	return total
}

// limitBlocks lets models with too many stage sequences be cut at fewer places, those that the fewest bytes
// cross, so that the problem has at most maxSequences of them. It returns the number of blocks that a model then
// counts as. If nothing is limited, it returns 0.
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

// needsColumns reports whether the templates are too many for one program. With a time-shared pool all of them
// enter one program, because the wait bounds need them.
func (p *Problem) generates() bool {
	most := float64(enumerable)
	if p.devices() >= largeCluster || p.many() {
		most /= 10
	}
	return p.sequences() > most && !p.timed()
}

// columnGeneration is the state of the column generation of one problem.
type columns struct {
	*catalogue
	s      milp.Solver
	prices []float64       // by pool: cost of all its devices; nil if throughput is maximised
	sieves []*sieve        // by model
	have   map[string]bool // keys of the templates in the program
	rounds int
}

// generateColumns returns templates that hold an optimum of the linear program over all templates, and that
// program's solution with its proven bound. For integer programs it adds other templates of little loss. extra
// holds templates to include in any case.
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
		return c, r, nil // bundles take the templates that they need from the tables
	}
	if err := c.enrich(r); err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// addModel builds the table of a model's templates. Of each batch size it adds to the program the template that
// is cheapest if all devices of a pool together cost the same.
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

// addCheapest adds, of each batch size of model d, the template that costs least at the given prices of a
// device, if that is below a limit. It returns the least cost of any of the model's templates.
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

// addTemplate adds a template to the program and reports whether it is new.
func (c *columns) add(t *stages.Template) bool {
	k := t.Key()
	if c.have[k] {
		return false
	}
	c.have[k] = true
	c.templates = append(c.templates, *t)
	return true
}

// shortfallCost is the cost of one unit of a floor that is not reached.
const shortfall = 1000

// solveMaster adds columns until none improves the program. It returns the solution with its bound, or
// errInfeasible if the floors cannot all be met.
func (c *columns) solve(ctx context.Context) (*relaxation, error) {
	// Floors may be missed at a high cost, so that the program over few templates is feasible.
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

	// Solve, price all templates by the duals, add those that pay, and solve again.
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

		// Price the templates of every model by the duals.
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

		// Templates joined: add their columns and solve again.
		if len(c.templates) > before {
			for i := before; i < len(c.templates); i++ {
				l.add(&c.templates[i])
			}
			continue
		}

		// No template pays: the floors are met now, or never.
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

// pricingTolerance is the part by which a template must cost less than its worth to join the program.
const paying = 1e-9

// addImproving adds, of each batch size of model d, the template that costs least, if that is below a limit.
// price holds the price of all devices of each pool. It returns the least cost of any of the model's templates.
func (c *columns) price(d int, price []float64, limit float64) (float64, error) {
	return c.sift(d, c.perDevice(d, price), limit)
}

// unitDevicePrices returns what one device of each pool costs for a unit of model d's rate. price holds the
// price of all devices of each pool.
func (c *columns) perDevice(d int, price []float64) []float64 {
	out := make([]float64, len(price))
	for k := range price {
		out[k] = price[k] * c.u.rps[d] / float64(max(c.Pools[k].Count, 1))
	}
	return out
}

// lowLossPerModel is the number of templates of each model that join for integer programs: those that cost least
// at the prices of the optimum.
const nearlyPaying = 2000

// addLowLoss adds the templates of each model that cost least at the prices of the relaxation.
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
