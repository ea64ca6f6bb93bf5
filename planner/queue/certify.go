package queue

import (
	"context"
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// certified is the number of requests of a run of a certification, where the rates
// allow it within the limits of its duration.
const certified = 2000

// certify stores in a plan the highest load of a grid at which every model and class
// attains what is asked.
func certify(ctx context.Context, plan *formats.Plan, asked kind.Asked) error {
	if plan.Arrivals != nil && plan.Arrivals.Trace != "" {
		return &formats.Error{Path: "arrivals.trace", Found: plan.Arrivals.Trace, Expected: "a process of arrivals, for --certify", Hint: "plan simulate --trace plays it"}
	}
	if asked.Attainment == 0 {
		asked.Attainment, _ = plan.Section.Attainment()
	}
	if math.IsNaN(asked.Attainment) || asked.Attainment < 0 || asked.Attainment > 1 {
		return &formats.Error{Path: "--attainment", Found: fmt.Sprint(asked.Attainment), Expected: "a share from 0 to 1"}
	}
	runs, seed, span := max(asked.Runs, 1), max(asked.Seed, 1), asked.Duration
	if asked.Runs == 0 {
		runs = 5
	}
	if span == 0 {
		rps := 0.0
		for _, m := range plan.Served() {
			rps += m.RPS
		}
		span = time.Duration(min(max(math.Ceil(certified/max(rps, 1e-3)), 60), 3600)) * time.Second
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return err
	}
	sc.Seed, sc.Duration, sc.Warmup = seed, span, span/10
	found, err := sim.FindOverallLoad(ctx, sc, asked.Attainment, runs)
	if err != nil {
		return err
	}
	cert := &formats.Certificate{LoadFactor: found.Overall, Attainment: asked.Attainment, Runs: runs, DurationUS: formats.Micros(span), Seed: seed, Models: []formats.CertifiedModel{}}
	point := found.At(found.Overall)
	if point == nil {
		point = &found.Points[0]
	}
	for i := range point.Report.Models {
		r := &point.Report.Models[i]
		m := formats.CertifiedModel{Model: r.Model, Class: r.Class, RPS: found.Overall * plan.Served()[i].RPS, Attainment: r.Attainment, P99US: r.Latency.P99US, AttainmentCI: [2]float64{r.Attainment, r.Attainment}}
		if r.AttainmentCI != nil {
			m.AttainmentCI = *r.AttainmentCI
		}
		cert.Models = append(cert.Models, m)
	}
	plan.Certified = cert
	if found.Overall < 1 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g for every model and class at %.2f of the planned rates: the plan judges classes pooled over their models", asked.Attainment, found.Overall))
	}
	return nil
}
