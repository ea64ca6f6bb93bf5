package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// fewPlacements is the number of placements up to which all are ranked, and the largest number that is tried.
const fewPlacements = 1000

// rankedLayout is a placement with the accuracies that the fluid model allows it.
type rankedLayout struct {
	layout          *deviceLayout
	rangeAccuracies []float64 // by range, up to the first range that cannot be served
	accuracy        float64   // weighted over these ranges
}

// compare orders layouts, those first that serve more ranges, and then those of more accuracy.
func (c *rankedLayout) compare(o *rankedLayout) int {
	return cmp.Or(cmp.Compare(len(o.rangeAccuracies), len(c.rangeAccuracies)), cmp.Compare(o.accuracy, c.accuracy))
}

// placementRanking holds the best placements so far.
type placementRanking struct {
	space   *planSpace
	maxKept int             // number of placements to keep
	top     []*rankedLayout // the best first
}

// score returns a layout (a placement device by device) with the accuracies that it allows without queueing, by
// range.
func (g *placementRanking) score(ctx context.Context, layout *deviceLayout) (*rankedLayout, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	accuracies, err := layout.fluidAccuracies(ctx, 0)
	return &rankedLayout{layout, accuracies, g.space.problem.weightedSum(accuracies)}, err
}

// add ranks a placement (configs) with every layout of its chains by what it allows without queueing, and keeps
// the maxKept best. Of equal ones the earlier is first.
func (g *placementRanking) add(ctx context.Context, configs []Config) error {
	for _, layout := range g.space.chainLayouts(configs) {
		ranked, err := g.score(ctx, layout)
		if err != nil {
			return err
		}
		rank, _ := slices.BinarySearchFunc(g.top, ranked, func(a, b *rankedLayout) int { return cmp.Or(a.compare(b), -1) })
		if rank < g.maxKept {
			g.top = slices.Insert(g.top, rank, ranked)[:min(g.maxKept, len(g.top)+1)]
		}
	}
	return nil
}

// rankPlacements returns the placements (which models are on which devices) that allow the most accuracy
// without queueing, up to maxKept. rankedAll says that all placements were ranked. No plan of whole models is
// then more accurate than the first placement allows: a gear is one cascade, and a placement's best one is the
// most accurate that it has time for. If there are too many placements, only that of placeModels is ranked. On
// several kinds or with chains that placement is ranked first, before equal ones.
func (space *planSpace) rankPlacements(ctx context.Context, maxKept int) (top []*rankedLayout, rankedAll bool, err error) {
	ranking := &placementRanking{space: space, maxKept: maxKept}
	var best []Config
	if rankedAll = space.canRankAll(maxKept); !rankedAll || len(space.problem.Kinds) > 1 || len(space.chosenChains) > 0 {
		if best, err = space.placeModels(ctx); err == nil {
			err = ranking.add(ctx, best)
		}
	}
	if rankedAll {
		space.eachPlacement(func(placement []Config) {
			if err == nil && !slices.Equal(placement, best) {
				err = ranking.add(ctx, placement)
			}
		})
	}
	return ranking.top, rankedAll, err
}

// canRankAll reports whether there are few enough placements to rank all: up to fewPlacements or, with chains,
// maxKept.
func (space *planSpace) canRankAll(maxKept int) bool {
	placements, maxPlacements := 1.0, fewPlacements
	if len(space.chosenChains) > 0 {
		maxPlacements = maxKept
	}
	for k, kind := range space.problem.Kinds {
		placements *= compositions(kind.Devices, len(configsOfKind(space.configs, k)))
	}
	return placements <= float64(maxPlacements)
}

// configsOfKind returns the configs of a kind.
func configsOfKind(configs []Config, kind int) (list []Config) {
	for _, c := range configs {
		if c.Kind == kind {
			list = append(list, c)
		}
	}
	return list
}

