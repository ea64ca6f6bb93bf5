package planner

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/pool/verify"
	"inferplan/solver/highs"
)

// What the workload keeps back of a model counts in place of the options: a larger
// margin leaves shorter pipelines, and a utilisation of a half gives a model twice the
// devices' worth for what it promises.
func TestHeadroomOfModels(t *testing.T) {
	in := twoKinds()
	var opt Options
	opt.Set("gap", 1e-3)
	without := mustSolve(t, in, opt).Plan
	if formats.PoolOf(without).Headroom != nil {
		t.Errorf("headroom %+v where the options say it all", formats.PoolOf(without).Headroom)
	}
	margin := 0.6
	models := slices.Clone(formats.ModelsOf(in.Workload))
	models[0].Margin, models[1].Utilisation = &margin, 0.5
	w := *in.Workload
	w.Section, in.Workload = models, &w
	p := mustSolve(t, in, opt).Plan
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	s := formats.PoolOf(p)
	want := []formats.Headroom{{Margin: 0.6, Utilisation: 1}, {Margin: 0.4, Utilisation: 0.5}}
	if !slices.Equal(s.Headroom, want) {
		t.Fatalf("headroom %+v, want %+v", s.Headroom, want)
	}
	if got := float64(s.Models[0].MarginUS) / float64(s.Models[0].SLOUS); math.Abs(got-0.6) > 1e-4 {
		t.Errorf("margin of %v of the SLO", got)
	}
	for _, l := range p.Deployment[1].Pipelines {
		for _, st := range l.Stages {
			if st.RPS < 2*l.RPS*(1-1e-6) {
				t.Errorf("a stage that carries %v promises %v", st.RPS, l.RPS)
			}
		}
	}
	if p.Objective.Value >= without.Objective.Value || *p.Objective.Bound < p.Objective.Value {
		t.Errorf("objective %v within %v, %v without headroom", p.Objective.Value, *p.Objective.Bound, without.Objective.Value)
	}
	today := &kind.CheckInput{Plan: p, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}
	if f := verify.Check(today); len(f) > 0 {
		t.Error(f)
	}
	// Planned again from what the plan says, it is the same.
	in.Workload = verify.WorkloadOf(p)
	if again := mustSolve(t, in, OptionsOfPlan(p)).Plan; again.Objective.Value != p.Objective.Value {
		t.Errorf("%v planned again, %v before", again.Objective.Value, p.Objective.Value)
	}
	for name, change := range map[string]func(){
		"margin":      func() { s.Headroom[0].Margin = 0.1 },
		"rps":         func() { s.Headroom[1].Utilisation = 0.25 },
		"utilisation": func() { s.Headroom[1].Utilisation = 0.75 },
	} {
		before := slices.Clone(s.Headroom)
		change()
		if !slices.ContainsFunc(verify.Check(&kind.CheckInput{Plan: p, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}), func(f kind.Finding) bool { return f.Constraint == name }) {
			t.Errorf("nothing found about %s", name)
		}
		s.Headroom = before
	}
}

// A tuned plan promises what simulation showed it to sustain: certified anew it holds at
// load 1 and not above, and each model's promise is the share of its replicas that the
// plan states.
func TestTunedPromises(t *testing.T) {
	in := twoKinds()
	opt := Options{TestSettings: kind.TestSettings{Runs: 2, Duration: 2 * time.Second}}
	opt.Set("gap", 0.05)
	opt.Set("margin", Auto)
	res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := res.Plan
	if f := verify.Check(&kind.CheckInput{Plan: p, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}); len(f) > 0 {
		t.Error(f)
	}
	if p.Certificate.LoadFactor < 1 {
		t.Errorf("certified %v of what it promises", p.Certificate.LoadFactor)
	}
	again, asked := *p, opt.TestSettings
	asked.Runs = p.Certificate.Runs // the promise was confirmed by as many
	if err := MethodOf(again.Kind).Certify(context.Background(), &again, asked); err != nil {
		t.Fatal(err)
	}
	if f := again.Certificate.LoadFactor; f < 1 || f > 1.05 {
		t.Errorf("certified anew %v of what it promises", f)
	}
	// With a plan that runs, the search starts from what that keeps back.
	in.RunningPlan = p
	next, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if certifiedRate(next.Plan) < 0.95*certifiedRate(p) {
		t.Errorf("certifies %v, what runs certifies %v", certifiedRate(next.Plan), certifiedRate(p))
	}
}
