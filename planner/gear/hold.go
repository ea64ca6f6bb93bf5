package gear

import (
	"context"
	"time"

	"inferplan/formats"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// A run of the confirming test has confirmRequests requests, but takes at most maxConfirmTime of simulated time.
// Near the highest rate a rare burst causes long queues, which short runs seldom show.
const (
	heldRequests = 100_000
	longestHeld  = 5 * time.Minute
)

// planAndConfirm plans a cascade and confirms it by a test at the highest rate of its ranges, with random numbers
// that the search has not seen.
func hold(ctx context.Context, p *kind.Problem, asked kind.Asked, solve kind.Solver) (*kind.Result, error) {
	return certify.Hold(ctx, p, solve, func(plan *formats.Plan) (*certify.Test, string, error) {
		if formats.GearOf(plan).Over == formats.OverRequests {
			return nil, "the SLO is one over all of the measured requests, and a range may miss it", nil
		}
		sc, err := sim.NewScenario(plan)
		if err != nil {
			return nil, "", err
		}
		fresh, err := certify.Fresh(asked).Of(plan, heldRequests/sim.Fewer(sc.Tables), certify.LeastDuration(plan), longestHeld)
		if err != nil {
			return nil, "", err
		}
		test, err := certify.NewAsked(plan, fresh)
		return test, "", err
	})
}
