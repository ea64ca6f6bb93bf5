package placement

import (
	"cmp"
	"context"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
)

// FewPlacements is the number of placements up to which all are ranked, and the largest number that is tried.
const FewPlacements = 1000

// RankedLayout is a placement with the accuracies that the fluid model allows it.
type RankedLayout struct {
	Layout          *Layout
	RangeAccuracies []float64 // by range, up to the first range that cannot be served
	Accuracy        float64   // weighted over these ranges
}

// Compare orders layouts, those first that serve more ranges, and then those of more accuracy.
func (c *RankedLayout) Compare(o *RankedLayout) int {
	return cmp.Or(cmp.Compare(len(o.RangeAccuracies), len(c.RangeAccuracies)), cmp.Compare(o.Accuracy, c.Accuracy))
}

// placementRanking holds the best placements so far.
type placementRanking struct {
	space   *planspace.Space
	maxKept int             // number of placements to keep
	top     []*RankedLayout // the best first
}

// add ranks a placement (configs: how many devices hold which models) by the accuracy that it allows without queueing,
// once for every layout of its chains (members in stages). It adds those layouts to the ranking that are among its
// maxKept best. Of equal ones the earlier is first.
func (g *placementRanking) add(ctx context.Context, configs []planspace.Config) error {
	for _, layout := range chainLayouts(g.space, configs) {
		if err := ctx.Err(); err != nil {
			return err
		}
		accuracies, err := layout.FluidAccuracies(ctx, 0)
		if err != nil {
			return err
		}
		ranked := &RankedLayout{layout, accuracies, g.space.Problem.WeightedSum(accuracies)}
		// The comparison takes equal layouts for better ones, so the search ends behind them.
		rank, _ := slices.BinarySearchFunc(g.top, ranked, func(a, b *RankedLayout) int { return cmp.Or(a.Compare(b), -1) })
		if rank < g.maxKept {
			g.top = slices.Insert(g.top, rank, ranked)[:min(g.maxKept, len(g.top)+1)]
		}
	}
	return nil
}

// RankPlacements returns the placements (which models are on which devices) that allow the most accuracy without
// queueing, up to maxKept, the best first. rankedAll says that all placements were ranked. Then no plan of whole models
// is more accurate than the first placement allows, because the gear of a range is a single cascade, and a placement is
// ranked by the most accurate cascades that its devices have time for.
//
// If there are too many placements, only that of the program PlaceModels is ranked. If all are ranked, but on several
// kinds or with chains, that one is ranked before the others, so that of equally good placements it is the first. If plans
// may move only few devices of what runs, the placements are those of rankNear, and rankedAll is false.
func RankPlacements(ctx context.Context, space *planspace.Space, maxKept int) (top []*RankedLayout, rankedAll bool, err error) {
	if space.Problem.Running != nil {
		top, err = rankNear(ctx, space, maxKept)
		return top, false, err
	}
	ranking := &placementRanking{space: space, maxKept: maxKept}
	rankedAll = canRankAll(space, maxKept)
	needsProgram := !rankedAll || len(space.Problem.Kinds) > 1 || len(space.ChosenChains) > 0
	var programPlacement []planspace.Config
	if needsProgram {
		if programPlacement, err = space.PlaceModels(ctx); err == nil {
			err = ranking.add(ctx, programPlacement)
		}
	}
	if rankedAll {
		EachPlacement(space, func(placement []planspace.Config) {
			if err == nil && !slices.Equal(placement, programPlacement) {
				err = ranking.add(ctx, placement)
			}
		})
	}
	return ranking.top, rankedAll, err
}

// canRankAll reports whether there are few enough placements (ways to give the devices maximal sets of models) to rank
// all: up to FewPlacements or, with chains (members in stages), maxKept, as each placement then has several layouts.
func canRankAll(space *planspace.Space, maxKept int) bool {
	placements, maxPlacements := 1.0, FewPlacements
	if len(space.ChosenChains) > 0 {
		maxPlacements = maxKept
	}
	for k, kind := range space.Problem.Kinds {
		placements *= planspace.Compositions(kind.Devices, len(planspace.ConfigsOfKind(space.Configs, k)))
	}
	return placements <= float64(maxPlacements)
}

// EachPlacement calls visit for every placement: every way to give each device of all kinds one of the maximal sets of
// models that fit on it. Devices of a kind on which no model runs stay empty. The placement without any model is left
// out.
func EachPlacement(space *planspace.Space, visit func(placement []planspace.Config)) {
	kinds := space.Problem.Kinds
	var fill func(kind int, placement []planspace.Config)
	fill = func(kind int, placement []planspace.Config) {
		if kind == len(kinds) {
			if len(placement) > 0 {
				visit(placement)
			}
			return
		}
		configs := planspace.ConfigsOfKind(space.Configs, kind)
		if len(configs) == 0 {
			fill(kind+1, placement)
			return
		}
		planspace.EachComposition(kinds[kind].Devices, len(configs), func(counts []int) {
			fill(kind+1, append(slices.Clone(placement), planspace.WithCounts(configs, counts)...))
		})
	}
	fill(0, nil)
}

