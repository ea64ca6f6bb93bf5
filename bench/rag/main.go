package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"strings"
	"time"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/sim"
	"inferplan/testkit/workflows"
)

// tunedOn is the last application that choices of the search were made on.
const tunedOn = 5

// bench holds the numbers of the drawn applications.
type bench struct{ first, last uint64 }

func main() {
	b := &bench{}
	columns := []string{"application", "devices", "CPU s", "stated rps", "attained", "dedicated", "best by hand, rps", "dedicated", "splits", "share"}
	instrument.Main(&instrument.Instrument{
		Name:  "rag-splits",
		Parts: []instrument.Part{{Name: "rag-splits", Title: "Default plans against the best split of the devices by hand", Columns: columns, Measure: b.applications}},
		Flags: func(f *flag.FlagSet) {
			f.Uint64Var(&b.first, "first", 1, fmt.Sprintf("first drawn application; choices of the search were made on applications 1 to %d", tunedOn))
			f.Uint64Var(&b.last, "last", 10, "last drawn application")
		},
	})
}

// comparison holds the figures of an application.
type comparison struct {
	stated, attained float64 // of the default plan; 0 is stated without a certificate
	cpu              float64 // seconds for it
	share            float64 // of the rate of the best split by hand
}

// compare plans an application as a user does who says nothing, and compares with the best split by hand.
func compare(r *instrument.Run, t *instrument.Table, name string, a *workflows.RAG) (*comparison, error) {
	began := cputime.Used()
	plan, err := solve(r.Ctx, a, planner.Auto, planner.Auto)
	if err != nil {
		return nil, err
	}
	c := &comparison{cpu: (cputime.Used() - began).Seconds()}
	if plan.Certificate != nil {
		c.stated = plan.Objective.Value
	}
	if c.attained, err = attained(r.Ctx, plan); err != nil {
		return nil, err
	}
	split, numSplits, err := best(r.Ctx, a)
	if err != nil {
		return nil, err
	}
	c.share = c.stated / split.rate
	t.Add(name, a.Devices, fmt.Sprintf("%.0f", c.cpu), fmt.Sprintf("%.3g", c.stated), fmt.Sprintf("%.4f", c.attained), plan.Options.Word("dedicated"),
		fmt.Sprintf("%.3g", split.rate), split.dedicated, numSplits, fmt.Sprintf("%.3f", c.share))
	fmt.Fprintln(r.Log, strings.Join(t.Rows[len(t.Rows)-1], " | "))
	return c, nil
}

// attained returns what a plan attains at its stated rate in ten runs of 20 minutes with fresh seeds.
func attained(ctx context.Context, plan *formats.Plan) (float64, error) {
	scenario, err := sim.NewScenario(plan)
	if err != nil {
		return 0, err
	}
	scenario.Duration, scenario.Warmup, scenario.Seed = 20*time.Minute, time.Minute, 7919
	res, err := sim.Replicate(ctx, scenario, 10)
	if err != nil {
		return 0, fmt.Errorf("simulating: %w", err)
	}
	return res.Report.Models[0].Attainment, nil
}

// applications compares the example and the drawn applications.
func (b *bench) applications(r *instrument.Run, t *instrument.Table) error {
	example, err := compare(r, t, "example", workflows.ExampleRAG())
	if err != nil {
		return err
	}
	const claim = "the example of language models in a workflow: "
	r.AtLeast(claim+"stated rate", "own", 13, "requests/s", example.stated)
	r.AtLeast(claim+"requests in time at that rate in runs with fresh seeds", "own", 0.99, "share", example.attained)
	r.AtMost(claim+"CPU time of its plan with the test", "own", 60, "s", example.cpu)
	for _, half := range []struct {
		name        string
		first, last uint64
	}{{"applications that choices were made on", b.first, min(b.last, tunedOn)}, {"other applications", max(b.first, tunedOn+1), b.last}} {
		least := &comparison{share: math.Inf(1), attained: 1}
		for number := half.first; number <= half.last; number++ {
			c, err := compare(r, t, fmt.Sprint(number), workflows.DrawRAG(number))
			if err != nil {
				return fmt.Errorf("application %d: %w", number, err)
			}
			least.share, least.attained = min(least.share, c.share), min(least.attained, c.attained)
		}
		if half.first > half.last {
			continue
		}
		r.AtLeast("certified rate over that of the best split of the devices by hand, least, "+half.name, "own", 0.95, "share", least.share)
		r.AtLeast("requests in time at the stated rate in runs with fresh seeds, least, "+half.name, "own", 0.99, "share", least.attained)
	}
	return nil
}
