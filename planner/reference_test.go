package planner

import (
	"context"
	"os"
	"testing"

	"inferplan/solver/highs"
)

// The planner reaches what the authors' solver reached, case by case.
func TestReferencePlans(t *testing.T) {
	dir := bundleDir(t)
	profile := bundleProfile(t, dir)
	all := os.Getenv("INFERPLAN_ALL_REFERENCES") != ""
	for _, ref := range refPlans(t, dir) {
		fast := ref.Family == "maf19" && (ref.Algorithm == "NP" || ref.Algorithm == "PPipe" && (ref.Group == "G4" || ref.Group == "G3"))
		if ref.Algorithm == "DART-r" || ref.Family == "ablation" && ref.Algorithm == "NP" || !fast && !all {
			continue
		}
		t.Run(ref.Algorithm+"/"+ref.Case, func(t *testing.T) {
			opt := ref.options()
			opt.Gap = 1e-4
			res, err := Solve(context.Background(), ref.inputs(profile), opt, highs.Solver{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := res.Plan.Objective
			t.Logf("%.3f, reference %.3f (%+.3f %%), bound %.3f, gap %.2e, %s, %d pipelines, %.0f ms", got.Value, ref.Objective,
				100*(got.Value/ref.Objective-1), *got.Bound, *got.Gap, res.StoppedBy, res.Templates, res.WallMS)
			for _, p := range res.Phases {
				t.Logf("  %-14s %5d pipelines %6d nodes %8d iterations  value %.3f bound %.3f", p.Name, p.Pipelines, p.Nodes, p.Iterations, p.Value, p.Bound)
			}
			if got.Value < ref.Objective*(1-1e-4) {
				t.Errorf("objective %v, the reference has %v", got.Value, ref.Objective)
			}
			if ref.Algorithm == "NP" && got.Value > ref.Objective*(1+1e-4) {
				t.Errorf("objective %v is above that of the reference, %v", got.Value, ref.Objective)
			}
			if *got.Bound < got.Value {
				t.Errorf("bound %v below the value %v", *got.Bound, got.Value)
			}
		})
	}
}
