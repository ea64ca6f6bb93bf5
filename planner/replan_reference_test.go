package planner

import (
	"math"
	"os"
	"slices"
	"testing"

	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/planner/pool/documents"
	"inferplan/testkit/bundletest"
	"inferplan/testkit/reference"
)

// The clusters of the recorded plans, re-planned after a device is gone and
// after the mix shifts by 20 %: at most a fifth of the devices move, and what
// that costs against a plan from nothing is logged.
func TestReplanReferences(t *testing.T) {
	profile := bundletest.Profile(t)
	all := os.Getenv("INFERPLAN_ALL_REFERENCES") != ""
	for _, ref := range bundletest.Plans(t) {
		if ref.Family != "maf19" || ref.Algorithm != "PPipe" || !all && ref.Group != "G3" {
			continue
		}
		t.Run(ref.Case, func(t *testing.T) { replanReference(t, &ref, profile) })
	}
}

func replanReference(t *testing.T, ref *reference.Plan, profile *formats.Profile) {
	opt := caseOptions(ref)
	opt.Set("gap", 1e-2)
	opt.Set("algorithm", documents.AlgorithmTemplate)
	before := mustSolve(t, caseInputs(ref, profile), opt).Plan
	for _, c := range []struct {
		name   string
		change func(*Inputs)
	}{
		{"a device gone", func(in *Inputs) { in.Cluster.Pools[0].Count-- }},
		{"weights +20, -20, 0 %", func(in *Inputs) {
			formats.ModelsOf(in.Workload)[0].Weight *= 1.2
			formats.ModelsOf(in.Workload)[1].Weight *= 0.8
		}},
	} {
		in := caseInputs(ref, profile)
		cluster, workload := *in.Cluster, *in.Workload
		cluster.Pools, workload.Section = slices.Clone(cluster.Pools), slices.Clone(formats.ModelsOf(&workload))
		in.Cluster, in.Workload = &cluster, &workload
		c.change(&in)
		fresh := mustSolve(t, in, opt).Plan.Objective.Value
		in.RunningPlan = before
		cpu := cputime.Used()
		res := mustSolve(t, in, opt)
		took := cputime.Used() - cpu
		got := res.Plan
		r := got.Replan
		t.Logf("%s, %s: %d of %d devices move, %+.2f %% against a plan from nothing, %.2f s of CPU", ref.Case, c.name, r.MovedGPUs, r.GPUs, 100*(got.Objective.Value/fresh-1), took.Seconds())
		for _, ph := range res.Phases {
			t.Logf("  %-14s %4d pipelines %6d nodes %8d iterations, value %.2f, bound %.2f", ph.Name, ph.Pipelines, ph.Nodes, ph.Iterations, ph.Value, ph.Bound)
		}
		if float64(r.MovedGPUs) > math.Ceil(r.MaxMoved*float64(r.GPUs)) || got.Objective.Value < 0.9*fresh {
			t.Errorf("%s, %s: %+v, value %v, from nothing %v", ref.Case, c.name, *r, got.Objective.Value, fresh)
		}
	}
}
