package trials_test

import (
	"testing"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/planner/gear/trials"
	"inferplan/solver/highs"
)

// A gear that holds on the samples planned on alone is not taken where others are held out of
// which three times as many come to the large model. The gear that is taken has both latencies.
func TestGearsHoldOnSamplesHeldOut(t *testing.T) {
	const rate = 400
	for _, c := range []struct {
		heldOut *cascades.Samples
		models  int
	}{{nil, 2}, {trials.SamplesForwarding(2000, 20), 2}, {trials.SamplesForwarding(2000, 6), 1}} {
		p := trials.TwoModels(rate)
		p.HeldOutSamples = c.heldOut
		plan, err := search.Solve(t.Context(), p, highs.Solver{}, search.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		g := &plan.Gears[0]
		if len(g.Cascade.Models) != c.models {
			t.Errorf("%d models, expected %d", len(g.Cascade.Models), c.models)
		}
		if held := g.Trial.HeldOutLatency; (held > 0) != (c.heldOut != nil) || held > p.SLO {
			t.Errorf("%v with the samples held out, within an SLO of %v", held, p.SLO)
		}
		// The gear as planned is late on what was held out, if that was not tried.
		if c.heldOut == nil {
			again, err := plan.RetryGear(t.Context(), trials.SamplesForwarding(2000, 6), 0, 5)
			if err != nil || again.Passed {
				t.Errorf("passes with three times as many forwarded: %+v, %v", again, err)
			}
		}
	}
}
