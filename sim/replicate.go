package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// Scenario holds the inputs that runs of different seeds or loads have in common: enough to make the
// policy, source and service of each run.
type Scenario struct {
	Tables           *policy.Tables
	Policy           formats.PolicySpec
	Arrivals         *formats.Arrivals // process, nil for Poisson; a trace is replayed by Run or recorded
	RecordedArrivals *RecordedArrivals // arrivals of a trace, used instead of a process
	// Rates are requests per second of every model at load 1. If nil, the planned rates hold.
	Rates []float64
	Load  float64

	Duration, Warmup time.Duration
	Ingress, Egress  time.Duration
	FrontEnd         time.Duration // see Config.FrontEnd
	FrontEndRuns     []float64     // see Config.FrontEndRuns
	FrontEndRunShare float64       // see Config.FrontEndRunShare
	Window           time.Duration
	Seed             uint64
	Faults           []Fault
	Verify           bool
	// Service makes the service of a run from its seed. If nil, the times of the tables hold.
	Service func(seed uint64) (Service, error)
	// Cut ends the arrivals of a run early, see Config.Cut.
	Cut context.Context
	// Budget bounds the work of replications. If nil, it is unbounded. Copies of the scenario share it.
	Budget *Budget

	slowdown        float64                            // see WithSlowdown
	profiledService func(seed uint64) (Service, error) // Service before the slowdown; nil stands for the times of the tables
}

// NewScenario returns the scenario in which a plan is simulated: its tables, policy and arrivals, at load factor 1.
func NewScenario(plan *formats.Plan) (*Scenario, error) {
	return NewScenarioOn(plan, policy.TopologyNodes)
}

// NewScenarioOn returns the scenario of a plan (all that its simulated runs have in common), like NewScenario, with
// another topology of links than that of the plan.
func NewScenarioOn(plan *formats.Plan, network policy.Topology) (*Scenario, error) {
	tables, err := policies.CompileOn(plan, network)
	if err != nil {
		return nil, err
	}

	// Runs on CPUs of the front end's machine occupy it besides the requests.
	perRun, maxShare := plan.FrontEndRuns()
	var frontEndRuns []float64
	if perRun != nil {
		for i := range tables.Devices {
			frontEndRuns = append(frontEndRuns, perRun[tables.Kinds[tables.Devices[i].Kind]])
		}
	}
	return &Scenario{Tables: tables, Policy: plan.Policy, Arrivals: plan.Arrivals, Load: 1, Seed: plan.Seed, Egress: plan.RequestOverhead(), FrontEnd: plan.FrontEndRequests(), FrontEndRuns: frontEndRuns, FrontEndRunShare: maxShare}, nil
}

// Source returns the arrivals of a run. Every model has its own random stream, so that a
// change of one model's rate leaves the arrivals of the others as they are, and a change of
// load stretches them.
func (scenario *Scenario) Source(seed uint64) (arrivals.Source, error) {
	return scenario.source(0, seed)
}

// source returns the arrivals of replication number `run` (a run under its own seed) at the scenario's load: recorded
// ones, or those of a random process, for each model, merged in order of time. Each random quantity has a stream of its
// own, so that a change of one leaves the others. It returns an error if rates or recordings do not fit the models, or a
// language model has no distribution of lengths.
func (scenario *Scenario) source(run int, seed uint64) (arrivals.Source, error) {
	if scenario.RecordedArrivals == nil && scenario.Arrivals != nil && scenario.Arrivals.Trace != "" {
		return nil, fmt.Errorf("simulating: arrivals come from the trace %q, which must be opened and given to Run", scenario.Arrivals.Trace)
	}
	if scenario.RecordedArrivals != nil && len(scenario.RecordedArrivals.times) != len(scenario.Tables.Models) {
		return nil, fmt.Errorf("simulating: arrivals of %d models were recorded, the plan has %d", len(scenario.RecordedArrivals.times), len(scenario.Tables.Models))
	}
	if scenario.Rates != nil && len(scenario.Rates) != len(scenario.Tables.Models) {
		return nil, fmt.Errorf("simulating: %d rates for %d models", len(scenario.Rates), len(scenario.Tables.Models))
	}

	// Make the arrivals of every model, from a recording or a process.
	sources := make([]arrivals.Source, len(scenario.Tables.Models))
	for model := range sources {
		rps := scenario.Tables.Models[model].RPS
		if scenario.Rates != nil {
			rps = scenario.Rates[model]
		}
		name := scenario.Tables.Models[model].Key().String()
		if scenario.RecordedArrivals != nil {
			sources[model] = scenario.RecordedArrivals.playModel(int32(model), rps*scenario.Load, scenario.Duration, run, seed, name)
			continue
		}
		rng := seeded.New(seed, "arrivals/"+name)
		source, err := arrivals.Process(scenario.Arrivals, rng, int32(model), rps*scenario.Load, scenario.Duration)
		if err != nil {
			return nil, fmt.Errorf("simulating: %w", err)
		}
		sources[model] = source
	}

	// Add lengths and sessions to the requests to language models.
	for i, source := range sources {
		model := &scenario.Tables.Models[i]
		if hasLLMInstances(scenario.Tables) && (model.Prompt == nil || model.Output == nil) {
			return nil, fmt.Errorf("simulating: %w", &document.Error{Path: fmt.Sprintf("queue.classes[%d]", i), Found: "no distribution of prompt or output for " + model.Key().String(),
				Expected: "both", Hint: "or give a trace with prompt_tokens and output_tokens"})
		}
		if model.Prompt != nil || model.Output != nil {
			sources[i] = arrivals.WithLengths(source, seeded.New(seed, "lengths/"+model.Key().String()), model.Prompt, model.Output)
			if model.Sessions != nil {
				// Each model has 2^40 numbers of sessions of its own.
				sources[i] = arrivals.WithSessions(sources[i], seeded.New(seed, "sessions/"+model.Key().String()), model.Sessions, int64(i+1)<<40)
			}
		}
	}
	return arrivals.Merge(sources...), nil
}

