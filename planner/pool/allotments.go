package pool

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Under the slot rule no two models share a device: a plan allots whole devices of each pool to each model. At a
// given throughput, the minimal allotments of a model are those within which whole replicas carry its rate, and
// that hold no smaller one. If not even parts of minimal allotments fit the devices, no plan has that
// throughput. Replicas of one model may share devices here as their parts add up, at any stage position. Plans
// share less, so the bound holds for them.

// Limits of the search for minimal allotments.
const (
	allotmentTrials = 6         // throughputs that are tried
	allotmentPools  = 8         // most pools
	allotmentParts  = 5040      // most parts of a device
	allotmentSums   = 1_000_000 // most sums of replicas, for each unit of effort
	allotmentSteps  = 16        // the first budget adds this part of what is spare
)

// allotment is the amount of each pool that a model takes, in parts of a device or in devices.
type allotment [allotmentPools]int32

// fitsWithin reports whether a takes no more than b of any pool.
func (a *allotment) fitsWithin(b *allotment) bool {
	for k, v := range a {
		if v > b[k] {
			return false
		}
	}
	return true
}

// multiply returns n times the allotment.
func (a *allotment) multiply(n int32) *allotment {
	product := *a
	for k := range product {
		product[k] *= n
	}
	return &product
}

// replicaSum is whole replicas of a template, or a sum of several such.
type replicaSum struct {
	parts allotment
	cost  float64
	rate  float64 // requests/s
}

// allotmentSearch lists the minimal allotments of one model.
type allotmentSearch struct {
	partPrices     []float64             // by pool: price of a part of a device
	poolSizes      []int                 // by pool: number of devices
	partsPerDevice int32                 // parts that a device is counted in
	targetRate     float64               // requests/s that the model needs
	minCost        float64               // lower bound on what an allotment costs
	maxCost        float64               // sums that cost more are ignored
	covers         *coverTable           // lower bounds on the cost of carrying a rate
	templateSums   []replicaSum          // replicas of one template each
	bestRates      map[allotment]float64 // by parts taken: highest rate of the sums seen
	minimal        []allotment           // minimal allotments found, in devices
	holdsMinimal   map[allotment]bool    // by devices: whether they hold a minimal allotment
	numSums        int                   // number of sums seen
}

// boundByAllotments lowers the bound of a search for the most throughput. If not even parts of minimal
// allotments fit the devices at the gap that was asked for, it lowers the bound to there, else to the lowest
// throughput at which they do not fit. covers bound each model's costs from below.
func (x *bundleSearch) boundByAllotments(ctx context.Context, covers []*coverTable) error {
	parts := partsPerDeviceOf(x.Problem)
	if x.Rounding != Slot || x.hasTimeShared() || parts == 0 || x.goal.poolCosts() != nil || x.replan != nil || x.bestPlan == nil || x.tables == nil && x.incomplete {
		return nil
	}
	remainingSums := allotmentSums * x.options.Effort

	// The throughput at which the best plan has just the gap that was asked for.
	fittingValue := x.bestScore() / (1 - x.options.Gap) * (1 - 1e-8)
	for value, rounds := fittingValue, 0; value < x.choiceBound && rounds < allotmentTrials && remainingSums > 0; rounds++ {
		fits, err := x.allotmentsFit(ctx, covers, value, parts, &remainingSums)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if !fits {
			x.choiceBound = max(min(x.choiceBound, value*(1+1e-9)), x.bestScore())
		} else {
			fittingValue = value
		}
		value = (fittingValue + x.choiceBound) / 2
	}
	return nil
}

// allotmentsFit reports whether parts of minimal allotments fit the devices at a throughput. If the listing
// takes more than the remaining work, it returns true: they may fit.
func (x *bundleSearch) allotmentsFit(ctx context.Context, covers []*coverTable, value float64, parts int32, remainingSums *int) (bool, error) {
	choices, mayFit := x.minimalAllotments(ctx, covers, value, parts, remainingSums)
	if !mayFit || choices == nil {
		return mayFit, nil
	}
	fittingParts, err := x.solveParts(ctx, x.newBundleProgram(choices, &bundleLimits{idleDevices: make([]float64, len(x.Pools))}))
	return fittingParts != nil, err
}

