package planner_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
)

// reportOf returns the report of a server that was asked for models at rates.
func reportOf(rates map[formats.ModelClass]float64) *formats.Report {
	r := &formats.Report{Counts: formats.Counts{Requests: 1}}
	for key, rps := range rates {
		r.Models = append(r.Models, formats.ModelReport{Model: key.Model, Class: key.Class, OfferedRPS: rps})
	}
	return r
}

// Every kind puts what was asked for into its part of the workload, and leaves the requested workload as it is.
func TestTrafficByKind(t *testing.T) {
	slo := document.SLO{Duration: time.Second}
	withObserved := reportOf(nil)
	withObserved.Gears = &formats.GearReport{ObservedShares: []float64{.2, .5, .3, 0}}
	for _, c := range []struct {
		name    string
		section formats.WorkloadSection
		plan    formats.PlanSection
		report  *formats.Report
		want    formats.WorkloadSection
		line    string
	}{
		{"pool", formats.WorkloadModels{{Model: "a", SLO: slo, Weight: 1}, {Model: "b", Class: "x", SLO: slo}, {Model: "c", SLO: slo, Weight: 3}}, &formats.PoolPlan{},
			reportOf(map[formats.ModelClass]float64{{Model: "a"}: 90, {Model: "b", Class: "x"}: 30}),
			formats.WorkloadModels{{Model: "a", SLO: slo, Weight: 1.5}, {Model: "b", Class: "x", SLO: slo, Weight: .5}, {Model: "c", SLO: slo, Weight: 3}}, "c: not in the report; its weight stays"},
		{"gear", &formats.Cascade{Family: []string{"s", "l"}, QPS: formats.CascadeQPS{Max: 200, Ranges: 2, Distribution: "zipf"}}, &formats.GearPlan{MaxQPS: 200, Gears: []formats.Gear{{Weight: .9}, {Weight: .1}}},
			withObserved, &formats.Cascade{Family: []string{"s", "l"}, QPS: formats.CascadeQPS{Max: 300, Histogram: []float64{.2, .5, .3}}}, "range 1 of rates: 0.2 of the requests, and 0.9 when planned"},
		{"flow", formats.Applications{{Name: "a", RPS: 50}, {Name: "b"}}, &formats.FlowPlan{Applications: []formats.FlowApplication{{Served: formats.Served{Model: "a", RPS: 50}}}},
			reportOf(map[formats.ModelClass]float64{{Model: "a"}: 75, {Model: "b"}: 25}),
			formats.Applications{{Name: "a", RPS: 75, Weight: 1.5}, {Name: "b", Weight: .5}}, "a: asked for at 75 rps, and planned for 50"},
		{"queue", &formats.LLM{Models: []string{"m", "n"}, Classes: []formats.LLMClass{{Class: "chat", SLO: slo, RPS: 1}, {Class: "batch", SLO: slo, RPS: 2}}}, &formats.QueuePlan{Classes: []formats.QueueClass{{Served: formats.Served{Model: "m", Class: "chat", RPS: .5}}}},
			reportOf(map[formats.ModelClass]float64{{Model: "m", Class: "chat"}: 3, {Model: "n", Class: "chat"}: 1}),
			&formats.LLM{Models: []string{"m", "n"}, Classes: []formats.LLMClass{{Class: "chat", SLO: slo, Models: []string{"m", "n"}, RPS: 4, Shares: []float64{3, 1}}, {Class: "batch", SLO: slo, RPS: 2}}}, "m/chat: asked for at 3 rps, and planned for 0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := &formats.Plan{Kind: c.name, Section: c.plan, Options: document.NewValues(formats.PlanOptions(c.name))}
			requested := &formats.Workload{Format: formats.FormatWorkload, Section: c.section}
			before, err := document.Marshal(requested)
			if err != nil {
				t.Fatal(err)
			}
			changed, lines, err := planner.WithTraffic(requested, &kind.Traffic{Running: plan, Report: c.report})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, changed.Section); d != "" {
				t.Error(d)
			}
			if !slices.Contains(lines, c.line) {
				t.Errorf("found %q, expected %q among them", lines, c.line)
			}
			if after, err := document.Marshal(requested); err != nil || string(after) != string(before) {
				t.Errorf("the requested workload became %s", after)
			}
		})
	}
}

// A report without requests, or a workload of another kind, tells nothing.
func TestTrafficRefused(t *testing.T) {
	pool := &formats.Workload{Section: formats.WorkloadModels{{Model: "a"}}}
	for want, c := range map[string]*kind.Traffic{
		"the report of a run with requests":               {Running: &formats.Plan{Kind: formats.PlanPool, Section: &formats.PoolPlan{}}, Report: &formats.Report{}},
		"one for the plan that was served, of kind queue": {Running: &formats.Plan{Kind: formats.PlanQueue, Section: &formats.QueuePlan{}}, Report: reportOf(nil)},
	} {
		if _, _, err := planner.WithTraffic(pool, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// Weights are to each other as the rates, keep their sum but for what models without requests keep, and are never 0.
func TestWeightsFollowRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "models")
		weights := rapid.SliceOfN(rapid.Float64Range(.1, 10), n, n).Draw(t, "weights")
		rates := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1, 1000), rapid.Just(math.NaN())), n, n).Draw(t, "rates")
		out := kind.Weights(weights, rates)
		sum, rateSum := 0.0, 0.0
		for i := range out {
			if !math.IsNaN(rates[i]) {
				sum, rateSum = sum+weights[i], rateSum+rates[i]
			}
		}
		for i, w := range out {
			want := weights[i]
			if rateSum > 0 && !math.IsNaN(rates[i]) {
				want = max(sum*rates[i]/rateSum, .01*weights[i])
			}
			if !(w > 0) || math.Abs(w-want) > 1e-9*want {
				t.Errorf("weight %d is %g, expected %g", i, w, want)
			}
		}
	})
}