// runSeed returns the seed of a replication (run number `run`). The first has the scenario's own seed, so that one
// run alone gives the same; the others are derived from it.
func (scenario *Scenario) runSeed(run int) uint64 {
	if run == 0 {
		return scenario.Seed
	}
	return seeded.Seed(scenario.Seed, fmt.Sprintf("run/%d", run))
}

// Config returns the configuration of replication number `run`, with its arrivals and its policy. The duration must
// be known, because a random process of arrivals never ends.
func (scenario *Scenario) Config(run int) (Config, error) {
	if scenario.Duration <= 0 {
		return Config{}, fmt.Errorf("simulating: duration %v, expected more than 0 with a process of arrivals", scenario.Duration)
	}
	seed := scenario.runSeed(run)
	src, err := scenario.source(run, seed)
	if err != nil {
		return Config{}, err
	}
	return scenario.config(src, seed)
}

// Replay returns the configuration of a single run on arrivals that the caller opened, such
// as a recorded trace.
func (scenario *Scenario) Replay(src arrivals.Source) (Config, error) {
	return scenario.config(src, scenario.Seed)
}

// config returns the configuration of one run, with a policy of its own, because a policy keeps state. An empty
// name of a policy means the default one.
func (scenario *Scenario) config(src arrivals.Source, seed uint64) (Config, error) {
	runPolicy, err := policies.New(scenario.Policy, scenario.Tables)
	if err != nil {
		return Config{}, err
	}
	name := scenario.Policy.Name
	if name == "" {
		name = policies.Default
	}
	cfg := Config{
		Tables: scenario.Tables, Policy: runPolicy, Source: src, Duration: scenario.Duration, Warmup: scenario.Warmup,
		Ingress: scenario.Ingress, Egress: scenario.Egress, FrontEnd: scenario.FrontEnd, FrontEndRuns: scenario.FrontEndRuns, FrontEndRunShare: scenario.FrontEndRunShare, Cut: scenario.Cut, Window: scenario.Window, Faults: scenario.Faults, Verify: scenario.Verify,
		PolicyName: name, Seed: seed, Load: scenario.Load, Slowdown: scenario.slowdown, Control: policies.NewControl(scenario.Tables),
	}
	if scenario.Service != nil {
		if cfg.Service, err = scenario.Service(seed); err != nil {
			return Config{}, err
		}
	}
	cfg.addWorkflowParts()
	return cfg, nil
}

// Replicate runs a scenario under several seeds, in parallel, and pools the results. The
// report has the 95 % intervals over the runs. It does not depend on how many run at once.
//
// If ctx is cancelled, Replicate returns the error together with the pooled result of the
// first runs, as many as were complete, marked as interrupted. The result is nil if not even
// the first run was complete. If scenario.Cut ends, no further runs begin, and the result is likewise
// that of the complete runs; if there is none, it is that of the first run, which is shorter.
func Replicate(ctx context.Context, scenario *Scenario, numRuns int) (*Result, error) {
	if numRuns < 1 {
		return nil, fmt.Errorf("simulating: %d runs, expected at least 1", numRuns)
	}
	results, err := scenario.replicate(ctx, nil, numRuns)
	complete := slices.IndexFunc(results, func(r *Result) bool { return r == nil || r.CutAt > 0 })
	if err == nil && complete < 0 {
		return poolResults(results), nil
	}
	if err == nil {
		err = context.Canceled
	}
	if complete == 0 && len(results) > 0 && results[0] != nil { // the first run was cut
		complete = 1
	}
	if !errors.Is(err, context.Canceled) || complete <= 0 {
		return nil, err
	}
	pooled := poolResults(results[:complete])
	pooled.Report.Interrupted = true
	return pooled, err
}

