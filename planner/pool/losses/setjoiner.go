package losses

import (
	"cmp"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
)

// deviceSet is a set of devices with which a model reaches a rate.
type deviceSet struct {
	counts []int32 // by pool: whole devices, or parts if those of all models round up together
	rate   float64 // in units
	price  float64
	label  int32 // a sum of configurations that carries the rate on these devices
}

// joinModels looks for the largest throughput, in units, at which one device set for each model fits the pools
// together. A device set is what some label takes, a sum of the model's configurations (whole replicas). The
// throughput is bisected: the one returned is the upper end, a bound, and the plan reaches the lower end, a little
// less. If none is above minValue, it returns minValue and no plan. searches holds the labels of each model.
func (k *lossKnapsack) joinModels(searches []*labelSearch, minValue float64) (throughput float64, plan []placement.PlanPipeline) {
	minValue = max(minValue, k.incumbent.Score())
	sets := lists.Filled(len(searches), func(d int) []deviceSet { return searches[d].deviceSets(minValue) })
	var labels []int32 // by model: index of the chosen label in its search; none without a plan
	if len(sets) == 1 {
		throughput, labels = fastestSet(sets[0], minValue)
	} else {
		throughput, labels = k.bisectSets(sets, minValue)
	}
	for d, label := range labels {
		plan = append(plan, searches[d].labelPipelines(label)...)
	}
	return throughput, plan
}

// fastestSet returns the highest rate of any device set (the devices of a sum of replicas) of a single model,
// and the label of its sum. If no rate is above minValue, it returns minValue and no label.
func fastestSet(sets []deviceSet, minValue float64) (rate float64, labels []int32) {
	rate = minValue
	for _, s := range sets {
		if s.rate > rate {
			rate, labels = s.rate, []int32{s.label}
		}
	}
	return rate, labels
}

// bisectSets bisects for the largest throughput, in units, at which device sets, one of each model, fit the
// pools together. It returns the upper limit, as a bound, and the labels of the sets (the sums of replicas they
// stand for) at the lower one. If none above minValue fit, it returns minValue. If the last answer was unknown,
// for lack of work, there are no labels.
func (k *lossKnapsack) bisectSets(sets [][]deviceSet, minValue float64) (throughput float64, labels []int32) {
	// lo is the largest throughput at which sets fit, hi one at which none do, or the bound of the relaxation.
	lo, hi := minValue, k.choice.Relaxation.Bound
	for range joinHalvings {
		if hi-lo <= incumbent.ProvenGap/4*hi {
			break
		}
		mid := (lo + hi) / 2
		joiner := k.newSetJoiner(sets, mid)
		// An unknown answer counts as fitting, so that the upper limit stays a bound.
		switch joiner.findSets() {
		case setsFit:
			lo, labels = mid, joiner.chosenLabels
		case fitUnknown:
			lo, labels = mid, nil
		case setsExceed:
			hi = mid
		}
	}
	if lo > minValue {
		return hi, labels
	}
	return minValue, nil
}

// labelPipelines returns the pipelines of a label: the configurations (whole replicas) that its sum adds up,
// found from the last one back over the parents, as one pipeline for each template.
func (l *labelSearch) labelPipelines(label int32) []placement.PlanPipeline {
	catalogue := l.knapsack.catalogue
	var pipelines []placement.PlanPipeline
	for i := label; i > 0; i = l.labels[i].parent { // label 0 is the empty sum
		item := &l.items[l.labels[i].lastItem]
		replicas := placement.PipelineFor(&catalogue.Templates[item.template], item.template, item.rate*catalogue.Units.ModelRPS[l.model]).Replicas
		j := slices.IndexFunc(pipelines, func(p placement.PlanPipeline) bool { return p.Template == item.template })
		if j < 0 {
			pipelines = append(pipelines, placement.PlanPipeline{Template: item.template, Model: l.model, Replicas: replicas})
			continue
		}
		for si, n := range replicas {
			pipelines[j].Replicas[si] += n
		}
	}
	return pipelines
}

// deviceSets lists the devices that the labels (sums of a model's configurations) of at least a rate take, by
// rising price. Of labels that take equal devices it lists the one of the highest rate. Sets that no pool could
// hold by themselves are left out.
func (l *labelSearch) deviceSets(minRate float64) []deviceSet {
	k := l.knapsack
	var sets []deviceSet
	poolSizes := lists.Map(len(k.problem.Pools), func(pool int) int32 { return int32(k.problem.Pools[pool].Count) })

	// Of equal counts, written as a key of three bytes each, the set of the highest rate stays.
	indexByCounts := map[string]int{}
	var key []byte
	for i := range l.labels {
		if !l.isFinal[i] || l.labels[i].rate < minRate {
			continue
		}
		set := k.deviceSetOf(&l.labels[i], int32(i))
		if k.countsWhole() && !fitsCounts(set.counts, poolSizes) {
			continue
		}
		key = key[:0]
		for _, n := range set.counts {
			key = append(key, byte(n), byte(n>>8), byte(n>>16))
		}
		if j, ok := indexByCounts[string(key)]; !ok {
			indexByCounts[string(key)] = len(sets)
			sets = append(sets, set)
		} else if sets[j].rate < set.rate {
			sets[j] = set
		}
	}
	slices.SortStableFunc(sets, func(a, b deviceSet) int { return cmp.Compare(a.price, b.price) })
	return sets
}

// countsWhole reports whether device sets count whole devices. It is so under the slot rule, by which no two models share
// a device. Else they count parts of devices.
func (k *lossKnapsack) countsWhole() bool { return k.problem.Rounding == problem.Slot }

