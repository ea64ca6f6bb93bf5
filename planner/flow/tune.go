package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/certify"
	"inferplan/planner/flow/graph"
	"inferplan/planner/flow/terms"
	"inferplan/planner/flow/workflow"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/sim"
	"inferplan/solver/milp"
)

// reserve is kept back of an SLO for waiting: batches that a request waits for in every module, and a share of the SLO.
type reserve struct{ batchWait, margin float64 }

// The search tries these reserves, the least first, with the largest batch and its halves. Where many replicas serve a module, one of
// them becomes free long before a whole batch has passed, so the worst case of PARD, one batch in every module, keeps back too much.
var reserves = []reserve{{0, 0}, {.1, 0}, {.25, 0}, {.45, 0}, {.7, 0}, {1, 0}, {1, .05}, {1, .1}, {1, .2}, {1, .3}, {1, .4}, {1, .5}}

// cheapestReserves are those with which the search for the cheapest plan makes the plans that it starts from, the least first.
var cheapestReserves = []reserve{{.25, 0}, {1, .1}}

// withBatchWait returns those of some reserves that have a whole batch to wait for, with another wait instead.
func withBatchWait(list []reserve, batchWait float64) (replaced []reserve) {
	for _, r := range list {
		if r.batchWait == 1 {
			replaced = append(replaced, reserve{batchWait, r.margin})
		}
	}
	return replaced
}

// stretch returns how many times the batch times of a path the SLO has to be.
func (r reserve) stretch() float64 { return (1 + r.batchWait) / (1 - r.margin) }

// String returns the reserve in words.
func (r reserve) String() string {
	if r.batchWait == 1 {
		return fmt.Sprintf("margin %.2g", r.margin)
	}
	return fmt.Sprintf("margin %.2g with %s", r.margin, terms.DescribeWait(r.batchWait))
}

const (
	startReserve    = 4         // index in reserves at which the search starts
	startMargin     = 1         // the same among the reserves that have one wait
	trialBudget     = 1_500_000 // events of the simulator. The search starts no further trial once it has simulated so many.
	certifyBudget   = 3_000_000 // events of the simulator for the search for the load that passes the test
	minTrials       = 4
	maxSurplusTries = 6     // searches for a plan whose rates the test confirms
	firstSurplus    = 0.003 // above the attainment asked, which a plan must show in the second search; each next search doubles it
)

// tuneSetting is a choice of the options that the search varies.
type tuneSetting struct {
	reserve          reserve
	maxBatch         int    // the largest batch size
	dedicatedDevices string // devices for groups of models alone, as the option dedicated has them
}

// attempt is a plan for one setting, with what simulation showed of it.
type attempt struct {
	setting       tuneSetting
	result        *kind.Result
	sustainedLoad float64 // the load that all applications sustained, as a factor on the planned rates. If it is 0, none was sustained.
	trialRate     float64 // the sustainedRate that short runs showed. If there were none, it is NaN.
}

// sustainedRate returns the value of the objective that the plan sustains.
func (t *attempt) sustainedRate() float64 { return t.sustainedLoad * t.result.Plan.Objective.Value }

// tuner is a search by simulation for reserve, largest batch and dedicated devices, or for the number of
// devices.
type tuner struct {
	p                *kind.Problem
	requested        kind.TestSettings // parameters of the simulations: attainment, seed, runs
	solve            kind.SolveFunc
	attempts         []*attempt
	bestAttempt      *attempt
	running          *attempt  // the plan that runs; nil if none does, or if it does not fit today's documents
	untestable       bool      // the best attempt cannot be tested: its simulation would take too long
	simulatedWork    int64     // events of all trials
	wallMS           float64   // milliseconds of all solves
	planBound        float64   // bound of the objective, over all plans. If it is not known, it is NaN.
	boundScope       string    // names the plans that the bound holds for. If it is empty, it holds for all.
	reserves         []reserve // that the search tries, the least first
	startReserve     int       // index in reserves at which the search starts
	startsOfCheapest []reserve // of the plans that the search for the cheapest plan starts from, the least first
	noPlanErr        error     // why there is no plan in the setting that keeps back the least of those that have none
	noPlanReserve    reserve   // of that setting
	budgets          certify.Budgets
}

