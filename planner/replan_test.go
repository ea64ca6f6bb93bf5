package planner

import (
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// A plan that runs goes on where it can: nothing moves while nothing changed, a
// lost device and another mix move few, and a model file that changed moves
// all of its devices.
func TestSolveFrom(t *testing.T) {
	var opt Options
	in := twoKinds()
	in.Cluster.Pools[0].Count, in.Cluster.Pools[1].Count = 10, 20
	before := mustSolve(t, in, opt).Plan
	if before.Replan != nil {
		t.Error("a first plan tells of moves")
	}
	for _, c := range []struct {
		name   string
		change func(*Inputs)
		most   int
	}{
		{"nothing", func(*Inputs) {}, 0},
		{"a device lost", func(in *Inputs) { in.Cluster.Pools[0].Count-- }, 5},
		{"the mix shifts by 20 %", func(in *Inputs) {
			formats.ModelsOf(in.Workload)[0].Weight *= 1.2
			formats.ModelsOf(in.Workload)[1].Weight *= 0.8
		}, 6},
		{"a tighter SLO", func(in *Inputs) { formats.ModelsOf(in.Workload)[0].SLO = document.SLO{Duration: 36 * time.Millisecond} }, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := twoKinds()
			next.Cluster.Pools[0].Count, next.Cluster.Pools[1].Count = 10, 20
			c.change(&next)
			fresh := mustSolve(t, next, opt).Plan
			next.RunningPlan = before
			got := mustSolve(t, next, opt).Plan
			if got.Replan == nil || got.Replan.MovedGPUs > c.most {
				t.Fatalf("moves %+v, expected at most %d devices", got.Replan, c.most)
			}
			t.Logf("%d of %d devices move, %.1f rps per weight, made anew %.1f", got.Replan.MovedGPUs, got.Replan.GPUs, got.Objective.Value, fresh.Objective.Value)
			if got.Objective.Value < 0.95*fresh.Objective.Value {
				t.Errorf("value %v, made anew %v", got.Objective.Value, fresh.Objective.Value)
			}
		})
	}
	next := twoKinds()
	next.Cluster.Pools[0].Count, next.Cluster.Pools[1].Count = 10, 20
	for i := range next.Profile.Models {
		next.Profile.Models[i].Source.SHA256 = next.Profile.Models[i].Source.SHA256[:63] + "b"
	}
	next.RunningPlan = before
	opt.Set("max-moved", 1)
	if got := mustSolve(t, next, opt).Plan; got.Replan.MovedGPUs < 20 {
		t.Errorf("other model files, and only %d devices load them", got.Replan.MovedGPUs)
	}
}
