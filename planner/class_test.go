package planner

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/pool/documents"
	"inferplan/solver/highs"
)

// twoClasses is twoKinds with two SLO classes of the small model.
func twoClasses() Inputs {
	in := twoKinds()
	in.Workload.Section = formats.WorkloadModels{
		{Model: "small", Class: "interactive", SLO: document.SLO{Duration: 25 * time.Millisecond}, Weight: 0.4},
		{Model: "small", Class: "batch", SLO: document.SLO{Duration: 150 * time.Millisecond}, Weight: 0.2, Percentile: "p95"},
		{Model: "large", SLO: document.SLO{Factor: 5}, Weight: 0.4},
	}
	return in
}

// Classes of one model are planned as if they were models of their own: the
// same plan comes out where the profile has the model under two names.
func TestClassesArePlannedLikeModels(t *testing.T) {
	named := twoKinds()
	twin := named.Profile.Models[0]
	twin.Model = "small-batch"
	named.Profile.Models = append(named.Profile.Models, twin)
	models := formats.ModelsOf(twoClasses().Workload)
	models[0].Class = ""
	models[1].Model, models[1].Class = "small-batch", ""
	named.Workload.Section = models
	for _, algorithm := range []string{documents.AlgorithmTemplate, documents.AlgorithmNP, documents.AlgorithmDARTr} {
		var opt Options
		opt.Set("algorithm", algorithm)
		got, want := mustSolve(t, twoClasses(), opt).Plan, mustSolve(t, named, opt).Plan
		if err := got.Validate(); err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		if got.Objective.Value != want.Objective.Value || *got.Objective.Bound != *want.Objective.Bound {
			t.Errorf("%s: objective %+v, with two names %+v", algorithm, got.Objective, want.Objective)
		}
		for i := range got.Deployment {
			g, w := got.PromiseFor(i), want.PromiseFor(i)
			pipelines := got.Deployment[i].Pipelines
			if k := formats.ModelsOf(twoClasses().Workload)[i].Key(); g.Key() != k {
				t.Errorf("%s: models[%d] is %s, want %s", algorithm, i, g.Key(), k)
			}
			if g.RPS != w.RPS || g.SLOUS != w.SLOUS || g.MarginUS != w.MarginUS || len(pipelines) != len(want.Deployment[i].Pipelines) {
				t.Errorf("%s: %s has %v rps at %v, with a name of its own %v at %v", algorithm, g.Key(), g.RPS, g.SLOUS, w.RPS, w.SLOUS)
			}
			for _, pl := range pipelines {
				if pl.LatencyUS+g.MarginUS > g.SLOUS {
					t.Errorf("%s: a pipeline of %s takes %v of %v with a margin of %v", algorithm, g.Key(), pl.LatencyUS, g.SLOUS, g.MarginUS)
				}
			}
		}
		if batch := got.PromiseFor(1); batch.SLOUS.D() != 150*time.Millisecond || batch.Percentile != "p95" {
			t.Errorf("%s: the class batch has an SLO of %v at %s", algorithm, batch.SLOUS, batch.Percentile)
		}
	}
}

func TestClassesAreCertifiedEach(t *testing.T) {
	var opt Options
	opt.Set("gap", 0.05)
	p := mustSolve(t, twoClasses(), opt).Plan
	if err := MethodOf(p.Kind).Certify(context.Background(), p, kind.TestSettings{Runs: 2, Duration: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for i := range p.Deployment {
		c, m := &p.Certificate.Models[i], p.PromiseFor(i)
		if c.Key() != m.Key() || math.Abs(c.RPS-p.Certificate.LoadFactor*m.RPS) > 1e-9 {
			t.Errorf("certified %+v for %s", c, m.Key())
		}
		if c.Attainment < 0.99 || c.P99US > m.SLOUS {
			t.Errorf("%s is certified with %+v, its SLO is %v", c.Key(), c, m.SLOUS)
		}
	}
	if said := strings.Join(p.Assumptions, "\n"); !strings.Contains(said, "class interactive answers requests for small that name no class") {
		t.Errorf("assumptions: %s", said)
	}
}

// With --slo all classes have one SLO: allowed, and said.
func TestClassesUnderOneSLO(t *testing.T) {
	var opt Options
	opt.Set("slo", document.SLO{Duration: 60 * time.Millisecond})
	p := mustSolve(t, twoClasses(), opt).Plan
	if said := strings.Join(p.Warnings, "\n"); !strings.Contains(said, "its 2 classes differ in nothing but their queues") {
		t.Errorf("warnings: %s", said)
	}
}

// Floors and infeasibility name the class.
func TestClassThatCannotBe(t *testing.T) {
	in := twoClasses()
	formats.ModelsOf(in.Workload)[0].SLO = document.SLO{Duration: 2 * time.Millisecond}
	_, err := Solve(context.Background(), in, Options{}, highs.Solver{}, nil)
	if err == nil || !strings.Contains(err.Error(), "small/interactive") {
		t.Errorf("%v", err)
	}
	in = twoClasses()
	formats.ModelsOf(in.Workload)[1].Class = "interactive"
	_, err = Solve(context.Background(), in, Options{}, highs.Solver{}, nil)
	if err == nil || !strings.Contains(err.Error(), "models[1].model: found small/interactive a second time") {
		t.Errorf("%v", err)
	}
}