// deviceSetOf returns the devices of each pool that a label (a sum of configurations of a model) takes, with their price
// and the label's rate. index is that of the label. Under the slot rule, by which no two models share a device, the parts
// taken of each dimension (a pool, or a stage position on it) round up to whole devices; otherwise the set counts parts.
func (k *lossKnapsack) deviceSetOf(label *sumLabel, index int32) deviceSet {
	set := deviceSet{counts: make([]int32, len(k.problem.Pools)), rate: label.rate, label: index}
	for j := range k.dimensions {
		dimension := &k.dimensions[j]
		partsPerDevice := dimension.partsPerDevice
		taken := dimension.partsOf(label.devices) // parts of devices
		if k.countsWhole() {
			taken, partsPerDevice = (taken+partsPerDevice-1)/partsPerDevice, 1 // a whole device is the only part from here on
		}
		set.counts[dimension.pool] += int32(taken)

		// PoolPrice is of all devices of the pool together.
		partsOfPool := k.problem.Pools[dimension.pool].Count * partsPerDevice
		set.price += k.choice.Relaxation.PoolPrice[dimension.pool] * float64(taken) / float64(partsOfPool)
	}
	return set
}

// minimalSets returns those device sets of at least a rate that take no superset of the devices of another one:
// where the larger set fits, the smaller one does. The sets must be sorted by price, so that a smaller one
// comes first.
func minimalSets(sets []deviceSet, rate float64) []deviceSet {
	var minimal []deviceSet
	for _, s := range sets {
		if s.rate >= rate && !slices.ContainsFunc(minimal, func(o deviceSet) bool { return fitsCounts(o.counts, s.counts) }) {
			minimal = append(minimal, s)
		}
	}
	return minimal
}

// fitsCounts reports whether no count is above that of what is available.
func fitsCounts(counts, available []int32) bool {
	return !lists.Contains(len(counts), func(i int) bool { return counts[i] > available[i] })
}

// setJoiner looks for one device set of each model so that all fit together.
type setJoiner struct {
	knapsack     *lossKnapsack
	setsByPrice  [][]deviceSet // by model, by rising price
	freeDevices  []int32       // by pool: not yet taken
	totalPrice   float64       // of all devices
	minPriceFrom []float64     // by model: least price of sets of it and all models after it; filled by findSets
	chosenLabels []int32       // by model: label of its set; filled by findSets
}

// newSetJoiner returns a joiner, whose findSets looks for one device set of each model so that all fit the pools. It has
// all devices free and, of the given sets of each model, which are sorted by price, those that reach a rate and take no
// superset of another's devices. Sets that cost more than totalPrice, the worth of all devices, do not fit together.
func (k *lossKnapsack) newSetJoiner(sets [][]deviceSet, rate float64) *setJoiner {
	joiner := &setJoiner{knapsack: k, minPriceFrom: make([]float64, len(sets)+1), chosenLabels: make([]int32, len(sets))}
	for pool := range k.problem.Pools {
		free := int32(k.problem.Pools[pool].Count)
		if !k.countsWhole() { // sets count parts of devices
			free *= int32(k.dimensions[pool].partsPerDevice)
		}
		joiner.freeDevices = append(joiner.freeDevices, free)
		joiner.totalPrice += k.choice.Relaxation.PoolPrice[pool] // of all its devices together
	}
	joiner.totalPrice *= 1 + 1e-9 // rounding errors must not make sets too dear
	joiner.setsByPrice = append(joiner.setsByPrice, lists.Map(len(sets), func(d int) []deviceSet { return minimalSets(sets[d], rate) })...)
	return joiner
}

// fitAnswer says whether device sets of all models fit together.
type fitAnswer int8

const (
	setsExceed fitAnswer = iota // no sets fit
	setsFit
	fitUnknown // the work ran out before it was known
)

// findSets looks for one device set of each model so that all fit the pools together. It returns setsFit, with the labels of
// the sets in chosenLabels, setsExceed if no sets fit, or fitUnknown if the work ran out first. It also fills
// minPriceFrom: entry d is the least price of sets of the models from d on, by which the depth-first search ends early.
func (j *setJoiner) findSets() fitAnswer {
	for d := len(j.setsByPrice) - 1; d >= 0; d-- {
		if len(j.setsByPrice[d]) == 0 {
			return setsExceed
		}
		j.minPriceFrom[d] = j.minPriceFrom[d+1] + j.setsByPrice[d][0].price
	}
	// Else search. If the work ends first, it is not known whether sets fit.
	switch {
	case j.placeModels(0, 0):
		return setsFit
	case j.knapsack.workSteps > j.knapsack.maxSteps:
		return fitUnknown
	}
	return setsExceed
}

// placeModels chooses a device set for each model from index d on by depth-first search, and reports whether all fit the
// free devices together. The chosen labels stay in chosenLabels. price is that of the sets chosen for the models
// before. It also returns false when the work runs out: findSets tells the two apart.
func (j *setJoiner) placeModels(d int, price float64) bool {
	if d == len(j.setsByPrice) {
		return true
	}
	for i := range j.setsByPrice[d] {
		s := &j.setsByPrice[d][i]

		// No set from here on leaves enough for the models that follow: sets come by rising price.
		if price+s.price+j.minPriceFrom[d+1] > j.totalPrice {
			return false
		}
		if j.knapsack.workSteps++; j.knapsack.workSteps > j.knapsack.maxSteps {
			return false
		}

		// Take the set if it fits, place the other models, and give it back if they do not fit.
		if !fitsCounts(s.counts, j.freeDevices) {
			continue
		}
		for pool, n := range s.counts {
			j.freeDevices[pool] -= n
		}
		j.chosenLabels[d] = s.label
		if j.placeModels(d+1, price+s.price) {
			return true
		}
		for pool, n := range s.counts {
			j.freeDevices[pool] += n
		}
	}
	return false
}
