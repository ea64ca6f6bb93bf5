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
const maxEnumerated = 1_000_000

// largeCluster is the number of devices from which on rounding to whole replicas loses so little that the proof
// over all templates is not worth listing them, unless they are ten times fewer. With many models the same
// holds, because bundles prove as much.
const largeCluster = 5000

// countSequences estimates the number of templates, without regard to the SLO.
func (p *Problem) countSequences() float64 {
	total := 0.0
	for d := range p.Models {
		m := &p.Models[d]
		for _, b := range m.BatchSizes() {
			// The kinds and shares that a stage may run on at this batch size.
			devicesAtBatch := 0.0
			for k := range m.ShareCosts {
				for v := range m.ShareCosts[k] {
					if p.Pools[k].Count > 0 && v < p.Pools[k].MaxShares && m.ShareCosts[k][v].CostAt(b) != nil {
						devicesAtBatch++
					}
				}
			}
			cutBlocks, stageChoices := 1.0, devicesAtBatch // blocks that cuts can lie between
			for _, c := range m.CutBytes {
				if c >= 0 {
					cutBlocks++
				}
			}

			// With s stages: choose s-1 cuts, and a kind and share for each stage.
			for s := 1; s <= p.MaxPartitions && stageChoices > 0; s++ {
				total += stageChoices
				stageChoices *= devicesAtBatch * max(cutBlocks-float64(s), 0) / float64(s)
			}
		}
	}
	return total
}

// limitBlocks lets models with too many stage sequences be cut at fewer places, those that the fewest bytes
// cross, so that the problem has at most maxSequences of them. It returns the number of blocks that a model then
// counts as. If nothing is limited, it returns 0.
func (p *Problem) limitBlocks() int {
	if p.countSequences() <= maxSequences {
		return 0
	}
	withBlocks := func(n int) *Problem {
		q := *p
		q.Models = slices.Clone(p.Models)
		q.PrePartition(n, stages.ByBytes)
		return &q
	}
	maxBlocks := 0
	for d := range p.Models {
		maxBlocks = max(maxBlocks, p.Models[d].NumBlocks())
	}
	n := max(sort.Search(maxBlocks, func(n int) bool { return withBlocks(n+1).countSequences() > maxSequences }), 1)
	p.Models = withBlocks(n).Models
	return n
}

// needsColumns reports whether the templates are too many for one program. With a time-shared pool all of them
// enter one program, because the wait bounds need them.
func (p *Problem) needsColumns() bool {
	maxTemplates := float64(maxEnumerated)
	if p.totalDevices() >= largeCluster || p.usesBundles() {
		maxTemplates /= 10
	}
	return p.countSequences() > maxTemplates && !p.hasTimeShared()
}

// columnGeneration is the state of the column generation of one problem.
type columnGeneration struct {
	*templateCatalogue
	solver    milp.Solver
	poolCosts []float64        // by pool: cost of all its devices; nil if throughput is maximised
	tables    []*templateTable // by model
	knownKeys map[string]bool  // keys of the templates in the program
	rounds    int
}

// generateColumns returns templates that hold an optimum of the linear program over all templates, and that
// program's solution with its proven bound. For integer programs it adds other templates of little loss. extra
// holds templates to include in any case.
func (p *Problem) generateColumns(ctx context.Context, s milp.Solver, poolCosts []float64, extraTemplates []stages.Template) (*columnGeneration, *relaxation, error) {
	generation := &columnGeneration{templateCatalogue: &templateCatalogue{Problem: p, incomplete: true}, solver: s, poolCosts: poolCosts, knownKeys: map[string]bool{}}
	for d := range p.Models {
		if err := generation.addModel(d); err != nil {
			return nil, nil, err
		}
	}
	for i := range extraTemplates {
		generation.addTemplate(&extraTemplates[i])
	}
	generation.setUnits()
	solved, err := generation.solveMaster(ctx)
	if err != nil {
		return generation, nil, err
	}
	if p.usesBundles() {
		return generation, solved, nil // bundles take the templates that they need from the tables
	}
	if err := generation.addLowLoss(solved); err != nil {
		return nil, nil, err
	}
	return generation, solved, nil
}

// addModel builds the table of a model's templates. Of each batch size it adds to the program the template that
// is cheapest if all devices of a pool together cost the same.
func (c *columnGeneration) addModel(d int) error {
	table, tooBig, err := newTemplateTable(c.Problem, d)
	if err != nil {
		return err
	}
	if table.len() == 0 {
		return c.noPipeline(d, tooBig)
	}
	c.tables = append(c.tables, table)
	evenPrices := make([]float64, len(c.Pools))
	for k := range c.Pools {
		evenPrices[k] = 1 / float64(max(c.Pools[k].Count, 1))
	}
	_, err = c.addCheapest(d, evenPrices, math.Inf(1))
	return err
}

