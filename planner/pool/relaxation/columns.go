package relaxation

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Column generation solves the linear program over all templates with only some of them in the program. The
// duals of each solution price every template of the models' tables. Templates that cost less than their rate is
// worth join the program, until there are none. So the last round proves that no template outside the program
// would improve it.

// Columns is the state of the column generation of one problem.
type Columns struct {
	problem   *problem.Problem
	Catalogue *templates.Catalogue
	solver    milp.Solver
	poolCosts []float64          // by pool: cost of all its devices; nil if throughput is maximised
	Tables    []*templates.Table // by model
	knownKeys map[string]bool    // keys of the templates in the program
	Rounds    int
}

// GenerateColumns makes templates (pipelines without replica counts) by column generation, if there are too many to
// list all in one program: it starts the linear program with few of them, and adds those that improve it until none
// does. It returns the state, whose catalogue holds an optimum of the program over all templates, and the solution with
// a proven bound. For integer programs over whole replicas it then adds templates that cost hardly more. poolCosts has
// the cost of all devices of each pool, if price is minimised, and is nil if throughput is maximised. extraTemplates
// are included in any case: those of the plan that runs.
func GenerateColumns(ctx context.Context, p *problem.Problem, s milp.Solver, poolCosts []float64, extraTemplates []stages.Template) (*Columns, *Solution, error) {
	// The first templates: a few of each model, and the extra ones. They also set the units of rates.
	generation := &Columns{problem: p, Catalogue: &templates.Catalogue{Problem: p, Incomplete: true}, solver: s, poolCosts: poolCosts, knownKeys: map[string]bool{}}
	for d := range p.Models {
		if err := generation.addModel(d); err != nil {
			return nil, nil, err
		}
	}
	for i := range extraTemplates {
		generation.addTemplate(&extraTemplates[i])
	}
	generation.Catalogue.SetUnits()

	// The templates that improve the linear program, and those that integer programs may need beside them.
	solved, err := generation.solveMaster(ctx)
	if err != nil {
		return generation, nil, err
	}
	if p.UsesBundles() {
		return generation, solved, nil // bundles take the templates that they need from the tables
	}
	if err := generation.addLowLoss(solved); err != nil {
		return nil, nil, err
	}
	return generation, solved, nil
}

// addModel builds the table of all templates of model d, and adds to the catalogue, for each batch size, the template
// that is cheapest if the devices of every pool cost the same together. The column generation starts with these. If the
// model has no template, the error explains why.
func (c *Columns) addModel(d int) error {
	table, tooBig, err := templates.NewTable(c.problem, d)
	if err != nil {
		return err
	}
	if table.Len() == 0 {
		return templates.NoPipeline(c.problem, d, tooBig)
	}
	c.Tables = append(c.Tables, table)

	// With all devices of a pool at a price of 1, those of a small pool are dear.
	evenPrices := lists.Filled(len(c.problem.Pools), func(k int) float64 { return 1 / float64(max(c.problem.Pools[k].Count, 1)) })
	_, err = c.addCheapest(d, evenPrices, math.Inf(1))
	return err
}

// addCheapest adds to the catalogue, for each batch size of model d, the template whose devices cost least per
// request/s, if that cost is below limit (+Inf: always). devicePrices has the price of one device of each pool. It
// returns the least cost of a request/s through any template of the model, whether added or not: the bound needs it.
func (c *Columns) addCheapest(d int, devicePrices []float64, limit float64) (minCost float64, err error) {
	minCost = math.Inf(1)
	cheapest, costs := c.Tables[d].CheapestByBatch(devicePrices)
	for i, cost := range costs { // by batch size
		if minCost = min(minCost, cost); cost < limit {
			t, err := c.Tables[d].Build(c.problem, cheapest[i])
			if err != nil {
				return 0, err
			}
			c.addTemplate(t)
		}
	}
	return minCost, nil
}

// addTemplate adds a template to the catalogue, unless that has it already, and reports whether it is new. The caller
// adds its column to a program that has been built.
func (c *Columns) addTemplate(t *stages.Template) bool {
	key := t.Key()
	if c.knownKeys[key] {
		return false
	}
	c.knownKeys[key] = true
	c.Catalogue.Templates = append(c.Catalogue.Templates, *t)
	return true
}

// shortfallCost is the cost of one unit of a floor that is not reached.
const shortfallCost = 1000

