package planner_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/mutant"
)

// Plans of every kind know what requests take beside their runs, and simulation of them counts it.
func TestRequestsTakeTimeBesideRuns(t *testing.T) {
	const beside = 3 * time.Millisecond
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		in := inputsOf(t, problems[name])
		if len(in.Profile.Models) == 0 {
			continue // language models, whose servers were measured with their front ends
		}
		t.Run(name, func(t *testing.T) {
			var medians []time.Duration // the fastest model's
			for _, took := range []time.Duration{0, beside} {
				for i := range in.Profile.Models {
					in.Profile.Models[i].RequestUS = document.Micros(took)
				}
				res, err := planner.Solve(t.Context(), in, planner.Options{}, highs.Solver{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range res.Plan.Deployment {
					if d.RequestUS.D() != took {
						t.Errorf("%s takes %v beside its runs, expected %v", d.Model, d.RequestUS, took)
					}
				}
				sc, err := sim.NewScenario(res.Plan)
				if err != nil {
					t.Fatal(err)
				}
				sc.Load, sc.Duration = .1, 20*time.Second
				report, err := sim.Replicate(t.Context(), sc, 1)
				if err != nil {
					t.Fatal(err)
				}
				fastest := report.Report.Models[0].Latency.P50US
				for _, m := range report.Report.Models {
					fastest = min(fastest, m.Latency.P50US)
				}
				medians = append(medians, fastest.D())
			}
			if medians[1] < medians[0]+beside/2 {
				t.Errorf("the fastest median is %v, and %v where requests take nothing beside their runs", medians[1], medians[0])
			}
		})
	}
}

// Where the front end is short, it decides the rate and its bound, and the plan says so.
func TestFrontEndLimitsRates(t *testing.T) {
	problems, err := mutant.Problems("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"flow", "pool"} {
		t.Run(name, func(t *testing.T) {
			in := inputsOf(t, problems[name])
			options := planner.Options{}
			options.Set("margin", planner.Auto)
			solved := func() *formats.Plan {
				res, err := planner.Solve(t.Context(), in, options, highs.Solver{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return res.Plan
			}
			full, rate := solved(), 0.0
			for _, s := range full.ServedModels() {
				rate += s.Weight * full.Objective.Value
			}
			const part = .3
			in.Profile.FrontEnd = &formats.FrontEnd{Cores: 4}
			in.Cluster.FrontEnd = &formats.FrontEnd{Cores: 2}
			for i := range in.Profile.Models {
				in.Profile.Models[i].RequestCPUUS = document.Micros(2 * float64(time.Second) / (part * rate))
			}
			short := solved()
			value, most := short.Objective.Value/full.Objective.Value, *short.Objective.Bound/full.Objective.Value
			if value > most || most > 1.1*part || value < .5*part {
				t.Errorf("a front end of %v of the rate leaves %.3f of at most %.3f", part, value, most)
			}
			if !slices.ContainsFunc(short.Assumptions, func(a string) bool { return strings.Contains(a, "front end limits") }) {
				t.Errorf("the plan does not say that the front end limits it: %q", short.Assumptions)
			}
		})
	}
}
