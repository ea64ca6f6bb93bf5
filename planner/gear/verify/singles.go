package verify

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"inferplan/formats"
)

// Limits of the search for single cascades that exceed a bound: number of cascades, and of steps, each of which
// computes about one load.
const (
	maxSingleCascades = 200_000
	maxSteps          = 5_000_000
)

// cascadeLoad is a cascade with the seconds of work per request that it brings, in all and by model.
type cascadeLoad struct {
	accuracy, secondsPerRequest float64
	byModel                     []float64
}

// singleSearch searches for the placement of one kind's devices that reaches the most accuracy, if each range has
// one cascade and not a mixture.
type singleSearch struct {
	checker        *gearChecker
	gear           *formats.GearPlan
	loads          []cascadeLoad // the most accurate first
	firstFeasible  []int         // by range: index of the first cascade that all devices together have time for
	sets           []uint32      // maximal sets of models that fit on a device
	devicesBySet   []int         // number of devices with each set
	devicesHolding []float64     // by set of models: number of devices that hold at least one of them
	remainingSteps int           // steps that may still be taken
	bestAccuracy   float64       // found so far, weighted over the ranges
}

// bestSingleCascades looks for a placement of some devices of a kind on which plans with one cascade per range are more
// accurate than a limit. It returns the best accuracy that it finds, weighted over the ranges of rates, which shows
// that a bound at the limit is too low. If it finds nothing above the limit within maxSteps, or there are too many
// cascades, it returns negative infinity.
//
// Devices have time for a cascade if, for every set of models, its work is at most the time of the devices that hold at
// least one of them.
func (c *gearChecker) bestSingleCascades(kind string, devices int, limit float64) float64 {
	s := &singleSearch{checker: c, gear: c.gear, remainingSteps: maxSteps, bestAccuracy: limit} // only more than the limit counts
	if !s.listCascades(kind, devices) {
		return math.Inf(-1)
	}
	// Try all placements, from the first set of models on. devicesHolding has an entry for each set of models, by its bits.
	models := len(s.loads[0].byModel)
	s.devicesBySet, s.devicesHolding = make([]int, len(s.sets)), make([]float64, 1<<models)
	s.placeSets(0, devices)
	if s.bestAccuracy > limit {
		return s.bestAccuracy
	}
	return math.Inf(-1)
}

// listCascades sets what the search over placements needs: loads, the cascades that the devices of a kind have time for
// at the upper edge of the lowest range, the most accurate first; firstFeasible, by range, the first of them that they
// have time for at its upper edge; and the sets of models that a device holds. It returns false if some range has no
// cascade, no model fits, or there are too many cascades.
func (s *singleSearch) listCascades(kind string, devices int) bool {
	names, grid := s.checker.familyAndGrid()
	if hasMoreCascades(len(names), grid, maxSingleCascades) {
		return false
	}

	// List the cascades of whole models, the most accurate first. The visitor is nil if the documents do not say enough.
	lowestEdge := s.gear.Gears[0].ToQPS
	listLoad := func(secondsPerRequest, accuracy float64, byModel []float64) {
		if secondsPerRequest*lowestEdge <= float64(devices) {
			s.loads = append(s.loads, cascadeLoad{accuracy, secondsPerRequest, slices.Clone(byModel)})
		}
	}
	const inStages = false
	visitor := s.checker.visitCascades(s.gear.SLOUS.D(), inStages, listLoad, kind)
	if visitor == nil || len(s.loads) == 0 {
		return false
	}
	slices.SortFunc(s.loads, func(a, b cascadeLoad) int {
		return cmp.Or(cmp.Compare(b.accuracy, a.accuracy), cmp.Compare(a.secondsPerRequest, b.secondsPerRequest))
	})
	for i := range s.gear.Gears {
		feasible := slices.IndexFunc(s.loads, func(l cascadeLoad) bool { return l.secondsPerRequest*s.gear.Gears[i].ToQPS <= float64(devices) })
		if feasible < 0 {
			return false
		}
		s.firstFeasible = append(s.firstFeasible, feasible)
	}
	s.listSets(names, kind, visitor.secondsPerSample)
	return len(s.sets) > 0
}

