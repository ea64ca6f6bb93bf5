package planner

import (
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
)

// tightFamily is threeSizes on devices that hold two of the three models each.
func tightFamily(devices int, maxRate float64) Inputs {
	in := threeSizes(devices)
	in.Cluster.Pools[0].Memory = document.Bytes(4000)
	formats.CascadeOf(in.Workload).QPS.Max = maxRate
	return in
}

// A cascade that runs goes on where it can: other rates move few devices, none moves where none may, and the new plan is no
// worse than what runs.
func TestSolveFromGear(t *testing.T) {
	before := mustSolve(t, tightFamily(6, 3000), Options{}).Plan
	for _, c := range []struct {
		name     string
		rate     float64
		devices  int
		maxMoved float64
		most     int
	}{
		{"nothing changed", 3000, 6, 1, 0},
		{"none may move", 9000, 6, 0, 0},
		{"one may move", 9000, 6, 0.2, 1},
		{"all may move", 9000, 6, 1, 6},
		{"lower rates", 1000, 6, 1, 6},
		{"a device less", 3000, 5, 0.2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh := mustSolve(t, tightFamily(c.devices, c.rate), Options{}).Plan
			in := tightFamily(c.devices, c.rate)
			in.RunningPlan = before
			var opt Options
			opt.Set("max-moved", c.maxMoved)
			got := mustSolve(t, in, opt).Plan
			t.Logf("%d of %d devices move: value %v, made anew %v, running %v; %v; %v", got.Replan.MovedGPUs, got.Replan.GPUs, got.Objective.Value, fresh.Objective.Value, got.Replan.RunningValue, got.Replan.Moves, got.Assumptions)
			if v := got.Replan.RunningValue; v != nil {
				t.Log(*v)
			}
			if got.Replan.MovedGPUs > c.most {
				t.Fatalf("moves %+v, expected at most %d devices", got.Replan, c.most)
			}
		})
	}
}
