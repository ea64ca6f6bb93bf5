package certify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/sim"
)

// Sizes of a run. It has requestsPerRun requests, enough for a p99, if that takes from ten seconds
// to ten minutes; for workflows, whose requests cost more, a fourth. If arrivals are independent,
// runs at high rates may be shorter than ten seconds: they have independentRequests, and last at
// least minSLOs times the longest SLO.
const (
	requestsPerRun      = 20_000
	independentRequests = 60_000
	minSLOs             = 3
	longestRun          = 10 * time.Minute
)

// MinDuration returns the least duration of a simulated run that certifies a plan: 10 s. If arrivals are independent (no
// trace, no gamma process), a run need not be long enough to see bursts and slow changes of the load. Then a shorter one
// is enough, in which independentRequests arrive at the plan's rates and which lasts minSLOs times the longest SLO.
func MinDuration(plan *formats.Plan) time.Duration {
	const minimum = 10 * time.Second
	if a := plan.Arrivals; a != nil && (a.Trace != "" || a.Process == "gamma") {
		return minimum
	}
	var rps float64
	var slo time.Duration
	for _, m := range plan.ServedModels() {
		rps, slo = rps+m.RPS, max(slo, m.SLOUS.D())
	}
	arrivalTime := time.Duration(independentRequests / max(rps, 1) * float64(time.Second))
	return min(minimum, max(minSLOs*slo, arrivalTime))
}

// A run lasts until about lateRequests requests of each model may be late, if that takes at most maxLengthening times
// the requests of other runs. With fewer late requests, the rate that a model sustains is known only roughly.
const (
	lateRequests   = 30
	maxLengthening = 2
)

// runRequests returns how many requests, of all models together, a run of a plan's test has: requestsPerRun, or more, so
// that each model (or group of models whose attainment counts together) may have about lateRequests late ones. More
// are needed if a model has a small part of the plan's rate. shares holds, by model, the share of requests that must
// be in time.
func runRequests(plan *formats.Plan, shares []float64) float64 {
	served, requests := plan.ServedModels(), float64(requestsPerRun)
	total := lists.Sum(len(served), func(i int) float64 { return served[i].RPS })
	for _, models := range plan.AttainmentGroups() {
		rps := lists.Sum(len(models), func(i int) float64 { return served[models[i]].RPS })
		lateShare := (1 - shares[models[0]]) * rps / total // part of all requests that these models may have late
		if lateShare > 0 {
			requests = max(requests, lateRequests/lateShare)
		}
	}
	return min(requests, maxLengthening*requestsPerRun)
}

// Test is a plan with the arrivals of its workload, ready to be simulated.
type Test struct {
	Scenario    *sim.Scenario // with runs longer by the plan's drift
	Settings    kind.TestSettings
	Shares      []float64 // share of requests that must be in time, by model or class
	plan        *formats.Plan
	maxDuration time.Duration // of a run at lower rates than the plan's; if 0, all runs last equally long
	runsPerLook int           // runs before each look of the sequential test
	warning     string        // for the plan if the test stores a certificate; may be empty
	// Lengthening is the length of a run in multiples of that of other plans, 1 or more: see runRequests.
	Lengthening float64
}

// NewTest prepares the simulation test of a plan on the arrivals of its workload. Settings that are 0 get defaults: a run
// has a certain number of requests (fewer where one costs much to simulate), and so its length follows from the plan's
// rates. The caller may set a budget on the scenario; without one the runs are not limited.
func NewTest(plan *formats.Plan, settings kind.TestSettings) (*Test, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	// The shares that must be in time say how many requests a run needs. The default duration has so many, or a part of them if each
	// costs much to simulate.
	requests := runRequests(plan, settings.Shares(plan))
	complete, err := settings.WithDefaults(plan, requests/sim.RequestDivisor(sc.Tables), MinDuration(plan), longestRun)
	if err != nil {
		return nil, err
	}
	t, err := newTestOn(sc, plan, complete)

	// A duration that the caller chose is that of all runs, as it is. The default one may be longer than that of other plans, and runs
	// at lower rates than the plan's may last longer still, up to longestRun.
	if err == nil && settings.Duration == 0 {
		t.maxDuration, t.Lengthening = longestRun, requests/requestsPerRun
	}
	return t, err
}

