package certify

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// A run of a certification has so many requests, enough for a p99, where that takes from ten
// seconds to ten minutes; of workflows, which take more work each, a fourth. Where arrivals do not depend on each other, runs of high rates are
// shorter than ten seconds: they have independentRequests, and last at least fewestSLOs of the
// longest SLO.
const (
	requests            = 20_000
	independentRequests = 60_000
	fewestSLOs          = 3
	longestRun          = 10 * time.Minute
)

// LeastDuration returns the least duration of a run that certifies a plan.
func LeastDuration(plan *formats.Plan) time.Duration {
	const least = 10 * time.Second
	if a := plan.Arrivals; a != nil && (a.Trace != "" || a.Process == "gamma") {
		return least
	}
	var rps float64
	var slo time.Duration
	for _, m := range plan.Served() {
		rps, slo = rps+m.RPS, max(slo, m.SLOUS.D())
	}
	return min(least, max(fewestSLOs*slo, time.Duration(independentRequests/max(rps, 1)*float64(time.Second))))
}

// Test is a plan on the arrivals of its workload, ready to be simulated.
type Test struct {
	Scenario *sim.Scenario // with runs that take as much longer as the plan's rates leave room for
	Asked    kind.Asked
	Shares   []float64 // of the requests in time that everything served has to attain
	plan     *formats.Plan
	longest  time.Duration // of a run at lower rates than the plan's; 0: all last as long as asked
	runs     int           // of every look of the sequential test
	doubt    string        // about what comes of it; empty: none
}

// New prepares the test of a plan. What is not asked has defaults. Its runs have no budget.
func New(plan *formats.Plan, asked kind.Asked) (*Test, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	filled, err := asked.Of(plan, requests/sim.Fewer(sc.Tables), LeastDuration(plan), longestRun)
	if err != nil {
		return nil, err
	}
	t, err := on(sc, plan, filled)
	if err == nil && asked.Duration == 0 {
		t.longest = longestRun
	}
	return t, err
}

// NewAsked is New where everything is asked: how many runs, and how long they last.
func NewAsked(plan *formats.Plan, asked kind.Asked) (*Test, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	return on(sc, plan, asked)
}

// on is NewAsked on the plan's scenario.
func on(sc *sim.Scenario, plan *formats.Plan, asked kind.Asked) (t *Test, err error) {
	t = &Test{Scenario: sc, Asked: asked, Shares: asked.Shares(plan), plan: plan, runs: asked.Runs}
	if a := plan.Arrivals; a != nil && a.Trace != "" {
		if sc.Recorded, err = record(plan, asked.Dir); err != nil {
			return nil, err
		}
		for i := range sc.Tables.Models {
			if sc.Recorded.Requests(i) == 0 {
				t.doubt = fmt.Sprintf("the trace of the workload has no request for %s: its certified rate says nothing", sc.Tables.Models[i].Key())
			}
		}
	}
	sc.Seed, sc.Duration, sc.Warmup = asked.Seed, asked.Duration, asked.Duration/10
	t.Scenario = sc.Slower(plan.Drift)
	return t, nil
}

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
	case err != nil && len(document.Findings(err)) == 0:
		return nil, &document.Error{Path: "arrivals.trace", Found: fmt.Sprintf("%q: %v", plan.Arrivals.Trace, err), Expected: "a request trace that can be read",
			Hint: "the path is taken from the folder of the workload; a certified rate is of these arrivals"}
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return sim.Record(t, len(served))
}

