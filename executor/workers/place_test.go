package workers

import (
	"errors"
	"slices"
	"testing"

	"inferplan/executor/turn"
	"inferplan/policy"
)

func TestPlacesOfCPUKinds(t *testing.T) {
	for name, c := range map[string]struct {
		places map[string]CPUPlace
		share  bool
		ok     bool
	}{
		"no place":             {nil, true, false},
		"one kind only":        {map[string]CPUPlace{"cpu-a": {CPUs: []int{0, 1, 2}}}, false, false},
		"one each":             {map[string]CPUPlace{"cpu-a": {CPUs: []int{0, 1, 2}}, "cpu-b": {CPUs: []int{3, 4, 5}}}, false, true},
		"two each":             {map[string]CPUPlace{"cpu-a": {CPUs: []int{0, 1, 2, 3, 4, 5}, Threads: 2}, "cpu-b": {CPUs: []int{6, 7, 8}}}, false, true},
		"too few":              {map[string]CPUPlace{"cpu-a": {CPUs: []int{0, 1, 2}}, "cpu-b": {CPUs: []int{3, 4}}}, false, false},
		"too few, but sharing": {map[string]CPUPlace{"cpu-a": {CPUs: []int{0}}, "cpu-b": {CPUs: []int{1}}}, true, true},
		"empty":                {map[string]CPUPlace{"cpu-a": {}, "cpu-b": {}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			tables := &policy.Tables{Kinds: []string{"cpu-a", "cpu-b"}, KindCounts: []int32{3, 3}}
			for i := range int32(6) {
				tables.Devices = append(tables.Devices, policy.Device{Kind: i / 3, GPU: i % 3, Share: 1})
			}
			got, err := placeDevices(tables, &Options{CPUPlaces: c.places, ShareCPUs: c.share}, false, slices.Repeat([]bool{true}, len(tables.Devices)))
			if c.ok != (err == nil) || err != nil && !errors.Is(err, turn.ErrPlan) {
				t.Fatalf("placed as %+v, %v", got, err)
			}
			seen := map[int]bool{}
			for _, d := range got {
				for _, cpu := range d.CPUs {
					if seen[cpu] && !c.share {
						t.Errorf("CPU %d twice in %+v", cpu, got)
					}
					seen[cpu] = true
				}
			}
		})
	}
}
