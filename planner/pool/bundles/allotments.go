package bundles

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
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

// fitsWithin reports whether allotment a (parts of devices by pool) takes no more than b of any pool.
func (a *allotment) fitsWithin(b *allotment) bool {
	for k, v := range a {
		if v > b[k] {
			return false
		}
	}
	return true
}

// multiply returns n times the allotment. It turns whole devices into parts of devices, say.
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

// plus adds up two sums of replicas: their parts of devices, costs and rates.
func (s *replicaSum) plus(o *replicaSum) replicaSum {
	added := replicaSum{s.parts, s.cost + o.cost, s.rate + o.rate}
	for k, n := range o.parts {
		added.parts[k] += n
	}
	return added
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

// boundByAllotments lowers the bound of a search for the most throughput by allotments (the whole devices of each
// pool that one model takes). In a minimal allotment replicas carry the rate that the model needs at a throughput, and
// in no smaller amount of devices they do. If no mix of minimal allotments of all models, taken in fractions, fits the
// devices, no plan reaches that throughput, and the bound goes down to it.
//
// It first tries the throughput at which the best plan has just the gap that was asked for, because the search ends if
// no plan reaches it. If plans may reach it, it bisects up to the bound. It does nothing if models may share devices
// (another rounding, time-shared pools), for a price or a re-plan, without a plan, or if not all templates are known.
func (x *bundleSearch) boundByAllotments(ctx context.Context) error {
	parts := partsPerDeviceOf(x.problem)
	if x.problem.Rounding != problem.Slot || x.problem.HasTimeShared() || parts == 0 {
		return nil
	}
	minimisesPrice := x.incumbent.Goal.PoolCosts() != nil
	if minimisesPrice || x.incumbent.Replan != nil || x.incumbent.Plan == nil || !x.covers.allListed {
		return nil
	}
	remainingSums := allotmentSums * x.options.Effort

	// Start with the throughput at which the best plan has just the gap that was asked for. All values are in units of
	// the search. lowestValue is not tried below: it is the first value, or the highest that plans may reach. The small
	// factors allow for rounding errors. The first one is larger, so that the gap is closed if the first value is out of
	// reach, although the bound is then set a little above that value.
	lowestValue := x.incumbent.Score() / (1 - x.options.Gap) * (1 - 1e-8)
	for value, rounds := lowestValue, 0; value < x.incumbent.ChoiceBound && rounds < allotmentTrials && remainingSums > 0; rounds++ {
		mayFit, err := x.allotmentsFit(ctx, value, parts, &remainingSums)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if mayFit {
			lowestValue = value
		} else {
			x.incumbent.LowerBound(value * (1 + 1e-9))
		}
		value = (lowestValue + x.incumbent.ChoiceBound) / 2
	}
	return nil
}

// allotmentsFit reports whether fractions of minimal allotments (the fewest devices that carry what a model
// needs), one in all for each model, fit the devices at a throughput in units. If the listing of the allotments
// takes more than the remaining work, it returns true: they may fit.
func (x *bundleSearch) allotmentsFit(ctx context.Context, value float64, parts int32, remainingSums *int) (bool, error) {
	choices, mayFit := x.minimalAllotments(ctx, value, parts, remainingSums) // nil if the listing was too much work
	if !mayFit || choices == nil {
		return mayFit, nil
	}
	fittingParts, err := x.solveParts(ctx, x.newBundleProgram(choices, &bundleLimits{idleDevices: make([]float64, len(x.problem.Pools))}))
	return fittingParts != nil, err
}

// minimalAllotments lists, as bundles, the minimal allotments of every model (the fewest devices that carry its
// rate) that a plan of a throughput, in units, may have. All models together cost at most what all devices are
// worth, at the prices of the covers. So one model may cost at most its own least cost plus what the least costs
// of all models leave of that worth. If they leave nothing, mayFit is false: no plan reaches the throughput. The
// listing adds up groups of replicas, and counts devices in partsPerDevice parts. If it takes more than
// remainingSums sums, the list is nil and mayFit true.
func (x *bundleSearch) minimalAllotments(ctx context.Context, throughput float64, partsPerDevice int32, remainingSums *int) (bundles []bundle, mayFit bool) {
	// What all devices are worth, less the least cost of every model, is spare: one model may spend it all.
	searches := x.newAllotmentSearches(throughput, partsPerDevice)
	spareValue := lists.Total(x.covers.prices) * (1 + 1e-9)
	for _, search := range searches {
		spareValue -= search.minCost
	}

	// Each model's budget rises from its least cost in doubling steps, up to all that is spare. The cheapest allotments
	// found within it raise the least cost, which leaves less to the other models.
	complete := false
	for step := spareValue / allotmentSteps; !complete; step *= 2 {
		complete = true
		for d, search := range searches {
			budget := search.minCost + min(step, spareValue)
			if budget <= search.maxCost {
				continue
			}
			// Within the budget list the replicas of single templates, and then the sums of these that carry the rate.
			search.maxCost = budget
			search.listTemplateSums(x.covers.modelTables[d])
			finished := search.listMinimal(*remainingSums)
			*remainingSums -= search.numSums
			if !finished || ctx.Err() != nil {
				return nil, true
			}
			cheapest := search.maxCost
			for i := range search.minimal {
				wholeDevices := &search.minimal[i]
				cheapest = min(cheapest, search.priceOf(wholeDevices.multiply(partsPerDevice)))
			}
			spareValue -= cheapest - search.minCost
			search.minCost = cheapest
			if spareValue < 0 {
				return nil, false
			}
			// Later models only lower spareValue, so a budget that covers all of it now does so at the end, too.
			coversSpare := search.maxCost >= search.minCost+spareValue
			complete = complete && coversSpare
		}
	}
	return allotmentBundles(searches), true
}

// newAllotmentSearches returns, for each model, a search that has not begun for its minimal allotments (the fewest devices
// that carry its rate) at the rate that it needs at a throughput of value units. A device is counted in the given number of
// parts; the price of one is that of the pool divided by all its parts. The least cost of each model comes from covers.
func (x *bundleSearch) newAllotmentSearches(value float64, parts int32) []*allotmentSearch {
	var searches []*allotmentSearch
	for d, c := range x.covers.boundTables {
		search := &allotmentSearch{partsPerDevice: parts, targetRate: x.covers.requiredRate(d, value) * (1 - 1e-9), covers: c}
		for k := range x.problem.Pools {
			search.partPrices = append(search.partPrices, x.covers.prices[k]/float64(max(x.problem.Pools[k].Count, 1)*int(parts)))
			search.poolSizes = append(search.poolSizes, x.problem.Pools[k].Count)
		}
		search.minCost = search.coverCost(search.targetRate)
		searches = append(searches, search)
	}
	return searches
}

// allotmentBundles writes the minimal allotments of every model as bundles, which hold devices of each pool but
// no pipelines, so that the program over bundles can decide whether they fit.
func allotmentBundles(searches []*allotmentSearch) (bundles []bundle) {
	for d, search := range searches {
		for _, allotted := range search.minimal {
			b := bundle{model: d, devices: make([]float64, len(search.poolSizes))}
			for k := range b.devices {
				b.devices[k] = float64(allotted[k])
			}
			bundles = append(bundles, b)
		}
	}
	return bundles
}

// partsPerDeviceOf returns the least number of parts of a device in which every share 1/v that a pool allows is
// a whole number of parts: 6 for halves and thirds. If there are too many parts, or more pools than an
// allotment has space for, it returns 0, and no allotments are listed.
func partsPerDeviceOf(p *problem.Problem) int32 {
	parts := 1
	for k := range p.Pools {
		for divisor := 2; divisor <= p.Pools[k].MaxShares; divisor++ {
			if parts = problem.CommonParts(parts, divisor); parts > allotmentParts {
				return 0
			}
		}
	}
	if len(p.Pools) > allotmentPools {
		return 0
	}
	return int32(parts)
}

// coverCost returns a lower bound on the cost of the devices that replicas of the model take to carry a rate in
// requests/s. It is the cost of the cover (the cheapest replicas that carry the rate) in a table in which the replicas
// carry more than they do, because their rates are rounded up to its grid: so no real replicas cost less. For a rate
// of 0 or less it is 0.
func (a *allotmentSearch) coverCost(rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return a.covers.costBySteps[a.covers.stepsFor(rate)]
}

// listTemplateSums lists, into templateSums, the groups of replicas of a single template of which listMinimal makes the
// minimal allotments (the fewest devices in which replicas carry the model's rate): their parts of devices, cost and rate,
// the highest rate first. Groups too dear for an allotment of at most maxCost are left out (addReplicaGroups), and those
// that take at least as much of every pool as another one of the same or a higher rate.
func (a *allotmentSearch) listTemplateSums(table *templates.Table) {
	// For each amount of devices, the highest rate of replicas of one template. Each stage in turn is the slowest, whose
	// replicas set the rate.
	bestRates := map[allotment]float64{}
	for i := range table.Len() {
		stages := table.StagesOf(i)
		for slowest := range stages {
			a.addReplicaGroups(bestRates, stages, slowest)
		}
	}

	// Sort by falling rate. Then each group is left out if an earlier one, of no lower rate, takes no more of any pool.
	sums := make([]replicaSum, 0, len(bestRates))
	for parts, rate := range bestRates {
		sums = append(sums, replicaSum{parts, a.priceOf(&parts), rate})
	}
	slices.SortFunc(sums, func(x, y replicaSum) int {
		return cmp.Or(cmp.Compare(y.rate, x.rate), cmp.Compare(x.cost, y.cost), slices.Compare(x.parts[:], y.parts[:]))
	})
	a.templateSums = a.templateSums[:0]
	for i := range sums {
		if !slices.ContainsFunc(a.templateSums, func(o replicaSum) bool { return o.parts.fitsWithin(&sums[i].parts) }) {
			a.templateSums = append(a.templateSums, sums[i])
		}
	}
}

// addReplicaGroups adds to bestRates groups of replicas of one template, whose stages are given. A group has 1, 2, … replicas
// of the stage with index limiting, which set its rate, and of the other stages the fewest replicas that carry that rate.
// bestRates has, by the parts of devices that groups take, the highest rate in requests/s. Groups are left out that must
// cost more than maxCost once the missing rate is added.
func (a *allotmentSearch) addReplicaGroups(bestRates map[allotment]float64, stages []templates.TableStage, limiting int) {
	// A request takes DevicesPerRPS seconds of a whole device. A replica has 1/Share of a device, so it takes Share times
	// as long for one.
	secondsPerRequest := stages[limiting].DevicesPerRPS * float64(stages[limiting].Share)
	for replicas := 1; ; replicas++ {
		rate := float64(replicas) / secondsPerRequest
		parts, cost := a.fewestParts(stages, rate)
		if cost > a.maxCost {
			return
		}
		if cost+a.coverCost(a.targetRate-rate) <= a.maxCost && rate > bestRates[parts] {
			bestRates[parts] = rate
		}
		if rate >= a.targetRate {
			return
		}
	}
}

// fewestParts returns the parts of devices, by pool, that a template takes with the fewest replicas of each
// stage that carry a rate, and what these parts cost. If a stage needs more devices than its pool has, the cost
// is infinite.
func (a *allotmentSearch) fewestParts(stages []templates.TableStage, rate float64) (parts allotment, cost float64) {
	for i := range stages {
		stage := &stages[i]
		replicas := stage.ReplicasFor(rate)
		if replicas > float64(a.poolSizes[stage.Pool])*float64(stage.Share) {
			return parts, math.Inf(1)
		}
		parts[stage.Pool] += int32(replicas) * (a.partsPerDevice / int32(stage.Share))
	}
	return parts, a.priceOf(&parts)
}

// priceOf returns the price of the parts of devices that an allotment takes.
func (a *allotmentSearch) priceOf(parts *allotment) (cost float64) {
	return lists.Sum(len(a.partPrices), func(k int) float64 { return a.partPrices[k] * float64(parts[k]) })
}

// listMinimal finds the minimal allotments of the model: the whole devices of each pool in which replicas carry the target
// rate, if no fewer of one pool and as many of the others do. It adds up groups of replicas from templateSums, the highest
// rates first, until a sum carries the rate. A sum counts parts of devices (replicaSum.parts), which are rounded up to whole
// devices by pool. Sums dearer than maxCost are left out. If it takes more than maxSums sums, it stops and returns false: the
// list is not complete.
func (a *allotmentSearch) listMinimal(maxSums int) bool {
	type step struct {
		replicaSum
		firstIndex int // of the elements of templateSums that may be added: so each sum is made in one order only
	}

	// pending holds the sums that carry less than the rate, the last one first to be extended: a depth-first search. It
	// starts with the empty sum, of rate 0. holdsMinimal keeps the answers of containsMinimal.
	a.minimal, a.bestRates, a.holdsMinimal, a.numSums = nil, map[allotment]float64{}, map[allotment]bool{}, 0
	pending := []step{{}}
	for len(pending) > 0 {
		current := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if current.rate < a.bestRates[current.parts] {
			continue // since this sum was added to pending, one of the same parts with a higher rate was
		}

		// Add one more of the remaining templateSums, the lowest rate first, so that the sum with the highest one is the
		// next to be extended. Leave out sums that must become too dear, and those whose devices hold a minimal allotment
		// already.
		for i := len(a.templateSums) - 1; i >= current.firstIndex; i-- {
			next := step{current.plus(&a.templateSums[i]), i}
			if next.cost+a.coverCost(a.targetRate-next.rate) > a.maxCost {
				continue
			}
			wholeDevices, cost := a.wholeDevicesOf(&next.parts)
			if cost > a.maxCost || a.containsMinimal(&wholeDevices) {
				continue
			}

			// If it carries the rate, its devices are a minimal allotment and replace those that take as many or more of every
			// pool. Answers about the earlier allotments are no longer valid.
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

// wholeDevicesOf rounds parts of devices up to whole devices of each pool, and returns these with their cost.
func (a *allotmentSearch) wholeDevicesOf(parts *allotment) (devices allotment, cost float64) {
	for k, price := range a.partPrices {
		devices[k] = (parts[k] + a.partsPerDevice - 1) / a.partsPerDevice
		cost += price * float64(devices[k]*a.partsPerDevice)
	}
	return devices, cost
}

// containsMinimal reports whether some devices hold all of a minimal allotment that was found already: then a
// sum that takes them is not minimal. It remembers its answers until another allotment is found.
func (a *allotmentSearch) containsMinimal(devices *allotment) bool {
	contains, known := a.holdsMinimal[*devices]
	if !known {
		contains = slices.ContainsFunc(a.minimal, func(o allotment) bool { return o.fitsWithin(devices) })
		a.holdsMinimal[*devices] = contains
	}
	return contains
}
