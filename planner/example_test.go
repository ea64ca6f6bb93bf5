package planner_test

import (
	"context"
	"fmt"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// A profile, a cluster and a workload make a plan with a proven bound.
func ExampleSolve() {
	profile, err := formats.DecodeProfile([]byte(`{
		"format": "inferplan.profile/v1",
		"devices": [{"device": "L4"}],
		"models": [{"model": "classifier", "blocks": [{"name": "all"}], "measurements": [
			{"device": "L4", "share": 1, "batch": 1, "blocks": [{"wall_us": 10000}]},
			{"device": "L4", "share": 1, "batch": 4, "blocks": [{"wall_us": 20000}]}]}]}`), "profile.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	in := planner.Inputs{
		Profile: profile,
		Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{{Device: "L4", Count: 3, MaxShares: 1, PerNode: 1}}},
	}
	slo, err := document.ParseSLO("100ms")
	if err != nil {
		fmt.Println(err)
		return
	}
	in.Workload, _ = planner.AssumedWorkload(profile, slo)
	result, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	o := result.Plan.Objective
	fmt.Printf("%s: %.0f rps, bound %.0f, stopped by %s\n", result.Plan.Kind, o.Value, *o.Bound, result.Plan.StoppedBy)
	// Output:
	// pool: 600 rps, bound 600, stopped by proved
}
