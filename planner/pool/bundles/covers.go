package bundles

import (
	"math"
	"slices"

	"inferplan/planner/pool/templates"
)

// A cover is the cheapest sum of configurations (whole replicas of templates) of one model that carries a rate.
// It is the solution of a covering knapsack over the replicas of all templates of the model, at given prices of
// the devices. One table has the covers for all rates of a grid.
//
// Rates of configurations are rounded to the grid. Rounded down, the covers carry at least what they say:
// bundles are made of these. Rounded up, the covers cost no more than the model's part of any plan: that gives a
// bound. If the covers of all models at a throughput cost more than all devices are worth, no plan has that
// throughput (docs/methods/pool.md, "Why no plan is better than the bound").

// coverTable holds the covers of one model, by the rate that they carry, in steps of a grid.
type coverTable struct {
	rateStep       float64     // requests/s of one step of the grid
	costBySteps    []float64   // by number of steps: cost of the cover
	firstItemSteps []int32     // by number of steps: the steps that one configuration of the cover carries, 0 without one
	itemBySteps    []coverItem // by number of steps: the cheapest configuration that carries exactly so many

	maxUnitCost []float64 // by number of steps: the highest cost of a request/s in covers of rates from there on; nil if not set
}

// coverItem is a configuration: whole replicas of a template, at the rate that they carry.
type coverItem struct {
	template int32   // index in the model's templates.Table, -1 if there is none
	rate     float64 // requests/s
	cost     float64 // of the devices that the replicas take, at the prices of the builder
}

// coverBuilder makes cover tables at given prices of devices.
type coverBuilder struct {
	devicePrice  []float64 // price of a device of each pool
	poolSizes    []int     // devices of each pool
	wholeDevices bool      // parts of devices count as whole ones
}

// A configuration can only be part of a cover if its template, which costs at least its share of the rate, costs
// no more than a cover of cheap templates does. So the cheap templates are listed first.
const (
	goodCostFactor = 1.02 // a template is good up to this factor of the lowest cost per unit of rate
	goodGridSteps  = 500  // grid of the table that the others are compared with

	nearlyGoodFactor = 1.02 // another template's configuration is listed below this factor of the cost of a good cover
)

// listItems lists the configurations of a model (whole replicas of one template, with rate and cost) that a
// cover, the cheapest sum for a rate, may hold at rates up to maxRate. It takes all configurations of good templates,
// which cost little per rate, and of other templates those that cost hardly more than a cover of good ones for the same
// rate.
func (builder *coverBuilder) listItems(table *templates.Table, maxRate float64) []coverItem {
	// The cost of one request/s through each template of the table, with fractions of replicas.
	unitCosts := make([]float64, table.Len())
	minUnitCost := math.Inf(1)
	for i := range unitCosts {
		unitCosts[i] = table.CostPerRPS(i, builder.devicePrice)
		minUnitCost = min(minUnitCost, unitCosts[i])
	}
	var items []coverItem

	// The good templates, with all their configurations.
	for i, cost := range unitCosts {
		if cost <= minUnitCost*goodCostFactor {
			items = builder.appendItems(items, table, i, cost, maxRate, nil)
		}
	}
	goodCovers := newCoverTable(items, maxRate, goodGridSteps, false)
	goodCovers.setMaxUnitCosts(maxRate)

	// The other templates, with those configurations that cost hardly more than a cover of good ones.
	for i, cost := range unitCosts {
		if cost > minUnitCost*goodCostFactor {
			items = builder.appendItems(items, table, i, cost, maxRate, goodCovers)
		}
	}
	return items
}

// setMaxUnitCosts fills maxUnitCost: by number of steps of the grid, the highest cost of one request/s in the cover of any
// rate from there on, up to maxRate, the last rate of the grid. A rate between two steps takes the cover of the upper one, so
// its cost per request/s is highest just above the lower one.
func (c *coverTable) setMaxUnitCosts(maxRate float64) {
	lastSteps := len(c.costBySteps) - 1
	c.maxUnitCost = make([]float64, lastSteps+1)
	c.maxUnitCost[lastSteps] = c.costBySteps[lastSteps] / maxRate
	for lowerSteps := lastSteps - 1; lowerSteps >= 0; lowerSteps-- {
		lowerRate := max(float64(lowerSteps), 1e-9) * c.rateStep // 1e-9 avoids a division by 0
		c.maxUnitCost[lowerSteps] = max(c.maxUnitCost[lowerSteps+1], c.costBySteps[lowerSteps+1]/lowerRate)
	}
}

