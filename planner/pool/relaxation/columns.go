package relaxation

import (
	"context"
	"fmt"
	"math"
	"slices"

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

// GenerateColumns makes templates by column generation: it starts the linear program with few of them, and adds
// those that improve it until none does. It returns templates that hold an optimum of the program over all
// templates, and its solution with a proven bound. For integer programs it adds further templates that cost
// hardly more. extraTemplates are included in any case: those of the plan that runs.
func GenerateColumns(ctx context.Context, p *problem.Problem, s milp.Solver, poolCosts []float64, extraTemplates []stages.Template) (*Columns, *Solution, error) {
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

// addModel builds the table of a model's templates. Of each batch size it adds to the program the template that
// is cheapest if all devices of a pool together cost the same. These start the column generation.
func (c *Columns) addModel(d int) error {
	table, tooBig, err := templates.NewTable(c.problem, d)
	if err != nil {
		return err
	}
	if table.Len() == 0 {
		return templates.NoPipeline(c.problem, d, tooBig)
	}
	c.Tables = append(c.Tables, table)
	evenPrices := make([]float64, len(c.problem.Pools))
	for k := range c.problem.Pools {
		evenPrices[k] = 1 / float64(max(c.problem.Pools[k].Count, 1))
	}
	_, err = c.addCheapest(d, evenPrices, math.Inf(1))
	return err
}

// addCheapest adds to the program, for each batch size of model d, the template whose devices cost least per
// rate at the given prices, if that cost is below limit. It returns the least such cost over all templates of
// the model, which the bound needs. devicePrices holds the price of one device of each pool.
func (c *Columns) addCheapest(d int, devicePrices []float64, limit float64) (minCost float64, err error) {
	minCost = math.Inf(1)
	cheapest, costs := c.Tables[d].CheapestByBatch(devicePrices)
	for i, cost := range costs {
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

// addTemplate adds a template to the program and reports whether it is new.
func (c *Columns) addTemplate(t *stages.Template) bool {
	k := t.Key()
	if c.knownKeys[k] {
		return false
	}
	c.knownKeys[k] = true
	c.Catalogue.Templates = append(c.Catalogue.Templates, *t)
	return true
}

// shortfallCost is the cost of one unit of a floor that is not reached.
const shortfallCost = 1000

// solveMaster solves the linear program over the templates so far, prices all other templates by its duals,
// adds those that would improve it, and solves again until none does. It returns the solution with a bound on
// every plan, or ErrInfeasible if the floors (least rates) cannot all be met even with devices in fractions.
func (c *Columns) solveMaster(ctx context.Context) (*Solution, error) {
	restricted := newMasterProgram(c.Catalogue, c.poolCosts, c.Catalogue.AllTemplates(), -1, true)
	shortfalls := c.addShortfalls(restricted)
	var basis *milp.Basis
	for {
		// Solve.
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

		// No template pays: the floors are met now, or never.
		if slices.ContainsFunc(shortfalls, func(v milp.Var) bool { return sol.At(v) > 1e-7 }) {
			return nil, ErrInfeasible
		}
		solved := restricted.readSolution(sol, c.Catalogue.AllTemplates())
		restricted.proveBound(duals, minCost, solved)
		return solved, nil
	}
}

// addShortfalls adds to the program a variable for each floor (least rate of a model): the part of it that is
// missed, at a high cost. So the program over the first few templates has a solution. It returns these
// variables, which must all end at 0.
func (c *Columns) addShortfalls(restricted *masterProgram) (shortfalls []milp.Var) {
	penalty := -float64(shortfallCost)
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

// addPaying adds to the program the templates that pay: by the duals, the devices for a unit of rate cost less
// than that rate is worth. It returns, for each model, the least cost of a unit through any template. If the
// duals are all zero, it adds none.
func (c *Columns) addPaying(duals *dualWeights) (minCost []float64, err error) {
	minCost = make([]float64, len(c.problem.Models))
	if !duals.normalised && c.poolCosts == nil {
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

// unitDevicePrices returns what one device of each pool costs, scaled so that a template's devices for 1
// request/s give the cost of a unit of model d's rate. price holds the price of all devices of each pool
// together.
func (c *Columns) unitDevicePrices(d int, price []float64) []float64 {
	devicePrices := make([]float64, len(price))
	for k := range price {
		devicePrices[k] = price[k] * c.Catalogue.Units.ModelRPS[d] / float64(max(c.problem.Pools[k].Count, 1))
	}
	return devicePrices
}

// lowLossPerModel is the number of templates of each model that join for integer programs: those that cost least
// at the prices of the optimum.
const lowLossPerModel = 2000

// addLowLoss adds, after the linear program is solved, those lowLossPerModel templates of each model that cost
// least at its prices. Plans of whole replicas may need templates that the program with fractions does not use.
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
