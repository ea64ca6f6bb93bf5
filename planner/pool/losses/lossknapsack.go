package losses

import (
	"cmp"
	"math"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
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
	LongFactor         = 4         // times as many, if the first pass was not enough
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
	loss     float64 // price - RateDual * rate
	template int
}

// lossKnapsack proves a bound for one plan and one relaxation by sums of losses.
type lossKnapsack struct {
	incumbent   *incumbent.Incumbent
	problem     *problem.Problem
	catalogue   *templates.Catalogue
	choice      *relaxation.WaitChoice
	gap         float64 // at which a plan is good enough
	dimensions  []useDimension
	dimensionOf [][]int // by stage position and pool: index of the dimension
	bySlot      bool    // whether stage positions are counted apart, as the slot rule does
	lossBudget  float64 // plans that lose more are not looked at
	workSteps   int64   // done so far
	maxSteps    int64   // the search stops there
	numItems    int     // configurations of all models
}

// newLossKnapsack returns the knapsack of a wait choice and the best plan, for at most so many steps of work.
func newLossKnapsack(choice *relaxation.WaitChoice, best *incumbent.Incumbent, gap float64, maxSteps int64) *lossKnapsack {
	return &lossKnapsack{incumbent: best, problem: choice.Catalogue.Problem, catalogue: choice.Catalogue, choice: choice, gap: gap, maxSteps: maxSteps}
}

// LowerBound lowers the bound of plans under a wait choice by sums of losses, first with stage positions counted
// together. If that pass finds the best such sums, a second one counts stage positions apart, unless the plan is
// wanted soon. The first pass takes workFactor times the usual steps. Each pass that did some work is noted in
// record.
func LowerBound(choice *relaxation.WaitChoice, best *incumbent.Incumbent, options *problem.Options, workFactor int64, record problem.PhaseRecorder) {
	if boundByLossSums(choice, best, options, workFactor, false, record) && !options.Hurry {
		boundByLossSums(choice, best, options, LongFactor, true, record)
	}
}

// boundByLossSums lowers the bound by losses. A configuration (whole replicas of a template, at their rate) has a
// loss: its devices cost so much more, at the prices of the relaxation, than its rate is worth. A plan is a sum of
// configurations of each model, and stays below the bound of the relaxation by the sum of their losses at least. So
// the sums that lose least bound all plans, and make up a plan themselves, which is kept if it is better. exact
// reports whether these sums were found. With bySlot, parts of devices round up to whole ones by stage position of a
// model, and not only by model, which bounds better and takes more work.
//
// It does nothing where losses do not add up to a bound: for a price, with floors, on time-shared pools, for a
// model whose rate is worth nothing, or where not all templates are known.
func boundByLossSums(choice *relaxation.WaitChoice, best *incumbent.Incumbent, options *problem.Options, workFactor int64, bySlot bool, record problem.PhaseRecorder) (exact bool) {
	knapsack := newLossKnapsack(choice, best, max(options.Gap, incumbent.ProvenGap), workFactor*lossWorkSteps*int64(options.Effort))
	knapsack.bySlot = bySlot
	if !knapsack.isUseful() {
		return false
	}

	// The search allows for more and more loss until it is known which sums lose least, or the work is done.
	exact = knapsack.raiseBudget()
	if knapsack.workSteps > 0 {
		record("losses", knapsack.numItems, milp.Stats{Iterations: max(1, knapsack.workSteps/stepsPerIteration)})
	}
	return exact
}

// isUseful reports whether sums of losses (how far plans stay below the bound of the relaxation) can bound the plans of the
// problem, and the gap between the best plan and the bound is not closed yet.
func (k *lossKnapsack) isUseful() bool {
	// Losses are against a throughput. They must be known of all templates, and count whole replicas, which stages on
	// time-shared pools do not have. Many models have a bound of their own (package bundles). Stage positions round up
	// apart under the slot rule only.
	minimisesPrice := k.incumbent.Goal.PoolCosts() != nil
	slotsWithoutRule := k.bySlot && k.problem.Rounding != problem.Slot
	if minimisesPrice || k.catalogue.Incomplete || k.problem.HasTimeShared() || k.problem.UsesBundles() || slotsWithoutRule {
		return false
	}
	if k.incumbent.Plan == nil || k.incumbent.Gap() <= k.gap {
		return false
	}
	// With a floor (least rate of a model), or a rate of no value, the loss of a plan is not the sum of those of its
	// configurations.
	return !lists.Contains(len(k.problem.Models), func(d int) bool { return k.problem.Models[d].MinRPS > 0 || k.choice.Relaxation.RateDual[d] < 1e-9 })
}

