package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
)

// observedOf returns what an importer would read of a plan: places, shares, batch sizes and blocks.
func observedOf(plan *formats.Plan) []formats.Deployed {
	return document.Map(plan.Deployment, func(d *formats.Deployed) formats.Deployed {
		observed := formats.Deployed{Model: d.Model, Class: d.Class}
		for _, p := range d.Pipelines {
			seen := formats.Pipeline{Batch: p.Batch}
			for _, s := range p.Stages {
				seen.Stages = append(seen.Stages, formats.Stage{Blocks: s.Blocks, Device: s.Device, Share: s.Share, Placement: s.Placement})
			}
			observed.Pipelines = append(observed.Pipelines, seen)
		}
		return observed
	})
}

// pipelinesOf returns the pipelines of a plan without their rates, one line each, sorted.
func pipelinesOf(plan *formats.Plan) string {
	var lines []string
	for i := range plan.Deployment {
		for _, p := range plan.Deployment[i].Pipelines {
			line := fmt.Sprintf("%s batch %d takes %v:", plan.Deployment[i].Key(), p.Batch, p.LatencyUS)
			for _, s := range p.Stages {
				line += fmt.Sprintf(" %v on 1/%d of %s %v %v", s.Blocks, s.Share, s.Device, s.Placement, s.InferUS)
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A plan of which only the places are known becomes the same plan again, which carries no less than was promised.
func TestAdoptedPlansCarryTheirPromise(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		in := rapid.SampledFrom([]func() Inputs{twoKinds, func() Inputs { return oneCPU(2) }}).Draw(r, "documents")()
		for i := range in.Cluster.Pools {
			in.Cluster.Pools[i].Count = rapid.IntRange(2, 6).Draw(r, "count")
		}
		models := formats.ModelsOf(in.Workload)
		for i := range models {
			models[i].Weight = rapid.Float64Range(.2, 5).Draw(r, "weight")
		}
		var opt Options
		opt.Set("margin", .3)
		opt.Set("gpu-rounding", rapid.SampledFrom([]string{"slot", "fractional"}).Draw(r, "rounding"))
		opt.SkipNearest = true
		plan := mustSolve(t, in, opt).Plan
		adopted, err := Adopt(t.Context(), in, opt, &kind.Observed{Deployment: observedOf(plan)})
		if err != nil {
			r.Fatal(err)
		}
		if err := adopted.Validate(); err != nil {
			r.Fatal(err)
		}
		if got, want := pipelinesOf(adopted), pipelinesOf(plan); got != want {
			r.Fatalf("%s\nwant %s", got, want)
		}
		if got, want := adopted.Objective.Value, plan.Objective.Value; got < want*(1-1e-6) {
			r.Fatalf("carries %v, the plan promised %v", got, want)
		}
	})
}

// What runs where nothing is known of it is refused with what is missing, and what breaks an SLO is planned smaller.
func TestAdoptedPlansSayWhatIsWrong(t *testing.T) {
	whole := func(model, device string, share, batch int) formats.Deployed {
		return formats.Deployed{Model: model, Pipelines: []formats.Pipeline{{Batch: batch, Stages: []formats.Stage{{Device: device, Share: share, Placement: []formats.Placement{{PerDevice: 1, Replicas: 1}}}}}}}
	}
	in := twoKinds()
	names := document.Map(formats.ModelsOf(in.Workload), func(m *formats.WorkloadModel) string { return m.Model })
	kinds := document.Map(in.Cluster.Pools, func(p *formats.Pool) string { return p.Device })
	cut := whole(names[0], kinds[0], 1, 1)
	cut.Pipelines[0].Stages[0].Blocks = [2]int{0, 9}
	for name, c := range map[string]struct {
		observed []formats.Deployed
		expected string
	}{
		"a model does not run": {[]formats.Deployed{whole(names[0], kinds[0], 1, 1)}, names[1] + ", which does not run within its SLO"},
		"no such kind":         {[]formats.Deployed{whole(names[0], "H100", 1, 1)}, "a kind of device that is not in the cluster"},
		"no such shares":       {[]formats.Deployed{whole(names[0], kinds[0], 50, 1)}, "max_shares: found"},
		"other blocks":         {[]formats.Deployed{cut}, "found what runs of small: stage 0 holds blocks [0, 9)"},
	} {
		_, err := Adopt(t.Context(), in, Options{}, &kind.Observed{Deployment: c.observed})
		if _, ok := errors.AsType[*document.Error](err); !ok || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%s: %v", name, err)
		}
	}
	classes := twoKinds()
	for i, class := range []string{"fast", "slow"} {
		formats.ModelsOf(classes.Workload)[i].Model, formats.ModelsOf(classes.Workload)[i].Class = names[0], class
	}
	if _, err := Adopt(t.Context(), classes, Options{}, &kind.Observed{Deployment: []formats.Deployed{whole(names[0], kinds[0], 1, 1)}}); err == nil || !strings.Contains(err.Error(), "found small/fast and small/slow, expected small as a whole") {
		t.Errorf("classes: %v", err)
	}
	plan, err := Adopt(t.Context(), in, Options{}, &kind.Observed{Deployment: []formats.Deployed{whole(names[0], kinds[0], 1, 1000), whole(names[1], kinds[1], 1, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan.Warnings, "\n"); !strings.Contains(text, "batches of up to 1000 run") {
		t.Errorf("warnings: %s", text)
	}
}
