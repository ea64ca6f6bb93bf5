package moves

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// contentOf returns the content of a device that holds the models of a set of bits.
func contentOf(set int) (content formats.DeviceContent) {
	for m := range 3 {
		if set&(1<<m) != 0 {
			content = append(content, formats.HeldPart{Model: string(rune('a' + m)), WholeModel: true, Share: 1})
		}
	}
	return content
}

// fewestMoves returns the fewest devices that load something, over all assignments.
func fewestMoves(newHeld, runningHeld []formats.DeviceContent, first int, used []bool) int {
	if first == len(newHeld) {
		return 0
	}
	fewest := len(newHeld)
	for n := range runningHeld {
		if used[n] {
			continue
		}
		used[n] = true
		moves := fewestMoves(newHeld, runningHeld, first+1, used)
		if !runningHeld[n].Covers(newHeld[first]) {
			moves++
		}
		fewest, used[n] = min(fewest, moves), false
	}
	return fewest
}

// The assignment is a permutation with as few moves as any has, and keeps every number if nothing changes.
func TestAssignmentMovesTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "devices")
		var newHeld, runningHeld []formats.DeviceContent
		for range n {
			newHeld = append(newHeld, contentOf(rapid.IntRange(0, 7).Draw(t, "new")))
			runningHeld = append(runningHeld, contentOf(rapid.IntRange(0, 7).Draw(t, "running")))
		}
		assigned := slices.Repeat([]int{-1}, n)
		matchDevices(newHeld, runningHeld, lists.Indexes(n), assigned)
		if !slices.Equal(slices.Sorted(slices.Values(assigned)), lists.Indexes(n)) {
			t.Fatalf("%v is no permutation", assigned)
		}
		moves := 0
		for i, device := range assigned {
			if !runningHeld[device].Covers(newHeld[i]) {
				moves++
			}
		}
		if fewest := fewestMoves(newHeld, runningHeld, 0, make([]bool, n)); moves != fewest {
			t.Errorf("%d moves, and %d suffice: %v to %v by %v", moves, fewest, runningHeld, newHeld, assigned)
		}

		// Devices that hold what they held keep their numbers.
		unchanged := slices.Repeat([]int{-1}, n)
		if matchDevices(newHeld, newHeld, lists.Indexes(n), unchanged); !slices.Equal(unchanged, lists.Indexes(n)) {
			t.Errorf("%v goes on as %v", newHeld, unchanged)
		}

		// The same in another order is found again.
		again := slices.Repeat([]int{-1}, n)
		shuffled := make([]formats.DeviceContent, n)
		for i, to := range rand.New(rand.NewPCG(1, uint64(n))).Perm(n) {
			shuffled[to] = newHeld[i]
		}
		matchDevices(shuffled, newHeld, lists.Indexes(n), again)
		for i, device := range again {
			if !newHeld[device].Covers(shuffled[i]) {
				t.Errorf("%v moves to %v", newHeld, shuffled)
			}
		}
	})
}

// Devices change their numbers within a node only. A model of an unknown file counts as the one that a device holds.
func TestAssignmentOfNodesAndUnknownFiles(t *testing.T) {
	a, b := contentOf(1), contentOf(2)
	held := func(digest string) formats.DeviceContent {
		return formats.DeviceContent{{Model: "a", SHA256: digest, WholeModel: true, Share: 1}}
	}
	for name, c := range map[string]struct {
		newHeld, runningHeld []formats.DeviceContent
		nodes                [][]int
		want                 []int
	}{
		"one node":                     {[]formats.DeviceContent{a, a, b, b}, []formats.DeviceContent{b, b, a, a}, [][]int{{0, 1, 2, 3}}, []int{2, 3, 0, 1}},
		"two nodes":                    {[]formats.DeviceContent{a, a, b, b}, []formats.DeviceContent{b, b, a, a}, [][]int{{0, 1}, {2, 3}}, []int{0, 1, 2, 3}},
		"in each node":                 {[]formats.DeviceContent{a, b, a, b}, []formats.DeviceContent{b, a, b, a}, [][]int{{0, 1}, {2, 3}}, []int{1, 0, 3, 2}},
		"another file":                 {[]formats.DeviceContent{held("1"), held("2")}, []formats.DeviceContent{held("2"), held("1")}, [][]int{{0, 1}}, []int{1, 0}},
		"a file beside an unknown one": {[]formats.DeviceContent{held("1"), held("")}, []formats.DeviceContent{held(""), held("1")}, [][]int{{0, 1}}, []int{0, 1}},
	} {
		assigned := slices.Repeat([]int{-1}, len(c.newHeld))
		for _, devices := range c.nodes {
			matchDevices(c.newHeld, c.runningHeld, devices, assigned)
		}
		if !slices.Equal(assigned, c.want) {
			t.Errorf("%s: %v, expected %v", name, assigned, c.want)
		}
	}
}

// A plan whose chains cannot be paired even under its own numbers is refused at its pipeline.
func TestChainsThatAreNoPairs(t *testing.T) {
	stage := func(first, devices int) formats.Stage {
		return formats.Stage{Device: "gpu", Share: 1, Replicas: devices, Blocks: [2]int{0, 1}, Placement: []formats.Placement{{FirstDevice: first, PerDevice: 1, Replicas: devices}}}
	}
	pools := []formats.Pool{{Device: "gpu", Count: 5}}
	o := &kind.Outcome{Pools: pools, Section: &formats.GearPlan{}, Deployment: []formats.Deployed{{Model: "m", NumBlocks: 2, Pipelines: []formats.Pipeline{{Batch: 1, Stages: []formats.Stage{stage(0, 3), stage(3, 2)}}}}}}
	in := &kind.Problem{Values: document.NewValues(formats.PlanOptions(formats.PlanGear))}
	in.RunningPlan = &formats.Plan{Kind: formats.PlanGear, Pools: pools, Section: &formats.GearPlan{}}
	if err := Renumber(in, o); err == nil || !strings.Contains(err.Error(), "deployment[0].pipelines[0]") || o.Replan != nil {
		t.Errorf("%v, %+v", err, o.Replan)
	}
}
