package bundles

import (
	"context"

	"inferplan/planner/lists"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
)

// modelCovers holds the covers of all models at the prices that were tried.
type modelCovers struct {
	problem         *problem.Problem
	catalogue       *templates.Catalogue
	choice          *relaxation.WaitChoice
	incumbent       *incumbent.Incumbent
	effort          int
	modelTables     []*templates.Table // by model
	allListed       bool               // modelTables hold all templates of the models
	listedTemplates []map[int32]int    // by model: catalogue index of each template of its table that is in the catalogue
	templateByKey   map[string]int     // catalogue index of each template
	tables          [][]*coverTable    // by model: a table for each set of prices that was tried
	prices          []float64          // the last of these prices: of all devices of each pool
	boundTables     []*coverTable      // at the last prices: they cost no more than any plan does
	repriceCount    int
}

// requiredRate returns the requests/s that model d needs at a throughput in units.
func (c *modelCovers) requiredRate(d int, value float64) float64 {
	return max(c.catalogue.UnitsToRate(value)*c.problem.Models[d].Weight, c.problem.Models[d].MinRPS)
}

// newModelCovers computes the covers of each model (the cheapest replicas that carry each rate) at the prices of the
// relaxation. They are made of the templates that a table lists by model. templateTables has these tables if column
// generation made them, of all templates of each model. If it is nil, they are made of the catalogue's templates that
// the wait choice (the bounds on waiting in force) allows.
func newModelCovers(ctx context.Context, choice *relaxation.WaitChoice, best *incumbent.Incumbent, templateTables []*templates.Table, effort int) *modelCovers {
	numModels := len(choice.Catalogue.Problem.Models)
	c := &modelCovers{
		problem: choice.Catalogue.Problem, catalogue: choice.Catalogue, choice: choice, incumbent: best, effort: effort,
		templateByKey: choice.Catalogue.IndexByKey(), tables: make([][]*coverTable, numModels),
		modelTables: templateTables, allListed: templateTables != nil || !choice.Catalogue.Incomplete,
	}

	// listedTemplates has, by model and index in its table, the catalogue's index of a template: of each one if the table is
	// made here, else of none yet (templateIndex adds it when a bundle needs it).
	for d := range numModels {
		c.listedTemplates = append(c.listedTemplates, map[int32]int{})
		if templateTables == nil {
			c.addModelTable(d)
		}
	}

	// Fill tables, the covers by model, at the first prices.
	c.addCovers(ctx, c.choice.Relaxation.PoolPrice)
	return c
}

// addCovers computes covers of each model (the cheapest replicas for each rate on a grid) at given prices of
// all devices of each pool together. Those for bundles join the tables of earlier prices, those for the bound
// replace the earlier ones. If all templates are known, it lowers the bound: no plan reaches a throughput at
// which the covers cost more than all devices are worth.
func (c *modelCovers) addCovers(ctx context.Context, poolPrices []float64) {
	c.prices = poolPrices
	builder := &coverBuilder{wholeDevices: c.problem.Rounding == problem.Slot}
	for k, v := range poolPrices {
		builder.devicePrice = append(builder.devicePrice, v/float64(max(c.problem.Pools[k].Count, 1)))
		builder.poolSizes = append(builder.poolSizes, c.problem.Pools[k].Count)
	}

	// The grid of rates for the bound is finer than that for bundles.
	boundGrid := boundSteps
	if c.incumbent.Replan != nil {
		boundGrid = coverSteps // a re-plan is wanted soon
	}
	var boundTables []*coverTable

	// The tables go up to the rates that models need at the present bound, as no plan carries more. Covers with rates
	// rounded down to the grid (roundUp is false) carry what bundles need; those with rates rounded up cost no more than
	// real replicas, as the bound needs.
	for d := range c.problem.Models {
		if ctx.Err() != nil {
			return
		}
		maxRate := c.requiredRate(d, c.incumbent.ChoiceBound)
		items := builder.listItems(c.modelTables[d], maxRate)
		c.tables[d] = append(c.tables[d], newCoverTable(items, maxRate, coverSteps, false))
		if builder.wholeDevices {
			// Two pipelines of the model may fill a device together. So the bound must not charge each for whole devices: its
			// covers count parts of devices, which cost no more.
			partBuilder := *builder
			partBuilder.wholeDevices = false
			items = partBuilder.listItems(c.modelTables[d], maxRate)
		}
		boundTables = append(boundTables, newCoverTable(items, maxRate, boundGrid, true))
	}

	// If all templates are known, the covers bound the throughput. The factor allows for rounding errors.
	c.boundTables = boundTables
	if c.allListed {
		c.incumbent.LowerBound(c.coverableThroughput(boundTables) * (1 + 1e-9))
	}
}

