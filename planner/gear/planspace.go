package gear

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/solver/milp"
)

// Kind is a kind of devices.
type Kind struct {
	Name    string
	Devices int
	Memory  int64   // bytes of a device; 0 means no limit
	Price   float64 // of a device, if the price is minimised
}

// Variant holds the times and the memory of a model on a kind of devices.
type Variant struct {
	MedianTimes []time.Duration // [b-1]: undisturbed time of a batch of b; empty if it was not measured on the kind
	MeanTimes   []time.Duration // [b-1]: mean time of a batch of b; if nil, MedianTimes are used
	Memory      int64           // bytes
}

// meanTime returns the mean time of a batch: the measured mean, or the median if no means were measured.
func (v *Variant) meanTime(batch int) time.Duration {
	if v.MeanTimes != nil {
		return v.MeanTimes[batch-1]
	}
	return v.MedianTimes[batch-1]
}

// planSpace holds what plans are made from: the cascades of a problem, the times of its models on every kind of
// devices, chains, and the configs of each kind. Times on different kinds are unrelated, so loads come from linear
// programs. The duals of each program bound the loads of all other cascades on the placement from below, so few
// programs are solved.
type planSpace struct {
	problem          *Problem
	solver           milp.Solver
	cache            cascadeCache // shared by all solves of the problem
	enumeratedCount  int          // cascades enumerated, before pruning
	cascades         []Cascade    // those that can keep the SLO
	byAccuracy       []int        // indexes of cascades, the most accurate first
	reachShares      [][]float64  // by cascade and model: share of the requests that reach the model
	minLateShares    []float64    // by cascade: least share of late requests; nil if late requests are not allowed
	secondsPerSample [][]float64  // by kind and model; infinite if the model does not run on the kind
	maxBatch         [][]int      // by kind and model: largest batch
	chains           []*Chain     // that members may run as
	chosenChains     []*Chain     // chains that a placement is made for
	stageBits        [][]int      // by chosen chain and stage: the bit of the stage in model sets
	configs          []Config     // maximal sets by kind, with counts of 0
	fluidConfigs     []Config     // for the fluid model: of each kind one, with all models that fit on a device alone
}

// newPlanSpace returns a space without cascades.
func newPlanSpace(p *Problem, solver milp.Solver, cache cascadeCache) *planSpace {
	space := &planSpace{problem: p, solver: solver, cache: cache}
	space.maxBatch, space.secondsPerSample = batchesAndSpeeds(p)
	return space
}

// wholeModelSpace returns the space of the cascades that whole models answer in time.
func wholeModelSpace(ctx context.Context, p *Problem, solver milp.Solver, cache cascadeCache) (*planSpace, error) {
	space := newPlanSpace(p, solver, cache)
	space.setConfigs()
	return space, space.listCascades(ctx)
}

// withLimits returns the space of plans for a problem with another limit on the time of a batch: batch sizes,
// the times of samples and what fits are computed anew.
func (space *planSpace) withLimits(p *Problem) *planSpace {
	limited := *space
	limited.problem = p
	limited.maxBatch, limited.secondsPerSample = batchesAndSpeeds(p)
	limited.setCascades(space.cascades)
	limited.setConfigs()
	return &limited
}

// setCascades sets the cascades of the space, their order by falling accuracy, and the share of the samples
// that reaches each model of them.
func (space *planSpace) setCascades(list []Cascade) {
	space.cascades, space.byAccuracy, space.reachShares = list, indices(len(list)), make([][]float64, len(list))
	slices.SortFunc(space.byAccuracy, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[b].CorrectCount, list[a].CorrectCount), cmp.Compare(a, b))
	})
	flat := make([]float64, len(list)*len(space.problem.Models))
	for i := range list {
		space.reachShares[i], flat = flat[:len(space.problem.Models):len(space.problem.Models)], flat[len(space.problem.Models):]
		for k, m := range list[i].Models {
			space.reachShares[i][m] = float64(list[i].ReachCounts[k]) / float64(space.problem.PlanningSamples.N)
		}
	}
}

