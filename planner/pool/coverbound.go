package pool

import (
	"context"
)

// requiredRate returns the requests/s that model d needs at a throughput in units.
func (x *bundleSearch) requiredRate(d int, value float64) float64 {
	return max(x.unitsToRate(value)*x.Models[d].Weight, x.Models[d].MinRPS)
}

// prepareCovers builds the template tables of all models and computes covers at the prices of the relaxation.
func (x *bundleSearch) prepareCovers(ctx context.Context) error {
	x.templateByKey = make(map[string]int, len(x.templates))
	for i := range x.templates {
		x.templateByKey[x.templates[i].Key()] = i
	}
	for d := range x.Models {
		x.addModelTable(d)
	}
	x.coverTables = make([][]*coverTable, len(x.Models))
	x.addCovers(ctx, x.lp.poolPrice)
	return nil
}

// addCovers adds a cover table of each model at given prices of all devices of each pool. If all templates are
// known, it lowers the bound by them.
func (x *bundleSearch) addCovers(ctx context.Context, poolPrices []float64) {
	x.coverPrices = poolPrices
	builder := &coverBuilder{wholeDevices: x.Rounding == Slot}
	for k, v := range poolPrices {
		builder.devicePrice = append(builder.devicePrice, v/float64(max(x.Pools[k].Count, 1)))
		builder.poolSizes = append(builder.poolSizes, x.Pools[k].Count)
	}
	boundGrid := boundSteps
	if x.replan != nil {
		boundGrid = coverSteps // a re-plan is wanted soon
	}
	var boundTables []*coverTable

	// Covers with rates rounded down are for bundles, those rounded up for the bound.
	for d := range x.Models {
		if ctx.Err() != nil {
			return
		}
		maxRate := x.requiredRate(d, x.choiceBound)
		items := builder.listItems(x.modelTables[d], maxRate)
		x.coverTables[d] = append(x.coverTables[d], newCoverTable(items, maxRate, coverSteps, false))
		if builder.wholeDevices {
			// Two pipelines may fill a device together, so covers for the bound count parts of devices.
			partBuilder := *builder
			partBuilder.wholeDevices = false
			items = partBuilder.listItems(x.modelTables[d], maxRate)
		}
		boundTables = append(boundTables, newCoverTable(items, maxRate, boundGrid, true))
	}

	// If all templates are known, the covers bound the throughput.
	x.boundTables = boundTables
	if x.tables != nil || !x.incomplete {
		x.choiceBound = max(min(x.choiceBound, x.coverableThroughput(boundTables)*(1+1e-9)), x.bestScore())
	}
}

// repriceCovers adds covers at other prices, if not even parts of the bundles fit the devices: half way from the
// prices of the relaxation to what the devices are worth to those bundles. It returns false, and adds none, if
// parts fit or if covers were repriced often enough.
func (x *bundleSearch) repriceCovers(ctx context.Context) bool {
	total, scarcity := total(x.lp.poolPrice), total(x.scarcityPrices)
	if x.repriceCount == maxReprices*x.options.Effort || scarcity <= 0 || ctx.Err() != nil {
		return false
	}
	x.repriceCount++
	poolPrices := make([]float64, len(x.Pools))
	for k, v := range x.lp.poolPrice {
		poolPrices[k] = (v + x.scarcityPrices[k]*total/scarcity) / 2
	}
	x.addCovers(ctx, poolPrices)
	return ctx.Err() == nil
}

// total returns the sum of some values.
func total(values []float64) (added float64) {
	for _, v := range values {
		added += v
	}
	return added
}

// coverableThroughput returns the largest throughput, in units, at which the covers of all models cost no more
// than all devices are worth.
func (x *bundleSearch) coverableThroughput(tables []*coverTable) float64 {
	total := total(x.coverPrices)
	isAffordable := func(value float64) bool {
		coverCost := 0.0
		for d, c := range tables {
			coverCost += c.costBySteps[c.stepsFor(x.requiredRate(d, value))]
		}
		return coverCost <= total*(1+1e-9)
	}
	lo, hi := 0.0, x.choiceBound
	for range 40 {
		if mid := (lo + hi) / 2; isAffordable(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// addModelTable adds the table of a model's templates: of all of them if they were listed, else of those that
// the wait choice allows.
func (x *bundleSearch) addModelTable(d int) {
	indexByListed := map[int32]int{}
	if x.tables != nil {
		x.modelTables, x.listedTemplates = append(x.modelTables, x.tables[d]), append(x.listedTemplates, indexByListed)
		return
	}
	table := &templateTable{model: d, maxStages: x.MaxPartitions}
	for _, i := range x.allowedTemplates {
		if x.templates[i].Model == d {
			indexByListed[int32(table.len())] = i
			table.add(&x.templates[i])
		}
	}
	x.modelTables, x.listedTemplates = append(x.modelTables, table), append(x.listedTemplates, indexByListed)
}

// templateIndex returns the catalogue's index of a template of model d's table. A template that the catalogue
// lacks joins it.
func (x *bundleSearch) templateIndex(d int, listed int32) (int, error) {
	if i, ok := x.listedTemplates[d][listed]; ok {
		return i, nil
	}
	t, err := x.modelTables[d].buildTemplate(x.Problem, int(listed))
	if err != nil {
		return 0, err
	}
	i, ok := x.templateByKey[t.Key()]
	if !ok {
		i = len(x.templates)
		x.templates, x.templateByKey[t.Key()] = append(x.templates, *t), i
	}
	x.listedTemplates[d][listed] = i
	return i, nil
}

// allowNewTemplates adds the templates that joined the catalogue to the wait choice, with their losses.
func (x *bundleSearch) allowNewTemplates() {
	for i := len(x.losses); i < len(x.templates); i++ {
		x.allowedTemplates = append(x.allowedTemplates, i)
		x.losses = append(x.losses, x.waitChoice.choiceCatalogue.templateLoss(&x.templates[i], x.lp))
	}
	x.outcome.Templates = max(x.outcome.Templates, len(x.templates))
}
