package pool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// certified requests per run, where the rates allow it within the limits of
// the duration: enough for a p99.
const certifyRequests = 20000

// record reads the trace of a plan's workload.
func record(plan *formats.Plan, dir string) (_ *sim.Recorded, err error) {
	path := filepath.FromSlash(plan.Arrivals.Trace)
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	var models, classes []string
	served := plan.Served()
	for i := range served {
		models = append(models, served[i].Model)
		classes = append(classes, served[i].Class)
	}
	t, err := arrivals.OpenTrace(path, models, arrivals.OfClasses(classes))
	switch {
	case err != nil && len(formats.Findings(err)) == 0:
		return nil, &formats.Error{Path: "arrivals.trace", Found: fmt.Sprintf("%q: %v", plan.Arrivals.Trace, err), Expected: "a request trace that can be read",
			Hint: "the path is taken from the folder of the workload; a certified rate is of these arrivals"}
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return sim.Record(t, len(served))
}

// Certify simulates a plan on the workload's arrivals and stores the highest
// load at which every model attains what is asked, with what each showed there.
// Where ctx ends first the plan is left as it was.
func Certify(ctx context.Context, plan *formats.Plan, opt kind.Asked) error {
	opt, err := opt.Of(plan, certifyRequests, 10*time.Second, 10*time.Minute)
	if err != nil {
		return err
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	var note string
	if a := plan.Arrivals; a != nil && a.Trace != "" {
		if sc.Recorded, err = record(plan, opt.Dir); err != nil {
			return err
		}
		for i := range sc.Tables.Models {
			if sc.Recorded.Requests(i) == 0 {
				note = fmt.Sprintf("the trace of the workload has no request for %s: its certified rate says nothing", sc.Tables.Models[i].Key())
			}
		}
	}
	sc.Seed, sc.Duration, sc.Warmup = opt.Seed, opt.Duration, opt.Duration/10
	found, err := sim.FindOverallLoad(ctx, sc, opt.Attainment, opt.Runs)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	cert := &formats.Certificate{
		LoadFactor: found.Overall, Attainment: opt.Attainment, Runs: opt.Runs,
		DurationUS: formats.Micros(opt.Duration), Seed: opt.Seed, Models: []formats.CertifiedModel{},
	}
	point := found.At(found.Overall)
	if point == nil && len(found.Points) > 0 {
		point = &found.Points[0] // not even the lowest load passed: show what it gave
	}
	for i, served := range plan.Served() {
		m := formats.CertifiedModel{Model: served.Model, Class: served.Class, RPS: found.Overall * served.RPS}
		if point != nil && i < len(point.Report.Models) {
			r := &point.Report.Models[i]
			m.Attainment, m.P99US = r.Attainment, r.Latency.P99US
			m.AttainmentCI = [2]float64{r.Attainment, r.Attainment}
			if r.AttainmentCI != nil {
				m.AttainmentCI = *r.AttainmentCI
			}
			m.AttainedRPS = m.RPS * m.Attainment
			m.AttainedRPSCI = &[2]float64{m.RPS * m.AttainmentCI[0], m.RPS * m.AttainmentCI[1]}
		}
		cert.Models = append(cert.Models, m)
	}
	plan.Certified = cert
	if note != "" {
		plan.Warnings = append(plan.Warnings, note)
	}
	switch {
	case found.Overall == 0:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g at no load of the grid: the margin does not cover queueing; plan with a larger --margin or a longer SLO", opt.Attainment))
	case found.Overall < 1:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g only up to %.2f of the planned rates: a larger --margin trades planned rate for headroom", opt.Attainment, found.Overall))
	}
	return nil
}
