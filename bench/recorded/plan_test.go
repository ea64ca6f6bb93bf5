package recorded

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/check"
	"inferplan/testkit/bundletest"
	"inferplan/testkit/reference"
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
		p, err := Plan(ref, profile)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := recomputes(ref, p); err != nil {
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
	_, err := Plan(ref, profile)
	if err == nil {
		t.Fatal("no error")
	}
	t.Log(err)
	var bad *document.Error
	if !errors.As(err, &bad) || bad.Hint == "" {
		t.Errorf("error %v, expected one with a field and a hint", err)
	}
}

// recomputes compares a plan with the record that it was made of: times to a microsecond, to which the record rounds them.
func recomputes(ref *reference.Plan, plan *formats.Plan) error {
	var err error
	fail := func(path, found, expected, hint string) error {
		return &document.Error{Path: path, Found: found, Expected: expected, Hint: hint}
	}
	us := func(path string, recorded float64, ours document.Micros) {
		if err == nil && math.Abs(recorded-float64(ours)/1000) > 1 {
			err = fail(path, fmt.Sprint(recorded), ours.String()+" by the profile", otherProfile)
		}
	}
	rate := func(path string, recorded, ours float64) {
		if err == nil && !sameRate(recorded, ours) {
			err = fail(path, fmt.Sprint(recorded), fmt.Sprintf("%.6f by the profile", ours), otherProfile)
		}
	}
	for d := range ref.DNNs {
		dnn, m, served := &ref.DNNs[d], &plan.Deployment[d], plan.PromiseFor(d)
		at := fmt.Sprintf("dnns[%d]", d)
		us(at+".slo_us", dnn.SLOUS, served.SLOUS)
		us(at+".slo_margin_us", dnn.MarginUS, served.MarginUS)
		rate(at+".rps", dnn.RPS, served.RPS)
		// The plan's pipelines are in order of rate: each is found by its stages.
		for i := range dnn.Pipelines {
			rp := &dnn.Pipelines[i]
			at := fmt.Sprintf("%s.pipelines[%d]", at, i)
			k := slices.IndexFunc(m.Pipelines, func(pl formats.Pipeline) bool { return sameStages(rp, &pl) })
			if k < 0 {
				return fail(at, "a pipeline", "it in the plan", "")
			}
			pl := &m.Pipelines[k]
			rate(at+".rps", rp.RPS, pl.RPS)
			us(at+".batch_build_est_us", rp.BuildUS, pl.BatchBuildUS)
			for s := range rp.Partitions {
				part, st := &rp.Partitions[s], &pl.Stages[s]
				at := fmt.Sprintf("%s.partitions[%d]", at, s)
				us(at+".infer_us", part.InferUS, st.InferUS[pl.Batch-1])
				if st.Cut != nil {
					us(at+".transfer_us", part.TransferUS, st.Cut.TransferUS[pl.Batch-1])
				} else {
					us(at+".transfer_us", part.TransferUS, 0)
				}
				if part.RPS != nil {
					rate(at+".rps", *part.RPS, st.RPS)
				}
				if math.Abs(part.GPUs-st.GPUs) > 1e-3 && err == nil {
					err = fail(at+".num_physical_gpus", fmt.Sprint(part.GPUs), fmt.Sprintf("%d replicas of 1/%d", st.Replicas, st.Share), "")
				}
			}
		}
	}
	rate("objective_min_weighted_rps", ref.Objective, plan.Objective.Value)
	return err
}

func sameStages(rp *reference.Pipeline, pl *formats.Pipeline) bool {
	if len(rp.Partitions) != len(pl.Stages) || rp.Partitions[0].Batch != pl.Batch {
		return false
	}
	for s := range pl.Stages {
		a, b := &rp.Partitions[s], &pl.Stages[s]
		if a.Blocks != b.Blocks || a.GPU != b.Device || a.Share != b.Share || a.Replicas != b.Replicas {
			return false
		}
	}
	return true
}