// listSets sets the sets of models, as bits by index of names, that fit on a device of a kind together and can take no
// further model. A model with infinite seconds per sample does not run on the kind.
func (s *singleSearch) listSets(names []string, kind string, secondsPerSample []float64) {
	pool := s.checker.Pool(kind)
	fits := func(set uint32) bool {
		need := int64(0)
		for m, n := range names {
			switch {
			case set&(1<<m) == 0:
			case math.IsInf(secondsPerSample[m], 1):
				return false
			default:
				need += s.checker.modelMemory(n, kind)
			}
		}
		return pool.Memory == 0 || need <= int64(pool.Memory)
	}
	for set := uint32(1); set < 1<<len(names); set++ {
		isMaximal := fits(set)
		for m := range names {
			isMaximal = isMaximal && (set&(1<<m) != 0 || !fits(set|1<<m))
		}
		if isMaximal {
			s.sets = append(s.sets, set)
		}
	}
}

// placeSets tries all ways to give `devices` devices the sets of models from an index on, after the callers have placed
// the sets before it. It keeps the best accuracy that one cascade per range reaches on any of them, until the steps are
// used up.
func (s *singleSearch) placeSets(set, devices int) {
	if set+1 < len(s.sets) {
		for n := 0; n <= devices && s.remainingSteps > 0; n++ {
			s.devicesBySet[set] = n
			s.placeSets(set+1, devices-n)
		}
		return
	}

	// All sets are placed: count the devices that hold some model of each set of models.
	s.devicesBySet[set] = devices
	s.remainingSteps -= len(s.sets)
	for models := range s.devicesHolding {
		s.devicesHolding[models] = 0
		for i, modelsOfSet := range s.sets {
			if modelsOfSet&uint32(models) != 0 {
				s.devicesHolding[models] += float64(s.devicesBySet[i])
			}
		}
	}
	s.bestAccuracy = max(s.bestAccuracy, s.placementAccuracy())
}

// placementAccuracy returns the accuracy, weighted over the ranges of rates, of the most accurate cascade of each range
// that the current placement (devicesHolding) has time for. Each look at a cascade (hasTimeFor) takes one of the
// remaining steps. If the accuracy does not exceed the best found so far, or the steps are used up, it returns negative
// infinity.
func (s *singleSearch) placementAccuracy() float64 {
	// remainingBest is what the ranges that follow add at most. Here that is all ranges, each with its first feasible cascade.
	remainingBest := 0.0
	for i, first := range s.firstFeasible {
		remainingBest += s.gear.Gears[i].Weight * s.loads[first].accuracy
	}

	// Go through the ranges by rising rate. Loads have falling accuracy, and what a placement has no time for at one rate it has no
	// time for at a higher one. So the search for a range's cascade starts at that of the range before.
	sum, cascade := 0.0, 0
	for i, first := range s.firstFeasible {
		r := &s.gear.Gears[i]
		remainingBest -= r.Weight * s.loads[first].accuracy
		cascade = max(cascade, first)
		for cascade < len(s.loads) && !s.hasTimeFor(s.loads[cascade].byModel, r.ToQPS) {
			cascade++
		}
		if cascade == len(s.loads) || s.remainingSteps <= 0 || sum+r.Weight*s.loads[cascade].accuracy+remainingBest <= s.bestAccuracy {
			return math.Inf(-1)
		}
		sum += r.Weight * s.loads[cascade].accuracy
	}
	return sum
}

// hasTimeFor reports whether the placement's devices have time for a cascade at a rate (requests per second): for every
// set of the models that it asks, their work must fit on the devices that hold one of them (Hall's condition). byModel
// has the seconds of work per request by model, 0 if the cascade does not ask it. It counts as one step of the search.
func (s *singleSearch) hasTimeFor(byModel []float64, rate float64) bool {
	s.remainingSteps--
	askedModels := uint32(0)
	for m, seconds := range byModel {
		if seconds > 0 {
			askedModels |= 1 << m
		}
	}
	// All subsets of the asked models.
	for set := askedModels; set > 0; set = (set - 1) & askedModels {
		work := 0.0
		for remaining := set; remaining > 0; remaining &= remaining - 1 {
			work += byModel[bits.TrailingZeros32(remaining)]
		}
		if work*rate > s.devicesHolding[set]*(1-1e-9) {
			return false
		}
	}
	return true
}
