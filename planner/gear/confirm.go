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
	confirmRequests = 100_000
	maxConfirmTime  = 5 * time.Minute
)

// planAndConfirm plans a cascade and confirms the plan by a test at the highest rate of its ranges, with random
// numbers that the search has not seen. If the test fails, SolveUntilConfirmed plans again with a reserve.
// Plans whose SLO is over all requests are not tested, as a range of theirs may miss it.
func planAndConfirm(ctx context.Context, p *kind.Problem, requested kind.TestSettings, solve kind.SolveFunc) (*kind.Result, error) {
	return certify.SolveUntilConfirmed(ctx, p, solve, func(plan *formats.Plan) (*certify.Test, string, error) {
		if formats.GearOf(plan).SLOScope == formats.ScopeRequests {
			return nil, "the SLO is one over all of the measured requests, and a range may miss it", nil
		}
		sc, err := sim.NewScenario(plan)
		if err != nil {
			return nil, "", err
		}
		freshTest, err := certify.WithFreshSeed(requested).WithDefaults(plan, confirmRequests/sim.RequestDivisor(sc.Tables), certify.MinDuration(plan), maxConfirmTime)
		if err != nil {
			return nil, "", err
		}
		test, err := certify.NewTestWith(plan, freshTest)
		return test, "", err
	})
}
