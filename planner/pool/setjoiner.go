package pool

import (
	"cmp"
	"slices"
)

// deviceSet is a set of devices with which a model reaches a rate.
type deviceSet struct {
	counts []int32 // by pool: whole devices, or parts if those of all models round up together
	rate   float64 // in units
	price  float64
	label  int32 // a sum of configurations that carries the rate on these devices
}

// joinModels returns the largest throughput above minValue at which device sets of all models fit together, or a
// little more, and a plan for a little less. If there is none, it returns minValue and no plan.
func (k *lossKnapsack) joinModels(searches []*labelSearch, minValue float64) (throughput float64, plan []planPipeline) {
	x, p := k.search, k.search.Problem

	// The devices that there are, whole or in parts, and their price.
	minValue = max(minValue, x.bestScore())
	wholeDevices := p.Rounding == Slot
	capacity := make([]int32, len(p.Pools))
	totalPrice := 0.0
	for i := range capacity {
		capacity[i] = int32(p.Pools[i].Count)
		if !wholeDevices {
			capacity[i] *= int32(k.dimensions[i].partsPerDevice)
		}
		totalPrice += x.lp.poolPrice[i]
	}

	// The device sets of each model.
	sets := make([][]deviceSet, len(searches))
	for d, search := range searches {
		sets[d] = search.deviceSets(minValue, wholeDevices)
	}

	// Bisect the throughput. A single model needs no bisection.
	lo, hi := minValue, x.lp.bound
	var labels []int32
	if len(searches) == 1 {
		for _, s := range sets[0] {
			if s.rate > lo {
				lo, labels = s.rate, []int32{s.label}
			}
		}
		hi = lo
	}
	for range joinHalvings {
		if hi-lo <= provenGap/4*hi {
			break
		}
		mid := (lo + hi) / 2

		// Look for one set of each model that carries the throughput.
		joiner := &setJoiner{knapsack: k, freeDevices: slices.Clone(capacity), totalPrice: totalPrice * (1 + 1e-9), minPriceFrom: make([]float64, len(searches)+1), chosenLabels: make([]int32, len(searches))}
		for d := range sets {
			joiner.setsByPrice = append(joiner.setsByPrice, minimalSets(sets[d], mid))
		}
		switch fits, decided := joiner.findSets(); {
		case fits:
			lo, labels = mid, joiner.chosenLabels
		case !decided:
			lo, labels = mid, nil // it may fit
		default:
			hi = mid
		}
	}
	if lo > minValue {
		throughput = hi
	} else {
		throughput = minValue
	}

	// Turn the labels that were chosen into pipelines.
	for d, i := range labels {
		byTemplate := map[int][]int{}
		var templates []int
		for ; i > 0; i = searches[d].labels[i].parent {
			c := &searches[d].items[searches[d].labels[i].lastItem]
			t := &x.templates[c.template]
			replicas, ok := byTemplate[c.template]
			if !ok {
				replicas = make([]int, len(t.Stages))
				templates = append(templates, c.template)
				byTemplate[c.template] = replicas
			}
			for si, n := range pipelineFor(t, c.template, c.rate*x.units.modelRPS[d]).replicas {
				replicas[si] += n
			}
		}
		for _, ti := range templates {
			plan = append(plan, planPipeline{template: ti, model: d, replicas: byTemplate[ti]})
		}
	}
	return throughput, plan
}

// deviceSets lists the device sets of the labels of at least a rate, by rising price. Of the labels with equal
// device sets it takes the one of the highest rate.
func (l *labelSearch) deviceSets(minRate float64, wholeDevices bool) []deviceSet {
	k, p := l.knapsack, l.knapsack.search.Problem
	var sets []deviceSet
	indexByCounts := map[string]int{}
	var key []byte
list:
	for i := range l.labels {
		label := &l.labels[i]
		if !l.isFinal[i] || label.rate < minRate {
			continue
		}
		set := deviceSet{counts: make([]int32, len(p.Pools)), rate: label.rate, label: int32(i)}
		key = key[:0]

		// Round up to whole devices.
		for j := range k.dimensions {
			counted := &k.dimensions[j]
			n, partsPerDevice := counted.partsOf(label.devices), counted.partsPerDevice
			if wholeDevices {
				n, partsPerDevice = (n+partsPerDevice-1)/partsPerDevice, 1
			}
			set.counts[counted.pool] += int32(n)
			set.price += k.search.lp.poolPrice[counted.pool] * float64(n) / float64(p.Pools[counted.pool].Count*partsPerDevice)
		}

		// Skip sets that exceed the pools. Keep the best label of equal ones.
		for j, n := range set.counts {
			if int(n) > p.Pools[j].Count && wholeDevices {
				continue list
			}
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

// minimalSets returns those sets of at least a rate that hold no other one. The sets must be sorted by price.
func minimalSets(sets []deviceSet, rate float64) []deviceSet {
	var minimalOnes []deviceSet
	for _, s := range sets {
		if s.rate < rate {
			continue
		}
		if !slices.ContainsFunc(minimalOnes, func(o deviceSet) bool {
			for i := range s.counts {
				if o.counts[i] > s.counts[i] {
					return false
				}
			}
			return true
		}) {
			minimalOnes = append(minimalOnes, s)
		}
	}
	return minimalOnes
}

// setJoiner looks for one device set of each model so that all fit together.
type setJoiner struct {
	knapsack     *lossKnapsack
	setsByPrice  [][]deviceSet // by model, by rising price
	freeDevices  []int32       // by pool: not yet taken
	totalPrice   float64       // of all devices
	minPriceFrom []float64     // by model: least price of sets of it and all models after it
	chosenLabels []int32       // by model: label of its set
}

// findSets looks for one set of each model. ok reports that one was found. decided is false if the work ran out
// before that was known.
func (j *setJoiner) findSets() (ok, decided bool) {
	for d := len(j.setsByPrice) - 1; d >= 0; d-- {
		if len(j.setsByPrice[d]) == 0 {
			return false, true
		}
		j.minPriceFrom[d] = j.minPriceFrom[d+1] + j.setsByPrice[d][0].price
	}
	ok = j.placeModels(0, 0)
	return ok, ok || j.knapsack.workSteps <= j.knapsack.maxSteps
}

// placeModels chooses sets of the models from d on, by depth-first search. price is that of the sets chosen
// before.
func (j *setJoiner) placeModels(d int, price float64) bool {
	if d == len(j.setsByPrice) {
		return true
	}
next:
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
		for i, n := range s.counts {
			if n > j.freeDevices[i] {
				continue next
			}
		}
		for i, n := range s.counts {
			j.freeDevices[i] -= n
		}
		j.chosenLabels[d] = s.label
		if j.placeModels(d+1, price+s.price) {
			return true
		}
		for i, n := range s.counts {
			j.freeDevices[i] += n
		}
	}
	return false
}