// appendItems appends the configurations (whole replicas) of a template, given by its index in the table, that carry up to
// maxRate or just reach it. Each is made from a number of replicas of one stage, which set the rate; the other stages have as
// many as that rate needs. If goodCovers is not nil, it leaves out configurations that cost clearly more than those covers
// at the same rate. unitCost is what a request/s through the template costs with fractions of replicas: at least so much
// with whole ones.
func (builder *coverBuilder) appendItems(items []coverItem, table *templates.Table, template int, unitCost, maxRate float64, goodCovers *coverTable) []coverItem {
	// Each stage in turn sets the rate, with 1, 2, … replicas, until maxRate is reached or a pool has too few devices.
	stageRows := table.StagesOf(template)
	for i := range stageRows {
		replicaRate := stageRows[i].ReplicaRate()
		for replicas := 1; ; replicas++ {
			rate := replicaRate * float64(replicas)
			// If even fractions of replicas cost clearly more per request/s than every good cover from this rate on, no higher
			// rate needs a look.
			if goodCovers != nil {
				steps := int(min(rate/goodCovers.rateStep, goodGridSteps))
				if unitCost >= nearlyGoodFactor*goodCovers.maxUnitCost[steps] {
					break
				}
			}
			cost, fits := builder.priceOf(stageRows, rate)
			if !fits {
				break
			}
			if goodCovers == nil || cost < nearlyGoodFactor*goodCovers.costBySteps[goodCovers.stepsFor(rate)] {
				items = append(items, coverItem{int32(template), rate, cost})
			}
			if rate >= maxRate {
				break
			}
		}
	}
	return items
}

// priceOf returns the price of the devices that a template takes with the fewest replicas of each stage that
// carry a rate. If a pool has too few devices, fits is false.
func (builder *coverBuilder) priceOf(stageRows []templates.TableStage, rate float64) (cost float64, fits bool) {
	for j := range stageRows {
		stage := &stageRows[j]
		devices := stage.ReplicasFor(rate) / float64(stage.Share)
		if devices > float64(builder.poolSizes[stage.Pool]) {
			return 0, false
		}
		if builder.wholeDevices {
			devices = math.Ceil(devices - 1e-9)
		}
		cost += builder.devicePrice[stage.Pool] * devices
	}
	return cost, true
}

// newCoverTable computes, by a dynamic program, the cover of every rate up to maxRate on a grid of gridSteps equal
// steps: the cheapest sum of configurations (items) that carries it. The rates of the configurations are rounded to
// the grid. Rounded down, each cover carries at least its rate. With roundUp they are rounded up, and no real sum
// that carries a rate is cheaper than its cover.
func newCoverTable(items []coverItem, maxRate float64, gridSteps int, roundUp bool) *coverTable {
	table := &coverTable{rateStep: maxRate / float64(gridSteps)}

	// The cheapest configuration of each number of steps.
	table.itemBySteps = slices.Repeat([]coverItem{{template: -1, cost: math.Inf(1)}}, gridSteps+1)
	for _, item := range items {
		// The factors 1±1e-12 keep a rate that is a whole number of steps, but for rounding errors, at that number. A replica
		// may carry far more than maxRate, more steps than an int holds.
		itemSteps := int(min(item.rate/table.rateStep*(1+1e-12), float64(gridSteps)))
		if roundUp {
			itemSteps = int(min(math.Ceil(item.rate/table.rateStep*(1-1e-12)), float64(gridSteps)))
		}
		if itemSteps > 0 && item.cost < table.itemBySteps[itemSteps].cost {
			table.itemBySteps[itemSteps] = item
		}
	}

	// costBySteps[0] stays 0: a rate of 0 needs nothing.
	table.costBySteps, table.firstItemSteps = make([]float64, gridSteps+1), make([]int32, gridSteps+1)
	// By number of steps, the steps of the cheapest configuration that alone carries at least so many.
	cheapestAlone := make([]int32, gridSteps+1)
	for j := gridSteps; j > 0; j-- {
		cheapestAlone[j] = int32(j)
		if j < gridSteps && table.itemBySteps[cheapestAlone[j+1]].cost <= table.itemBySteps[j].cost {
			cheapestAlone[j] = cheapestAlone[j+1]
		}
	}
	// The steps of configurations that are the cheapest covers of their steps: larger covers may hold these.
	var usefulSteps []int32

	// Dynamic program: costBySteps[j] is the least of the costs of one configuration alone that carries j steps or more, and,
	// over the useful q < j, of costBySteps[j-q] + cost of the configuration of q steps. firstItemSteps[j] has the steps of the
	// configuration in the least one.
	for j := 1; j <= gridSteps; j++ {
		minCost, firstSteps := math.Inf(1), int32(0)
		for _, stepsUsed := range usefulSteps {
			if cost := table.costBySteps[j-int(stepsUsed)] + table.itemBySteps[stepsUsed].cost; cost < minCost {
				minCost, firstSteps = cost, stepsUsed
			}
		}
		if cost := table.itemBySteps[cheapestAlone[j]].cost; cost < minCost {
			minCost, firstSteps = cost, cheapestAlone[j]
			if int(firstSteps) == j {
				usefulSteps = append(usefulSteps, firstSteps)
			}
		}
		table.costBySteps[j], table.firstItemSteps[j] = minCost, firstSteps
	}
	return table
}

// stepsFor returns the number of steps that a rate needs.
func (c *coverTable) stepsFor(rps float64) int {
	return int(min(math.Ceil(rps/c.rateStep*(1-1e-12)), float64(len(c.costBySteps)-1)))
}

// appendCover appends to items the configurations (whole replicas of a template) that make up the cover of a rate: their
// cheapest sum that carries it. steps is the rate in steps of the table's grid.
func (c *coverTable) appendCover(items []coverItem, steps int) []coverItem {
	for steps > 0 {
		itemSteps := c.firstItemSteps[steps]
		items = append(items, c.itemBySteps[itemSteps])
		steps -= int(itemSteps)
	}
	return items
}
