package cascades

import (
	"context"

	"inferplan/planner/lists"
	"inferplan/policy/gear"
	"inferplan/solver/pareto"
)

// Cascade is a sequence of models with a threshold level after each but the last. Its counts are of the planning
// samples.
type Cascade struct {
	Models       []uint8 // indexes of models, ascending
	Levels       []uint8 // samples of a lower level are forwarded; one less than models
	ReachCounts  []int32 // by model: samples that reach it
	CorrectCount int32   // samples that are answered correctly
}

// Gear returns the cascade as a gear of the run-time policy (the cascade that serves the rates up to a limit, toRate,
// in requests per second). The first model waits for minQueue requests, the others for one. shares has, by model, how
// its samples are split over its replicas. Each stage holds the index of its model where the policy expects that of a
// pipeline, which the caller replaces.
func (c *Cascade) Gear(toRate float64, minQueue int, shares [][]float64) gear.Gear {
	g := gear.Gear{ToQPS: toRate}
	for k, m := range c.Models {
		s := gear.Stage{Pipeline: int32(m), MinQueue: 1, ReplicaShares: shares[m]}
		if k < len(c.Levels) {
			s.ForwardBelow = int32(c.Levels[k])
		}
		if k == 0 {
			s.MinQueue = int32(minQueue)
		}
		g.Stages = append(g.Stages, s)
	}
	return g
}

// enumerator visits all cascades depth first. A node is a prefix of models and levels, with the samples that all
// models of the prefix but the last forward.
type enumerator struct {
	samples       *Samples
	grid          int
	usable        []bool
	sortedSamples [][]int32 // by depth: the node's samples, sorted by the level of its last model
	models        []uint8
	levels        []uint8
	reachCounts   []int32
	cascades      []Cascade
	belowLevel    [][]int32 // by depth: number of samples below each level
	correctBelow  [][]int32 // by depth: number of correct answers below each level
}

// Enumerate lists all cascades: increasing sequences of the usable models, with a level of certainty from 1 to grid-1
// after each model but the last, below which samples are forwarded. Their counts come from the samples s. It leaves out
// levels at which a model forwards no sample or all samples, because shorter cascades do the same.
func Enumerate(s *Samples, grid int, usable []bool) []Cascade {
	models := len(s.Levels)
	enumeration := &enumerator{samples: s, grid: grid, usable: usable}
	// Scratch space by depth of the cascade, which has at most all models.
	for range models {
		enumeration.sortedSamples = append(enumeration.sortedSamples, make([]int32, s.N))
		enumeration.belowLevel = append(enumeration.belowLevel, make([]int32, grid+1))
		enumeration.correctBelow = append(enumeration.correctBelow, make([]int32, grid+1))
	}
	allSamples := lists.Filled(s.N, func(i int) int32 { return int32(i) })
	for firstModel := range models {
		enumeration.visitPrefix(firstModel, 0, allSamples, 0)
	}
	return enumeration.cascades
}

// visitPrefix lists all cascades that begin with the models and levels chosen so far (the prefix, `depth` models) and
// go on with the given model: first the one that ends in it, then those with each level of it and each larger model
// behind it. samples are the indexes of the samples that reach the model. Of the others, correctBefore are answered
// correctly by models of the prefix.
func (e *enumerator) visitPrefix(model, depth int, samples []int32, correctBefore int32) {
	if !e.usable[model] {
		return
	}
	e.models = append(e.models[:depth], uint8(model))
	e.reachCounts = append(e.reachCounts[:depth], int32(len(samples)))
	levels, correct := e.samples.Levels[model], e.samples.Correct[model]

	// The cascade that ends here.
	correctHere := int32(0)
	for _, i := range samples {
		if correct[i] {
			correctHere++
		}
	}
	e.addCascade(depth, correctBefore+correctHere)
	if model+1 == len(e.samples.Levels) {
		return
	}

	// Count samples and correct answers below each level: first those at level l in entry l+1, then the sums up to each entry.
	belowCounts, rightBelow := e.belowLevel[depth], e.correctBelow[depth]
	clear(belowCounts)
	clear(rightBelow)
	for _, i := range samples {
		belowCounts[levels[i]+1]++
		if correct[i] {
			rightBelow[levels[i]+1]++
		}
	}
	for l := 1; l <= e.grid; l++ {
		belowCounts[l] += belowCounts[l-1]
		rightBelow[l] += rightBelow[l-1]
	}

	// Sort the samples by level (counting sort), so that those below a level are a prefix.
	byLevel := e.sortedSamples[depth][:len(samples)]
	var nextSlot [256]int32
	copy(nextSlot[:], belowCounts[:e.grid])
	for _, i := range samples {
		l := levels[i]
		byLevel[nextSlot[l]] = i
		nextSlot[l]++
	}

	// Go on with each level and next model.
	for l := 1; l < e.grid; l++ {
		if belowCounts[l] == 0 || belowCounts[l] == int32(len(samples)) {
			continue
		}
		e.levels = append(e.levels[:depth], uint8(l))
		for nextModel := model + 1; nextModel < len(e.samples.Levels); nextModel++ {
			e.visitPrefix(nextModel, depth+1, byLevel[:belowCounts[l]], correctBefore+correctHere-rightBelow[l])
		}
	}
}