// solveMaster solves the linear program of rates through the templates of the catalogue, prices all other templates by
// its duals (the worth of a pool's devices and of a model's rate), adds to the catalogue those that would improve it,
// and solves again until none does. It returns the solution with a bound on every plan, or ErrInfeasible if the floors
// (least rates) cannot all be met even with devices in fractions.
func (c *Columns) solveMaster(ctx context.Context) (*Solution, error) {
	// The program may miss floors at a high cost, so that it has a solution from the start. No pool has a device more (-1).
	restricted := newMasterProgram(c.Catalogue, c.poolCosts, c.Catalogue.AllTemplates(), -1, true)
	shortfalls := c.addShortfalls(restricted)
	var basis *milp.Basis
	for {
		// Solve, from the basis of the round before.
		if ctx.Err() != nil {
			return nil, fmt.Errorf("generating pipelines: %w", context.Cause(ctx))
		}
		c.Rounds++
		sol, err := c.solver.Solve(ctx, restricted.m, milp.Options{Basis: basis})
		if err != nil {
			return nil, fmt.Errorf("solving the relaxation over %d pipelines: %w", len(c.Catalogue.Templates), err)
		}
		if sol.Status != milp.Optimal {
			return nil, fmt.Errorf("solving the relaxation: the solver ended with %s", sol.Status)
		}
		basis = sol.Basis

		// Price all templates by the duals. If some pay, add their columns and solve again.
		duals := restricted.readDuals(sol.RowDuals)
		knownTemplates := len(c.Catalogue.Templates)
		minCost, err := c.addPaying(&duals)
		if err != nil {
			return nil, err
		}
		if len(c.Catalogue.Templates) > knownTemplates {
			for i := knownTemplates; i < len(c.Catalogue.Templates); i++ {
				restricted.addTemplate(&c.Catalogue.Templates[i])
			}
			continue
		}

		// No template pays: the optimum is that over all templates. The floors are met now, or never.
		if slices.ContainsFunc(shortfalls, func(v milp.Var) bool { return sol.At(v) > 1e-7 }) {
			return nil, ErrInfeasible
		}
		solved := restricted.readSolution(sol, c.Catalogue.AllTemplates())
		restricted.proveBound(duals, minCost, solved)
		return solved, nil
	}
}

// addShortfalls adds to the program a variable for each floor (least rate of a model): the part of the floor that the
// rates miss, at a high cost. So the program has a solution even over the first few templates. It returns these
// variables. If one is above 0 once no template improves the program, the floors cannot all be met.
func (c *Columns) addShortfalls(restricted *masterProgram) (shortfalls []milp.Var) {
	penalty := -float64(shortfallCost) // throughput is maximised, costs are minimised
	if c.poolCosts != nil {
		penalty = shortfallCost
	}
	for _, row := range restricted.floorRows {
		if row >= 0 {
			shortfalls = append(shortfalls, restricted.m.AddColumn("", 0, milp.Inf, penalty, milp.Entry{Row: row, Coef: 1}))
		}
	}
	return shortfalls
}

// addPaying adds to the catalogue the templates that pay: by the duals of the last solution, their devices for a unit of
// rate cost less than that rate is worth, so they would improve the program. It returns, for each model, the least cost
// of the devices that a unit of its rate takes through any template, from which proveBound proves the bound. If
// throughput is maximised and the duals of the models' rows are all zero, nothing can be priced: it adds none and
// returns costs of 0.
func (c *Columns) addPaying(duals *dualWeights) (minCost []float64, err error) {
	minCost = make([]float64, len(c.problem.Models))
	maximisesThroughput := c.poolCosts == nil
	if maximisesThroughput && !duals.normalised { // readDuals found no dual above 0 to scale by
		return minCost, nil
	}
	for d := range c.problem.Models {
		minCost[d], err = c.addCheapest(d, c.unitDevicePrices(d, duals.poolPrice), duals.rateDual[d]*(1-pricingTolerance))
		if err != nil {
			return nil, err
		}
	}
	return minCost, nil
}

// pricingTolerance is the part by which a template must cost less than its worth to join the program.
const pricingTolerance = 1e-9

// unitDevicePrices returns prices of one device of each pool for the pricing of model d's templates. Tables count the
// devices of 1 request/s, and programs count rates in units of ModelRPS[d] requests/s. So the prices are scaled by that
// unit: with them, the devices of 1 request/s cost as much as a unit does. poolPrice has the price of all devices of
// each pool together.
func (c *Columns) unitDevicePrices(d int, poolPrice []float64) []float64 {
	return lists.Filled(len(poolPrice), func(k int) float64 {
		return poolPrice[k] * c.Catalogue.Units.ModelRPS[d] / float64(max(c.problem.Pools[k].Count, 1))
	})
}

// lowLossPerModel is the number of templates of each model that join for integer programs: those that cost least
// at the prices of the optimum.
const lowLossPerModel = 2000

// addLowLoss adds to the catalogue, after the linear program is solved, those lowLossPerModel templates of each model
// whose devices cost least per rate at the prices of the solution. Plans of whole replicas may need templates that the
// program with fractions does not use.
func (c *Columns) addLowLoss(solved *Solution) error {
	for d := range c.problem.Models {
		for _, i := range c.Tables[d].CheapestTemplates(c.unitDevicePrices(d, solved.PoolPrice), lowLossPerModel) {
			t, err := c.Tables[d].Build(c.problem, i)
			if err != nil {
				return err
			}
			c.addTemplate(t)
		}
	}
	return nil
}