// Plan stores in a plan the highest load that it sustains, see Highest, with a warning where that
// is less than it promises. If ctx ends first, the plan is left as it was.
func Plan(ctx context.Context, plan *formats.Plan, asked kind.Asked) error {
	t, err := New(plan, asked)
	if err != nil {
		return err
	}
	b := NewBudgets(asked, 2) // there was no search
	t.Scenario.Budget = b.Tests
	if err := t.Highest(ctx); err != nil {
		return Unconfirmed(plan, err)
	}
	switch load := plan.Certified.LoadFactor; {
	case load == 0:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g at no load of the grid: the margin does not cover queueing; plan with a larger --margin or a longer SLO", plan.Certified.Attainment))
	case load < 1:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g only up to %.2f of the planned rates: a larger --margin trades planned rate for headroom", plan.Certified.Attainment, load))
	}
	return nil
}

// Highest stores in the plan the highest load of a grid at which every model attains what is
// asked, with what each showed there; if none does, load 0 with what the lowest one gave.
func (t *Test) Highest(ctx context.Context) error {
	found, err := sim.FindOverallLoad(ctx, t.Scenario, t.Shares, t.Asked.Runs)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	point := found.At(found.Overall)
	if point == nil && len(found.Points) > 0 {
		point = &found.Points[0]
	}
	var report *formats.Report
	if point != nil {
		report = point.Report
	}
	t.Store(found.Overall, report)
	return nil
}

// Store puts into the plan that a load of it holds, with what each model showed there, and for how
// much longer runs it leaves room.
func (t *Test) Store(load float64, report *formats.Report) {
	cert := &formats.Certificate{
		LoadFactor: load, Attainment: slices.Min(t.Shares), Runs: t.Asked.Runs,
		DurationUS: document.Micros(t.Asked.Duration), Seed: t.Asked.Seed, Models: []formats.CertifiedModel{},
	}
	for i, served := range t.plan.Served() {
		m := formats.CertifiedModel{Model: served.Model, Class: served.Class, RPS: load * served.RPS}
		if report != nil && i < len(report.Models) {
			r := &report.Models[i]
			m.Attainment, m.P50US, m.P99US = r.Attainment, r.Latency.P50US, r.Latency.P99US
			m.AttainmentCI = [2]float64{r.Attainment, r.Attainment}
			if r.AttainmentCI != nil {
				m.AttainmentCI = *r.AttainmentCI
			}
			m.AttainedRPS = m.RPS * m.Attainment
			m.AttainedRPSCI = &[2]float64{m.RPS * m.AttainmentCI[0], m.RPS * m.AttainmentCI[1]}
		}
		cert.Models = append(cert.Models, m)
	}
	t.plan.Certified = cert
	if t.plan.Drift > 0 {
		room := fmt.Sprintf("certified rates leave room for runs that take %.1f %% longer than the profile's means: so far apart were stretches of its measurements", 100*t.plan.Drift)
		if !slices.Contains(t.plan.Assumptions, room) {
			t.plan.Assumptions = append(t.plan.Assumptions, room)
		}
	}
	if t.doubt != "" {
		t.plan.Warnings = append(t.plan.Warnings, t.doubt)
	}
}

// Strain stores in the plan, beside its certificate, the latencies with runs as profiled, and what
// becomes of them where runs take longer. It stores nothing if the budget does not allow these runs.
func (t *Test) Strain(ctx context.Context) error {
	sc := *t.Scenario
	sc.Load, sc.Rates = 1, nil
	for _, served := range t.plan.Served() {
		sc.Rates = append(sc.Rates, served.RPS)
	}
	run := func(sc *sim.Scenario) (*formats.Report, error) {
		res, err := sim.Replicate(ctx, sc, 1)
		if err != nil {
			return nil, err
		}
		return res.Report, nil
	}
	slower, err := sim.Lengthened(&sc, run)
	var profiled *formats.Report
	if err == nil && t.plan.Drift > 0 {
		profiled, err = run(sc.Slower(0))
	}
	if OverBudget(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range t.plan.Certified.Models {
		m := &t.plan.Certified.Models[i]
		m.Slower = slower[i]
		if profiled != nil {
			m.P50US, m.P99US = profiled.Models[i].Latency.P50US, profiled.Models[i].Latency.P99US
		}
	}
	return nil
}
