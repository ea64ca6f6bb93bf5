package planner

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/gear"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/pool/documents"
	policygear "inferplan/policy/gear"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// threeSizes is a family of three classifiers with made-up records: the larger
// one is right more often and slower, and certainty tells right from wrong.
func threeSizes(devices int) Inputs {
	const n = 3000
	rng := rand.New(rand.NewPCG(7, 7))
	p := &formats.Profile{Format: "inferplan.profile/v1", Devices: []formats.ProfileDevice{{Device: "cpu-1"}}}
	rec := formats.Records{Samples: n, PlanningSamples: 2000}
	for k, name := range []string{"small", "middle", "large"} {
		m := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all", WeightBytes: int64(1000 * (k + 1))}}}
		for _, b := range []int{1, 4, 16} {
			t := document.Micros(time.Duration(500+300*b*(1<<(2*k))) * time.Microsecond / 4)
			m.Measurements = append(m.Measurements, formats.Measurement{Device: "cpu-1", Share: 1, Batch: b, Blocks: []formats.Latency{{WallUS: t}}})
		}
		p.Models = append(p.Models, m)
		r := formats.ModelRecords{Model: name}
		right := []byte{}
		for range n {
			ok := rng.Float64() < .7+.1*float64(k)
			c := rng.Float64()
			if ok {
				c = max(c, rng.Float64())
			}
			r.Certainty = append(r.Certainty, math.Round(1e4*c)/1e4)
			right = append(right, "01"[map[bool]int{true: 1}[ok]])
		}
		r.Correct = string(right)
		rec.Models = append(rec.Models, r)
	}
	p.Records = []formats.Records{rec}
	return Inputs{Profile: p,
		Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{{Device: "cpu-1", Count: devices}}},
		Workload: &formats.Workload{Format: "inferplan.workload/v1", Section: &formats.Cascade{
			Family: []string{"small", "middle", "large"}, SLO: formats.CascadeSLO{Latency: document.SLO{Duration: 100 * time.Millisecond}},
			Grid: 5, QPS: formats.CascadeQPS{Max: 3000, Ranges: 3, Distribution: "zipf"},
		}}}
}

