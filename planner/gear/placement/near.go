package placement

import (
	"context"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
)

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