// FluidLayout returns the layout in which all devices of a kind hold every model and stage that fits on one of them
// alone, whatever fits together. No placement allows more, so it serves for bounds. Its chains (members in stages) have
// groups of devices but no replicas.
func FluidLayout(space *planspace.Space) *Layout {
	layout, kindGroup := &Layout{Space: space, splits: map[int]*workSplit{}}, slices.Repeat([]int{-1}, len(space.Problem.Kinds))
	for _, c := range space.FluidConfigs {
		if c.Count = space.Problem.Kinds[c.Kind].Devices; c.Count > 0 {
			kindGroup[c.Kind] = len(layout.DeviceGroups)
			layout.DeviceGroups = append(layout.DeviceGroups, c)
		}
	}
	for _, c := range space.Chains {
		if groups := planspace.StageConfigs(c, kindGroup); !slices.Contains(groups, -1) {
			layout.replicaGroups = append(layout.replicaGroups, replicaGroup{chain: len(layout.Chains), stageGroups: groups})
			layout.Chains = append(layout.Chains, planspace.PlacedChain{Chain: c})
		}
	}
	return layout
}

// BoundSingleCascades returns the accuracy, weighted over the ranges of rates, that no plan exceeds in which one cascade
// serves each range, and not a mixture of cascades. Its models may run whole or in stages. If a range has no cascade,
// it returns 0.
func BoundSingleCascades(ctx context.Context, space *planspace.Space) (float64, error) {
	ranges, err := FluidLayout(space).FluidAccuracies(ctx, cascades.TargetTolerance)
	if err != nil || len(ranges) < len(space.Problem.RangeEdges) {
		return 0, err
	}
	return space.Problem.WeightedSum(ranges), nil
}

// FluidAccuracies returns, range by range, the accuracy of the most accurate cascade that the devices have time for at
// the range's upper edge if nothing queues. It stops before the first range without one, so the result may be shorter
// than the ranges. The time may be exceeded by the tolerance, a fraction of it, so that rounding lowers no bound.
func (l *Layout) FluidAccuracies(ctx context.Context, tolerance float64) (accuracies []float64, err error) {
	space, next := l.Space, 0
	for _, edge := range space.Problem.RangeEdges { // rates rise, so no range is more accurate than the one before
		for ; next < len(space.ByAccuracy); next++ {
			hasTime, err := l.HasTimeFor(ctx, space.ByAccuracy[next], edge/(1+tolerance))
			if err != nil {
				return nil, err
			}
			if hasTime {
				break
			}
		}
		if next == len(space.ByAccuracy) {
			break
		}
		accuracies = append(accuracies, cascades.PlannedAccuracy(space.Problem, &space.Cascades[space.ByAccuracy[next]]))
	}
	return accuracies, nil
}

// HasTimeFor reports whether the devices and network cards of a placement have time for a cascade (an index of the
// space) at a rate in requests per second, if nothing queues. A bound on the load is tried first, as it costs no
// program.
func (l *Layout) HasTimeFor(ctx context.Context, cascade int, rate float64) (bool, error) {
	if l.LoadLowerBound(cascade)*rate > 1 {
		return false, nil
	}
	s, err := l.BestSplit(ctx, cascade)
	return err == nil && s.MaxLoad*rate <= 1, err
}

// rankNear returns the placements that move at most as many devices of those that run as the problem allows, up to maxKept,
// the best first. A device that does not move keeps all that it holds and plans can use. If there are few such placements,
// all are ranked. Otherwise the one of the program PlaceModels is ranked, and the one in which nothing moves. It returns an
// InfeasibleError if no placement has a model.
func rankNear(ctx context.Context, space *planspace.Space, maxKept int) ([]*RankedLayout, error) {
	ranking, near := &placementRanking{space: space, maxKept: maxKept}, space.NearRunning()
	add := func(placement []planspace.Config) error { return ranking.add(ctx, placement) }
	all, err := near.EachNear(FewPlacements, func([]planspace.Config) error { return nil })
	if all && err == nil {
		_, err = near.EachNear(FewPlacements, add)
	}
	if !all {
		var placement []planspace.Config
		if placement, err = near.PlaceModels(ctx); err == nil && len(placement) > 0 {
			err = add(planspace.MergeConfigs(placement))
		}
		unmoved := *space.Problem
		unmoved.Running = &cascades.Running{Devices: space.Problem.Running.Devices}
		if unmovedSpace := space.ForProblem(&unmoved).NearRunning(); err == nil {
			_, err = unmovedSpace.EachNear(1, add)
		}
	}
	if err == nil && len(ranking.top) == 0 {
		err = &cascades.InfeasibleError{NoneUsable: true, SLO: space.Problem.ShortestSLO()}
	}
	return ranking.top, err
}