// Replications holds runs of one scenario under different seeds, and can be extended.
type Replications struct {
	Scenario *Scenario
	results  []*Result
}

// Extend runs the scenario under further seeds until there are as many runs as given. With an error the earlier
// results stay.
func (r *Replications) Extend(ctx context.Context, numRuns int) error {
	results, err := r.Scenario.replicate(ctx, r.results, numRuns)
	if err == nil {
		r.results = results
	}
	return err
}

// AttainmentPerRun returns, for each run, the attainment of some models together: the share of their requests in
// time.
func (r *Replications) AttainmentPerRun(models ...int) []float64 {
	attainments := make([]float64, 0, len(r.results))
	for _, accumulator := range accumulators(r.results) {
		attainments = append(attainments, report.Attained([]*report.Accumulator{accumulator}, models...))
	}
	return attainments
}

// FrontEndLoad returns the share of all runs' time in which the front end was occupied, 0 if there is none. Near 1 the
// requests that wait for it become more and more, however few of them were late so far.
func (r *Replications) FrontEndLoad() float64 {
	occupied, elapsed := time.Duration(0), time.Duration(0)
	for _, result := range r.results {
		occupied += result.FrontEndOccupied
		elapsed += result.FrontEndElapsed
	}
	return float64(occupied) / float64(max(1, elapsed))
}

// Pool returns one result for all runs together, with intervals over the runs in its report.
func (r *Replications) Pool() *Result { return poolResults(r.results) }

// replicate runs a scenario under numRuns seeds, in parallel, and returns the results in order. The first of them
// are taken from earlier. If it returns an error, some results are nil. If the budget does not allow all runs, none
// is made.
func (scenario *Scenario) replicate(ctx context.Context, earlier []*Result, numRuns int) ([]*Result, error) {
	if err := scenario.spendBudget(max(0, numRuns-len(earlier))); err != nil {
		return nil, err
	}
	results, errs := make([]*Result, numRuns), make([]error, numRuns)

	// Workers take the numbers of the runs. After an error no further run begins. Those under way go on, so that the error returned is that
	// of the lowest number that fails, whichever fails first.
	failed, fail := context.WithCancel(ctx)
	defer fail()
	firstNew := copy(results, earlier)
	runNumbers := make(chan int)
	var wg sync.WaitGroup
	for range min(numRuns-firstNew, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for run := range runNumbers {
				results[run], errs[run] = scenario.run(ctx, run)
				if errs[run] != nil && (scenario.Cut == nil || scenario.Cut.Err() == nil) { // a cut run leaves the others
					fail()
				}
			}
		})
	}
	var cut <-chan struct{} // blocks for ever without a cut
	if scenario.Cut != nil {
		cut = scenario.Cut.Done()
	}
feed:
	for run := firstNew; run < numRuns; run++ {
		select {
		case runNumbers <- run:
		case <-cut:
			errs[run] = context.Canceled
			break feed
		case <-failed.Done():
			errs[run] = failed.Err()
			break feed
		}
	}
	close(runNumbers)
	wg.Wait()
	return results, firstCause(errs)
}

// firstCause returns the error of the first run that failed by itself, or else that of a cancelled one.
func firstCause(errs []error) error {
	var cancelErr error
	for run, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled):
			cancelErr = err
		default:
			return fmt.Errorf("run %d: %w", run, err)
		}
	}
	return cancelErr
}

// run makes replication number `run` of the scenario, without a report of its own.
func (scenario *Scenario) run(ctx context.Context, run int) (*Result, error) {
	cfg, err := scenario.Config(run)
	if err != nil {
		return nil, err
	}
	cfg.NoReport = true // poolResults makes one report of all runs
	return Run(ctx, cfg)
}

// reportDispatches puts into the report how many paths the policy probed per batch, and how
// long batches were under way between stages.
func (r *Result) reportDispatches() {
	if r.Transfers.Count > 0 {
		r.Report.TransferTimes = &formats.TransferTimes{
			Count: r.Transfers.Count, MeanUS: document.Micros(r.Transfers.Mean), P99US: document.Micros(r.Transfers.P99),
		}
	}
	if r.DispatchedBatches > 0 {
		r.Report.ProbesPerBatch = math.Round(1e3*float64(r.Probes)/float64(r.DispatchedBatches)) / 1e3
	}
}
