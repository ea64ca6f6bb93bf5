package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// turnProblems is how many are drawn; a tenth without INFERPLAN_LONG.
const turnProblems = 50

// drawTimeSharedDocuments draws an application of two or three modules, at times with two ways on, for one
// or two devices that modules may share in time.
func drawTimeSharedDocuments(rng *rand.Rand) kind.Documents {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "cpu-1"}}}
	app := formats.Application{Name: "app", SLO: document.SLO{Factor: 4 + 6*rng.Float64()}, Percentile: "p99"}
	for i := range 2 + rng.IntN(2) {
		name := fmt.Sprint("m", i)
		first, per := 1+9*rng.Float64(), 1+9*rng.Float64() // of a batch, ms
		one := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all", WeightBytes: 1 << 20}}}
		for _, b := range []int{1, 2, 4} {
			took := formats.Latency{WallUS: document.Micros(1e6 * (first + per*float64(b)))}
			one.Measurements = append(one.Measurements, formats.Measurement{Device: "cpu-1", Share: 1, Batch: b, Blocks: []formats.Latency{took}, WholeModel: &took})
		}
		p.Models = append(p.Models, one)
		m := formats.Module{Name: name, Model: name}
		if i > 0 {
			m.Predecessors = []string{fmt.Sprint("m", i-1)}
		}
		app.Modules = append(app.Modules, m)
	}
	if rng.IntN(2) == 0 {
		app.Modules[0].Branches = []formats.Branch{{Targets: []string{"m1"}, Probability: .7}, {Targets: []string{}, Probability: .3}}
	}
	return kind.Documents{Profile: p,
		Cluster:  &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "cpu-1", Count: 1 + rng.IntN(2), Sharing: formats.SharingTime}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{app}}}
}

// simulatedAttainment is what the requests of a plan attain at its rates under arrivals of a seed.
func simulatedAttainment(t *testing.T, p *formats.Plan, load float64, seed uint64) float64 {
	t.Helper()
	test, err := certify.NewTest(p, kind.TestSettings{Runs: 4, Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	test.Scenario.Seed, test.Scenario.Load = seed, load
	res, err := sim.Replicate(context.Background(), test.Scenario, 4)
	if err != nil {
		t.Fatal(err)
	}
	return res.Report.Models[0].Attainment
}

// A default plan of modules that take turns holds what it states, which is not above the
// bound of all plans; nor is what plans with other margins and batches hold.
func TestTurnsHold(t *testing.T) {
	n := turnProblems
	if os.Getenv("INFERPLAN_LONG") == "" {
		n /= 10
	}
	for seed := range uint64(n) {
		in := drawTimeSharedDocuments(seeded.New(seed, "turns"))
		solve := func(values map[string]any) *formats.Plan {
			res, err := planner.Solve(context.Background(), planner.Inputs(in), planner.Options{Values: values, TestSettings: kind.TestSettings{Runs: 3, Duration: 30 * time.Second}}, highs.Solver{}, nil)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return res.Plan
		}
		p := solve(map[string]any{"margin": planner.Auto})
		if list := errorsOf(p, in); len(list) > 0 {
			t.Errorf("seed %d: %v", seed, list)
		}
		if o := &p.Objective; o.Bound == nil || o.Value > *o.Bound {
			t.Fatalf("seed %d: %v is stated, the bound is %v", seed, o.Value, o.Bound)
		}
		if has := simulatedAttainment(t, p, 1, 1000+seed); has < .985 {
			t.Errorf("seed %d: %.4f in time at the stated rate", seed, has)
		}
		for _, other := range []map[string]any{{"margin": 0.}, {"margin": .2, "max-batch": 1}} {
			o := solve(other)
			if has := simulatedAttainment(t, o, *p.Objective.Bound/o.Objective.Value, 1000+seed); has >= .99 {
				t.Errorf("seed %d: a plan with %v attains %.4f at the bound", seed, other, has)
			}
			if has := simulatedAttainment(t, o, 1.15*p.Objective.Value/o.Objective.Value, 1000+seed); has >= .99 {
				t.Errorf("seed %d: a plan with %v attains %.4f above what the default one states by .15", seed, other, has)
			}
		}
	}
}

// onOne is a plan of three modules that take turns on one device.
func onOne(t *testing.T) (*formats.Plan, kind.Documents) {
	in := drawTimeSharedDocuments(seeded.New(1, "turns"))
	in.Cluster.Pools[0].Count = 1
	res, err := planner.Solve(context.Background(), planner.Inputs(in), planner.Options{Values: map[string]any{"margin": .1}}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan, in
}

// What modules in turns take of devices, memory and deadlines is found out by itself.
func TestBrokenTurnsAreFound(t *testing.T) {
	for _, c := range []struct {
		name, constraint, where string
		broken                  func(p *formats.Plan, in kind.Documents)
	}{
		{"more than all of the time", "placement", "deployment[0]", func(p *formats.Plan, _ kind.Documents) { firstPipeline(p).Stages[0].GPUs += .1 }},
		{"less time than the rate takes", "rps", "deployment[0]", func(p *formats.Plan, _ kind.Documents) { firstPipeline(p).Stages[0].GPUs *= .9 }},
		{"a cluster that shares no device", "sharing", "deployment[0]", func(_ *formats.Plan, in kind.Documents) { in.Cluster.Pools[0].Sharing = formats.SharingExclusive }},
		{"models that no longer fit together", "memory", "deployment[0]", func(_ *formats.Plan, in kind.Documents) { in.Cluster.Pools[0].Memory = 3 << 19 }},
		{"a run beside that takes longer", "slo", "flow.applications[0].slo_us", func(p *formats.Plan, in kind.Documents) {
			d := &p.Deployment[len(p.Deployment)-1]
			for b := range d.Pipelines[0].Stages[0].InferUS {
				for k := range in.Profile.Models {
					if m := &in.Profile.Models[k]; m.Model == d.Model {
						for i := range m.Measurements {
							if m.Measurements[i].Batch == b+1 {
								m.Measurements[i].WholeModel.WallUS *= 3
								m.Measurements[i].Blocks[0] = *m.Measurements[i].WholeModel
							}
						}
					}
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, in := onOne(t)
			if list := errorsOf(p, in); len(list) > 0 {
				t.Fatalf("the plan does not hold before it is broken: %v", list)
			}
			c.broken(p, in)
			found := false
			for _, f := range errorsOf(p, in) {
				found = found || f.Constraint == c.constraint && strings.HasPrefix(f.Path, c.where)
			}
			if !found {
				t.Errorf("found %v, expected %s at %s", errorsOf(p, in), c.constraint, c.where)
			}
		})
	}
}
