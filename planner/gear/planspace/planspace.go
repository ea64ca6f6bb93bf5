package planspace

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// Space holds what plans are made from: the cascades of a problem, the times of its models on every kind of
// devices, chains, and the configs of each kind. Times on different kinds are unrelated, so loads come from linear
// programs. The duals of each program bound the loads of all other cascades on the placement from below, so few
// programs are solved.
type Space struct {
	Problem          *cascades.Problem
	Solver           milp.Solver
	cache            cascades.CascadeCache // shared by all solves of the problem
	EnumeratedCount  int                   // cascades enumerated, before pruning
	Cascades         []cascades.Cascade    // those that can keep the SLO
	ByAccuracy       []int                 // indexes of cascades, the most accurate first
	ReachShares      [][]float64           // by cascade and model: share of the requests that reach the model
	MinLateShares    []float64             // by cascade: least share of late requests; nil if late requests are not allowed
	SecondsPerSample [][]float64           // by kind and model; infinite if the model does not run on the kind
	MaxBatch         [][]int               // by kind and model: largest batch
	Chains           []*Chain              // that members may run as
	ChosenChains     []*Chain              // chains that a placement is made for
	StageBits        [][]int               // by chosen chain and stage: the bit of the stage in model sets
	Configs          []Config              // maximal sets by kind, with counts of 0
	heldBy           []int                 // by config, in the space of placements near what runs: the devices that hold it without a load, -1 if it is loaded; else nil
	FluidConfigs     []Config              // for the fluid model: of each kind one, with all models that fit on a device alone
}

// NewSpace returns a space without cascades.
func NewSpace(p *cascades.Problem, solver milp.Solver, cache cascades.CascadeCache) *Space {
	space := &Space{Problem: p, Solver: solver, cache: cache}
	space.MaxBatch, space.SecondsPerSample = cascades.BatchesAndSpeeds(p)
	return space
}

// WholeModelSpace returns the space of the cascades that whole models answer in time.
func WholeModelSpace(ctx context.Context, p *cascades.Problem, solver milp.Solver, cache cascades.CascadeCache) (*Space, error) {
	space := NewSpace(p, solver, cache)
	space.SetConfigs()
	return space, space.ListCascades(ctx)
}

// WithLimits returns a copy of the space (what plans are made from) for a problem with another limit on the time of a
// batch: with its batch sizes, device times of samples, and configs (sets of models that fit on a device). The cascades
// stay.
func (space *Space) WithLimits(p *cascades.Problem) *Space {
	limited := *space
	limited.Problem = p
	limited.MaxBatch, limited.SecondsPerSample = cascades.BatchesAndSpeeds(p)
	limited.SetCascades(space.Cascades)
	limited.SetConfigs()
	return &limited
}

// SetCascades sets the cascades of the space, their order by falling accuracy, and by cascade and model the share of
// the requests that reaches the model.
func (space *Space) SetCascades(list []cascades.Cascade) {
	space.Cascades, space.ByAccuracy, space.ReachShares = list, lists.Indexes(len(list)), make([][]float64, len(list))
	slices.SortFunc(space.ByAccuracy, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[b].CorrectCount, list[a].CorrectCount), cmp.Compare(a, b))
	})
	models := len(space.Problem.Models)
	flat := make([]float64, len(list)*models) // one array for all rows, as there are very many cascades
	for i := range list {
		space.ReachShares[i], flat = flat[:models:models], flat[models:]
		for k, m := range list[i].Models {
			space.ReachShares[i][m] = float64(list[i].ReachCounts[k]) / float64(space.Problem.PlanningSamples.N)
		}
	}
}

// SolveProgram solves a program. If the context has ended, it returns the context's error.
func SolveProgram(ctx context.Context, solver milp.Solver, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	sol, err := solver.Solve(ctx, m, o)
	return sol, cmp.Or(err, ctx.Err())
}

// ListCascades sets the cascades of the space: those of the usable models, whole or in chains (stages over several
// devices), whose least latency at the percentile keeps the SLO. Cascades that others beat whatever samples cost are
// left out. It returns an InfeasibleError if no model is usable or no cascade is in time.
func (space *Space) ListCascades(ctx context.Context) error {
	p := space.Problem
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = space.RunsWhole(m) || slices.ContainsFunc(space.Chains, func(c *Chain) bool { return c.Model == m })
	}
	if !slices.Contains(usable, true) {
		return &cascades.InfeasibleError{NoneUsable: true, SLO: p.ShortestSLO()}
	}
	pruned, err := space.cache.PrunedOver(ctx, p, usable)
	if err != nil {
		return err
	}
	inTime := p.CascadesInTime(pruned.Cascades)
	if len(inTime) == 0 {
		return &cascades.InfeasibleError{NoneInTime: true, SLO: p.ShortestSLO()}
	}
	space.EnumeratedCount = pruned.EnumeratedCount
	space.SetCascades(inTime)
	return nil
}