// raiseBudget searches for the best plan among those whose loss (how far their throughput stays below the bound of the
// relaxation) is within a budget, and raises the budget step by step up to the loss of the best plan, because the
// number of plans grows fast with it. After each step it keeps a better plan and lowers the bound. It returns true if
// no plan that it did not look at is better than the one it found, or the gap is small enough, and false if the work
// ran out or there are too many devices to count.
func (k *lossKnapsack) raiseBudget() (exact bool) {
	// bestLoss is what the best plan loses: a better plan loses less. With bySlot there are more labels (sums of
	// configurations), so the budget grows more slowly.
	bestLoss := k.choice.Relaxation.Bound - k.incumbent.Score()
	growth := budgetGrowth
	if k.bySlot {
		growth = slotBudgetGrowth
	}

	// If the bound was lowered below that of the relaxation before, every plan loses at least the difference. So the first
	// budget is a little more than that. The steps end when the relative gap of the best plan is as small as asked for.
	knownLoss := (k.choice.Relaxation.Bound - k.incumbent.ChoiceBound) * knownLossFactor
	for k.lossBudget = min(max(bestLoss/firstBudgetDivisor, knownLoss), bestLoss); k.incumbent.Gap() > k.gap; k.lossBudget = min(k.lossBudget*growth, bestLoss) {
		if !(k.lossBudget > 0) || !k.setDimensions() {
			return false
		}

		// List the labels of every model within the budget. unlistedLoss is the least that a plan with another one loses.
		unlistedLoss := math.Inf(1)
		k.numItems = 0
		var searches []*labelSearch
		for d := range k.problem.Models {
			labels := k.listSums(d)
			searches = append(searches, labels)
			unlistedLoss = min(unlistedLoss, labels.unlistedLoss)
			k.numItems += len(labels.items)
		}
		if unlistedLoss == 0 { // nothing is proven of the plans that were not looked at
			return false
		}
		// A plan with a label that was not listed loses at least unlistedLoss, or more than the budget.
		unlistedBound := k.choice.Relaxation.Bound - min(unlistedLoss, k.lossBudget)

		// Combine the models, and keep the plan and the bound.
		throughput, plan := k.joinModels(searches, unlistedBound)
		if plan != nil {
			k.incumbent.KeepIfBetter(placement.Recompute(k.catalogue, plan))
		}
		k.incumbent.LowerBound(max(throughput, unlistedBound) * (1 + 1e-9))
		// The best of the lists is better than any plan outside of them.
		if throughput > unlistedBound {
			return true
		}
		// All better plans were looked at, or the work is done: the best one is known if it has come to the bound.
		if k.lossBudget >= bestLoss || k.workSteps >= k.maxSteps {
			return k.incumbent.Gap() <= incumbent.ProvenGap
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

// setDimensions chooses how a use of devices is written: a digit (dimension) for each pool, which counts parts
// of devices, and with bySlot one more for each stage position that takes shares. The digits are packed into the
// 64-bit numbers of a deviceUse. If they do not fit there, it returns false. It is called for each loss budget,
// because only templates whose loss is within the budget take part.
func (k *lossKnapsack) setDimensions() bool {
	k.dimensions = k.dimensions[:0]

	// One dimension for each pool, with the same index. All stage positions use it at first.
	k.dimensions = append(k.dimensions, lists.Map(len(k.problem.Pools), func(i int) useDimension { return useDimension{pool: i, partsPerDevice: 1} })...)
	k.dimensionOf = make([][]int, k.problem.MaxPartitions)
	for si := range k.dimensionOf {
		k.dimensionOf[si] = make([]int, len(k.problem.Pools))
		for i := range k.problem.Pools {
			k.dimensionOf[si][i] = i
		}
	}

	// With stage positions apart, each position that takes shares of a pool gets a dimension of its own. A device has so many
	// parts in a dimension that a replica on 1/Share of it takes a whole number of them.
	for _, ti := range k.choice.AllowedTemplates {
		if k.choice.Losses[ti] > k.lossBudget {
			continue
		}
		for si, s := range k.catalogue.Templates[ti].Stages {
			dimensionIndex := &k.dimensionOf[si][s.Pool]
			usesPoolDimension := *dimensionIndex == s.Pool
			if k.bySlot && s.Share > 1 && usesPoolDimension {
				*dimensionIndex = len(k.dimensions)
				k.dimensions = append(k.dimensions, useDimension{pool: s.Pool, partsPerDevice: 1})
			}
			k.dimensions[*dimensionIndex].partsPerDevice = problem.CommonParts(k.dimensions[*dimensionIndex].partsPerDevice, s.Share)
		}
	}

	// The radix of each digit.
	keyWord, radix := 0, uint64(1)
	for i := range k.dimensions {
		d := &k.dimensions[i]
		d.numValues = uint64(k.problem.Pools[d.pool].Count*d.partsPerDevice + 1)
		if radix > math.MaxUint64/4/d.numValues { // the number has no room for the digit
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

// partsPrice returns the price of some parts of devices of a dimension: their share of what all devices of its pool are
// worth by the duals of the relaxation.
func (k *lossKnapsack) partsPrice(d *useDimension, parts int) float64 {
	return k.choice.Relaxation.PoolPrice[d.pool] * float64(parts) / float64(k.problem.Pools[d.pool].Count*d.partsPerDevice)
}

// listItems lists the configurations of model d (whole replicas of one template, at the rate they carry) that
// lose no more than the budget, the least loss first. Of those that take equal devices it takes the one of the
// highest rate. If that is too much work, it returns false.
func (k *lossKnapsack) listItems(d int) (items []lossItem, complete bool) {
	bestByUse := map[deviceUse]lossItem{}
	partsScratch := make([]int, len(k.dimensions))
	for _, ti := range k.choice.AllowedTemplates {
		t := &k.catalogue.Templates[ti]
		if t.Model != d || k.choice.Losses[ti] > k.lossBudget {
			continue
		}

		// Each stage in turn sets the rate, with 1, 2, … replicas until the devices do not suffice.
		for si := range t.Stages {
			for replicas := 1; ; replicas++ {
				k.workSteps++
				item, fits := k.itemAt(ti, t.Stages[si].Rate*float64(replicas), partsScratch)
				if !fits {
					break
				}
				if item.loss > k.lossBudget {
					continue // more replicas may lose less, as other stages round up less
				}
				if known, ok := bestByUse[item.devices]; !ok || item.rate > known.rate {
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
	slices.SortFunc(items, func(a, b lossItem) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), a.devices.compare(b.devices))
	})
	return items, true
}

// itemAt returns a configuration of a template: the fewest replicas of each stage that carry a rate in
// requests/s, with the devices they take, and its loss (their price less what the rate is worth). If there are
// too few devices for it, fits is false. Devices are counted in parts by dimension (a pool, or a stage position on
// it), as takenParts, which is scratch. The result writes these counts as the digits of a few numbers (deviceUse):
// each dimension has a word, the number with its digit, and a radix, the value of one part there.
func (k *lossKnapsack) itemAt(template int, rps float64, takenParts []int) (item lossItem, fits bool) {
	t := &k.catalogue.Templates[template]
	clear(takenParts)
	for si := range t.Stages {
		s := &t.Stages[si]
		replicas := int(math.Ceil(rps/s.Rate - 1e-9))
		dimension := k.dimensionOf[si][s.Pool]
		partsPerReplica := k.dimensions[dimension].partsPerDevice / s.Share // it takes 1/Share of a device
		takenParts[dimension] += replicas * partsPerReplica
		if uint64(takenParts[dimension]) >= k.dimensions[dimension].numValues {
			return item, false
		}
	}
	item.template, item.rate = template, rps/k.catalogue.Units.ModelRPS[t.Model]

	// Write the use of devices as digits, and add up their price.
	for j, parts := range takenParts {
		if parts == 0 {
			continue // the pool may have no devices, over whose number the price is divided
		}
		pricedDimension := &k.dimensions[j]
		item.devices[pricedDimension.word] += uint64(parts) * pricedDimension.radix
		item.price += k.partsPrice(pricedDimension, parts)
	}
	item.loss = max(item.price-k.choice.Relaxation.RateDual[t.Model]*item.rate, 0) // below 0 by rounding errors only
	return item, true
}