// minimalAllotments lists, as bundles, the minimal allotments of every model that a plan of a throughput may
// have. An allotment may cost so much more than the model's cheapest one as the cheapest ones of all models
// leave of the worth of all devices. If the cheapest cost more than that, mayFit is false. If the listing is too
// much work, the list is nil.
func (x *bundleSearch) minimalAllotments(ctx context.Context, covers []*coverTable, value float64, parts int32, remainingSums *int) (bundles []bundle, mayFit bool) {
	// A search for each model. What all devices are worth, less the least cost of every model, is spare.
	var searches []*allotmentSearch
	spareValue := total(x.coverPrices) * (1 + 1e-9)
	for d, c := range covers {
		search := &allotmentSearch{partsPerDevice: parts, targetRate: x.requiredRate(d, value) * (1 - 1e-9), covers: c}
		for k := range x.Pools {
			search.partPrices = append(search.partPrices, x.coverPrices[k]/float64(max(x.Pools[k].Count, 1)*int(parts)))
			search.poolSizes = append(search.poolSizes, x.Pools[k].Count)
		}
		search.minCost = search.coverCost(search.targetRate)
		spareValue -= search.minCost
		searches = append(searches, search)
	}
	// Budgets rise step by step. The more the cheapest allotments are known to cost, the less is spare.
	for step := spareValue / allotmentSteps; ; step *= 2 {
		complete := true

		// Each search lists its minimal allotments within its budget.
		for d, search := range searches {
			budget := search.minCost + min(step, spareValue)
			if budget <= search.maxCost {
				continue
			}
			search.maxCost = budget
			search.listTemplateSums(x.modelTables[d])
			finished := search.listMinimal(*remainingSums)
			if *remainingSums -= search.numSums; !finished || ctx.Err() != nil {
				return nil, true
			}
			cheapest := search.maxCost
			for i := range search.minimal {
				cheapest = min(cheapest, search.priceOf(search.minimal[i].multiply(parts)))
			}
			spareValue -= cheapest - search.minCost
			search.minCost = cheapest
			if spareValue < 0 {
				return nil, false
			}
			complete = complete && search.maxCost >= search.minCost+spareValue
		}
		if complete {
			break
		}
	}

	// Write the allotments as bundles.
	for d, search := range searches {
		for _, devices := range search.minimal {
			b := bundle{model: d, devices: make([]float64, len(x.Pools))}
			for k := range b.devices {
				b.devices[k] = float64(devices[k])
			}
			bundles = append(bundles, b)
		}
	}
	return bundles, true
}

// partsPerDeviceOf returns the least number of parts of a device in which all shares are whole numbers. If there
// are too many parts, or too many pools, it returns 0.
func partsPerDeviceOf(p *Problem) int32 {
	parts := 1
	for k := range p.Pools {
		for divisor := 2; divisor <= p.Pools[k].MaxShares; divisor++ {
			if parts = parts / gcd(parts, divisor) * divisor; parts > allotmentParts {
				return 0
			}
		}
	}
	if len(p.Pools) > allotmentPools {
		return 0
	}
	return int32(parts)
}

// gcd returns the greatest common divisor.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// coverCost returns a lower bound on the cost of carrying a rate.
func (a *allotmentSearch) coverCost(rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return a.covers.costBySteps[a.covers.stepsFor(rate)]
}

// listTemplateSums lists the replicas of one template each that a sum within the cost limit may hold, the
// highest rate first. It leaves out those that take at least as much of every pool as others of no lower rate.
func (a *allotmentSearch) listTemplateSums(table *templateTable) {
	a.templateSums = a.templateSums[:0]

	// The highest rate of every allotment.
	bestRates := map[allotment]float64{}

	// For each stage, replicas of it set the rate, and the other stages take the fewest replicas that carry it.
	for i := range table.len() {
		stages := table.stagesOf(i)
		for j := range stages {
			if stages[j].share == 0 {
				break
			}
			for replicas := 1; ; replicas++ {
				rate := float64(replicas) / (stages[j].devicesPerRPS * float64(stages[j].share))
				parts, cost := a.fewestParts(stages, rate)
				if cost > a.maxCost {
					break
				}
				if cost+a.coverCost(a.targetRate-rate) <= a.maxCost && rate > bestRates[parts] {
					bestRates[parts] = rate
				}
				if rate >= a.targetRate {
					break
				}
			}
		}
	}

	// The highest rates first, and of those the ones that no other one undercuts.
	sums := make([]replicaSum, 0, len(bestRates))
	for parts, rate := range bestRates {
		sums = append(sums, replicaSum{parts, a.priceOf(&parts), rate})
	}
	slices.SortFunc(sums, func(x, y replicaSum) int {
		return cmp.Or(cmp.Compare(y.rate, x.rate), cmp.Compare(x.cost, y.cost), slices.Compare(x.parts[:], y.parts[:]))
	})
	for i := range sums {
		if !slices.ContainsFunc(a.templateSums, func(o replicaSum) bool { return o.parts.fitsWithin(&sums[i].parts) }) {
			a.templateSums = append(a.templateSums, sums[i])
		}
	}
}

