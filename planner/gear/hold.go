package gear

import (
	"context"

	"inferplan/formats"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
)

// hold plans a cascade, and tests it at the highest rate of its ranges.
func hold(ctx context.Context, p *kind.Problem, asked kind.Asked, solve kind.Solver) (*kind.Result, error) {
	return certify.Hold(ctx, p, solve, func(plan *formats.Plan) (*certify.Test, string, error) {
		if formats.GearOf(plan).Over == formats.OverRequests {
			return nil, "the SLO is one over all of the measured requests, and a range may miss it", nil
		}
		test, err := certify.New(plan, certify.Fresh(asked))
		return test, "", err
	})
}
