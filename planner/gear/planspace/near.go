package planspace

import (
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// NearRunning returns a copy of the space whose placements move few devices of those that run: its configs are the sets
// that these have without a load, and after them the maximal sets that a device may load. Both may have equal sets.
func (space *Space) NearRunning() *Space {
	near := *space
	near.Configs, near.heldBy = nil, nil
	for i := range space.Problem.Running.Devices {
		for _, config := range space.heldConfigs(&space.Problem.Running.Devices[i]) {
			near.Configs, near.heldBy = append(near.Configs, config), append(near.heldBy, i)
		}
	}
	for _, config := range space.Configs {
		near.Configs, near.heldBy = append(near.Configs, config), append(near.heldBy, -1)
	}
	return &near
}

// heldConfigs returns the sets of models and stages that devices which run can have without a load, as configs of no
// devices: the maximal ones of what they hold that fit into the memory of a device. There is none if they hold nothing
// that plans of the space use.
func (space *Space) heldConfigs(running *cascades.RunningDevices) (configs []Config) {
	sizes, _ := space.itemSizes(running.Kind)
	for m := range space.Problem.Models {
		if running.ModelSet&(1<<m) == 0 {
			sizes[m] = -1
		}
	}
	for c, chain := range space.ChosenChains {
		for s := range chain.Stages {
			if chain.Stages[s].Kind == running.Kind && !slices.Contains(running.Stages, chain.runningStage(s)) {
				sizes[space.StageBits[c][s]] = -1
			}
		}
	}
	for _, set := range maximalSets(sizes, space.Problem.Kinds[running.Kind].Memory) {
		configs = append(configs, Config{Kind: running.Kind, ModelSet: set})
	}
	return configs
}

// limitMoves limits the configs of a program of placements near what runs: devices that hold a set without a load are no
// more than run with it, and those that load one no more than may move.
func (g *MixtureProgram) limitMoves() {
	if g.space.heldBy == nil {
		return
	}
	running := g.space.Problem.Running
	heldTerms := make([][]milp.Term, len(running.Devices))
	var loadedTerms []milp.Term
	for c, i := range g.space.heldBy {
		term := milp.Term{Var: g.countVar[c], Coef: 1}
		if i < 0 {
			loadedTerms = append(loadedTerms, term)
			continue
		}
		heldTerms[i] = append(heldTerms[i], term)
	}
	g.model.AddLE("moved", float64(running.MaxMoved), loadedTerms...)
	for i, terms := range heldTerms {
		g.model.AddLE("held", float64(running.Devices[i].Count), terms...)
	}
}

// EachNear calls visit for the placements near what runs that use as many devices as they can, in a space of NearRunning.
// If there are more than maxCount, or its steps are used up, it stops early and returns false. A placement without any model is left out.
func (space *Space) EachNear(maxCount int, visit func(placement []Config) error) (all bool, err error) {
	running := space.Problem.Running
	counts, freeDevices, freeMoves := make([]int, len(space.Configs)), space.Problem.DeviceCounts(), running.MaxMoved
	freeHeld := lists.Map(len(running.Devices), func(i int) int { return running.Devices[i].Count })
	remainingSteps := maxStepsPerPlacement*maxCount + len(space.Configs) // the first placement takes a step per config

	// isFull reports whether no device is left out that could be had without a load.
	isFull := func() bool {
		return !lists.Contains(len(space.heldBy), func(c int) bool {
			return space.heldBy[c] >= 0 && freeHeld[space.heldBy[c]] > 0 && freeDevices[space.Configs[c].Kind] > 0
		})
	}
	var fill func(c int) bool
	fill = func(c int) bool {
		if remainingSteps--; remainingSteps < 0 {
			return false
		}
		if c < 0 {
			if placement := MergeConfigs(WithCounts(space.Configs, counts)); len(placement) > 0 && isFull() {
				if maxCount--; maxCount < 0 {
					return false
				}
				err = visit(placement)
			}
			return err == nil
		}

		// Loads come first, as they are at the end of the list.
		kind, freeOfSort := space.Configs[c].Kind, &freeMoves
		if i := space.heldBy[c]; i >= 0 {
			freeOfSort = &freeHeld[i]
		}
		for n := min(freeDevices[kind], *freeOfSort); n >= 0; n-- {
			counts[c] = n
			freeDevices[kind], *freeOfSort = freeDevices[kind]-n, *freeOfSort-n
			goOn := fill(c - 1)
			freeDevices[kind], *freeOfSort = freeDevices[kind]+n, *freeOfSort+n
			if !goOn {
				return false
			}
		}
		counts[c] = 0
		return true
	}
	return fill(len(space.Configs) - 1), err
}

// maxStepsPerPlacement limits the steps of EachNear, as a multiple of the placements.
const maxStepsPerPlacement = 50

// runningStage returns a stage of the chain as the problem has those that run.
func (c *Chain) runningStage(s int) cascades.RunningStage {
	return cascades.RunningStage{Model: c.Model, FirstBlock: c.Stages[s].FirstBlock, EndBlock: c.Stages[s].EndBlock}
}

// runningChains returns the chains each of whose stages some device holds that runs.
func (space *Space) runningChains() (chains []*Chain) {
	for _, c := range space.Chains {
		isHeld := func(s int) bool {
			return slices.ContainsFunc(space.Problem.Running.Devices, func(d cascades.RunningDevices) bool {
				return d.Kind == c.Stages[s].Kind && slices.Contains(d.Stages, c.runningStage(s))
			})
		}
		if !slices.ContainsFunc(lists.Indexes(len(c.Stages)), func(s int) bool { return !isHeld(s) }) {
			chains = append(chains, c)
		}
	}
	return chains
}
