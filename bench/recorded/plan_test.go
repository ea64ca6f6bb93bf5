package recorded_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"inferplan/bench/recorded"
	"inferplan/formats/document"
	"inferplan/planner/check"
	"inferplan/testkit/bundletest"
)

// Every recorded plan of the reference data becomes a valid plan of ours whose
// latency, transfer, throughput, SLO and devices come out again: once where
// the plan is made, to 1 us and 1e-5, and once by plan check.
func TestRecordedPlansRecompute(t *testing.T) {
	profile, plans := bundletest.Profile(t), bundletest.Plans(t)
	if len(plans) != 132 {
		t.Errorf("%d recorded plans, expected 132", len(plans))
	}
	pipelines := 0
	for i := range plans {
		ref := &plans[i]
		name := fmt.Sprintf("%s/%s", ref.Algorithm, ref.Case)
		p, err := recorded.Plan(ref, profile)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range check.Recompute(p, profile, ref.ClusterDocument(), ref.WorkloadDocument()) {
			t.Errorf("%s: %s", name, f)
		}
		if math.Abs(p.Objective.Value-ref.Objective) > 1e-5*ref.Objective {
			t.Errorf("%s: objective %v, recorded %v", name, p.Objective.Value, ref.Objective)
		}
		gpus := map[string]float64{}
		for m := range p.Deployment {
			for _, pl := range p.Deployment[m].Pipelines {
				pipelines++
				for _, s := range pl.Stages {
					gpus[s.Device] += s.GPUs
					if len(s.InferUS) != pl.Batch {
						t.Errorf("%s: %d inference times up to batch %d", name, len(s.InferUS), pl.Batch)
					}
				}
			}
		}
		for k, n := range gpus {
			if n > float64(ref.GPUs[k])+1e-9 {
				t.Errorf("%s: %v devices of %s, the cluster has %d", name, n, k, ref.GPUs[k])
			}
		}
	}
	t.Logf("%d plans, %d pipelines", len(plans), pipelines)
}

// A record that the profile does not give again is refused, with the field.
func TestRecordedPlanOfAnotherProfile(t *testing.T) {
	profile, plans := bundletest.Profile(t), bundletest.Plans(t)
	ref := &plans[0]
	for i := range profile.Models {
		if profile.Models[i].Model == ref.DNNs[0].Model {
			for j := range profile.Models[i].Measurements {
				profile.Models[i].Measurements[j].Blocks[0].WallUS += 20_000
			}
		}
	}
	_, err := recorded.Plan(ref, profile)
	if err == nil {
		t.Fatal("no error")
	}
	t.Log(err)
	var bad *document.Error
	if !errors.As(err, &bad) || bad.Hint == "" {
		t.Errorf("error %v, expected one with a field and a hint", err)
	}
}