// addCascade adds the cascade of the current prefix to the list: the models up to a depth (from 0) and the levels
// between them. correct is the number of samples that it answers correctly. Models and levels share one array, because
// there are very many cascades.
func (e *enumerator) addCascade(depth int, correct int32) {
	n := depth + 1
	bytes := make([]uint8, 2*n-1)
	copy(bytes, e.models[:n])
	copy(bytes[n:], e.levels[:depth])
	e.cascades = append(e.cascades, Cascade{Models: bytes[:n:n], Levels: bytes[n:], ReachCounts: append([]int32(nil), e.reachCounts[:n]...), CorrectCount: correct})
}

// CascadeCache keeps pruned cascades by the set of usable models, as bits.
type CascadeCache map[uint32]prunedCascades

// prunedCascades are the cascades of some models that are on some front.
type prunedCascades struct {
	Cascades        []Cascade
	EnumeratedCount int // number before pruning
}

// PrunedOver returns the cascades over the usable models, by index, that no other one beats (more accurate, with no
// more samples at any model), with the number before that pruning. They are computed once for each set of models and
// stored in the cache, as problems with other SLOs or devices have the same cascades. A nil cache stores nothing.
func (c CascadeCache) PrunedOver(ctx context.Context, p *Problem, usable []bool) (prunedCascades, error) {
	usableBits := uint32(0)
	for m, ok := range usable {
		if ok {
			usableBits |= 1 << m
		}
	}
	found, ok := c[usableBits]
	if !ok {
		enumerated := Enumerate(p.PlanningSamples, p.Grid, usable)
		pruned, err := pruneCascades(ctx, enumerated, len(p.Models))
		if err != nil {
			return found, err
		}
		found = prunedCascades{pruned, len(enumerated)}
		if c != nil {
			c[usableBits] = found
		}
	}
	return found, nil
}

// pruneCascades returns the cascades of a list that no other one beats, in accuracy without more samples at any model.
// Whatever a sample costs at a model, the others are on no front (the most accurate cascades for each load), so
// planning never needs them. models is the size of the family.
func pruneCascades(ctx context.Context, list []Cascade, models int) ([]Cascade, error) {
	// By cascade and model: samples that reach the model, 0 if the cascade does not ask it.
	reachCounts := make([][]float64, len(list))
	flat := make([]float64, len(list)*models)
	for i := range list {
		reachCounts[i] = flat[i*models : (i+1)*models]
		for k, m := range list[i].Models {
			reachCounts[i][m] = float64(list[i].ReachCounts[k])
		}
	}
	undominated, err := pareto.UndominatedPoints(ctx, reachCounts, correctCounts(list))
	return selectCascades(list, undominated), err
}

// selectCascades returns the cascades at some indexes.
func selectCascades(list []Cascade, indexes []int) []Cascade {
	return lists.Filled(len(indexes), func(n int) Cascade { return list[indexes[n]] })
}

// correctCounts returns how many samples each cascade answers correctly.
func correctCounts(list []Cascade) []int32 {
	return lists.Filled(len(list), func(i int) int32 { return list[i].CorrectCount })
}

// ParetoFront returns the indexes of the cascades on the Pareto front by rising cost and accuracy. Of equal ones
// the first is kept. Cascades of infinite cost are left out.
func ParetoFront(cost []float64, list []Cascade) []int {
	return pareto.Front(cost, correctCounts(list))
}
