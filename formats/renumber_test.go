package formats

import (
	"slices"
	"strings"
	"testing"
)

// staged is a plan of one model in two stages: chains 0 and 1 run on devices 0 and 1, and then on devices 2 and 3. Chain 0
// has a share of .8.
func staged() *Plan {
	stage := func(first, blocks int) Stage {
		return Stage{Device: "gpu", Share: 1, Replicas: 2, Blocks: [2]int{blocks, blocks + 1}, Placement: []Placement{{FirstDevice: first, PerDevice: 1, Replicas: 2}}}
	}
	return &Plan{Kind: PlanGear, Pools: []Pool{{Device: "gpu", Count: 5}},
		Deployment: []Deployed{{Model: "m", NumBlocks: 2, Pipelines: []Pipeline{{Batch: 1, Stages: []Stage{stage(0, 0), stage(2, 1)}}}}},
		Section:    &GearPlan{Models: []GearModel{{Model: "m"}}, Gears: []Gear{{Stages: []GearStage{{Model: "m", Split: []float64{.8, .2}}}}}}}
}

// Chains keep their devices and shares under other numbers: where both stages change their order, the shares do, and where
// only one does, the chains would be others.
func TestChainsUnderOtherNumbers(t *testing.T) {
	for _, c := range []struct {
		numbers []int
		split   []float64 // nil if the chains would be paired otherwise
		first   []int     // devices of the first stage
	}{
		{[]int{0, 1, 2, 3, 4}, []float64{.8, .2}, []int{0, 1}},
		{[]int{1, 0, 3, 2, 4}, []float64{.2, .8}, []int{0, 1}},
		{[]int{1, 2, 3, 4, 0}, []float64{.8, .2}, []int{1, 2}},
		{[]int{4, 0, 3, 1, 2}, []float64{.2, .8}, []int{0, 4}},
		{[]int{1, 0, 2, 3, 4}, nil, nil},
	} {
		plan, fixed, err := staged().WithDeviceNumbers([][]int{c.numbers})
		if c.split == nil {
			if plan != nil || !slices.Contains(fixed, 0) || err == nil || !strings.Contains(err.Error(), "deployment[0].pipelines[0]") {
				t.Errorf("%v: %+v, fixed %v, %v", c.numbers, plan, fixed, err)
			}
			continue
		}
		if plan == nil {
			t.Fatalf("%v: the chains are not found", c.numbers)
		}
		split := GearOf(plan).Gears[0].Stages[0].Split
		if first := slices.Collect(plan.Deployment[0].Pipelines[0].Stages[0].Devices()); !slices.Equal(split, c.split) || !slices.Equal(first, c.first) {
			t.Errorf("%v: shares %v on devices %v, expected %v on %v", c.numbers, split, first, c.split, c.first)
		}
		// What devices hold follows their numbers.
		before, after := staged().HeldByDevice()[0], plan.HeldByDevice()[0]
		for n, to := range c.numbers {
			if before[n].String() != after[to].String() {
				t.Errorf("%v: device %d held %v, and device %d holds %v", c.numbers, n, before[n], to, after[to])
			}
		}
	}
	if plan := staged(); GearOf(plan).Gears[0].Stages[0].Split[0] != .8 {
		t.Error("the plan itself has changed")
	}
}