// RunsWhole reports whether a model runs whole on some kind.
func (space *Space) RunsWhole(m int) bool {
	return slices.ContainsFunc(space.SecondsPerSample, func(speeds []float64) bool { return !math.IsInf(speeds[m], 1) })
}

// WithStages returns a copy of the space in which members may also run as chains (in stages over several devices). If
// there are no chains, it returns the space itself. p is the problem with the times of whole models; the space's own
// problem may have those of other chains. minTimes is the least time of a single sample in stages, by model, or 0. The
// copy's problem has these times as fastest times of a batch of one, by which latencies are bounded, where they are
// less. Its cascades are listed anew only if chains allow other ones than whole models.
func (space *Space) WithStages(ctx context.Context, p *cascades.Problem, chains []*Chain, minTimes []time.Duration) (*Space, error) {
	if len(chains) == 0 {
		return space, nil
	}
	// Other cascades are possible if whole models had none in time, if some model does not run whole, or if one is faster in
	// stages, so that more cascades are in time.
	staged, newCascades := *p, space.Cascades == nil
	staged.Models = slices.Clone(p.Models)
	for m := range staged.Models {
		newCascades = newCascades || !space.RunsWhole(m)
		if t := minTimes[m]; t > 0 && t < staged.Models[m].FastestTimes[0] {
			staged.Models[m].FastestTimes = slices.Clone(staged.Models[m].FastestTimes)
			staged.Models[m].FastestTimes[0], newCascades = t, true
		}
	}
	stagedSpace := *space
	stagedSpace.Problem, stagedSpace.Chains, stagedSpace.ChosenChains = &staged, chains, nil
	if newCascades {
		if err := stagedSpace.ListCascades(ctx); err != nil {
			return nil, err
		}
	}
	stagedSpace.SetConfigs()
	return &stagedSpace, nil
}

// SetConfigs sets the configs (sets of models that a device holds) of each kind of devices: the maximal sets of models,
// and of stages of the chosen chains, that fit into its memory. It also sets StageBits, the bits of stages in these
// sets, which are above those of models, and for bounds FluidConfigs, one config for each kind with all models that run
// there.
func (space *Space) SetConfigs() {
	p := space.Problem
	space.Configs, space.heldBy, space.FluidConfigs, space.StageBits = nil, nil, nil, make([][]int, len(space.ChosenChains))
	for c, chain := range space.ChosenChains {
		space.StageBits[c] = make([]int, len(chain.Stages))
	}

	for k, kind := range p.Kinds {
		memory, usable := space.itemSizes(k)

		// The maximal sets, and one config with all models for the fluid model.
		for _, set := range maximalSets(memory, kind.Memory) {
			space.Configs = append(space.Configs, Config{Kind: k, ModelSet: set})
		}
		if usable != 0 || slices.ContainsFunc(space.Chains, func(c *Chain) bool {
			return slices.ContainsFunc(c.Stages, func(s Stage) bool { return s.Kind == k })
		}) {
			space.FluidConfigs = append(space.FluidConfigs, Config{Kind: k, ModelSet: usable})
		}
	}
}

// itemSizes returns the memory of the models and, above them, of the stages of the chosen chains on a kind of devices, in
// bytes; -1 if a model does not run on it. It sets the bits of these stages. usable has the bits of the models that run
// there.
func (space *Space) itemSizes(kind int) (sizes []int64, usable uint32) {
	p := space.Problem
	sizes = slices.Repeat([]int64{-1}, len(p.Models))
	for m := range p.Models {
		if !math.IsInf(space.SecondsPerSample[kind][m], 1) {
			sizes[m] = p.Models[m].Variants[kind].Memory
			usable |= 1 << m
		}
	}
	for c, chain := range space.ChosenChains {
		for s := range chain.Stages {
			if chain.Stages[s].Kind == kind {
				space.StageBits[c][s] = len(sizes)
				sizes = append(sizes, chain.Stages[s].Memory)
			}
		}
	}
	return sizes, usable
}

