package pool

import (
	"cmp"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// Losses add up. By the duals of the relaxation the throughput of a plan is at most the bound, less the loss of
// every configuration that it uses (whole replicas of one template, at the rate that they carry), less the price
// of idle devices. So one model's part of a plan that may beat the best one is a sum of configurations whose
// losses stay within the gap. Finding these sums is a knapsack over the devices that they take, solved exactly
// by labels of rising loss. Models share nothing but the devices: at a given throughput each model needs one of
// its device sets, and these must fit together. Only the rounding of parts of devices is relaxed: parts round up
// to whole devices per model and kind, not per model, stage position and kind.
//
// The relaxation of the integer program sees none of this, because a fraction of a large configuration, which
// loses little, looks as good there as a small configuration.

const (
	lossWorkSteps      = 4_000_000 // configurations and device sets that are combined, per unit of effort
	longLossFactor     = 4         // times as many, if the first pass was not enough
	firstBudgetDivisor = 16        // the first loss budget is the gap divided by this
	budgetGrowth       = 1.5       // factor from one budget to the next
	slotBudgetGrowth   = 1.1       // the same with stage positions apart
	knownLossFactor    = 1.02      // factor of the first budget over the loss that every plan is known to have
	maxLabels          = 1_500_000 // most labels kept in memory
	joinHalvings       = 30        // halvings of the throughput interval
	stepsPerIteration  = 600       // steps that take as long as one iteration of the simplex method
	stepsPerLabel      = 8         // steps that a new label counts for
)

// lossItem is a configuration as an item of the knapsack: whole replicas of a template, at the rate that they
// carry.
type lossItem struct {
	devices  deviceUse
	rate     float64 // in units
	price    float64 // of the devices, in units
	loss     float64 // price - rateDual * rate
	template int
}

// lossKnapsack proves a bound for one plan and one relaxation by sums of losses.
type lossKnapsack struct {
	search      *planSearch
	dimensions  []useDimension
	dimensionOf [][]int // by stage position and pool: index of the dimension
	bySlot      bool    // whether stage positions are counted apart, as the slot rule does
	lossBudget  float64 // plans that lose more are not looked at
	workSteps   int64   // done so far
	maxSteps    int64   // the search stops there
	numItems    int     // configurations of all models
}

// boundByLosses lowers the bound by sums of losses, first with stage positions counted together. If that pass
// finds the best such sums, a second one counts stage positions apart.
func (x *planImprover) boundByLosses(maxSteps int64) {
	if x.boundByLossSums(maxSteps, false) && !x.options.Hurry {
		x.boundByLossSums(longLossFactor*lossWorkSteps, true)
	}
}

// boundByLossSums runs the knapsack, if it is small enough. It lowers the bound, and keeps the plan found if
// that is better. exact reports whether the best sums were found. With bySlot stage positions are counted apart,
// which takes more work.
func (x *planImprover) boundByLossSums(maxSteps int64, bySlot bool) (exact bool) {
	if x.goal.poolCosts() != nil || x.incomplete || x.bestPlan == nil || x.hasTimeShared() || x.usesBundles() || x.gap() <= max(x.options.Gap, provenGap) ||
		bySlot && x.Rounding != Slot {
		return false
	}
	for d := range x.Models {
		if x.Models[d].MinRPS > 0 || x.lp.rateDual[d] < 1e-9 {
			return false
		}
	}
	knapsack := &lossKnapsack{search: x.planSearch, maxSteps: maxSteps * int64(x.options.Effort), bySlot: bySlot}
	exact = knapsack.raiseBudget()
	if knapsack.workSteps > 0 {
		x.recordPhase("losses", knapsack.numItems, milp.Stats{Iterations: max(1, knapsack.workSteps/stepsPerIteration)})
	}
	return exact
}

// raiseBudget looks at plans of little loss first and raises the loss budget step by step, because the number of
// sums grows fast with it. It reports whether it found the best plan.
func (k *lossKnapsack) raiseBudget() (exact bool) {
	x := k.search
	gap := x.lp.bound - x.bestScore()
	growth := budgetGrowth
	if k.bySlot {
		growth = slotBudgetGrowth
	}
	// Every plan is known to lose this much already.
	knownLoss := (x.lp.bound - x.choiceBound) * knownLossFactor
	for k.lossBudget = min(max(gap/firstBudgetDivisor, knownLoss), gap); x.gap() > max(x.options.Gap, provenGap); k.lossBudget = min(k.lossBudget*growth, gap) {
		if !(k.lossBudget > 0) || !k.setDimensions() {
			return false
		}

		// The labels of every model within the budget.
		unlistedLoss := math.Inf(1)
		k.numItems = 0
		var searches []*labelSearch
		for d := range x.Models {
			labels := k.listSums(d)
			searches = append(searches, labels)
			unlistedLoss = min(unlistedLoss, labels.unlistedLoss)
			k.numItems += len(labels.items)
		}
		if unlistedLoss == 0 {
			return false
		}
		// A plan outside the search loses at least as much as the first label that was not listed.
		unlistedBound := x.lp.bound - min(unlistedLoss, k.lossBudget)

		// Combine the models, and keep the plan and the bound.
		throughput, plan := k.joinModels(searches, unlistedBound)
		if plan != nil {
			x.keepIfBetter(x.recomputePlan(plan))
		}
		x.choiceBound = max(min(x.choiceBound, max(throughput, unlistedBound)*(1+1e-9)), x.bestScore())
		if throughput > unlistedBound {
			return true
		}
		if k.lossBudget >= gap || k.workSteps >= k.maxSteps {
			return x.gap() <= provenGap
		}
	}
	return true
}

// useDimension is a part of a pool whose use is counted: the devices of one stage position, or those of all
// positions that have no dimension of their own. A use is written as a number with a digit per dimension.
type useDimension struct {
	pool, partsPerDevice int    // parts of a device that the use is counted in
	word                 int    // index of the deviceUse number that holds the digit
	radix                uint64 // value of one part in that number
	numValues            uint64 // of the digit: all parts of the pool, plus one
}

// deviceUse says which devices are taken: one digit per dimension, over two numbers.
type deviceUse [2]uint64

// plus adds up two uses.
func (u deviceUse) plus(v deviceUse) deviceUse { return deviceUse{u[0] + v[0], u[1] + v[1]} }

// compare orders uses by their numbers.
func (u deviceUse) compare(v deviceUse) int {
	return cmp.Or(cmp.Compare(u[0], v[0]), cmp.Compare(u[1], v[1]))
}

// setDimensions chooses the dimensions and how a use is written as two numbers. If the numbers are too small for
// that, it returns false.
func (k *lossKnapsack) setDimensions() bool {
	p, x := k.search.Problem, k.search
	k.dimensions = k.dimensions[:0]

	// One dimension for each pool.
	for i := range p.Pools {
		k.dimensions = append(k.dimensions, useDimension{pool: i, partsPerDevice: 1})
	}
	k.dimensionOf = make([][]int, p.MaxPartitions)
	for si := range k.dimensionOf {
		k.dimensionOf[si] = make([]int, len(p.Pools))
		for i := range p.Pools {
			k.dimensionOf[si][i] = i
		}
	}

	// With stage positions apart, each position that takes shares of a pool gets a dimension of its own.
	for _, ti := range x.allowedTemplates {
		if x.losses[ti] > k.lossBudget {
			continue
		}
		for si, s := range x.templates[ti].Stages {
			dimensionIndex := &k.dimensionOf[si][s.Pool]
			if k.bySlot && s.Share > 1 && *dimensionIndex == s.Pool {
				*dimensionIndex = len(k.dimensions)
				k.dimensions = append(k.dimensions, useDimension{pool: s.Pool, partsPerDevice: 1})
			}
			k.dimensions[*dimensionIndex].partsPerDevice = lcm(k.dimensions[*dimensionIndex].partsPerDevice, s.Share)
		}
	}

	// The radix of each digit.
	keyWord, radix := 0, uint64(1)
	for i := range k.dimensions {
		d := &k.dimensions[i]
		d.numValues = uint64(p.Pools[d.pool].Count*d.partsPerDevice + 1)
		if radix > math.MaxUint64/4/d.numValues {
			keyWord, radix = keyWord+1, 1
		}
		if keyWord == len(deviceUse{}) {
			return false
		}
		d.word, d.radix = keyWord, radix
		radix *= d.numValues
	}
	return true
}

// partsOf returns how many parts of the dimension a use takes.
func (d *useDimension) partsOf(u deviceUse) int { return int(u[d.word] / d.radix % d.numValues) }

// partsPrice returns the price of parts of a dimension.
func (k *lossKnapsack) partsPrice(d *useDimension, parts int) float64 {
	return k.search.lp.poolPrice[d.pool] * float64(parts) / float64(k.search.Pools[d.pool].Count*d.partsPerDevice)
}

// listItems lists the configurations of model d that lose no more than the budget, the least loss first. If that
// is too much work, it returns false.
func (k *lossKnapsack) listItems(d int) (items []lossItem, complete bool) {
	x := k.search

	// Of configurations with the same use, keep the one of the highest rate.
	bestByUse := map[deviceUse]lossItem{}
	takenParts := make([]int, len(k.dimensions))
	for _, ti := range x.allowedTemplates {
		t := &x.templates[ti]
		if t.Model != d || x.losses[ti] > k.lossBudget {
			continue
		}

		// For each stage, g replicas of it set the rate, and the others have as many as it needs.
		for i := range t.Stages {
		grow:
			for replicas := 1; ; replicas++ {
				k.workSteps++

				// The devices that carry the rate.
				item := lossItem{template: ti, rate: t.Stages[i].Rate * float64(replicas)}
				clear(takenParts)
				for j := range t.Stages {
					s := &t.Stages[j]
					parts := int(math.Ceil(item.rate/s.Rate - 1e-9))
					dimensionIndex := k.dimensionOf[j][s.Pool]
					takenParts[dimensionIndex] += parts * (k.dimensions[dimensionIndex].partsPerDevice / s.Share)
					if uint64(takenParts[dimensionIndex]) >= k.dimensions[dimensionIndex].numValues {
						break grow
					}
				}
				item.rate /= x.units.modelRPS[d]
				for j, parts := range takenParts {
					if parts == 0 {
						continue // a pool without devices has no price
					}
					counted := &k.dimensions[j]
					item.devices[counted.word] += uint64(parts) * counted.radix
					item.price += k.partsPrice(counted, parts)
				}
				item.loss = max(item.price-x.lp.rateDual[d]*item.rate, 0)
				if item.loss > k.lossBudget {
					continue
				}
				if known, complete := bestByUse[item.devices]; !complete || item.rate > known.rate {
					bestByUse[item.devices] = item
				}
			}
		}
		if k.workSteps > k.maxSteps {
			return nil, false
		}
	}

	// By rising loss.
	for _, item := range bestByUse {
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, known lossItem) int {
		return cmp.Or(cmp.Compare(a.loss, known.loss), a.devices.compare(known.devices))
	})
	return items, true
}
