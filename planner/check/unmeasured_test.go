package check_test

import (
	"context"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

// A plan of any kind takes for a batch that was not measured what lies on the line between
// those that were, and its rate by the mean there; the check finds the same. Where rates
// are by medians, as of older plans, the check takes these.
func TestUnmeasuredBatches(t *testing.T) {
	profile, err := formats.DecodeProfile([]byte(`{
		"format": "inferplan.profile/v1", "devices": [{"device": "cpu-1"}],
		"models": [{"model": "m", "blocks": [{"name": "all"}], "measurements": [
			{"device": "cpu-1", "share": 1, "batch": 1, "whole": {"wall_us": 10000, "mean_us": 12000}, "blocks": [{"wall_us": 10000}]},
			{"device": "cpu-1", "share": 1, "batch": 2, "whole": {"wall_us": 16000, "mean_us": 16000}, "blocks": [{"wall_us": 16000}]},
			{"device": "cpu-1", "share": 1, "batch": 4, "whole": {"wall_us": 20000, "mean_us": 24000}, "blocks": [{"wall_us": 20000}]}]}]}`), "profile.json")
	if err != nil {
		t.Fatal(err)
	}
	cluster := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "cpu-1", Count: 2, Sharing: formats.SharingTime, MaxShares: 1, PerNode: 1}}}
	slo, err := document.ParseSLO("400ms")
	if err != nil {
		t.Fatal(err)
	}
	models, _ := planner.AssumedWorkload(profile, slo)
	_, application, err := formats.Decode([]byte("format: inferplan.workload/v1\napplications:\n- name: a\n  slo: 400ms\n  modules:\n  - {name: only, model: m}\n  weight: 1\n"), "workload.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for kind, workload := range map[string]*formats.Workload{formats.PlanPool: models, formats.PlanFlow: application.(*formats.Workload)} {
		in := planner.Inputs{Profile: profile, Cluster: cluster, Workload: workload}
		values := map[string]any{"max-batch": 3}
		if kind == formats.PlanFlow {
			values["objective"] = "throughput"
		}
		res, err := planner.Solve(context.Background(), in, planner.Options{Values: values}, highs.Solver{}, nil)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		plan := res.Plan
		if err := plan.Validate(); err != nil || plan.Kind != kind {
			t.Fatalf("%s: a plan of kind %s: %v", kind, plan.Kind, err)
		}
		l := plan.Deployment[0].Pipelines[0]
		s := l.Stages[0]
		if l.Batch != 3 || s.InferUS[2] != 18e6 || s.InferRangeUS[2] != [2]document.Micros{16e6, 20e6} || s.MeanUS[2] != 20e6 {
			t.Errorf("%s: batch %d takes %v in %v, on average %v", kind, l.Batch, s.InferUS, s.InferRangeUS, s.MeanUS)
		}
		if rate := plan.Deployment[0].RPS(); rate < 299.9 || rate > 300.1 {
			t.Errorf("%s: %v/s, expected 300 on two devices, by the mean", kind, rate)
		}
		for _, f := range check.Recompute(plan, profile, cluster, workload) {
			t.Errorf("%s: %s", kind, f)
		}
		plan.RatesBy = ""
		if err := plan.Validate(); err != nil {
			t.Errorf("%s, by medians: %v", kind, err)
		}
		for _, f := range check.Recompute(plan, profile, cluster, workload) {
			t.Errorf("%s, by medians: %s", kind, f)
		}
	}
}
