package moves

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
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

// The assignment is a permutation with as few moves as any has, and keeps every number where nothing moves anyway.
func TestAssignmentMovesTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "devices")
		var newHeld, runningHeld []formats.DeviceContent
		for range n {
			newHeld = append(newHeld, contentOf(rapid.IntRange(0, 7).Draw(t, "new")))
			runningHeld = append(runningHeld, contentOf(rapid.IntRange(0, 7).Draw(t, "running")))
		}
		assigned := slices.Repeat([]int{-1}, n)
		matchDevices(newHeld, runningHeld, identity(n), assigned)
		if !slices.Equal(slices.Sorted(slices.Values(assigned)), identity(n)) {
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

		// The same in another order is found again.
		again := slices.Repeat([]int{-1}, n)
		shuffled := make([]formats.DeviceContent, n)
		for i, to := range rand.New(rand.NewPCG(1, uint64(n))).Perm(n) {
			shuffled[to] = newHeld[i]
		}
		matchDevices(shuffled, newHeld, identity(n), again)
		for i, device := range again {
			if !newHeld[device].Covers(shuffled[i]) {
				t.Errorf("%v moves to %v", newHeld, shuffled)
			}
		}
	})
}