// NewTestWith prepares the test of a plan as NewTest does, with settings that are complete already.
func NewTestWith(plan *formats.Plan, settings kind.TestSettings) (*Test, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, fmt.Errorf("certifying: %w", err)
	}
	return newTestOn(sc, plan, settings)
}

// newTestOn returns the test of a plan on sc, the scenario of the plan, with settings that are complete. If the workload
// has a trace, its arrivals are read and replayed. The first tenth of each run is warm-up, which does not count. Runs
// take longer by the plan's drift (how much slower runs may get), so that the rates leave room for it.
func newTestOn(sc *sim.Scenario, plan *formats.Plan, settings kind.TestSettings) (t *Test, err error) {
	t = &Test{Scenario: sc, Settings: settings, Shares: settings.Shares(plan), Lengthening: 1, plan: plan, runsPerLook: settings.Runs}

	// Replay the trace of the workload, if it has one.
	if a := plan.Arrivals; a != nil && a.Trace != "" {
		if sc.RecordedArrivals, err = recordTrace(plan, settings.TraceDir); err != nil {
			return nil, err
		}
		for i := range sc.Tables.Models {
			if sc.RecordedArrivals.Requests(i) == 0 {
				t.warning = fmt.Sprintf("the trace of the workload has no request for %s: its certified rate says nothing", sc.Tables.Models[i].Key())
			}
		}
	}
	sc.Seed, sc.Duration, sc.Warmup = settings.Seed, settings.Duration, settings.Duration/10
	t.Scenario = sc.WithSlowdown(plan.Drift)
	return t, nil
}