// fewestParts returns the parts that the fewest replicas of a template take which carry a rate, and their cost.
// If they need more devices than there are, the cost is infinite.
func (a *allotmentSearch) fewestParts(stages []compactStage, rate float64) (parts allotment, cost float64) {
	for i := range stages {
		stage := &stages[i]
		if stage.share == 0 {
			break
		}
		replicas := math.Ceil(rate*stage.devicesPerRPS*float64(stage.share) - 1e-9)
		if replicas > float64(a.poolSizes[stage.pool])*float64(stage.share) {
			return parts, math.Inf(1)
		}
		parts[stage.pool] += int32(replicas) * (a.partsPerDevice / int32(stage.share))
	}
	return parts, a.priceOf(&parts)
}

// priceOf returns the price of the parts that an allotment takes.
func (a *allotmentSearch) priceOf(parts *allotment) (cost float64) {
	for k, price := range a.partPrices {
		cost += price * float64(parts[k])
	}
	return cost
}

// listMinimal adds up replicas, the highest rates first, and collects the minimal allotments that hold enough of
// them. If that takes more than maxSums sums, it returns false.
func (a *allotmentSearch) listMinimal(maxSums int) bool {
	type step struct {
		replicaSum
		firstSingle int // index of the first element of templateSums to add: so each sum is made in one order only
	}
	a.minimal, a.bestRates, a.holdsMinimal, a.numSums = nil, map[allotment]float64{}, map[allotment]bool{}, 0
	pending := []step{{}}
	for len(pending) > 0 {
		current := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if current.rate < a.bestRates[current.parts] {
			continue // another sum of the same parts has a higher rate
		}

		// Add each of the remaining templateSums once more.
		for i := len(a.templateSums) - 1; i >= current.firstSingle; i-- {
			single := &a.templateSums[i]
			next := step{replicaSum{current.parts, current.cost + single.cost, current.rate + single.rate}, i}
			if next.cost+a.coverCost(a.targetRate-next.rate) > a.maxCost {
				continue
			}

			// The whole devices that hold the sum.
			var wholeDevices allotment
			cost := 0.0
			for k, price := range a.partPrices {
				next.parts[k] += single.parts[k]
				wholeDevices[k] = (next.parts[k] + a.partsPerDevice - 1) / a.partsPerDevice
				cost += price * float64(wholeDevices[k]*a.partsPerDevice)
			}
			if cost > a.maxCost || a.containsMinimal(&wholeDevices) {
				continue
			}

			// If it carries the rate, it is a minimal allotment and replaces those that hold it.
			if next.rate >= a.targetRate {
				a.minimal = append(slices.DeleteFunc(a.minimal, func(o allotment) bool { return wholeDevices.fitsWithin(&o) }), wholeDevices)
				clear(a.holdsMinimal)
				continue
			}

			// Else go on from it, unless the same parts carried more before.
			if knownRate, ok := a.bestRates[next.parts]; ok && knownRate >= next.rate {
				continue
			}
			a.bestRates[next.parts] = next.rate
			if a.numSums++; a.numSums > maxSums {
				return false
			}
			pending = append(pending, next)
		}
	}
	return true
}

// containsMinimal reports whether devices hold a minimal allotment that was found.
func (a *allotmentSearch) containsMinimal(devices *allotment) bool {
	contains, known := a.holdsMinimal[*devices]
	if !known {
		contains = slices.ContainsFunc(a.minimal, func(o allotment) bool { return o.fitsWithin(devices) })
		a.holdsMinimal[*devices] = contains
	}
	return contains
}
