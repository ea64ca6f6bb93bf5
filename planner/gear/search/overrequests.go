package search

import (
	"context"

	"inferplan/planner/gear/ranges"
	"inferplan/planner/gear/trials"
)

// tryOverRequests plans for all requests together if the workload does not name the scope of the SLO and one
// cascade is more accurate that way than a plan for every range.
func (s *planSearch) tryOverRequests(ctx context.Context, plan *trials.Plan) (*trials.Plan, error) {
	accuracy, err := ranges.SingleCascadeAccuracy(ctx, plan, s.options.Seed)
	if err != nil || accuracy == 0 {
		return trials.PlanOrError(ctx, plan, err)
	}
	q := *s.problem
	q.OverRequests = true
	overRequests, err := s.planMostAccurate(ctx, &q)
	if err != nil || ctx.Err() != nil && !ranges.IsBetter(overRequests, plan) {
		return trials.PlanOrError(ctx, plan, err)
	}
	return overRequests, nil
}
