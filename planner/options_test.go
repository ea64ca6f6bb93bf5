package planner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/pool/documents"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

// failingSolver is a solver that must not be asked.
type failingSolver struct{ t *testing.T }

func (s failingSolver) Solve(context.Context, *milp.Model, milp.Options) (*milp.Solution, error) {
	s.t.Error("the solver was asked")
	return nil, errors.New("no work")
}

// refusalOf solves where no work may begin, and returns the one finding that says why.
func refusalOf(t *testing.T, in Inputs, opt Options) *document.Error {
	t.Helper()
	res, err := Solve(context.Background(), in, opt, failingSolver{t}, func(u Progress) { t.Errorf("work began: %+v", u) })
	if err == nil {
		t.Fatalf("a plan was made: %+v", res.Plan.Objective)
	}
	var finding *document.Error
	if !errors.As(err, &finding) {
		t.Fatalf("%v is not a finding", err)
	}
	return finding
}

// workloadOnly leaves nothing to work on: where an error is not about the options,
// it is about the missing profile.
func workloadOnly(in Inputs) Inputs { return Inputs{Workload: in.Workload} }

func TestOptionsOfOtherMethodsAreRefused(t *testing.T) {
	for name, value := range map[string]any{
		"min-load": 10.0, "uneven-nic": true, "batch-build": 1.3, "gpu-rounding": "slot", "margin": 0.2, "effort": 2,
	} {
		for _, in := range []Inputs{workloadOnly(threeSizes(1)), threeSizes(1)} {
			have := "the method pool only"
			switch name {
			case "margin":
				have = "the method pool or flow only"
			case "effort":
				have = "the method pool or queue only"
			}
			err := refusalOf(t, in, Options{Values: map[string]any{name: value}})
			if err.Path != "--"+name || !strings.Contains(err.Found, "the method gear does not have") || !strings.Contains(err.Expected, have) {
				t.Errorf("%s on a cascade: %v", name, err)
			}
		}
	}
	err := refusalOf(t, workloadOnly(threeSizes(1)), Options{Values: map[string]any{"margin": Auto}})
	if err.Path != "--margin" || !strings.Contains(err.Expected, "the method pool or flow only") {
		t.Errorf("margin auto on a cascade: %v", err)
	}
	for _, algorithm := range []string{documents.AlgorithmNP, documents.AlgorithmTemplate} {
		err := refusalOf(t, workloadOnly(threeSizes(1)), Options{Values: map[string]any{"algorithm": algorithm}})
		if err.Path != "--algorithm" || !strings.Contains(err.Found, algorithm) || err.Expected != "exact" {
			t.Errorf("algorithm %s on a cascade: %v", algorithm, err)
		}
	}
	if err := refusalOf(t, workloadOnly(twoKinds()), Options{Values: map[string]any{"algorithm": "exact"}}); err.Path != "--algorithm" || !strings.Contains(err.Expected, "template or np") {
		t.Errorf("algorithm exact on models: %v", err)
	}
	if err := refusalOf(t, workloadOnly(twoKinds()), Options{Values: map[string]any{"speed": 1}}); err.Path != "--speed" || !strings.Contains(err.Expected, "no such option") {
		t.Errorf("an option that no method has: %v", err)
	}
}

// Every option is either taken by a method or refused with the names of those that
// have it; no method has it in silence.
func TestEveryOptionHasAMethod(t *testing.T) {
	for _, m := range methods {
		for _, o := range m.Options() {
			for _, other := range methods {
				opt := Options{Values: map[string]any{o.Name: o.Initial()}}
				_, err := opt.methodValues(other)
				has := slices.ContainsFunc(other.Options(), func(p document.Option) bool { return p.Name == o.Name })
				if !has && (err == nil || !strings.Contains(err.Error(), "the method "+other.Kind+" does not have") || !strings.Contains(err.Error(), m.Kind)) {
					t.Errorf("--%s of %s given to %s: %v", o.Name, m.Kind, other.Kind, err)
				}
				if other == m && err != nil && o.Default != nil {
					t.Errorf("--%s does not take its default: %v", o.Name, err)
				}
			}
		}
	}
}

