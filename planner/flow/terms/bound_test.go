package terms

import (
	"math"
	"testing"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// A plan that was proven to be the best with its margin is called the best of all only where it
// reaches the bound of all.
func TestBoundOfAllPlansDecidesWhatIsProven(t *testing.T) {
	for _, c := range []struct {
		bound float64
		want  milp.StoppedBy
	}{{100, milp.StoppedByProof}, {100.5, milp.StoppedByGap}, {120, milp.StoppedByWork}, {math.NaN(), milp.StoppedByWork}} {
		o := &kind.Outcome{Objective: formats.Objective{Name: "throughput", Value: 100}, Sense: milp.Maximize, StoppedBy: milp.StoppedByProof}
		SetObjectiveBound(o, c.bound, "", 0.01)
		if o.StoppedBy != c.want || (o.Objective.Bound == nil) != math.IsNaN(c.bound) {
			t.Errorf("bound %v: stopped by %s with bound %v, want %s", c.bound, o.StoppedBy, o.Objective.Bound, c.want)
		}
	}
}
