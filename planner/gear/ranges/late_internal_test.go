package ranges

import (
	"testing"

	"inferplan/planner/gear/trials"
	"inferplan/solver/knapsack"
)

// However often measured rates miss the SLO, the choice of gears ends with those that the ranges had before, even if another gear
// had no late request in its trial and so fits into a capacity of 0.
func TestCapacityIsLoweredToTheGearsBefore(t *testing.T) {
	choices := &gearChoices{make([][]trials.PlannedGear, 2), make([][]knapsack.Choice, 2)}
	for r := range choices.items {
		choices.addGear(r, trials.PlannedGear{Accuracy: .7}, .5)
		choices.addGear(r, trials.PlannedGear{Accuracy: .8}, .5)
	}
	const allowedShare = .05
	capacity := spentShare * allowedShare
	for step := 0; ; step++ {
		picks := knapsack.BestChoices(choices.items, capacity, lateUnit)
		if picks[0] == 0 && picks[1] == 0 {
			break
		}
		if step > maxLateSteps+2 {
			t.Fatalf("after %d capacities, %g now, the choice is still %v", step, capacity, picks)
		}
		capacity = choices.lowerCapacity(capacity, allowedShare)
	}
	if capacity != 0 {
		t.Errorf("the choice ended at capacity %g, expected 0", capacity)
	}
}
