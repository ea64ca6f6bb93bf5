package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/outcomes"
	"inferplan/formats/usage"
	"inferplan/planner/inputs"
	"inferplan/planner/kind"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
	"inferplan/sim"
)

type simulateOptions struct {
	arrivalOptions
	findMaxLoad      bool
	upTo             float64
	attainment       float64   // share in time that is required; 0 means by percentile
	shares           []float64 // required share in time, by entry of the plan
	policy           string
	network          string
	loads            string
	duration, warmup time.Duration
	attainmentGiven  bool
	durationGiven    bool // set by flag, environment or file; the default would cut a trace short
	runsGiven        bool
	seedGiven        bool
	meetsAll         bool // the policy looks at all open requests when one arrives
	window           time.Duration
	runCount         int
	service          string
	jitter           float64
	chromeTrace      string
	eventLog         string
	outcomes         string
	verify           bool
	outPath          string
}

// newSimulateCommand makes the verb simulate, which replays traffic against a plan in virtual time.
func newSimulateCommand(g *globalFlags) *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate [plan.json]",
		Short: "Replay traffic against a plan in virtual time",
		Long: `Replay traffic against a plan in virtual time, with the policy that would serve it.

Load 1.0 is the rate that the plan promises each model. Arrivals stop after --duration, then
the run drains; arrivals during --warmup run but are not counted. A plan of queues is simulated
in the runs that its own figures are of, where --duration, --runs and --seed say nothing else.

--find-max-load starts at load 1, goes up or down in steps that double until a model passes at
one load and fails at another, and halves what is between. A model is decided where it passes
at one point of the grid and fails at the next, or passes at --up-to. Loads at which all
models are decided are not simulated. Attainment is taken to fall with load.`,
		Example: `  plan simulate plan.json --load 0.95 --runs 5
  plan simulate plan.json --find-max-load --attainment 0.99
  plan simulate plan.json --find-max-load --up-to 1 --runs 5
  plan simulate plan.json --loads 0.1:1.2:0.1 --runs 5
  plan simulate plan.json --trace requests.csv.gz -o report.json
  plan simulate plan.json --model fcn --arrivals-gaps-us gaps.txt.gz --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.attainmentGiven = cmd.Flags().Changed("attainment")
			o.durationGiven, o.runsGiven, o.seedGiven = cmd.Flags().Changed("duration"), cmd.Flags().Changed("runs"), cmd.Flags().Changed("seed")
			return runSimulate(cmd.Context(), newPrinter(cmd, g), o, planArgument(args))
		},
	}
	f := cmd.Flags()
	o.arrivalOptions.flags(f)
	f.BoolVar(&o.findMaxLoad, "find-max-load", false, "find the highest load, on a grid of 0.05, at which the attainment is reached, per model and overall")
	f.Float64Var(&o.upTo, "up-to", sim.MaxSearchLoad, "highest load that --find-max-load looks at, from 0.05 to 5")
	f.StringVar(&o.loads, "loads", "", "several loads, as 0.5,0.8,1 or FROM:TO:STEP, for a curve of each model's attainment; the other figures of the report are those of the last load")
	f.Float64Var(&o.attainment, "attainment", 0, "share of requests in time that --find-max-load asks for; default: what the percentile of each model or class says, .99 for p99")
	policyFlag(cmd, f, &o.policy)
	f.StringVar(&o.network, "network", "", "who shares links: nodes (the cluster's NICs) or stages (as the PPipe artifact assumes; default with --policy artifact)")
	f.DurationVar(&o.duration, "duration", 30*time.Second, "virtual time of arrivals")
	f.DurationVar(&o.warmup, "warmup", 0, "virtual time at the start that is not counted")
	f.DurationVar(&o.window, "window", 0, "width of the report's time windows (default none)")
	f.IntVar(&o.runCount, "runs", 1, "replications, for intervals")
	f.StringVar(&o.service, "service", "", "service times recorded by 'plan serve --record'")
	f.Float64Var(&o.jitter, "jitter", 0, "coefficient of variation of service times (lognormal)")
	f.StringVar(&o.chromeTrace, "chrome-trace", "", "write a trace of every device, for Perfetto")
	f.StringVar(&o.eventLog, "event-log", "", "write every event and action of the policy, for 'plan replay'")
	f.StringVar(&o.outcomes, "outcomes", "", "CSV to write with what became of every request of one run, for 'plan report --html'")
	f.BoolVar(&o.verify, "verify", false, "check the simulator's invariants while running")
	f.StringVarP(&o.outPath, "output", "o", "", "report to write; - is stdout, instead of the tables")
	completeFlag(cmd, "network", networkNames()...)
	return cmd
}

// runSimulate reports the results of complete runs, also if an interrupt prevented further runs. Of a first run that
// was interrupted it reports what arrived until then, as a run of that duration. A search or a sweep of loads needs a
// complete run.
func runSimulate(ctx context.Context, p *printer, o *simulateOptions, path string) error {
	err := simulate(ctx, p, o, path)
	if _, hasCode := errors.AsType[*exitError](err); !hasCode && errors.Is(err, context.Canceled) {
		return &exitError{exitInterrupted, errors.New("interrupted before a first run was complete; nothing was written")}
	}
	return err
}

// simulate executes plan simulate for the plan at path: it simulates the runs that the flags ask for, and writes and
// prints the report. After an interrupt the report is of what was complete.
func simulate(ctx context.Context, p *printer, o *simulateOptions, path string) error {
	if err := errors.Join(p.checkOutput("output", o.outPath, formats.KindReport), p.checkOutput("chrome-trace", o.chromeTrace, "trace"), p.checkOutput("event-log", o.eventLog, "log"), p.checkOutput("outcomes", o.outcomes, "table")); err != nil {
		return err
	}
	if err := o.checkFlags(); err != nil {
		return err
	}

	// Build the scenario and the arrivals.
	plan, err := p.readPlan(path)
	if err != nil {
		return err
	}
	o.repeatStatedRuns(p, plan)
	o.meetsAll = formats.MeetsAllOpen(plan)
	sc, err := o.newScenario(p, plan)
	if err != nil {
		return err
	}
	src, closeSource, err := o.openRecorded(plan)
	if err != nil {
		return err
	}
	if src != nil {
		defer closeSource()
	}
	if src, err = o.prepareArrivals(p, sc, src); err != nil {
		return err
	}
	endsWellOnInterrupt(ctx)

	// Simulate, and complete the report.
	began := time.Now()
	rep, events, completed, err := o.runSimulation(ctx, sc, src)
	if err != nil {
		return err
	}
	if seconds := time.Since(began).Seconds(); seconds > 0 {
		rep.EventsPerSecond = float64(events) / seconds
	}
	rep.Events = events
	if interrupted, err := o.addSlowdowns(ctx, p, sc, plan, rep); err != nil {
		return err
	} else if interrupted {
		completed = "all runs, without what longer runs would change"
	}
	if rep.Plan, err = o.planInput(path); err != nil {
		return err
	}
	if plan.Objective.Name == "throughput" && plan.Objective.Bound != nil && *plan.Objective.Bound > 0 {
		rep.BoundShare = boundShare(plan, rep)
	}
	if err := o.showReport(p, rep); err != nil {
		return err
	}
	if rep.Interrupted {
		return &exitError{exitInterrupted, errors.New("interrupted; the report is of " + completed)}
	}
	return nil
}

// repeatStatedRuns sets the duration, the number of runs and the seed of the simulation to those from which the plan's own
// figures come, so that it reproduces them, and says so. Only plans of queues name such runs. A flag that sets one of
// the three counts instead of the plan's; if flags choose other arrivals or loads, nothing is set.
func (o *simulateOptions) repeatStatedRuns(p *printer, plan *formats.Plan) {
	runs := formats.StatedRuns(plan)
	if runs == nil || o.hasArrivalFlags() || o.findMaxLoad || o.loads != "" || o.writesOneRun() {
		return
	}
	if !o.durationGiven {
		o.duration = runs.DurationUS.D()
	}
	if !o.runsGiven {
		o.runCount = runs.Runs
	}
	if !o.seedGiven {
		o.seed = runs.Seed
	}
	if o.durationGiven && o.runsGiven && o.seedGiven {
		return
	}
	source := "as those of the plan's figures"
	if o.duration != runs.DurationUS.D() || o.runCount != runs.Runs || o.seed != runs.Seed {
		source = fmt.Sprintf("where the plan's figures come from %d of %v, from seed %d", runs.Runs, runs.DurationUS.D(), runs.Seed)
	}
	p.printAssumptions([]string{fmt.Sprintf("runs: %d of %v of arrivals, from seed %d, %s", o.runCount, o.duration, o.seed, source)})
}

// newScenario returns the scenario of the plan under the flags, without arrivals. A scenario is a plan with its
// policy, network, rates and service times. It also stores in o.shares the shares of requests that must be in time,
// and prints what was assumed.
func (o *simulateOptions) newScenario(p *printer, plan *formats.Plan) (*sim.Scenario, error) {
	spec := plan.Policy
	if o.policy != "" {
		spec = formats.PolicySpec{Name: o.policy}
	}
	network, assumed, err := o.chooseNetwork(spec.Name)
	if err != nil {
		return nil, err
	}
	sc, err := sim.NewScenarioOn(plan, network)
	if err != nil {
		return nil, err
	}
	if err := p.checkPolicy(o.policy, sc.Tables); err != nil {
		return nil, err
	}
	if !o.hasArrivalFlags() && !o.findMaxLoad && o.loads == "" {
		assumed = append(assumed, fmt.Sprintf("load: %g of the planned rate", o.load))
	}
	if _, err := policies.New(spec, sc.Tables); err != nil {
		return nil, withCode(exitUsage, err)
	}
	p.printAssumptions(assumed)
	sc.Policy = spec
	o.shares = kind.TestSettings{Attainment: o.attainment}.Shares(plan)
	sc.Load, sc.Duration, sc.Warmup, sc.Window, sc.Seed, sc.Verify = o.load, o.duration, o.warmup, o.window, o.seed, o.verify
	if sc.Rates, err = o.entryRates(plan); err != nil {
		return nil, err
	}
	return sc, o.setServiceTimes(sc)
}

// prepareArrivals checks a source of arrivals against the flags. A trace that is replayed unchanged is returned. A
// trace that is stretched to several loads is stored in the scenario. Without a trace arrivals are drawn, and it
// returns nil.
func (o *simulateOptions) prepareArrivals(p *printer, sc *sim.Scenario, src arrivals.Source) (arrivals.Source, error) {
	if src != nil && !o.findMaxLoad && o.loads == "" {
		if o.runCount > 1 {
			return nil, usageErrorf("a trace is replayed once, as it is: --runs %d do not go with a trace but at --loads or with --find-max-load", o.runCount)
		}
		return src, nil
	}
	if src != nil {
		var err error
		if sc.RecordedArrivals, err = sim.RecordArrivals(src, len(sc.Tables.Models)); err != nil {
			return nil, withCode(exitUsage, err)
		}
		p.printAssumptions([]string{"trace: each model's requests stretched to its rate, round and round; each run but the first starts anywhere in it"})
	}
	if err := firstError(usage.CheckPositiveDuration("duration", o.duration), o.checkRequestCount(sc.Rates, o.duration), o.checkSimulatedRequests(sc.Rates)); err != nil {
		return nil, err
	}
	if o.warmup >= o.duration {
		return nil, usageErrorf("--warmup: found %s, expected less than --duration %s: nothing would be counted", o.warmup, o.duration)
	}
	if !o.durationGiven {
		p.printAssumptions(o.shortenDuration(sc))
	}
	return nil, nil
}

// maxDefaultRequests is the number of requests that are simulated by default, so that a simulation ends within seconds.
const maxDefaultRequests = 5e6

// maxDefaultMeetings is the same limit in pairs of requests that are open at the same time, for policies that look
// at all open requests when one arrives.
const maxDefaultMeetings = 3e8

// searchedLoads is about how many loads --find-max-load tries, whose mean is about 1.
const searchedLoads = 8

// shortenDuration shortens the default duration if more than maxDefaultRequests would arrive. It returns a line
// that says so.
func (o *simulateOptions) shortenDuration(sc *sim.Scenario) []string {
	loads := o.load
	if o.findMaxLoad {
		loads = searchedLoads
	} else if list, err := o.parseLoads(); o.loads != "" && err == nil {
		loads = 0
		for _, load := range list {
			loads += load
		}
	}

	// Add up the rates of all models. loads is the sum of the loads that are simulated.
	rate, slo := 0.0, time.Duration(0)
	for i := range sc.Tables.Models {
		rps := sc.Tables.Models[i].RPS
		if sc.Rates != nil {
			rps = sc.Rates[i]
		}
		rate, slo = rate+rps, max(slo, sc.Tables.Models[i].SLO)
	}

	// Find the longest duration within the limits, in seconds.
	runs := float64(max(1, o.runCount))
	seconds := maxDefaultRequests / (rate * loads * runs)
	if o.meetsAll {
		meetings := maxDefaultMeetings / (rate * rate * loads * runs) // bound of duration times SLO, in seconds squared
		seconds = min(seconds, max(meetings/slo.Seconds(), min(slo.Seconds(), math.Sqrt(meetings))))
	}
	if !(seconds < (sc.Duration - sc.Warmup).Seconds()) {
		return nil
	}
	sc.Duration = sc.Warmup + max(time.Microsecond, time.Duration(seconds*float64(time.Second)).Round(time.Microsecond))
	text := fmt.Sprintf("duration: %s, in which about %.2g requests arrive (--duration takes any other)", document.Duration(sc.Duration), seconds*rate*loads*runs)
	if sc.Duration-sc.Warmup < 10*slo {
		text += fmt.Sprintf("; that is less than ten times the SLO of %s, and little of how queues grow is seen", document.Duration(slo))
	}
	return []string{text}
}

// runSimulation simulates what the flags ask for. completed says what is complete if an interrupt ended it.
func (o *simulateOptions) runSimulation(ctx context.Context, sc *sim.Scenario, src arrivals.Source) (rep *formats.Report, events int64, completed string, err error) {
	switch {
	case src != nil:
		// Replay a trace.
		if !o.durationGiven {
			sc.Duration = 0 // until the trace ends
		}
		grace, stop := withGrace(ctx)
		defer stop()
		cfg, err := cutBy(ctx, sc).Replay(src)
		if err != nil {
			return nil, 0, "", err
		}
		res, err := o.runOnce(grace, cfg, src)
		if err != nil {
			return nil, 0, "", err
		}
		return res.Report, res.Events, arrivalsUntil(res.Report), nil
	case o.loads != "":
		// Simulate a list of loads.
		loads, err := o.parseLoads()
		if err != nil {
			return nil, 0, "", err
		}
		sweep, err := sim.Sweep(ctx, sc, loads, o.runCount)
		if sweep == nil {
			return nil, 0, "", err
		}
		rep, events = sweep.SweepReport()
		return rep, events, fmt.Sprintf("the first %d of %d loads", len(sweep.Points), len(loads)), nil
	case o.findMaxLoad:
		// Search for the highest load.
		search, err := sim.FindMaxLoad(ctx, sc, o.shares, o.runCount, o.upTo)
		if search == nil {
			return nil, 0, "", err
		}
		if rep, events = search.Report(); rep == nil {
			return nil, 0, "", fmt.Errorf("no load was simulated")
		}
		return rep, events, "the loads that were tried so far, and the highest load is not known", nil
	}

	// Simulate one load in several runs.
	grace, stop := withGrace(ctx)
	defer stop()
	res, err := o.replicate(grace, cutBy(ctx, sc))
	if res == nil {
		return nil, 0, "", err
	}
	completed = fmt.Sprintf("the first %d of %d runs", res.Report.Runs, o.runCount)
	if res.Report.DurationUS.D() < sc.Duration {
		completed = arrivalsUntil(res.Report)
	}
	return res.Report, res.Events, completed, nil
}

// cutBy returns the scenario with arrivals that end when ctx does.
func cutBy(ctx context.Context, sc *sim.Scenario) *sim.Scenario {
	cut := *sc
	cut.Cut = ctx
	return &cut
}

// arrivalsUntil says for how long requests arrived in a run that was interrupted.
func arrivalsUntil(rep *formats.Report) string {
	return fmt.Sprintf("the requests that arrived in the first %s", rep.DurationUS.D())
}

// showReport writes and prints the report.
func (o *simulateOptions) showReport(p *printer, rep *formats.Report) error {
	if err := p.writeReport(o.outPath, rep, rep.Warnings, rep); err != nil || p.json {
		return err
	}
	p.PrintNote("%d events, %.2f million per second", rep.Events, rep.EventsPerSecond/1e6)
	return nil
}

// planInput describes the plan for the report. It returns nil if the plan was read from a pipe.
func (o *simulateOptions) planInput(path string) (*formats.Input, error) {
	if info, err := os.Stat(path); path == document.Stdin || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	sum, err := document.Digest(path)
	if err != nil {
		return nil, err
	}
	if o.outPath != "" {
		if path, err = inputs.RelativeTo(filepath.Dir(o.outPath), path); err != nil {
			return nil, err
		}
	}
	return &formats.Input{Role: "plan", Path: path, SHA256: sum}, nil
}

// chooseNetwork returns the network to simulate, and what was assumed about it. Without a flag, the dispatch of
// the PPipe artifact is simulated on the artifact's network.
func (o *simulateOptions) chooseNetwork(policyName string) (policy.Topology, []string, error) {
	switch n := policy.Topology(o.network); {
	case n == "" && policyName == artifact.Name:
		return policy.TopologyStages, []string{"network: stages, as the PPipe artifact has it (--network nodes for shared NICs)"}, nil
	case n == "":
		return policy.TopologyNodes, nil, nil
	default:
		return n, nil, usage.CheckWord("network", o.network, networkNames()...)
	}
}

func networkNames() []string { return textsOf(policy.Topologies()) }

// runOnce runs once, with the arrivals of a trace or, if src is nil, drawn ones. It writes the trace of the devices
// and the event log, if they are asked for.
func (o *simulateOptions) runOnce(ctx context.Context, cfg sim.Config, src arrivals.Source) (*sim.Result, error) {
	var parts []*partFile
	createFile := func(path, content string) (*os.File, error) {
		f, err := createPart(path)
		if err != nil {
			return nil, fmt.Errorf("writing the %s: %w", content, err)
		}
		parts = append(parts, f)
		return f.File, nil
	}
	defer func() {
		for _, f := range parts {
			f.remove()
		}
	}()
	if o.chromeTrace != "" {
		trace, err := createFile(o.chromeTrace, "device trace")
		if err != nil {
			return nil, err
		}
		cfg.ChromeTrace = trace
	}
	var rec *conform.Recorder
	if o.eventLog != "" {
		log, err := createFile(o.eventLog, "event log")
		if err != nil {
			return nil, err
		}
		rec = conform.NewRecorder(cfg.Policy, log)
		cfg.Policy = rec
	}

	var list []outcomes.Outcome
	if o.outcomes != "" {
		models := cfg.Tables.Models
		cfg.OnEnded = func(end sim.RequestEnd) {
			one := outcomes.Outcome{ModelClass: models[end.Model].Key(), Due: end.ArrivedAt, Reason: end.Reason}
			if end.Reason == "" {
				one.Latency, one.Late = end.EndedAt-end.ArrivedAt, end.EndedAt > end.Deadline
			}
			list = append(list, one)
		}
	}

	// Run, and give the files their names.
	res, err := sim.Run(ctx, cfg)
	if rec != nil {
		err = errors.Join(err, rec.Close())
	}
	for _, f := range parts {
		err = f.complete(err)
	}
	if err == nil && o.outcomes != "" {
		err = writeOutcomes(o.outcomes, outcomes.Formats[0], "", list)
	}
	if err != nil {
		return nil, err
	}
	if src != nil {
		if err := arrivals.Err(src); err != nil {
			return nil, withCode(exitUsage, err)
		}
	}
	res.Report.Interrupted = res.CutAt > 0
	return res, nil
}

// writesOneRun reports whether a file is asked for that is of a single run: a trace of the devices, an event log or outcomes.
func (o *simulateOptions) writesOneRun() bool {
	return o.chromeTrace != "" || o.eventLog != "" || o.outcomes != ""
}

// replicate simulates one load in as many runs as --runs says. If a file is asked for that is of a single run, there is
// one run, which writes it.
func (o *simulateOptions) replicate(ctx context.Context, sc *sim.Scenario) (*sim.Result, error) {
	if !o.writesOneRun() {
		return sim.Replicate(ctx, sc, o.runCount)
	}
	cfg, err := sc.Config(0)
	if err != nil {
		return nil, err
	}
	return o.runOnce(ctx, cfg, nil)
}

// setServiceTimes sets how long runs take: as recorded, with jitter around the plan's times, or as planned.
func (o *simulateOptions) setServiceTimes(sc *sim.Scenario) error {
	switch {
	case o.service != "" && o.jitter != 0:
		return usageErrorf("--service and --jitter exclude each other")
	case o.service != "":
		rec, err := turn.ReadServiceTimes(o.service)
		if err != nil {
			return withCode(exitUsage, err)
		}
		samples := sim.Samples{Runs: rec.Runs, Transfers: rec.Transfers, Starts: rec.Starts, ReportDelays: rec.ReportDelays, Loads: rec.Loads, LoadStarts: rec.LoadStarts}
		if _, err := sim.RecordedService(sc.Tables, samples, true, 0); err != nil {
			return usageErrorf("%s: %w", o.service, err)
		}
		sc.Ingress, sc.Egress = rec.Ingress, rec.Egress
		// One run takes the recorded times at their moments, so that with the same arrivals it repeats the
		// recorded run. Several replications draw from the recorded times.
		draw := o.runCount > 1 || o.findMaxLoad
		sc.Service = func(seed uint64) (sim.Service, error) { return sim.RecordedService(sc.Tables, samples, draw, seed) }
	case o.jitter > 0:
		sc.Service = func(seed uint64) (sim.Service, error) {
			return sim.JitterService(sc.Tables, sim.Lognormal, o.jitter, seed), nil
		}
	}
	return nil
}

// boundShare returns the smallest goodput / weight of a model, divided by the plan's bound. It returns nil if a model
// has no weight or is not in the report. 1 means that goodput reaches the bound that no plan can exceed.
func boundShare(plan *formats.Plan, rep *formats.Report) *float64 {
	share := -1.0
	for _, m := range plan.ServedModels() {
		r := findModel(rep, m.Key())
		if r == nil || m.Weight <= 0 {
			return nil
		}
		if v := r.GoodputRPS / m.Weight / *plan.Objective.Bound; share < 0 || v < share {
			share = v
		}
	}
	if share < 0 {
		return nil
	}
	return &share
}