// PlaceModels returns a placement: how many devices of each kind hold which models and stages. It solves the relaxation
// (devices in fractions, mixtures of cascades) of all ranges of rates together by column generation, and then the
// program in whole devices over the cascades that this found. With whole devices a range may need a cascade that only
// another range uses with fractions of devices, so every range gets the cascades of all.
func (space *Space) PlaceModels(ctx context.Context) (placement []Config, err error) {
	p := space.Problem
	ranges := lists.Indexes(len(p.RangeEdges))

	// The relaxation.
	relaxation := space.newMixtureProgram(space.Configs, ranges, false)
	relaxation.limitMoves()
	relaxation.addChosenChains()
	if _, _, err := relaxation.generateColumns(ctx, nil); err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}

	// Whole numbers of devices. With chains the program is large, so it may stop at a gap or after a number of nodes.
	integral := space.newMixtureProgram(space.Configs, ranges, true)
	integral.limitMoves()
	integral.addChosenChains()
	usedCascades := slices.Compact(slices.Sorted(slices.Values(slices.Concat(relaxation.CascadeColumns...))))
	for index := range ranges {
		for _, cascade := range usedCascades {
			integral.addCascade(index, cascade)
		}
	}
	var limits milp.Options
	if len(space.ChosenChains) > 0 {
		limits = milp.Options{Gap: chainPlacementGap, MaxNodes: chainPlacementNodes}
	}
	sol, err := SolveProgram(ctx, space.Solver, integral.model, limits)
	if err != nil {
		return nil, fmt.Errorf("placing models: %w", err)
	}
	if sol.X == nil {
		return nil, fmt.Errorf("placing models: no solution (%v)", sol.Status)
	}

	// Read the counts.
	counts := lists.Filled(len(space.Configs), func(c int) int { return int(math.Round(sol.X[integral.countVar[c]])) })
	return WithCounts(space.Configs, counts), nil
}

// Gap and number of nodes at which the program that places chains may stop.
const (
	chainPlacementGap   = 1e-4
	chainPlacementNodes = 2000
)

// addChosenChains adds, to all ranges of a program, the chains (members in stages) chosen for the placement. A stage
// may be on the devices of any config (a set of models and stages that a device holds) that has the stage's bit.
func (g *MixtureProgram) addChosenChains() {
	for index := range g.ranges {
		for c, chain := range g.space.ChosenChains {
			stageConfigs := make([][]int, len(chain.Stages))
			for s := range chain.Stages {
				for i, conf := range g.configs {
					if conf.Kind == chain.Stages[s].Kind && conf.ModelSet&(1<<g.space.StageBits[c][s]) != 0 {
						stageConfigs[s] = append(stageConfigs[s], i)
					}
				}
			}
			g.addSpreadChain(index, chain, stageConfigs)
		}
	}
}

// ForProblem returns a copy of the space for a problem with other numbers of devices. The copy keeps the space's own
// models and SLO, because members that may run in stages have other times there than in the problem.
func (space *Space) ForProblem(p *cascades.Problem) *Space {
	adapted, problem := *space, *p
	problem.Models, problem.SLO = space.Problem.Models, space.Problem.SLO
	adapted.Problem = &problem
	return &adapted
}

// ChainChoices returns copies of the space that differ in the chains (members in stages) that may be placed: those that
// the linear program uses; these and chains for devices that a member does not fit on whole; and each chain alone.
// Equal choices are listed once. chainUse is the share of the samples that each chain carries in the linear program.
func (space *Space) ChainChoices(chainUse []float64) (choices []*Space) {
	usedChains := space.mostUsedChains(chainUse)
	allChains := append(slices.Clone(usedChains), space.chainsForMemory()...)
	chainLists := [][]*Chain{usedChains, allChains}
	chainLists = append(chainLists, lists.Map(len(allChains), func(c int) []*Chain { return allChains[c : c+1] })...)
	if space.Problem.Running != nil {
		chainLists = append(chainLists, space.runningChains())
	}
	for _, chains := range chainLists {
		choice := *space
		choice.chooseChains(chains)
		if len(choice.ChosenChains) > 0 && !slices.ContainsFunc(choices, func(other *Space) bool { return slices.Equal(other.ChosenChains, choice.ChosenChains) }) {
			choices = append(choices, &choice)
		}
	}
	return choices
}

// WholeCascades returns all cascades of whole models that keep the SLO with batches of one, without pruning those that
// others beat. Tests compare plans with them.
func WholeCascades(p *cascades.Problem) []cascades.Cascade {
	usable := lists.Filled(len(p.Models), func(m int) bool { return NewSpace(p, nil, nil).RunsWhole(m) })
	return p.CascadesInTime(cascades.Enumerate(p.PlanningSamples, p.Grid, usable))
}
