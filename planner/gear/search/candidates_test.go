package search

import (
	"context"
	"testing"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
)

// The longer trials may go on, the less they leave, and never less than a plan has: with
// no work what devices have the time for, with enough next to nothing. The plan is never
// worse for it.
func TestTrialsLeaveLess(t *testing.T) {
	ctx, s := context.Background(), solver(t)
	for _, seed := range []uint64{1010, 1053, 1055} {
		p, before := randomInstance(seed), &trials.Plan{TrialBound: 1}
		for _, left := range []int{0, 10_000, 100_000, maxProofRequests} {
			plan, err := (&planSearch{problem: p, options: &Options{Seed: 1}, solver: s, cache: cascades.CascadeCache{}, history: trials.NewHistory(1), proofBudget: &left}).planMostAccurate(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			if plan.TrialBound > before.TrialBound || plan.TrialBound < plan.Accuracy || plan.Accuracy < before.Accuracy {
				t.Errorf("instance %d: %.4f of at most %.4f, with less work %.4f of at most %.4f", seed, plan.Accuracy, plan.TrialBound, before.Accuracy, before.TrialBound)
			}
			if before.Gears == nil && (plan.TrialBound != plan.SingleCascadeBound || plan.SettledByTrials()) {
				t.Errorf("instance %d: at most %.4f without trials, devices have the time for %.4f", seed, plan.TrialBound, plan.SingleCascadeBound)
			}
			before = plan
		}
		if !before.SettledByTrials() || before.IsProved {
			t.Errorf("instance %d: %.4f of at most %.4f in trials, expected next to nothing between them; at most %.4f by time", seed, before.Accuracy, before.TrialBound, before.SingleCascadeBound)
		}
	}
}
