package planspace

import (
	"fmt"
	"testing"

	"inferplan/planner/gear/cascades"
)

// nearSpace returns a space near two devices that run with model 0. Its configs are what they hold and, after it, sets that
// may be loaded.
func nearSpace(devices, maxMoved, loadedSets int) *Space {
	space := &Space{
		Problem: &cascades.Problem{Kinds: []cascades.Kind{{Devices: devices}}, Running: &cascades.Running{Devices: []cascades.RunningDevices{{ModelSet: 1, Count: 2}}, MaxMoved: maxMoved}},
		Configs: []Config{{ModelSet: 1}}, heldBy: []int{0},
	}
	for i := range loadedSets {
		space.Configs, space.heldBy = append(space.Configs, Config{ModelSet: uint32(i + 2)}), append(space.heldBy, -1)
	}
	return space
}

// EachNear visits every placement that leaves out no device that could be had without a load, and says whether these are all.
func TestEachNearVisitsAll(t *testing.T) {
	for _, c := range []struct {
		devices, maxMoved, loadedSets, maxCount int
		visited                                 int
		all                                     bool
	}{
		{2, 0, 2, 1, 1, true},  // both stay
		{2, 1, 2, 3, 3, true},  // or one of them loads one of two sets
		{2, 1, 2, 2, 2, false}, // and one placement is too many
		{3, 1, 2, 3, 3, true},  // the third device is idle, or loads one of two sets
		{2, 2, 2, 6, 6, true},  // up to two of them load
		{2, 0, 60, 1, 1, true}, // the first placement takes more steps than there are for each
		{3, 1, 60, 61, 61, true},
	} {
		placements := map[string]bool{}
		all, err := nearSpace(c.devices, c.maxMoved, c.loadedSets).EachNear(c.maxCount, func(placement []Config) error {
			placements[fmt.Sprint(placement)] = true
			return nil
		})
		if err != nil || all != c.all || len(placements) != c.visited {
			t.Errorf("%+v: %d visited, all: %v, %v", c, len(placements), all, err)
		}
	}
}