// A plan that runs has to fit what is asked for, which is said before any work.
func TestRunningPlanHasToFit(t *testing.T) {
	cascade := &formats.Plan{Kind: formats.PlanGear, Section: &formats.GearPlan{}, Pools: []formats.Pool{{Device: "cpu-1", Count: 1}}, Deployment: []formats.Deployed{{Model: "small"}}}
	for _, c := range []struct {
		change             func(p *formats.Plan)
		field, found, want string
	}{
		{func(p *formats.Plan) { p.Kind = formats.PlanPool }, "kind", "pool", "gear"},
		{func(p *formats.Plan) { p.Pools = []formats.Pool{{Device: "T4", Count: 1}} }, "pools", "T4", "cpu-1"},
		{func(p *formats.Plan) { p.Deployment = []formats.Deployed{{Model: "bert"}} }, "deployment", "bert", "small, middle, large"},
	} {
		in, running := workloadOnly(threeSizes(1)), *cascade
		in.Cluster = threeSizes(1).Cluster
		c.change(&running)
		in.RunningPlan = &running
		if err := refusalOf(t, in, Options{}); err.Path != c.field || !strings.Contains(err.Found, c.found) || !strings.Contains(err.Expected, c.want) || err.Hint == "" {
			t.Errorf("from: %v", err)
		}
	}
	running := cascade
	// A plan of one kind does not start from one of another.
	in := twoKinds()
	in.RunningPlan = running
	if err := refusalOf(t, in, Options{}); err.Path != "kind" || err.Found != "gear" || err.Expected != "pool" {
		t.Errorf("models from gears: %v", err)
	}
	in.RunningPlan = &formats.Plan{Kind: formats.PlanPool, Section: &formats.PoolPlan{}}
	if err := refusalOf(t, in, Options{Values: map[string]any{"algorithm": documents.AlgorithmNP}}); err.Path != "--from" || !strings.Contains(err.Found, "np") {
		t.Errorf("from with np: %v", err)
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		value any
	}{
		{"gap", math.NaN()},
		{"gap", 1.0},
		{"batch-build", -3.0},
		{"batch-build", math.Inf(1)},
		{"gpu-rounding", "bogus"},
		{"margin", 1},
		{"margin", "most"},
		{"effort", 17},
		{"effort", 0},
		{"blocks", -1},
		{"blocks-by", "time"},
		{"max-partitions", 9},
		{"max-partitions", 2.5},
		{"max-batch", -1},
		{"max-moved", 1.5},
		{"min-load", -1.0},
		{"min-load", "10"},
		{"cut-dtype", "fp8"},
		{"objective", "accuracy"},
		{"uneven-nic", "true"},
		{"time-limit", -time.Second},
		{"slo", document.SLO{Duration: -1}},
		{"slo", "5x"},
		{"seed", 3},
	} {
		err := refusalOf(t, workloadOnly(twoKinds()), Options{Values: map[string]any{c.name: c.value}})
		if err.Path != "--"+c.name || err.Expected == "" {
			t.Errorf("%s %v: %v", c.name, c.value, err)
		}
	}
	// Two values that exclude each other.
	err := refusalOf(t, twoKinds(), Options{Values: map[string]any{"algorithm": documents.AlgorithmDARTr, "objective": documents.ObjectiveGPUs}})
	if err.Path != "--objective" {
		t.Errorf("gpus with dart-r: %v", err)
	}
}

// The options that a plan says it was made with make that plan again, also once it
// was written and read.
func TestOptionsOfAPlanMakeItAgain(t *testing.T) {
	oneNode := twoKinds()
	oneNode.Cluster.Pools[0].Count, oneNode.Cluster.Pools[0].PerNode, oneNode.Cluster.Pools[0].NICGbps = 4, 4, 1
	for _, c := range []struct {
		name string
		in   Inputs
		opt  Options
	}{
		{"pool", twoKinds(), Options{}},
		{"pool, all that bears on stages", oneNode, Options{Seed: new(uint64(7)), Values: map[string]any{
			"uneven-nic": true, "blocks": 2, "batch-build": 1.1, "cut-dtype": "fp32", "margin": 0.2,
		}}},
		{"pool, another SLO", twoKinds(), Options{Values: map[string]any{
			"slo": document.SLO{Factor: 6}, "margin": 0, "gap": 0, "max-batch": 2, "max-partitions": 3, "gpu-rounding": "fractional",
		}}},
		{"pool without partitioning", twoKinds(), Options{Values: map[string]any{"algorithm": documents.AlgorithmNP}}},
		{"pool, fewest devices", twoKinds(), Options{Values: map[string]any{
			"objective": documents.ObjectiveGPUs, "min-load": 100, "effort": 2,
		}}},
		{"gear", threeSizes(2), Options{Seed: new(uint64(5))}},
		{"gear in small batches", threeSizes(2), Options{Values: map[string]any{
			"max-batch": 8, "slo": document.SLO{Duration: 80 * time.Millisecond},
		}}},
		{"gear in stages", inBlocks(1, 2, []float64{3, 3, .3, .3}), Options{Values: map[string]any{
			"blocks": 2, "cut-dtype": "fp32", "gap": 0.02, "objective": cascades.MostAccurate,
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			res, err := Solve(ctx, c.in, c.opt, highs.Solver{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			first := planBytes(t, res.Plan)
			read, err := formats.DecodePlan(first, "plan.json")
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range c.opt.Values {
				switch name {
				case "algorithm", "objective": // beside the options
					continue
				}
				if got := read.Options.Get(name); fmt.Sprint(got) != fmt.Sprint(value) {
					t.Errorf("--%s %v, the plan keeps %v", name, value, got)
				}
			}
			for from, p := range map[string]*formats.Plan{"as solved": res.Plan, "as read": read} {
				again, err := Solve(ctx, c.in, OptionsOfPlan(p), highs.Solver{}, nil)
				if err != nil {
					t.Fatalf("%s: %v", from, err)
				}
				if got := planBytes(t, again.Plan); !bytes.Equal(first, got) {
					t.Errorf("%s: another plan:\n%s\n%s", from, first, got)
				}
			}
		})
	}
}

// Set leaves copies of the options as they were.
func TestSetLeavesCopies(t *testing.T) {
	var a Options
	a.Set("margin", 0.1)
	b := a
	b.Set("margin", 0.2)
	b.Set("gap", 0.0)
	if len(a.Values) != 1 || a.Values["margin"] != 0.1 || b.Values["margin"] != 0.2 {
		t.Errorf("%v and %v", a.Values, b.Values)
	}
}
