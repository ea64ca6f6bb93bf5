package sim_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// A client at half of its share keeps its answers beside clients that send valid
// requests at many times the planned rate, whatever the kind of the plan.
func TestClientsHaveTheirShares(t *testing.T) {
	read := func(name string) *formats.Plan {
		plan, err := formats.ReadPlan("../testdata/compat/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	for _, c := range []struct {
		name string
		plan *formats.Plan
	}{
		{"one model", policytest.Single(4, false, policytest.Model{Batch: 4, First: 12 * time.Millisecond, More: 4 * time.Millisecond, SLO: 100 * time.Millisecond, RPS: 600})},
		{"short SLO", policytest.Single(2, false, policytest.Model{Batch: 4, First: 12 * time.Millisecond, More: 4 * time.Millisecond, SLO: 60 * time.Millisecond, RPS: 300})},
		{"gear", read("plan-gear.v2.json")},
		{"flow", read("plan-flow.v2.json")},
	} {
		for _, greedy := range []int{1, 12} {
			t.Run(fmt.Sprint(c.name, ", greedy keys ", greedy), func(t *testing.T) {
				share, requests, others := clientBeside(t, c.plan, greedy, 10)
				t.Logf("in time %.4f of %d; others answered %.3f of the planned rate", share, requests, others)
				if share < .99 {
					t.Errorf("%.4f in time, expected .99", share)
				}
				if others < .65 {
					t.Errorf("others were answered %.3f of the planned rate: less than what is left", others)
				}
			})
		}
	}
}

// A client that is alone is served as one without a name: policies know what can be
// in time.
func TestClientAloneIsNotRefused(t *testing.T) {
	plan := policytest.Single(2, false, policytest.Model{Batch: 4, First: 12 * time.Millisecond, More: 4 * time.Millisecond, SLO: 100 * time.Millisecond, RPS: 300})
	var reports []string
	for _, client := range []string{"", "alone"} {
		source := arrivals.Poisson(seeded.New(3, "alone"), 0, 900, 3*time.Second)
		requests, err := arrivals.Collect(source, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range requests {
			requests[i].Client = client
		}
		cfg, err := scenario(t, plan, 1, 0).Replay(arrivals.Slice(requests))
		if err != nil {
			t.Fatal(err)
		}
		result, err := sim.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(result.Report)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, string(text))
	}
	if diff := cmp.Diff(reports[0], reports[1]); diff != "" {
		t.Error(diff)
	}
}

// clientBeside is the share of the requests in time of a client at half its share beside
// greedy ones, the number of its requests, and what the others were answered of
// the planned rate.
func clientBeside(t *testing.T, plan *formats.Plan, greedy int, load float64) (inTime float64, requests int, others float64) {
	sc := scenario(t, plan, 1, 0)
	tables := sc.Tables
	rps, slo := tables.Models[0].RPS, tables.Models[0].SLO
	until := max(5*time.Second, time.Duration(300/(rps/float64(2*(greedy+1)))*float64(time.Second)))
	const flood = 500 * time.Millisecond // when the others begin
	steady := map[time.Duration]bool{}
	var list []arrivals.Source
	add := func(name string, rate float64) {
		source := arrivals.Poisson(seeded.New(7, name), 0, rate, until)
		var r arrivals.Request
		var all []arrivals.Request
		for source.Next(&r) {
			if r.Client = name; name != "steady" {
				r.ArrivedAt += flood // a client is known once it has sent
			}
			if name == "steady" && (r.ArrivedAt < flood || r.ArrivedAt > flood+500*time.Millisecond) {
				steady[r.ArrivedAt] = false // gears take some SLOs to follow a flood
			}
			all = append(all, r)
		}
		list = append(list, arrivals.Slice(all))
	}
	add("steady", rps/float64(2*(greedy+1)))
	for i := range greedy {
		add(fmt.Sprint("greedy ", i), load*rps/float64(greedy))
	}
	answered := 0
	cfg, err := sc.Replay(arrivals.Merge(list...))
	if err != nil {
		t.Fatal(err)
	}
	cfg.OnCompleted = func(arrived, at time.Duration) {
		if _, ok := steady[arrived]; !ok {
			answered++
		} else if at <= arrived+slo {
			steady[arrived] = true
		}
	}
	if _, err := sim.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	good := 0
	for _, ok := range steady {
		if ok {
			good++
		}
	}
	return float64(good) / float64(len(steady)), len(steady), float64(answered) / (rps * until.Seconds())
}