// tune chooses what is kept back of the SLO for waiting (a reserve) and the largest batch of a plan by the rate that the plan
// sustains in simulation, and returns the best plan with its bound.
//
// For throughput it looks for the highest rate, which a sequential test confirms and the plan then promises. For other objectives,
// devices and batch sizes change until the plan attains enough at its rates (see graph.Sizing), and the cheapest plan that a
// test confirms is taken. All runs that compare plans have the same random numbers. Those that test have others. solve is the planner's
// solve for given options.
func tune(ctx context.Context, p *kind.Problem, requested kind.TestSettings, solve kind.SolveFunc) (*kind.Result, error) {
	t := &tuner{p: p, requested: requested, solve: solve, planBound: math.NaN(), budgets: certify.NewBudgets(requested, 1)}
	t.reserves, t.startReserve, t.startsOfCheapest = reserves, startReserve, cheapestReserves
	if p.Values.IsChosen("batch-wait") { // then only the margin is left to the search
		wait := p.Values.Number("batch-wait")
		t.reserves, t.startReserve, t.startsOfCheapest = withBatchWait(reserves, wait), startMargin, withBatchWait(cheapestReserves, wait)
	}
	if err := t.solveRunning(ctx); err != nil {
		return nil, err
	}
	search := t.searchThroughput
	if p.Values.Word("objective") != "throughput" {
		search = t.searchCheapest
	}
	err := search(ctx)
	if t.bestAttempt == nil && ctx.Err() != nil { // what runs stands
		t.bestAttempt = t.running
	}
	if err != nil && (t.bestAttempt == nil || ctx.Err() == nil) {
		return nil, err
	}
	if t.bestAttempt == nil {
		return nil, t.noPlanErr
	}

	// Write bound, status and what was tried into the best plan.
	result := t.bestAttempt.result
	t.writeBound(result)
	if ctx.Err() != nil {
		result.StoppedBy, result.Status = string(milp.StoppedByInterrupt), kind.StatusOf(milp.StoppedByInterrupt)
		result.Plan.StoppedBy = result.StoppedBy
	}
	result.WallMS = t.wallMS
	result.Plan.Assumptions = append(result.Plan.Assumptions, t.attemptSummary())
	return result, nil
}

// solveSetting plans with one setting of the options (margin, largest batch, dedicated devices). If there is no plan, it returns nil
// without an error, and the reason is stored in t.noPlanErr. As long as t.planBound, the bound over all plans, is not known,
// the solve also computes it. Its time and simulated work are added up.
func (t *tuner) solveSetting(ctx context.Context, s tuneSetting) (*attempt, error) {
	return t.solveProblem(ctx, t.p, s)
}