// repriceCovers adds covers (cheapest replicas for each rate) at other prices of devices, after not even fractions of
// the bundles made so far fitted the devices, and returns true if other bundles can be made of them. The new prices are
// the means of those of the relaxation and scarcityPrices, by pool what more devices would be worth to those bundles,
// scaled to the same total. If these are empty (fractions fit), or covers were repriced often enough, it does nothing
// and returns false.
func (c *modelCovers) repriceCovers(ctx context.Context, scarcityPrices []float64) bool {
	totalPrice, scarcity := lists.Total(c.choice.Relaxation.PoolPrice), lists.Total(scarcityPrices)
	if c.repriceCount == maxReprices*c.effort || scarcity <= 0 || ctx.Err() != nil {
		return false
	}
	c.repriceCount++
	poolPrices := make([]float64, len(c.problem.Pools))
	for k, v := range c.choice.Relaxation.PoolPrice {
		poolPrices[k] = (v + scarcityPrices[k]*totalPrice/scarcity) / 2
	}
	c.addCovers(ctx, poolPrices)
	return ctx.Err() == nil
}

// coverableThroughput returns the largest throughput, in units, at which the covers of all models (their
// cheapest replicas) cost no more than all devices are worth. No plan reaches more. It bisects in 40 steps and
// returns the upper end, which is safe as a bound.
func (c *modelCovers) coverableThroughput(tables []*coverTable) float64 {
	totalPrice := lists.Total(c.prices)
	isAffordable := func(value float64) bool {
		coverCost := lists.Sum(len(tables), func(d int) float64 { return tables[d].costBySteps[tables[d].stepsFor(c.requiredRate(d, value))] })
		return coverCost <= totalPrice*(1+1e-9)
	}
	// After 40 halvings the two ends agree to all digits that count.
	_, upper := problem.Bisect(0, c.incumbent.ChoiceBound, 40, isAffordable)
	return upper
}

// addModelTable appends to modelTables the table of the templates of model d that the wait choice (the bounds on waiting in
// force) allows, and notes in listedTemplates the catalogue's index of each entry. It is called for the models in order,
// where no column generation has made tables.
func (c *modelCovers) addModelTable(d int) {
	table := &templates.Table{Model: d, MaxStages: c.problem.MaxPartitions}
	for _, i := range c.choice.AllowedTemplates {
		if c.catalogue.Templates[i].Model == d {
			c.listedTemplates[d][int32(table.Len())] = i
			table.Add(&c.catalogue.Templates[i])
		}
	}
	c.modelTables = append(c.modelTables, table)
}

// templateIndex returns the catalogue's index of the template that stands at index listed of model d's table.
// If the catalogue lacks the template, it is built in full and joins it.
func (c *modelCovers) templateIndex(d int, listed int32) (int, error) {
	if i, ok := c.listedTemplates[d][listed]; ok {
		return i, nil
	}
	t, err := c.modelTables[d].Build(c.problem, int(listed))
	if err != nil {
		return 0, err
	}
	i, ok := c.templateByKey[t.Key()]
	if !ok {
		i = len(c.catalogue.Templates)
		c.catalogue.Templates, c.templateByKey[t.Key()] = append(c.catalogue.Templates, *t), i
	}
	c.listedTemplates[d][listed] = i
	return i, nil
}

// allowNewTemplates makes the templates that joined the catalogue usable: it adds them to those that the wait
// choice (the bounds on waiting in force) allows, with their losses (how far a plan with one stays below the
// bound).
func (c *modelCovers) allowNewTemplates() {
	for i := len(c.choice.Losses); i < len(c.catalogue.Templates); i++ {
		c.choice.AllowedTemplates = append(c.choice.AllowedTemplates, i)
		c.choice.Losses = append(c.choice.Losses, relaxation.TemplateLoss(c.choice.Catalogue, &c.catalogue.Templates[i], c.choice.Relaxation))
	}
}
