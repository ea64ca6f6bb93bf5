package search

import (
	"context"
	"testing"

	"inferplan/planner/gear/trials"
)

// A gear that was found holds its range's upper edge in fresh trials, of other
// arrivals and ten times as long.
func TestFreshTrials(t *testing.T) {
	for _, c := range []struct {
		name        string
		f           *family
		devices     []int
		tries, long int
	}{{"bert5", &bert5, []int{2}, 1, 40}, {"llama4", &llama4, []int{6}, 4, 200}} {
		tries := c.tries
		if long {
			tries, c.devices = c.long, []int{1, 2, 3, 4, 5, 6, 8}
		}
		for _, d := range c.devices {
			plan := c.f.planOnce(t, d)
			most := 0
			for r := range plan.Gears {
				fails := 0
				for seed := range tries {
					fresh, err := plan.RetryGear(context.Background(), nil, r, uint64(1000+seed))
					if err != nil {
						t.Fatal(err)
					}
					if !fresh.Passed {
						fails++
					}
				}
				if most = max(most, fails); float64(fails) > trials.MaxFailChance*float64(tries) {
					t.Errorf("%s on %d, range %d at load %.3f: %d of %d fresh trials fail", c.name, d, r+1, plan.Gears[r].BusiestLoad, fails, tries)
				}
			}
			t.Logf("%s on %d: accuracy %.4f of %.4f in %d runs; at most %d of %d fresh trials of a gear fail", c.name, d, plan.Accuracy, plan.Bound, plan.RunCount, most, tries)
		}
	}
}
