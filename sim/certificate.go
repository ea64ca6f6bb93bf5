package sim

import (
	"context"
	"time"

	"inferplan/formats"
)

// Certify is what runs of a plan show: the highest load of the grid at which every
// model attains what is asked, with what each showed there. The first tenth of a run
// is left out.
func Certify(ctx context.Context, plan *formats.Plan, attainment float64, runs int, span time.Duration, seed uint64) (*formats.Certificate, error) {
	if plan.Arrivals != nil && plan.Arrivals.Trace != "" {
		return nil, &formats.Error{Path: "arrivals.trace", Found: plan.Arrivals.Trace, Expected: "a process of arrivals, for --certify", Hint: "plan simulate --trace plays it"}
	}
	sc, err := NewScenario(plan)
	if err != nil {
		return nil, err
	}
	sc.Seed, sc.Duration, sc.Warmup = seed, span, span/10
	found, err := FindOverallLoad(ctx, sc, attainment, runs)
	if err != nil {
		return nil, err
	}
	cert := &formats.Certificate{LoadFactor: found.Overall, Attainment: attainment, Runs: runs, DurationUS: formats.Micros(span), Seed: seed, Models: []formats.CertifiedModel{}}
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
	return cert, nil
}