// eachPlacement calls visit for every way to give the devices of all kinds maximal sets of models. The empty
// placement is left out.
func (space *planSpace) eachPlacement(visit func(placement []Config)) {
	kinds := space.problem.Kinds
	var fill func(kind int, placement []Config)
	fill = func(kind int, placement []Config) {
		if kind == len(kinds) {
			if len(placement) > 0 {
				visit(placement)
			}
			return
		}
		configs := configsOfKind(space.configs, kind)
		if len(configs) == 0 {
			fill(kind+1, placement)
			return
		}
		eachComposition(kinds[kind].Devices, len(configs), func(counts []int) {
			fill(kind+1, append(slices.Clone(placement), withCounts(configs, counts)...))
		})
	}
	fill(0, nil)
}

// withCounts returns configs (sets of models on a device) with the given numbers of devices, without those of
// none.
func withCounts(configs []Config, counts []int) (placement []Config) {
	for i, n := range counts {
		if n > 0 {
			placement = append(placement, Config{configs[i].Kind, configs[i].ModelSet, n})
		}
	}
	return placement
}

// fluidLayout returns the layout in which all devices of a kind hold every model and stage that fits on one of
// them alone. No placement allows more, so it serves for bounds.
func fluidLayout(space *planSpace) *deviceLayout {
	layout, kindGroup := &deviceLayout{space: space, splits: map[int]*workSplit{}}, slices.Repeat([]int{-1}, len(space.problem.Kinds))
	for _, c := range space.fluidConfigs {
		if c.Count = space.problem.Kinds[c.Kind].Devices; c.Count > 0 {
			kindGroup[c.Kind] = len(layout.deviceGroups)
			layout.deviceGroups = append(layout.deviceGroups, c)
		}
	}
	for _, c := range space.chains {
		if groups := stageConfigs(c, kindGroup); !slices.Contains(groups, -1) {
			layout.replicaGroups = append(layout.replicaGroups, replicaGroup{chain: len(layout.chains), stageGroups: groups})
			layout.chains = append(layout.chains, PlacedChain{Chain: c})
		}
	}
	return layout
}

// boundSingleCascades returns the accuracy that no plan exceeds whose ranges have one cascade each, of whole
// models or in stages. If a range has none, it returns 0.
func boundSingleCascades(ctx context.Context, space *planSpace) (float64, error) {
	ranges, err := fluidLayout(space).fluidAccuracies(ctx, targetTolerance)
	if err != nil || len(ranges) < len(space.problem.RangeEdges) {
		return 0, err
	}
	return space.problem.weightedSum(ranges), nil
}

// fluidAccuracies returns, range by range, the accuracy of the most accurate cascade that the devices have time
// for at the range's upper edge if nothing queues, up to the first range without one. The time may be exceeded
// by the tolerance, as a fraction.
func (l *deviceLayout) fluidAccuracies(ctx context.Context, tolerance float64) (accuracies []float64, err error) {
	space, next := l.space, 0
	for _, edge := range space.problem.RangeEdges { // rates rise, so no range is more accurate than the one before
		for ; next < len(space.byAccuracy); next++ {
			hasTime, err := l.hasTimeFor(ctx, space.byAccuracy[next], edge/(1+tolerance))
			if err != nil {
				return nil, err
			}
			if hasTime {
				break
			}
		}
		if next == len(space.byAccuracy) {
			break
		}
		accuracies = append(accuracies, plannedAccuracy(space.problem, &space.cascades[space.byAccuracy[next]]))
	}
	return accuracies, nil
}

// hasTimeFor reports whether the devices and network cards of a placement have time for a cascade at a rate if
// nothing queues. A bound on the load is tried first, as it costs no program.
func (l *deviceLayout) hasTimeFor(ctx context.Context, cascade int, rate float64) (bool, error) {
	if l.loadLowerBound(cascade)*rate > 1 {
		return false, nil
	}
	s, err := l.bestSplit(ctx, cascade)
	return err == nil && s.maxLoad*rate <= 1, err
}

