package certify

import (
	"math"
	"testing"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// A bound that the value of a plan refutes is not stated; one that rounding passes is the value.
func TestRefutedBoundIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		name         string
		sense        milp.Sense
		value, bound float64
		stated       float64 // bound; NaN: none
		stopped      string
		warnings     int
	}{
		{"within the bound", milp.Maximize, 90, 100, 100, "work", 0},
		{"within the gap", milp.Maximize, 99.5, 100, 100, "gap", 0},
		{"at the bound", milp.Maximize, 100, 100, 100, "proved", 0},
		{"rounding", milp.Maximize, 100 + 1e-6, 100, 100 + 1e-6, "proved", 0},
		{"refuted", milp.Maximize, 101, 100, math.NaN(), "work", 1},
		{"refuted cost", milp.Minimize, 99, 100, math.NaN(), "work", 1},
		{"cost above the bound", milp.Minimize, 110, 100, 100, "work", 0},
		{"no bound", milp.Maximize, 90, math.NaN(), math.NaN(), "work", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := &formats.Plan{StoppedBy: "work", Objective: formats.Objective{Value: c.value}, Certificate: &formats.Certificate{LoadFactor: 1}}
			StateValue(&kind.Result{Plan: plan}, c.sense, c.bound, "", 0.01)
			o := plan.Objective
			if math.IsNaN(c.stated) != (o.Bound == nil) || o.Bound != nil && *o.Bound != c.stated {
				t.Errorf("bound %v, expected %v", o.Bound, c.stated)
			}
			if o.Basis != formats.BasisSimulation || plan.StoppedBy != c.stopped || len(plan.Warnings) != c.warnings {
				t.Errorf("basis %q, stopped by %s, expected %s; warnings %q", o.Basis, plan.StoppedBy, c.stopped, plan.Warnings)
			}
		})
	}
}