// solveProblem plans as solveSetting does, for problem p.
func (t *tuner) solveProblem(ctx context.Context, p *kind.Problem, s tuneSetting) (*attempt, error) {
	q := *p

	// Solve a copy of the problem. As long as no bound is known, the method is asked for one at this
	// attainment.
	if math.IsNaN(t.planBound) && !p.KeepRunning {
		q.BoundAttainment = t.minAttainment()
	}
	for name, value := range map[string]any{"margin": s.reserve.margin, "batch-wait": s.reserve.batchWait, "max-batch": s.maxBatch, "dedicated": s.dedicatedDevices} {
		if err := q.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	result, err := t.solve(ctx, &q, t.p.Progress)
	if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
		if t.noPlanErr == nil || s.reserve.stretch() < t.noPlanReserve.stretch() {
			t.noPlanErr, t.noPlanReserve = err, s.reserve
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	// The bound is the lower of the method's and of what the front end can admit.
	if o := &result.Plan.Objective; q.BoundAttainment > 0 && o.Bound != nil {
		t.planBound, t.boundScope = *o.Bound, o.BoundAmong
		if frontEndBound := result.Plan.FrontEndBound() / q.BoundAttainment; o.Name == "throughput" && frontEndBound < t.planBound {
			t.planBound = frontEndBound
		}
	}
	t.wallMS += result.WallMS
	t.simulatedWork += certify.SolveWork(result)
	return &attempt{setting: s, result: result}, nil
}

// minAttainment returns the least of the shares of requests in time that the applications have to attain, for
// which the bound of all plans holds.
func (t *tuner) minAttainment() float64 {
	minShare := 1.0
	for _, a := range formats.ApplicationsOf(t.p.Workload) {
		minShare = min(minShare, cmp.Or(t.requested.Attainment, document.ShareAt(a.Percentile)))
	}
	return minShare
}

// startSetting returns the setting at which a search begins. If simulation is to choose the dedicated
// devices, there are none at first.
func (t *tuner) startSetting() tuneSetting {
	s := tuneSetting{reserve: t.reserves[t.startReserve], maxBatch: t.p.Values.WholeNumber("max-batch"), dedicatedDevices: t.p.Values.Word("dedicated")}
	if s.dedicatedDevices == workflow.DedicatedAuto {
		s.dedicatedDevices = ""
	}
	return s
}

// searchThroughput looks for the plan that sustains the highest rate in simulation: over divisions of the devices between models, if that
// is asked for, then over a grid of reserves (what is kept back of the SLO for waiting) and largest batches, from its best position to
// the nearest untried one. At the end it tests the best plan, which is t.bestAttempt.
//
// A position of the grid has two indexes: how many times the largest batch is halved, and the index in reserves.
func (t *tuner) searchThroughput(ctx context.Context) error {
	grid, startPosition := certify.SettingGrid{Costs: []int{1, 1}}, []int{0, t.startReserve}
	bestPosition := startPosition   // of t.bestAttempt
	trials := 0                     // positions tried
	baseSetting := t.startSetting() // what all positions have in common

	// What runs, by itself: no other plan shortens its runs.
	if t.running != nil && concurrentRequests(t.running.result.Plan) <= maxConcurrentRequests {
		if err := t.findSustainedLoad(ctx, t.running); err != nil && !certify.OverBudget(err) {
			return err
		}
	}

	// Choose the dedicated devices first, if simulation is to choose them. Its plans have the margin and the batch of the start position,
	// so that position is tried then.
	if err := t.searchDivisions(ctx, baseSetting); err != nil {
		return err
	}
	if t.bestAttempt != nil {
		baseSetting = t.bestAttempt.setting
		grid.MarkTried(startPosition)
		trials++
	}

	// From the best position of the grid, try the nearest one that was not tried, until nothing is left to
	// try or the budget is spent.
	for ; !t.untestable && (trials < minTrials || t.simulatedWork < trialBudget); trials++ {
		nextPosition, anyUntried := startPosition, true
		if trials > 0 {
			// The batch may be halved as long as it is at least 1.
			gridSizes := []int{certify.CountHalvings(t.largestBatch()), len(t.reserves)}
			nextPosition, anyUntried = grid.NearestUntried(bestPosition, gridSizes)
		}
		if !anyUntried || ctx.Err() != nil || t.isGapReached() {
			break
		}
		grid.MarkTried(nextPosition)
		halvings, reserveIndex := nextPosition[0], nextPosition[1]
		s := baseSetting
		s.reserve = t.reserves[reserveIndex]
		if halvings > 0 {
			s.maxBatch = t.largestBatch() >> halvings
		}
		current, err := t.solveSetting(ctx, s)
		if err != nil {
			return err
		}
		if current == nil {
			continue
		}
		proceed, err := t.consider(ctx, current)
		if err != nil {
			return err
		}
		if !proceed {
			break
		}
		if t.bestAttempt == current {
			bestPosition = nextPosition
		}
	}

	// Test the best plan, unless it cannot be simulated. A plan that runs and is as good within the gap takes its place.
	if t.bestAttempt == nil && t.running != nil && t.running.sustainedLoad > 0 {
		t.bestAttempt = t.running
	}
	if t.bestAttempt == nil || t.untestable {
		return nil
	}
	if t.keepsRunning(t.sustainedRunning(), t.bestAttempt.sustainedRate()) {
		t.bestAttempt = t.running
	}
	return t.confirmWithRunning(ctx)
}

// solveRunning plans what runs by today's documents, in the setting that it was made with, as t.running. If simulation
// chooses the devices for models alone or none are chosen, its own division holds.
func (t *tuner) solveRunning(ctx context.Context) (err error) {
	if t.p.RunningPlan == nil {
		return nil
	}
	options := t.p.RunningPlan.Options
	wait := options.Number("batch-wait")
	if t.p.Values.IsChosen("batch-wait") {
		wait = t.p.Values.Number("batch-wait")
	}
	s := tuneSetting{reserve: reserve{wait, options.Number("margin")}, maxBatch: t.p.Values.WholeNumber("max-batch"), dedicatedDevices: options.Word("dedicated")}
	if requested := t.p.Values.Word("dedicated"); requested != "" && requested != workflow.DedicatedAuto && requested != s.dedicatedDevices {
		return nil
	}
	q := *t.p
	q.KeepRunning = true
	t.running, err = t.solveProblem(ctx, &q, s)
	t.noPlanErr = nil // that what runs does not fit is no reason for the new plan
	return err
}

// sustainedRunning returns the rate that the plan that runs sustains in short runs, 0 if none does.
func (t *tuner) sustainedRunning() float64 {
	if t.running == nil {
		return 0
	}
	return t.running.sustainedRate()
}

// keepsRunning reports whether the value of the plan that runs is within the option gap of that of the best plan, so that
// nothing need move.
func (t *tuner) keepsRunning(value, best float64) bool {
	sense := kind.SenseOf(t.p.Values.Word("objective"))
	return t.running != nil && value > 0 && milp.RelativeGap(sense, value, best) <= t.p.Values.Number("gap")
}

// confirmWithRunning tests the best plan and, if another one runs, that one in the same way. The value of the one that runs
// is that of its test. If it is higher, that plan stays.
func (t *tuner) confirmWithRunning(ctx context.Context) error {
	best := t.bestAttempt
	err := t.confirmBest(ctx)
	if _, refuted := errors.AsType[*kind.InfeasibleError](err); refuted && t.running != nil && t.running != best && t.running.sustainedLoad > 0 {
		best, t.bestAttempt = t.running, t.running
		err = t.confirmBest(ctx)
	}
	if err != nil || t.p.RunningPlan == nil {
		return err
	}
	replan := best.result.Plan.Replan
	if replan.RunningValue = nil; t.running == nil || !(t.running.sustainedLoad > 0) {
		return nil
	}
	if t.running == best {
		replan.RunningValue = &best.result.Plan.Objective.Value
		return nil
	}
	t.bestAttempt = t.running
	err = t.confirmBest(ctx)
	value := t.running.result.Plan.Objective.Value
	if _, infeasible := errors.AsType[*kind.InfeasibleError](err); err != nil || value <= best.result.Plan.Objective.Value {
		if t.bestAttempt = best; infeasible {
			return nil
		}
	}
	if err == nil {
		t.bestAttempt.result.Plan.Replan.RunningValue = &value
	}
	return err
}

// consider simulates the plan of an attempt in short runs, records the rate that it sustains, and takes it as the best if that is more
// than the best so far. proceed is false if the search should end: the plan has too many requests at once to be simulated, or the
// simulation exceeds its budget.
func (t *tuner) consider(ctx context.Context, current *attempt) (proceed bool, err error) {
	// Workflows with too many requests at once would take too long to simulate: take the plan untested.
	if n := concurrentRequests(current.result.Plan); n > maxConcurrentRequests {
		current.trialRate = math.NaN()
		t.bestAttempt, t.attempts, t.untestable = current, append(t.attempts, current), true
		current.result.Plan.Assumptions = append(current.result.Plan.Assumptions, fmt.Sprintf("rates are not tested by simulation: about %.3g requests would be under way at once, and their schedule is made anew for every one", n))
		return false, nil
	}

	// A plan that was simulated already sustains the same. If a simulation exceeds its budget, the plan is
	// not confirmed.
	if identical := slices.IndexFunc(t.attempts, func(o *attempt) bool { return certify.EqualPlans(o.result.Plan, current.result.Plan) }); identical >= 0 {
		current.sustainedLoad = t.attempts[identical].sustainedLoad
	} else if err := t.findSustainedLoad(ctx, current); certify.OverBudget(err) {
		if t.bestAttempt != nil {
			return false, nil
		}
		current.trialRate = math.NaN()
		t.attempts, t.untestable = append(t.attempts, current), true
		return false, t.takeUnconfirmed(current, err)
	} else if err != nil {
		if t.bestAttempt == nil && ctx.Err() != nil { // better an uncertified plan than none
			t.bestAttempt = current
		}
		return false, err
	}
	current.trialRate = current.sustainedRate()
	t.attempts = append(t.attempts, current)
	if t.bestAttempt == nil || current.sustainedRate() > t.bestAttempt.sustainedRate() {
		t.bestAttempt = current
	}
	return true, nil
}

// maxConcurrentRequests is how many requests of workflows may be in progress at once in a simulation. The
// policy visits all of them at every arrival.
const maxConcurrentRequests = 5000

// concurrentRequests returns how many requests of workflows are in progress at once if each takes its whole
// SLO. For other applications it returns 0.
func concurrentRequests(plan *formats.Plan) (n float64) {
	if !formats.FlowOf(plan).Workflow() {
		return 0
	}
	for _, a := range plan.ServedModels() {
		n += a.RPS * a.SLOUS.D().Seconds()
	}
	return n
}

// isGapReached returns whether the best plan is within the requested gap of the bound of all plans.
func (t *tuner) isGapReached() bool {
	return t.bestAttempt != nil && !math.IsNaN(t.planBound) && milp.RelativeGap(milp.Maximize, t.bestAttempt.sustainedRate(), t.planBound) <= t.p.Values.Number("gap")
}

// largestBatch returns the largest batch in the plans that were solved without halving the batches, from which the search halves; 1 if
// there are none.
func (t *tuner) largestBatch() int {
	largest := 1
	for _, tried := range t.attempts {
		if tried.setting.maxBatch == t.p.Values.WholeNumber("max-batch") {
			for _, d := range tried.result.Plan.Deployment {
				largest = lists.Max(largest, len(d.Pipelines), func(i int) int { return d.Pipelines[i].Batch })
			}
		}
	}
	return largest
}

// findSustainedLoad looks in short runs for the load that the plan of an attempt sustains, and stores it there: the largest multiple of
// its rates, at most 1 and the same for all applications, at which every application keeps its SLO. If the plan fails at the load at which
// it would equal the best attempt, the search ends there, and the load is 0.
func (t *tuner) findSustainedLoad(ctx context.Context, current *attempt) error {
	test, err := certify.NewTest(current.result.Plan, t.requested)
	if err != nil {
		return err
	}

	// All plans are simulated with the same random numbers, in half of the runs of a test.
	scenario := test.Scenario
	scenario.Budget = t.budgets.Search
	scenario.Seed = seeded.Seed(test.Settings.Seed, "headroom")
	search := sim.ModelLoadSearch{Shares: test.Shares, Runs: (test.Settings.Runs + 1) / 2, Step: certify.Step, MaxLoad: 1, SameLoad: true}
	applications := len(current.result.Plan.ServedModels())

	// Start just where the plan would equal the best one: the objective is the rate, so that is the ratio of the rates. Long answers
	// of language models are late long before the devices are full, so with these the search starts lower.
	switch {
	case t.bestAttempt != nil:
		minLoad := t.bestAttempt.sustainedRate() / current.result.Plan.Objective.Value
		search.MinLoads = slices.Repeat([]float64{minLoad}, applications)
	case asksLanguageModels(t.p.Workload):
		search.StartLoads = slices.Repeat([]float64{.6}, applications)
	}
	loads, err := sim.FindModelLoads(ctx, scenario, search)
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	t.simulatedWork += loads.Events
	current.sustainedLoad = slices.Min(loads.Loads)
	return nil
}

// confirmBest tests the load that the best plan sustained in short runs, lowers it until the test passes, and makes the plan promise its
// rates times that load, with the certificate of the test. If no load passes, it returns an error.
func (t *tuner) confirmBest(ctx context.Context) error {
	plan := t.bestAttempt.result.Plan
	test, err := certify.NewTest(plan, t.requested)
	if err != nil {
		return err
	}
	test.Scenario.Budget = t.budgets.Tests
	ones := slices.Repeat([]float64{1}, len(plan.ServedModels()))

	// Climb down from the load that short runs showed. If they showed none, halve from a small load.
	c := &certify.LoadClimb{MaxLoads: ones, SameLoad: true, MaxEvents: certifyBudget}
	load := t.bestAttempt.sustainedLoad
	if load < certify.Step {
		load, c.HalveUntilPass = 64*certify.Step, true
	}
	c.StartLoads = slices.Repeat([]float64{load}, len(ones))
	loads, simulated, err := c.Run(ctx, test)

	// If the test exceeds its budget, the plan promises the load that short runs showed, unconfirmed.
	if certify.OverBudget(err) && !c.HalveUntilPass {
		t.promiseLoad(t.bestAttempt.sustainedLoad)
		return certify.NoteUnconfirmed(plan, err)
	}
	if err != nil && !certify.OverBudget(err) {
		return err
	}
	if loads == nil {
		return &kind.InfeasibleError{Constraint: "slo", RefutedBySimulation: true, Reason: fmt.Sprintf(
			"simulation shows no rate at which every application keeps its SLO: the best plan misses it at %s of what its devices carry, too", kind.FormatPercent(certify.Step))}
	}
	t.promiseLoad(loads[0])
	test.StoreCertificate(1, simulated.Report)
	return test.StoreSlowdowns(ctx)
}

// promiseLoad lets the best plan promise its rates times load.
func (t *tuner) promiseLoad(load float64) {
	t.bestAttempt.sustainedLoad = 1
	scalePromise(t.bestAttempt.result.Plan, load)
}

// scalePromise multiplies, in place, the rates that a plan promises by a factor that simulation showed it to hold, and records as Fluid
// the value of the objective before: what the devices carry without queueing.
func scalePromise(plan *formats.Plan, factor float64) {
	fluid := plan.Objective.Value
	plan.Objective.Fluid = &fluid
	plan.Objective.Value *= factor
	for i := range formats.FlowOf(plan).Applications {
		formats.FlowOf(plan).Applications[i].RPS *= factor
	}
}

// searchCheapest looks for the cheapest plan that carries the requested rates and that a test confirms, and leaves it as t.bestAttempt.
// It starts from plans with the reserves of t.startsOfCheapest or, if none of these exists, with the least reserve. If there is none of
// that either, t.noPlanErr has the reason. A plan that runs
// stays if it passes the same test and is as cheap within the option gap.
func (t *tuner) searchCheapest(ctx context.Context) error {
	if err := t.testRunning(ctx); err != nil {
		return err
	}
	if err := t.searchCheaper(ctx); err != nil {
		return err
	}
	if t.running == nil {
		if t.bestAttempt != nil && t.bestAttempt.result.Plan.Replan != nil {
			t.bestAttempt.result.Plan.Replan.RunningValue = nil // what runs failed the test, or was not tested
		}
		return nil
	}
	value := t.running.result.Plan.Objective.Value
	if t.bestAttempt == nil || t.keepsRunning(value, t.bestAttempt.result.Plan.Objective.Value) {
		t.bestAttempt = t.running
	}
	t.bestAttempt.result.Plan.Replan.RunningValue = &value
	return nil
}

// testRunning tests the plan that runs at the requested rates. If it fails, or its simulation takes too long, it has no value.
func (t *tuner) testRunning(ctx context.Context) error {
	if t.running == nil || concurrentRequests(t.running.result.Plan) > maxConcurrentRequests {
		t.running = nil
		return nil
	}
	plan := t.running.result.Plan
	test, err := certify.NewTest(plan, t.requested)
	if err != nil {
		return err
	}
	test.Scenario.Budget = t.budgets.Tests
	simulated, missed, err := test.Confirm(ctx, slices.Repeat([]float64{1}, len(plan.ServedModels())))
	if err != nil && !certify.OverBudget(err) {
		return err
	}
	if err != nil || slices.Contains(missed, true) {
		t.running = nil
		return nil
	}
	t.running.sustainedLoad = 1
	test.StoreCertificate(1, simulated.Report)
	return test.StoreSlowdowns(ctx)
}

// searchCheaper looks for the cheapest plan as searchCheapest does, whatever runs.
func (t *tuner) searchCheaper(ctx context.Context) error {
	var starts []*attempt
	for _, r := range append(slices.Clone(t.startsOfCheapest), t.reserves[0]) {
		// The least reserve is for SLOs that no other one leaves room in.
		if r == t.reserves[0] && len(starts) > 0 {
			break
		}
		s := t.startSetting()
		s.reserve = r
		start, err := t.solveSetting(ctx, s)
		// Once there is a plan to start from, an interruption (of ctx) does not end the search.
		interrupted := ctx.Err() != nil
		if err != nil && (len(starts) == 0 || !interrupted) {
			return err
		}
		if start != nil {
			starts = append(starts, start)
		}
	}
	if len(starts) == 0 {
		return nil
	}

	// Plans of graphs of modules are the starts of one search for the number of devices. Plans of workflows keep their devices: each is
	// tested as it is.
	groups := [][]*attempt{starts}
	if formats.FlowOf(starts[0].result.Plan).Workflow() {
		groups = slices.Collect(slices.Chunk(starts, 1))
	}
	for _, group := range groups {
		if err := t.confirmCheapest(ctx, group...); err != nil {
			return err
		}
	}
	if t.bestAttempt == nil {
		t.noPlanErr = &kind.InfeasibleError{Constraint: "devices", RefutedBySimulation: true, Reason: fmt.Sprintf(
			"simulation shows no plan that attains %.4g at the rates of the applications: tried %s", t.minAttainment(), t.attemptSummary())}
	}
	return nil
}

// confirmCheapest makes the cheapest plan that the search by simulation finds from the plans of some starts, tests it, and takes it as
// t.bestAttempt if it passes and costs less than the best so far. If the test fails, the next search has to show a larger surplus, an
// attainment above the requested share. If the last test fails too, t.bestAttempt stays.
//
// The plan of a workflow is tested as it is, and once only. If its simulation would have too many requests at once, it is taken untested.
func (t *tuner) confirmCheapest(ctx context.Context, starts ...*attempt) error {
	current := starts[0] // gets the plan that the search finds from all starts
	t.attempts = append(t.attempts, starts...)
	surplus := 0.0
	sizing, err := t.newSizing(ctx, starts)
	if err != nil {
		return err
	}
	for range maxSurplusTries {
		plan, err := current.result.Plan, error(nil)
		if concurrentRequests(plan) > maxConcurrentRequests {
			t.bestAttempt = current
			return nil
		}

		// Choose the number of devices by simulation.
		if !formats.FlowOf(plan).Workflow() {
			if plan, err = sizing.CheapestPlan(surplus); certify.OverBudget(err) {
				return t.takeUnconfirmed(current, err)
			}
			if err != nil || plan == nil {
				return err
			}
		}

		// Test the rates.
		test, err := certify.NewTest(plan, t.requested)
		if err != nil {
			return err
		}
		test.Scenario.Budget = t.budgets.Tests
		simulated, missed, err := test.Confirm(ctx, slices.Repeat([]float64{1}, len(plan.ServedModels())))
		if certify.OverBudget(err) {
			current.result.Plan = plan
			return t.takeUnconfirmed(current, err)
		}
		if err != nil {
			return err
		}
		if !slices.Contains(missed, true) {
			current.result.Plan, current.sustainedLoad = plan, 1
			if t.bestAttempt == nil || plan.Objective.Value < t.bestAttempt.result.Plan.Objective.Value {
				t.bestAttempt = current
				test.StoreCertificate(1, simulated.Report)
				return test.StoreSlowdowns(ctx)
			}
			return nil
		}
		if formats.FlowOf(plan).Workflow() {
			return nil
		}
		// No application can attain more than 1.
		maxSurplus := 1 - slices.Max(test.Shares)
		surplus = min(max(2*surplus, firstSurplus), maxSurplus)
	}
	return nil
}

// takeUnconfirmed takes a plan that no test confirms, because its simulation exceeds the budget, as the best
// attempt, if there is none yet. A note in the plan says why.
func (t *tuner) takeUnconfirmed(current *attempt, err error) error {
	if t.bestAttempt != nil {
		return nil
	}
	t.bestAttempt = current
	return certify.NoteUnconfirmed(current.result.Plan, err)
}

// newSizing returns the search for the cheapest plan that starts from the plans of some attempts, whose surplus (by how much it attains
// more than the applications require) simulation shows. If the plans are of workflows, it returns nil.
func (t *tuner) newSizing(ctx context.Context, starts []*attempt) (*graph.Sizing, error) {
	if formats.FlowOf(starts[0].result.Plan).Workflow() {
		return nil, nil
	}
	plans := lists.Map(len(starts), func(i int) *formats.Plan { return starts[i].result.Plan })

	// A hint is a first look at a plan, in one run.
	return graph.NewSizing(t.p, plans, true, func(plan *formats.Plan, hint bool) (float64, error) {
		shortened := t.requested
		if hint {
			shortened.Runs = 1
		}
		return t.attainmentSurplus(ctx, plan, shortened)
	})
}

// attainmentSurplus simulates a plan at its rates and returns by how much the share of requests in time exceeds the share that an
// application has to attain, for the application where that is least. It is negative if one attains too little.
func (t *tuner) attainmentSurplus(ctx context.Context, plan *formats.Plan, requested kind.TestSettings) (float64, error) {
	test, err := certify.NewTest(plan, requested)
	if err != nil {
		return 0, err
	}
	test.Scenario.Seed, test.Scenario.Budget = seeded.Seed(test.Settings.Seed, "headroom"), t.budgets.Search
	result, err := sim.Replicate(ctx, test.Scenario, test.Settings.Runs)
	if err != nil {
		return 0, fmt.Errorf("simulating a plan: %w", err)
	}
	return lists.Min(1.0, len(result.Report.Models), func(i int) float64 { return result.Report.Models[i].Attainment - test.Shares[i] }), nil
}

// writeBound writes the bound of all plans, and the status of the search that follows from it, into the finished plan. A plan whose full
// rates no test confirms (a certificate for a load of at least 1) keeps the bound of its solve. But if a language model has to finish its
// sequences (drain) before its device runs another model, the value of such a plan is too high, and it has neither a bound nor a gap.
func (t *tuner) writeBound(result *kind.Result) {
	plan := result.Plan
	confirmed := plan.Certificate != nil && plan.Certificate.LoadFactor >= 1
	if !confirmed && workflow.DrainsLanguageModel(plan.Deployment, formats.FlowOf(plan).Modules) {
		// Without a bound, the plan must not say that the search ended with a proof or a gap.
		plan.Objective.Bound, plan.Objective.Gap, plan.Objective.BoundAmong = nil, nil, ""
		plan.StoppedBy = string(milp.StoppedByWork)
		result.StoppedBy, result.Status = plan.StoppedBy, kind.StatusOf(milp.StoppedByWork)
	}
	// This changes confirmed plans only.
	certify.StateValue(result, kind.SenseOf(plan.Objective.Name), t.planBound, t.boundScope, t.p.Values.Number("gap"))
}

// maxReported is the number of attempts that the plan's assumptions list.
const maxReported = 3

// attemptSummary returns a text, for the plan's assumptions, with the margin that was chosen, and at most maxReported of the settings
// that were tried, with what their plans sustained: the chosen one, and those that sustain the most.
func (t *tuner) attemptSummary() string {
	var parts []string
	reported := slices.Clone(t.attempts)
	rank := func(a *attempt) float64 {
		if a == t.bestAttempt {
			return math.Inf(1)
		}
		return a.trialRate // NaN, if it was not tried, is below all numbers
	}
	slices.SortStableFunc(reported, func(first, second *attempt) int { return cmp.Compare(rank(second), rank(first)) })
	for _, tried := range reported[:min(len(reported), maxReported)] {
		text := tried.setting.reserve.String()
		if tried.setting.maxBatch != t.p.Values.WholeNumber("max-batch") {
			text += fmt.Sprintf(" with batches up to %d", tried.setting.maxBatch)
		}
		if tried.setting.dedicatedDevices != "" {
			text += " and " + tried.setting.dedicatedDevices
		}
		switch {
		case tried.result.Plan.Objective.Name != "throughput":
		case math.IsNaN(tried.trialRate):
		case tried.trialRate > 0:
			text += fmt.Sprintf(" sustains %.6g", tried.trialRate)
		default:
			text += " sustains less"
		}
		parts = append(parts, text)
	}
	if t.bestAttempt == nil {
		return strings.Join(parts, ", ")
	}
	text := fmt.Sprintf("%s chosen by simulation", t.bestAttempt.setting.reserve)
	if t.bestAttempt == t.running {
		text = fmt.Sprintf("the plan that runs is kept, with %s", t.bestAttempt.setting.reserve)
	}
	if len(parts) > 0 {
		text += " (short runs): " + strings.Join(parts, ", ")
	}
	switch others := len(t.attempts) - len(parts); {
	case others == 1:
		text += "; another one is not better"
	case others > 1:
		text += fmt.Sprintf("; %d others are not better", others)
	}
	return text
}