// planWholeModels plans with every member on single devices: on the best placements and with each of the limits
// on batches (withBatchLimits), until no other placement can be noticeably better by the model without
// queueing.
func (t *placementSearch) planWholeModels(ctx context.Context, space *planSpace) error {
	candidates := candidatePlacements{remainingRequests: t.search.proofBudget, otherBound: -1}
	for n, limited := range withBatchLimits(space.problem) {
		if n > 0 && t.isDone() {
			candidates.otherBound = max(candidates.otherBound, t.singleCascadeBound)
			break
		}

		// Rank the placements under this limit.
		top, rankedAll, err := space.withLimits(limited).rankPlacements(ctx, t.maxPlacements())
		if err != nil {
			return err
		}

		// If all are ranked, the first is a bound.
		if rankedAll && n == 0 && t.wholeOnly && !t.problem.OverRequests {
			servesAllRanges := len(top[0].rangeAccuracies) == len(t.problem.RangeEdges)
			if t.problem.TargetAccuracy > 0 && (!servesAllRanges || t.problem.missesTarget(top[0].accuracy+targetTolerance)) {
				return t.problem.targetError(top[0].accuracy)
			}
			if servesAllRanges {
				t.singleCascadeBound = top[0].accuracy
			}
		}

		// Look for an early plan, and try the placements.
		if n == 0 {
			if err := t.search.findEarlyPlan(ctx, top[0]); err != nil {
				return err
			}
		}
		if candidates.add(top, t.maxPlacements()); !rankedAll {
			candidates.otherBound = math.Inf(1)
		}
		if err := t.planOn(ctx, top, n); err != nil {
			return err
		}
	}
	return t.settleByTrials(ctx, &candidates)
}

// planOn plans on placements, the best first, by trials of the gears of each range, until no further one is
// worth it. limitIndex is the index of the limit on batches.
func (t *placementSearch) planOn(ctx context.Context, top []*rankedLayout, limitIndex int) error {
	for k, ranked := range top {
		if t.isDone() || t.rulesOutRest(ranked, k) {
			break
		}
		placement := newTrialPlacement(ranked.layout, t.search.history, ranked.rangeAccuracies)
		plan, err := placement.planRanges(ctx, t.accuracyToExceed(k, limitIndex), t.search.options.Progress)
		if ctx.Err() != nil {
			t.search.earlyPlan.improveFrom(placement)
		}
		if err == nil && len(ranked.layout.space.chosenChains) > 0 {
			plan.Problem = t.problem // the problem without the times of members in stages
		}
		if err := t.keepIfBetter(plan, err); err != nil {
			return err
		}
	}
	return nil
}

// rulesOutRest reports whether a placement and all behind it, which promise less, are not worth a try after
// triedBefore others: it cannot serve all ranges or reach the target where another one failed, or gains too
// little.
func (t *placementSearch) rulesOutRest(ranked *rankedLayout, triedBefore int) bool {
	switch {
	case t.firstError != nil && len(ranked.rangeAccuracies) < len(t.problem.RangeEdges):
		return true
	case t.bestPlan == nil:
		return t.firstError != nil && t.problem.missesTarget(ranked.accuracy)
	}
	return ranked.accuracy <= t.bestPlan.Accuracy+minPlacementGain(triedBefore)
}

// Gains of weighted accuracy that are worth an effort: minAccuracyGain any simulation, shorterBatchGain shorter
// batches, with which devices do less under overload, and nextPlacementGain the simulations of another placement.
const (
	minAccuracyGain   = 5e-5
	shorterBatchGain  = 2e-4
	nextPlacementGain = 1e-3
)

// minPlacementGain returns the gain over the best plan that a placement must allow to be tried after some others.
func minPlacementGain(triedBefore int) float64 {
	if triedBefore > 0 {
		return nextPlacementGain
	}
	return minAccuracyGain
}