// recordTrace reads the arrivals of the request trace that a plan was made for, to replay them in simulations. A relative
// path is taken from dir, the folder of the workload. If the file cannot be read, the error names the field.
func recordTrace(plan *formats.Plan, dir string) (_ *sim.RecordedArrivals, err error) {
	var models, classes []string
	servedModels := plan.ServedModels()
	for i := range servedModels {
		models = append(models, servedModels[i].Model)
		classes = append(classes, servedModels[i].Class)
	}
	t, err := arrivals.OpenTrace(kind.PathIn(dir, plan.Arrivals.Trace), models, arrivals.OfClasses(classes))
	switch {
	case err != nil && len(document.Findings(err)) == 0:
		return nil, &document.Error{Path: "arrivals.trace", Found: fmt.Sprintf("%q: %v", plan.Arrivals.Trace, err), Expected: "a request trace that can be read",
			Hint: "the path is taken from the folder of the workload; a certified rate is of these arrivals"}
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return sim.RecordArrivals(t, len(servedModels))
}

// CertifyPlan stores in a plan the highest load (factor on its rates) that it sustains in simulation, see
// StoreHighestLoad, and a warning if that is below 1. The driver calls it for the option certify. If the simulations
// would exceed their budget, the plan says that it is not confirmed. If ctx ends first, the plan is left as it was.
func CertifyPlan(ctx context.Context, plan *formats.Plan, settings kind.TestSettings) error {
	t, err := NewTest(plan, settings)
	if err != nil {
		return err
	}
	b := NewBudgets(settings, 2) // twice the usual: no search for the plan has used its part
	t.Scenario.Budget = b.Tests
	if err := t.StoreHighestLoad(ctx); err != nil {
		return NoteUnconfirmed(plan, err)
	}
	switch load := plan.Certificate.LoadFactor; {
	case load == 0:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g at no load of the grid: the margin does not cover queueing; plan with a larger --margin or a longer SLO", plan.Certificate.Attainment))
	case load < 1:
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g only up to %.2f of the planned rates: a larger --margin trades planned rate for headroom", plan.Certificate.Attainment, load))
	}
	return nil
}

// StoreHighestLoad simulates the plan at a grid of loads, which are factors on its rates, and stores in it the
// highest at which every model has its share of requests in time, with the figures there. If there is none, it
// stores load 0 with the figures at the lowest.
func (t *Test) StoreHighestLoad(ctx context.Context) error {
	search, err := sim.FindOverallLoad(ctx, t.Scenario, t.Shares, t.Settings.Runs)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	// Overall is 0 if no load of the grid was sustained. Points come by rising load.
	point := search.PointAt(search.Overall)
	if point == nil && len(search.Points) > 0 {
		point = &search.Points[0]
	}
	var report *formats.Report
	if point != nil {
		report = point.Report
	}
	t.StoreCertificate(search.Overall, report)
	return nil
}

// StoreCertificate stores in the plan a certificate: the load (a factor on its rates) that it sustains, and by model the
// attainment (share of requests in time), its confidence interval and latencies of the simulation report, nil if
// nothing was simulated. It adds an assumption on the drift (how much slower runs may get) for which the rates leave
// room, and the test's warning if it has one.
func (t *Test) StoreCertificate(load float64, report *formats.Report) {
	cert := &formats.Certificate{
		LoadFactor: load, Attainment: slices.Min(t.Shares), Runs: t.Settings.Runs,
		DurationUS: document.Micros(t.Settings.Duration), Seed: t.Settings.Seed, Models: []formats.CertifiedModel{},
	}

	// The figures of every model.
	for i, model := range t.plan.ServedModels() {
		m := formats.CertifiedModel{Model: model.Model, Class: model.Class, RPS: load * model.RPS}
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
	t.plan.Certificate = cert

	// Note the drift, and the test's warning.
	if t.plan.Drift > 0 {
		assumption := fmt.Sprintf("certified rates leave room for runs that take %.1f %% longer than the profile's means: so far apart were stretches of its measurements", 100*t.plan.Drift)
		if !slices.Contains(t.plan.Assumptions, assumption) {
			t.plan.Assumptions = append(t.plan.Assumptions, assumption)
		}
	}
	if t.warning != "" {
		t.plan.Warnings = append(t.plan.Warnings, t.warning)
	}
}

// StoreSlowdowns adds to the plan's certificate how latencies grow if runs are slower than profiled, from one simulated
// run each at the planned rates. If the plan's runs are simulated slower by its drift, the latencies of the certificate
// are replaced by those without the drift. If the budget does not allow these simulations, it changes nothing.
func (t *Test) StoreSlowdowns(ctx context.Context) error {
	sc := *t.Scenario
	sc.Load, sc.Rates = 1, nil
	for _, model := range t.plan.ServedModels() {
		sc.Rates = append(sc.Rates, model.RPS)
	}
	run := func(sc *sim.Scenario) (*formats.Report, error) {
		res, err := sim.Replicate(ctx, sc, 1)
		if err != nil {
			return nil, err
		}
		return res.Report, nil
	}

	// Simulate slower runs and, without the plan's drift, runs as profiled.
	slower, err := sim.SimulateSlowdowns(&sc, run)
	var undelayed *formats.Report
	if err == nil && t.plan.Drift > 0 {
		undelayed, err = run(sc.WithSlowdown(0))
	}
	if OverBudget(err) {
		return nil
	}
	if err != nil {
		return err
	}

	// Add the latencies to the certificate.
	for i := range t.plan.Certificate.Models {
		m := &t.plan.Certificate.Models[i]
		m.Slower = slower[i]
		if undelayed != nil {
			m.P50US, m.P99US = undelayed.Models[i].Latency.P50US, undelayed.Models[i].Latency.P99US
		}
	}
	return nil
}