// Simulation of a cascade's plan counts for a request what the trials of its gears counted, whichever
// models of the family the plan has and whatever their rates: the mean over the family.
func TestTrialsAndSimulationOfCascadesCountTheSame(t *testing.T) {
	in := threeSizes(2)
	for i := range in.Profile.Models {
		in.Profile.Models[i].RequestUS = document.Micros(time.Duration(1+3*i*i) * time.Millisecond)
		in.Profile.Models[i].RequestCPUUS = document.Micros(time.Duration(10+30*i*i) * time.Microsecond)
	}
	in.Cluster.FrontEnd = &formats.FrontEnd{Cores: 2}
	const beside, cost = 6 * time.Millisecond, 60 * time.Microsecond // (1 + 4 + 13)/3 and (10 + 40 + 130)/3
	frontEnd := in.Cluster.FrontEnd.OccupiedTime(cost)
	res, err := Solve(t.Context(), in, Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := sim.NewScenario(res.Plan)
	if err != nil {
		t.Fatal(err)
	}
	g := formats.GearOf(res.Plan)
	if sc.Egress != beside || sc.FrontEnd != frontEnd || g.RequestUS.D() != beside || g.RequestCPUUS.D() != cost {
		t.Errorf("simulation counts %v and %v, the trials %v and %v, expected %v and %v", sc.Egress, sc.FrontEnd, g.RequestUS, g.RequestCPUUS, beside, frontEnd)
	}
	// A plan of a version that did not say it has the mean by the rates of its models.
	if g.RequestUS, g.RequestCPUUS = 0, 0; res.Plan.RequestOverhead() == beside || res.Plan.RequestOverhead() < time.Millisecond {
		t.Errorf("an older plan counts %v", res.Plan.RequestOverhead())
	}
}

// A gear plan is a valid document, the same at every solve, and the simulator
// shows the accuracy and the latency that it promises.
func TestGearPlan(t *testing.T) {
	res, err := Solve(context.Background(), threeSizes(2), Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := res.Plan
	first := planBytes(t, plan)
	if _, err := formats.DecodePlan(first, "plan.json"); err != nil {
		t.Fatalf("the plan does not read back: %v", err)
	}
	again, err := Solve(context.Background(), threeSizes(2), Options{}, highs.Solver{}, nil)
	if err != nil || !bytes.Equal(first, planBytes(t, again.Plan)) {
		t.Errorf("another plan from the same inputs (%v)", err)
	}
	if plan.Kind != formats.PlanGear || plan.Objective.Name != "accuracy" || plan.Objective.Value > *plan.Objective.Bound+1e-12 || *plan.Objective.Gap > .01 {
		t.Errorf("%s, objective %+v, bound %v", plan.Kind, plan.Objective, *plan.Objective.Bound)
	}
	before := 1.0
	for i, g := range formats.GearOf(plan).Gears {
		if g.Accuracy > before || g.Accuracy > g.Bound+1e-12 || g.Utilisation > 1 || g.LatencyUS.D() > 100*time.Millisecond || g.AccuracyHeldOut == nil {
			t.Errorf("gear %d: %+v", i, g)
		}
		before = g.Accuracy
		tables, err := policies.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		own := policygear.TablesOf(tables)
		own.Gears = own.Gears[i : i+1] // this gear alone: its own accuracy
		pol, err := policies.New(plan.Policy, tables)
		if err != nil {
			t.Fatal(err)
		}
		rate := g.ToQPS * .95
		src, err := arrivals.Process(nil, seeded.New(3, "test"), 0, rate, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		run, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: pol, Source: src, Duration: 10 * time.Second, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		m := run.Report.Models[0]
		if run.Gears.Answered != int64(m.Completed) || m.Attainment < .95 {
			t.Errorf("gear %d at %.0f rps: %d answered of %d, attainment %.3f", i, rate, run.Gears.Answered, m.Completed, m.Attainment)
		}
		if d := math.Abs(run.Gears.Accuracy() - g.Accuracy); d > 3*math.Sqrt(.25/float64(run.Gears.Answered)) {
			t.Errorf("gear %d: %.4f of the answers are right, planned %.4f", i, run.Gears.Accuracy(), g.Accuracy)
		}
	}
}

// What the SLO leaves out is optimised, by either algorithm; the plan says so and
// reads back, and one more device raises the bound.
func TestGearPlanGoals(t *testing.T) {
	latency := document.SLO{Duration: 100 * time.Millisecond}
	accuracyOf := func(p *formats.Plan) float64 {
		sum := 0.0
		for _, g := range formats.GearOf(p).Gears {
			sum += g.Weight * g.Accuracy
		}
		return sum
	}
	for _, c := range []struct {
		slo       formats.CascadeSLO
		objective string
		name      string
	}{
		{formats.CascadeSLO{Latency: latency}, "", "accuracy"},
		{formats.CascadeSLO{Accuracy: .85}, "", "latency"},
		{formats.CascadeSLO{Accuracy: .85, Latency: latency}, "", "gpus"},
		{formats.CascadeSLO{Accuracy: .85, Latency: latency}, gear.LeastCost, "cost"},
	} {
		in := threeSizes(4)
		in.Cluster.Pools[0].USDPerHour = .5
		formats.CascadeOf(in.Workload).SLO = c.slo
		var opt Options
		if c.objective != "" {
			opt.Set("objective", c.objective)
		}
		res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		p := res.Plan
		if _, err := formats.DecodePlan(planBytes(t, p), "plan.json"); err != nil {
			t.Errorf("%s: the plan does not read back: %v", c.name, err)
		}
		o, accuracy := p.Objective, accuracyOf(p)
		t.Logf("%s, %s: %.4g of %.4g, accuracy %.4f, %s", o.Name, p.Algorithm, o.Value, *o.Bound, accuracy, p.StoppedBy)
		if o.Name != c.name || p.Algorithm != "exact" || accuracy < c.slo.Accuracy || formats.GearOf(p).Accuracy != c.slo.Accuracy {
			t.Errorf("%s: objective %+v, algorithm %s, accuracy %v", c.name, o, p.Algorithm, accuracy)
		}
		switch c.name {
		case "accuracy":
			if len(p.Limits) != 1 || p.Limits[0].Value < *o.Bound || p.Limits[0].Constraint != "device cpu-1" {
				t.Errorf("one more device: %+v, bound %v", p.Limits, *o.Bound)
			}
		case "latency":
			for i, g := range formats.GearOf(p).Gears {
				if float64(g.LatencyUS.D())/1e6 > o.Value+1e-6 {
					t.Errorf("gear %d: %v, the plan says at most %v ms", i, g.LatencyUS, o.Value)
				}
			}
		case "cost":
			if n := o.Value / .5; n != math.Trunc(n) || n < 1 || n > 4 || *o.Bound > o.Value {
				t.Errorf("cost %v of at least %v, expected 0.5 to 2", o.Value, *o.Bound)
			}
		}
	}
}

func TestGearPlanErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Inputs)
		want   []string
	}{
		"a model that is measured nowhere": {func(in *Inputs) { in.Cluster.Pools[0].Device = "L4" }, []string{"measurements", "small", "L4"}},
		"unknown model":                    {func(in *Inputs) { formats.CascadeOf(in.Workload).Family[1] = "midle" }, []string{"cascade.family[1]", "midle", "small, middle, large"}},
		"no records":                       {func(in *Inputs) { in.Profile.Records = nil }, []string{"records", "plan import records"}},
		"grid":                             {func(in *Inputs) { formats.CascadeOf(in.Workload).Grid = 1 }, []string{"cascade.grid", "2 to"}},
		"measured":                         {func(in *Inputs) { formats.CascadeOf(in.Workload).QPS = formats.CascadeQPS{MeasuredFile: "f.csv"} }, []string{"measured", "f.csv"}},
	} {
		in := threeSizes(1)
		c.change(&in)
		_, err := Solve(context.Background(), in, Options{}, highs.Solver{}, nil)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*Inputs, *Options)
		want   []string
	}{
		"algorithm": {func(_ *Inputs, o *Options) { o.Set("algorithm", documents.AlgorithmNP) }, []string{"--algorithm", "np", "exact"}},
		"gpus under a latency SLO alone": {func(_ *Inputs, o *Options) { o.Set("objective", cascades.FewestDevices) },
			[]string{"--objective", "gpus", "both together"}},
		"cost of two kinds, one without a price": {func(in *Inputs, o *Options) {
			in.Cluster.Pools[0].USDPerHour = 1
			in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "L4", Count: 1})
			formats.CascadeOf(in.Workload).SLO.Accuracy = .8
			o.Set("objective", gear.LeastCost)
		}, []string{"pools", "usd_per_hour", "L4"}},
		"cost without a price": {func(in *Inputs, o *Options) {
			formats.CascadeOf(in.Workload).SLO.Accuracy = .8
			o.Set("objective", gear.LeastCost)
		}, []string{"pools", "usd_per_hour"}},
		"accuracy out of reach": {func(in *Inputs, _ *Options) { formats.CascadeOf(in.Workload).SLO = formats.CascadeSLO{Accuracy: .999} },
			[]string{"0.9990", "at most"}},
	} {
		in, opt := threeSizes(1), Options{}
		c.change(&in, &opt)
		_, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", name, err, w)
			}
		}
	}
}

// What cannot be says which range, which model and how many devices it takes.
func TestGearPlanInfeasible(t *testing.T) {
	in := threeSizes(1)
	formats.CascadeOf(in.Workload).QPS.Max, formats.CascadeOf(in.Workload).QPS.Ranges = 15_000, 2
	_, err := Solve(context.Background(), in, Options{}, highs.Solver{}, nil)
	inf, ok := errors.AsType[*InfeasibleError](err)
	if !ok || inf.Model != "small" || len(inf.Nearest.Devices) != 1 || !strings.Contains(inf.Error(), "range") {
		t.Fatalf("%v", err)
	}
	more := threeSizes(1 + inf.Nearest.Devices[0].Count)
	formats.CascadeOf(more.Workload).QPS = formats.CascadeOf(in.Workload).QPS
	if _, err := Solve(context.Background(), more, Options{}, highs.Solver{}, nil); err != nil {
		t.Errorf("with more devices: %v", err)
	}
}