// solveProgram solves a program. If the context has ended, it returns the context's error.
func solveProgram(ctx context.Context, solver milp.Solver, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	sol, err := solver.Solve(ctx, m, o)
	return sol, cmp.Or(err, ctx.Err())
}

// indices returns the numbers from 0 to n-1.
func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// listCascades sets the cascades of the space: those of the usable members whose least tail latency keeps the
// SLO, whole or in chains. It returns an InfeasibleError if there are none.
func (space *planSpace) listCascades(ctx context.Context) error {
	p := space.problem
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = space.runsWhole(m) || slices.ContainsFunc(space.chains, func(c *Chain) bool { return c.Model == m })
	}
	if !slices.Contains(usable, true) {
		return &InfeasibleError{NoneUsable: true, SLO: p.shortestSLO()}
	}
	pruned, err := space.cache.prunedOver(ctx, p, usable)
	if err != nil {
		return err
	}
	inTime := p.cascadesInTime(pruned.cascades)
	if len(inTime) == 0 {
		return &InfeasibleError{NoneInTime: true, SLO: p.shortestSLO()}
	}
	space.enumeratedCount = pruned.enumeratedCount
	space.setCascades(inTime)
	return nil
}

// runsWhole reports whether a model runs whole on some kind.
func (space *planSpace) runsWhole(m int) bool {
	return slices.ContainsFunc(space.secondsPerSample, func(speeds []float64) bool { return !math.IsInf(speeds[m], 1) })
}

// withStages returns the space of plans in which members may also run as chains (in stages over several
// devices). minTimes is the least time of a sample in stages, by model. The cascades are listed anew only if
// chains allow other ones than whole models.
func (space *planSpace) withStages(ctx context.Context, p *Problem, chains []*Chain, minTimes []time.Duration) (*planSpace, error) {
	if len(chains) == 0 {
		return space, nil
	}
	staged, newCascades := *p, space.cascades == nil
	staged.Models = slices.Clone(p.Models)
	for m := range staged.Models {
		newCascades = newCascades || !space.runsWhole(m)
		if t := minTimes[m]; t > 0 && t < staged.Models[m].FastestTimes[0] {
			staged.Models[m].FastestTimes = slices.Clone(staged.Models[m].FastestTimes)
			staged.Models[m].FastestTimes[0], newCascades = t, true
		}
	}
	stagedSpace := *space
	stagedSpace.problem, stagedSpace.chains, stagedSpace.chosenChains = &staged, chains, nil
	if newCascades {
		if err := stagedSpace.listCascades(ctx); err != nil {
			return nil, err
		}
	}
	stagedSpace.setConfigs()
	return &stagedSpace, nil
}

// fasterElsewhere reports whether one sample of model m takes longer than maxBatchTime on a kind of devices,
// but not on another kind that has devices and memory for it: then the model should run there only.
func fasterElsewhere(p *Problem, m, kind int) bool {
	if times := p.Models[m].Variants[kind].MedianTimes; len(times) == 0 || times[0] <= p.maxBatchTime {
		return false
	}
	for k := range p.Kinds {
		v := p.Models[m].Variants[k]
		if k != kind && p.Kinds[k].Devices > 0 && len(v.MedianTimes) > 0 && v.MedianTimes[0] <= p.maxBatchTime && (p.Kinds[k].Memory == 0 || v.Memory <= p.Kinds[k].Memory) {
			return true
		}
	}
	return false
}

