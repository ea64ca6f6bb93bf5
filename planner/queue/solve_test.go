package queue_test

import (
	"context"
	"testing"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
)

func documents(t testing.TB) planner.Inputs {
	t.Helper()
	var in planner.Inputs
	var err error
	if in.Profile, err = formats.ReadProfile("testdata/profile.json"); err != nil {
		t.Fatal(err)
	}
	if in.Cluster, err = formats.ReadCluster("testdata/cluster.yaml"); err != nil {
		t.Fatal(err)
	}
	if in.Workload, err = formats.ReadWorkload("testdata/workload.yaml"); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestSolve(t *testing.T) {
	opt := planner.Options{Values: map[string]any{"objective": "gpus"}}
	res, err := planner.Solve(context.Background(), documents(t), opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(res.Plan.Objective)
}
