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
	"inferplan/solver/stoch"
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

// proving is a plan on the arrivals of its workload, ready to be simulated.
type proving struct {
	sc    *sim.Scenario
	asked kind.Asked
	runs  int    // of every look of a test
	note  string // a doubt about what comes of it
}

func prove(plan *formats.Plan, opt kind.Asked) (*proving, error) {
	opt, err := opt.Of(plan, certifyRequests, 10*time.Second, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	v := &proving{sc: sc, asked: opt, runs: opt.Runs}
	if a := plan.Arrivals; a != nil && a.Trace != "" {
		if sc.Recorded, err = record(plan, opt.Dir); err != nil {
			return nil, err
		}
		for i := range sc.Tables.Models {
			if sc.Recorded.Requests(i) == 0 {
				v.note = fmt.Sprintf("the trace of the workload has no request for %s: its certified rate says nothing", sc.Tables.Models[i].Key())
			}
		}
	}
	sc.Seed, sc.Duration, sc.Warmup = opt.Seed, opt.Duration, opt.Duration/10
	return v, nil
}

// at runs a load of parts of what is promised. It returns the report of all runs and, by
// model, what each run attained.
func (v *proving) at(ctx context.Context, parts []float64) (*formats.Report, [][]float64, error) {
	sc := *v.sc
	sc.Load, sc.Rates = 1, nil
	for i, part := range parts {
		sc.Rates = append(sc.Rates, v.sc.Tables.Models[i].RPS*part)
	}
	shown, runs, err := sim.Attained(ctx, &sc, v.asked.Runs)
	if err != nil {
		return nil, nil, fmt.Errorf("certifying: %w", err)
	}
	return shown, runs, nil
}

// confirm tests whether every model attains what is asked at parts of what is promised. It is a
// sequential test: after every few runs, models whose attainment is at least what is asked at
// a confidence of .95 (one-sided Student intervals over the runs) have passed, and those that
// would fail even with the runs that are left have not. It returns the report of all runs, and
// for every model whether it fell short.
func (v *proving) confirm(ctx context.Context, parts []float64) (*formats.Report, []bool, error) {
	for looks := 1; ; looks++ {
		v.asked.Runs = looks * v.runs
		shown, runs, err := v.at(ctx, parts)
		if err != nil {
			return nil, nil, err
		}
		short, open := make([]bool, len(parts)), false
		for i := range parts {
			mean, half := stoch.OneSided(runs[i], confirmation)
			short[i] = mean-half < v.asked.Attainment
			open = open || short[i] && mean+half >= v.asked.Attainment && mean > v.asked.Attainment
		}
		if !open || looks == confirmLooks {
			return shown, short, nil
		}
	}
}

const (
	confirmation = .95 // confidence that a plan holds what it states
	confirmLooks = 3
)

// certify stores in a plan that a load of it holds, with what each model showed there.
func (v *proving) certify(plan *formats.Plan, load float64, shown *formats.Report) {
	cert := &formats.Certificate{
		LoadFactor: load, Attainment: v.asked.Attainment, Runs: v.asked.Runs,
		DurationUS: formats.Micros(v.asked.Duration), Seed: v.asked.Seed, Models: []formats.CertifiedModel{},
	}
	for i, served := range plan.Served() {
		m := formats.CertifiedModel{Model: served.Model, Class: served.Class, RPS: load * served.RPS}
		if shown != nil && i < len(shown.Models) {
			r := &shown.Models[i]
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
	if v.note != "" {
		plan.Warnings = append(plan.Warnings, v.note)
	}
	switch {
	case load == 0:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g at no load of the grid: the margin does not cover queueing; plan with a larger --margin or a longer SLO", v.asked.Attainment))
	case load < 1:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g only up to %.2f of the planned rates: a larger --margin trades planned rate for headroom", v.asked.Attainment, load))
	}
}

// Certify simulates a plan on the workload's arrivals and stores the highest
// load at which every model attains what is asked, with what each showed there.
// Where ctx ends first the plan is left as it was.
func Certify(ctx context.Context, plan *formats.Plan, opt kind.Asked) error {
	v, err := prove(plan, opt)
	if err != nil {
		return err
	}
	found, err := sim.FindOverallLoad(ctx, v.sc, v.asked.Attainment, v.asked.Runs)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	point := found.At(found.Overall)
	if point == nil && len(found.Points) > 0 {
		point = &found.Points[0] // not even the lowest load passed: show what it gave
	}
	var shown *formats.Report
	if point != nil {
		shown = point.Report
	}
	v.certify(plan, found.Overall, shown)
	return nil
}
