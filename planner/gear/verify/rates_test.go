package verify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/kind"
)

// climbingDocuments ask for an SLO over all requests at rates with short bursts.
func climbingDocuments(t testing.TB) planner.Inputs {
	in := cascadeDocuments(1, 0, 1)
	in.WorkloadDir = t.TempDir()
	var rates strings.Builder
	rates.WriteString("second,count\n")
	for s := range 60 {
		count := 600
		if s%20 == 19 {
			count = 1000
		}
		fmt.Fprintf(&rates, "%d,%d\n", s, count)
	}
	if err := os.WriteFile(filepath.Join(in.WorkloadDir, "rates.csv"), []byte(rates.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := formats.CascadeOf(in.Workload)
	c.SLO.Scope, c.SLO.Latency.Duration = formats.ScopeRequests, 100e6
	c.QPS = formats.CascadeQPS{MeasuredFile: "rates.csv", Ranges: 2}
	return in
}

// climbingPlan is a plan of which some gear has more work at its upper edge than the devices
// have the time for.
func climbingPlan(t testing.TB, in planner.Inputs) *formats.Plan {
	plan := gearPlan(t, in)
	if !slices.ContainsFunc(formats.GearOf(plan).Gears, func(r formats.Gear) bool { return r.Utilisation > 1 }) {
		t.Fatalf("no range is above its devices' time: the case shows nothing: %+v", formats.GearOf(plan).Gears)
	}
	return plan
}

func todayOf(plan *formats.Plan, in planner.Inputs) *kind.CheckInput {
	return &kind.CheckInput{Plan: plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload, WorkloadDir: in.WorkloadDir}
}

// What only the measured rates allow is run on them: a fresh plan holds.
func TestClimbingPlanHolds(t *testing.T) {
	in := climbingDocuments(t)
	plan := climbingPlan(t, in)
	if got := check.FindingsOf(todayOf(plan, in)); len(got) > 0 {
		t.Errorf("%v", got)
	}
	in.WorkloadDir = ""
	if got := check.FindingsOf(todayOf(plan, in)); len(got) != 1 || got[0].Constraint != "slo" || got[0].Severity != check.Warning {
		t.Errorf("without the rates: %v, expected a warning that the SLO cannot be told", got)
	}
}

// A wrong plan is found although ranges may be above what the devices hold for ever.
func TestClimbingPlanTampered(t *testing.T) {
	in := climbingDocuments(t)
	plan := climbingPlan(t, in)
	for name, c := range map[string]struct {
		change     func(*formats.Plan, *planner.Inputs)
		constraint string
	}{
		"utilisation": {func(p *formats.Plan, _ *planner.Inputs) {
			g := formats.GearOf(p)
			for r := range g.Gears {
				g.Gears[r].Utilisation = min(1, g.Gears[r].Utilisation)
			}
		}, "utilisation"},
		"over ranges": {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).SLOScope = "" }, "utilisation"},
		"the largest model everywhere, all figures to match": {func(p *formats.Plan, _ *planner.Inputs) { useLargestEverywhere(p) }, "slo"},
		"bound below the value":                              {func(p *formats.Plan, _ *planner.Inputs) { *p.Objective.Bound = p.Objective.Value - .001 }, "objective"},
		"slower": {func(_ *formats.Plan, in *planner.Inputs) {
			for m := range in.Profile.Models {
				for i := range in.Profile.Models[m].Measurements {
					in.Profile.Models[m].Measurements[i].Blocks[0].WallUS *= 2
				}
			}
		}, "slo"},
		"rates gone": {func(_ *formats.Plan, in *planner.Inputs) {
			formats.CascadeOf(in.Workload).QPS.MeasuredFile = "none.csv"
		}, "qps"},
	} {
		p := duplicate(t, plan)
		now := planner.Inputs{Profile: duplicate(t, in.Profile), Cluster: duplicate(t, in.Cluster), Workload: duplicate(t, in.Workload), WorkloadDir: in.WorkloadDir}
		c.change(p, &now)
		got := check.FindingsOf(todayOf(p, now))
		if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == c.constraint && f.Severity == check.Error }) {
			t.Errorf("%s: no error about %s in %v", name, c.constraint, got)
		}
	}
}

// useLargestEverywhere gives every range the largest model alone, with all figures to match.
func useLargestEverywhere(p *formats.Plan) {
	g, last := formats.GearOf(p), len(formats.GearOf(p).Models)-1
	pipeline := &p.Deployment[last].Pipelines[0]
	per := pipeline.Stages[0].InferUS[pipeline.Batch-1].D().Seconds() / float64(pipeline.Batch)
	accuracy := float64(strings.Count(g.Models[last].Correct, "1")) / float64(g.Samples)
	p.Objective.Value = 0
	for r := range g.Gears {
		at := &g.Gears[r]
		at.Stages = []formats.GearStage{{Model: g.Models[last].Model, Fraction: 1, MinQueue: 1, Split: []float64{1}}}
		at.Accuracy, at.Bound, at.Utilisation = accuracy, max(at.Bound, accuracy), at.ToQPS*per
		p.Objective.Value += at.Weight * accuracy
	}
	if p.Objective.Bound != nil {
		*p.Objective.Bound = max(*p.Objective.Bound, p.Objective.Value)
	}
}