// addCheapest adds, of each batch size of model d, the template that costs least at the given prices of a
// device, if that is below a limit. It returns the least cost of any of the model's templates.
func (c *columnGeneration) addCheapest(d int, devicePrices []float64, limit float64) (minCost float64, err error) {
	minCost = math.Inf(1)
	cheapest, costs := c.tables[d].cheapestByBatch(devicePrices)
	for i, cost := range costs {
		if minCost = min(minCost, cost); cost < limit {
			t, err := c.tables[d].buildTemplate(c.Problem, cheapest[i])
			if err != nil {
				return 0, err
			}
			c.addTemplate(t)
		}
	}
	return minCost, nil
}

// addTemplate adds a template to the program and reports whether it is new.
func (c *columnGeneration) addTemplate(t *stages.Template) bool {
	k := t.Key()
	if c.knownKeys[k] {
		return false
	}
	c.knownKeys[k] = true
	c.templates = append(c.templates, *t)
	return true
}

// shortfallCost is the cost of one unit of a floor that is not reached.
const shortfallCost = 1000

// solveMaster adds columns until none improves the program. It returns the solution with its bound, or
// errInfeasible if the floors cannot all be met.
func (c *columnGeneration) solveMaster(ctx context.Context) (*relaxation, error) {
	// Floors may be missed at a high cost, so that the program over few templates is feasible.
	restricted := c.newMaster(c.poolCosts, indexesBelow(len(c.templates)), -1, true)
	var shortfalls []milp.Var
	for d := range c.Models {
		if restricted.floorRows[d] >= 0 {
			penalty := -float64(shortfallCost)
			if c.poolCosts != nil {
				penalty = shortfallCost
			}
			shortfalls = append(shortfalls, restricted.m.AddColumn("", 0, milp.Inf, penalty, milp.Entry{Row: restricted.floorRows[d], Coef: 1}))
		}
	}

	// Solve, price all templates by the duals, add those that pay, and solve again.
	var basis *milp.Basis
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("generating pipelines: %w", context.Cause(ctx))
		}
		c.rounds++
		sol, err := c.solver.Solve(ctx, restricted.m, milp.Options{Basis: basis})
		if err != nil {
			return nil, fmt.Errorf("solving the relaxation over %d pipelines: %w", len(c.templates), err)
		}
		if sol.Status != milp.Optimal {
			return nil, fmt.Errorf("solving the relaxation: the solver ended with %s", sol.Status)
		}
		basis = sol.Basis

		// Price the templates of every model by the duals.
		duals := restricted.readDuals(sol.RowDuals)
		knownTemplates := len(c.templates)
		minCost := make([]float64, len(c.Models))
		if duals.normalised || c.poolCosts != nil {
			for d := range c.Models {
				if minCost[d], err = c.addImproving(d, duals.poolPrice, duals.rateDual[d]*(1-pricingTolerance)); err != nil {
					return nil, err
				}
			}
		}

		// Templates joined: add their columns and solve again.
		if len(c.templates) > knownTemplates {
			for i := knownTemplates; i < len(c.templates); i++ {
				restricted.addTemplate(&c.templates[i])
			}
			continue
		}

		// No template pays: the floors are met now, or never.
		for _, v := range shortfalls {
			if sol.At(v) > 1e-7 {
				return nil, errInfeasible
			}
		}
		solved := restricted.readSolution(sol, indexesBelow(len(c.templates)))
		restricted.proveBound(duals, minCost, solved)
		return solved, nil
	}
}

// pricingTolerance is the part by which a template must cost less than its worth to join the program.
const pricingTolerance = 1e-9

// addImproving adds, of each batch size of model d, the template that costs least, if that is below a limit.
// price holds the price of all devices of each pool. It returns the least cost of any of the model's templates.
func (c *columnGeneration) addImproving(d int, price []float64, limit float64) (float64, error) {
	return c.addCheapest(d, c.unitDevicePrices(d, price), limit)
}

// unitDevicePrices returns what one device of each pool costs for a unit of model d's rate. price holds the
// price of all devices of each pool.
func (c *columnGeneration) unitDevicePrices(d int, price []float64) []float64 {
	devicePrices := make([]float64, len(price))
	for k := range price {
		devicePrices[k] = price[k] * c.units.modelRPS[d] / float64(max(c.Pools[k].Count, 1))
	}
	return devicePrices
}

// lowLossPerModel is the number of templates of each model that join for integer programs: those that cost least
// at the prices of the optimum.
const lowLossPerModel = 2000

// addLowLoss adds the templates of each model that cost least at the prices of the relaxation.
func (c *columnGeneration) addLowLoss(solved *relaxation) error {
	for d := range c.Models {
		for _, i := range c.tables[d].cheapestTemplates(c.unitDevicePrices(d, solved.poolPrice), lowLossPerModel) {
			t, err := c.tables[d].buildTemplate(c.Problem, i)
			if err != nil {
				return err
			}
			c.addTemplate(t)
		}
	}
	return nil
}
