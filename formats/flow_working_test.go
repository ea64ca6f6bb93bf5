package formats

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What the largest batch takes on a device is the most of the modules that run there.
func TestWorkingByDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, f, deployment := Pool{Device: "card", Count: rapid.IntRange(1, 12).Draw(t, "devices")}, FlowPlan{}, []Deployed{}
		expected := make([]int64, pool.Count)
		for range rapid.IntRange(0, 6).Draw(t, "modules") {
			m := FlowModule{WorkingBytes: int64(rapid.IntRange(0, 5).Draw(t, "bytes"))}
			s := Stage{Device: rapid.SampledFrom([]string{"card", "other"}).Draw(t, "device")}
			for range rapid.IntRange(1, 2).Draw(t, "placements") {
				first := rapid.IntRange(0, pool.Count-1).Draw(t, "first")
				g := Placement{FirstDevice: first, PerDevice: 1, Replicas: rapid.IntRange(1, pool.Count-first).Draw(t, "replicas")}
				s.Placement = append(s.Placement, g)
				for d := range g.Replicas {
					if s.Device == pool.Device {
						expected[first+d] = max(expected[first+d], m.WorkingBytes)
					}
				}
			}
			f.Modules, deployment = append(f.Modules, m), append(deployment, Deployed{Pipelines: []Pipeline{{Stages: []Stage{s}}}})
		}
		if got := f.WorkingBytesByDevice(deployment, &pool); !slices.Equal(got, expected) {
			t.Fatalf("%v, expected %v", got, expected)
		}
	})
}