// setConfigs sets the configs of each kind of devices: the maximal sets of models, and of stages of the chosen
// chains, that fit into its memory. For bounds it also sets one config with all models. In a set, bits of
// stages are above those of models.
func (space *planSpace) setConfigs() {
	p := space.problem
	space.configs, space.fluidConfigs, space.stageBits = nil, nil, make([][]int, len(space.chosenChains))
	for c, chain := range space.chosenChains {
		space.stageBits[c] = make([]int, len(chain.Stages))
	}

	// For each kind list the memory of its models and stages; -1 if a model does not run on it.
	for k, kind := range p.Kinds {
		memory, usable := slices.Repeat([]int64{-1}, len(p.Models)), uint32(0)
		for m := range p.Models {
			if !math.IsInf(space.secondsPerSample[k][m], 1) {
				memory[m] = p.Models[m].Variants[k].Memory
				usable |= 1 << m
			}
		}
		for c, chain := range space.chosenChains {
			for s := range chain.Stages {
				if chain.Stages[s].Kind == k {
					space.stageBits[c][s] = len(memory)
					memory = append(memory, chain.Stages[s].Memory)
				}
			}
		}

		// The maximal sets, and one config with all models for the fluid model.
		for _, set := range maximalSets(memory, kind.Memory) {
			space.configs = append(space.configs, Config{Kind: k, ModelSet: set})
		}
		if usable != 0 || slices.ContainsFunc(space.chains, func(c *Chain) bool {
			return slices.ContainsFunc(c.Stages, func(s Stage) bool { return s.Kind == k })
		}) {
			space.fluidConfigs = append(space.fluidConfigs, Config{Kind: k, ModelSet: usable})
		}
	}
}

// placeModels returns a placement: how many devices of a kind hold which models and stages. It solves the
// relaxation (devices in fractions, mixtures of cascades) of all ranges together by column generation, and then
// the program in whole numbers over the cascades found. With whole devices a range may need a cascade that only
// another range uses with fractions of devices, so every range gets the cascades of all.
func (space *planSpace) placeModels(ctx context.Context) (placement []Config, err error) {
	p := space.problem
	ranges := indices(len(p.RangeEdges))

	// The relaxation.
	relaxation := space.newMixtureProgram(space.configs, ranges, false)
	relaxation.addChosenChains()
	if _, _, err := relaxation.generateColumns(ctx, nil); err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}

	// Whole numbers of devices.
	integral := space.newMixtureProgram(space.configs, ranges, true)
	integral.addChosenChains()
	cascades := slices.Compact(slices.Sorted(slices.Values(slices.Concat(relaxation.cascadeColumns...))))
	for index := range ranges {
		for _, cascade := range cascades {
			integral.addCascade(index, cascade)
		}
	}
	var limits milp.Options
	if len(space.chosenChains) > 0 {
		limits = milp.Options{Gap: chainPlacementGap, MaxNodes: chainPlacementNodes}
	}
	sol, err := solveProgram(ctx, space.solver, integral.model, limits)
	if err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}
	if sol.X == nil {
		return nil, fmt.Errorf("placing models: no solution (%v)", sol.Status)
	}

	// Read the counts.
	configs := slices.Clone(space.configs)
	for c := range configs {
		configs[c].Count = int(math.Round(sol.X[integral.countVar[c]]))
	}
	return slices.DeleteFunc(configs, func(c Config) bool { return c.Count == 0 }), nil
}

// Gap and number of nodes at which the program that places chains may stop.
const (
	chainPlacementGap   = 1e-4
	chainPlacementNodes = 2000
)

// addChosenChains adds, to all ranges of a program, the chains (members in stages) chosen for the placement. A
// stage may be on the devices of any config (a set of models and stages that a device holds) that has it.
func (g *mixtureProgram) addChosenChains() {
	for index := range g.ranges {
		for c, chain := range g.space.chosenChains {
			stageConfigs := make([][]int, len(chain.Stages))
			for s := range chain.Stages {
				for i, conf := range g.configs {
					if conf.Kind == chain.Stages[s].Kind && conf.ModelSet&(1<<g.space.stageBits[c][s]) != 0 {
						stageConfigs[s] = append(stageConfigs[s], i)
					}
				}
			}
			g.addSpreadChain(index, chain, stageConfigs)
		}
	}
}
