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
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/milp"
)

// The search tries these margins, in shares of the SLO, with the largest batch and its halves.
var marginGrid = []float64{0, .05, .1, .2, .3, .4, .5}

const (
	startMargin   = 1         // index in marginGrid at which the search starts
	trialBudget   = 1_500_000 // events of the simulator. The search starts no further trial once it has simulated so many.
	certifyBudget = 3_000_000 // events of the simulator for the search for the load that passes the test
	leastTrials   = 4
	floorTries    = 4     // searches for a plan whose rates the test confirms
	floorStep     = 0.001 // added to the attainment that a plan must show, in each next search
)

// tuneSetting is a choice of the options that the search varies.
type setting struct {
	margin    float64 // share of the SLO
	batch     int     // the largest batch size
	dedicated string  // devices for groups of models alone, as the option dedicated has them
}

// attempt is a plan for one setting, with what simulation showed of it.
type attempt struct {
	setting
	res   *kind.Result
	load  float64 // the load that all applications sustained, as a factor on the planned rates. If it is 0, none was sustained.
	trial float64 // the sustainedRate that short runs showed. If there were none, it is NaN.
}

// sustainedRate returns the value of the objective that the plan sustains.
func (t *attempt) rate() float64 { return t.load * t.res.Plan.Objective.Value }

// tuner is a search by simulation for margin, largest batch and dedicated devices, or for the number of
// devices.
type tuning struct {
	p      *kind.Problem
	asked  kind.Asked // parameters of the simulations: attainment, seed, runs
	solve  kind.Solver
	all    []*attempt
	best   *attempt
	closed bool    // the best attempt cannot be tested: its simulation would take too long
	work   int64   // events of all trials
	wall   float64 // milliseconds of all solves
	bound  float64 // bound of the objective, over all plans. If it is not known, it is NaN.
	among  string  // names the plans that the bound holds for. If it is empty, it holds for all.
	first  error   // why the first setting without a plan has none
	bounds certify.Budgets
}

// tune chooses the margin and the largest batch by the rate that a plan sustains in simulation.
//
// For throughput it looks for the highest rate, which a sequential test confirms and the plan then
// promises. For other objectives, devices and batch sizes change until the plan attains enough at its rates
// (see SizeBySimulation), and the cheapest plan that a test confirms is taken. All runs that compare plans
// have the same random numbers. Those that test have others.
func tune(ctx context.Context, p *kind.Problem, asked kind.Asked, solve kind.Solver) (*kind.Result, error) {
	t := &tuning{p: p, asked: asked, solve: solve, bound: math.NaN(), bounds: certify.NewBudgets(asked, 1)}
	search := t.fastest
	if p.Values.Word("objective") != "throughput" {
		search = t.cheapest
	}
	if err := search(ctx); err != nil && (t.best == nil || ctx.Err() == nil) {
		return nil, err
	}
	if t.best == nil {
		return nil, t.first
	}

	// Write bound, status and what was tried into the best plan.
	res := t.best.res
	t.state(res)
	if ctx.Err() != nil {
		res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.Status(milp.StoppedByInterrupt)
		res.Plan.StoppedBy = res.StoppedBy
	}
	res.WallMS = t.wall
	res.Plan.Assumptions = append(res.Plan.Assumptions, t.tried())
	return res, nil
}

// solveSetting solves with one setting. If there is no plan, it returns nil. The first solve also brings
// the bound of all plans.
func (t *tuning) plan(ctx context.Context, s setting) (*attempt, error) {
	q := *t.p

	// Solve a copy of the problem. As long as no bound is known, the method is asked for one at this
	// attainment.
	if math.IsNaN(t.bound) {
		q.Attained = t.leastShare()
	}
	for name, value := range map[string]any{"margin": s.margin, "max-batch": s.batch, "dedicated": s.dedicated} {
		if err := q.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	res, err := t.solve(ctx, &q, t.p.Progress)
	if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
		if t.first == nil {
			t.first = err
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	// The bound is the lower of the method's and of what the front end can admit.
	if o := &res.Plan.Objective; q.Attained > 0 && o.Bound != nil {
		t.bound, t.among = *o.Bound, o.BoundAmong
		if most := res.Plan.FrontEndBound() / q.Attained; o.Name == "throughput" && most < t.bound {
			t.bound = most
		}
	}
	t.wall += res.WallMS
	t.work += certify.WorkOf(res)
	return &attempt{setting: s, res: res}, nil
}

// minAttainment returns the least share of requests in time that some application has to attain.
func (t *tuning) leastShare() float64 {
	least := 1.0
	for _, a := range formats.ApplicationsOf(t.p.Workload) {
		least = min(least, cmp.Or(t.asked.Attainment, document.ShareAt(a.Percentile)))
	}
	return least
}

// startSetting returns the setting at which a search begins. If simulation is to choose the dedicated
// devices, there are none at first.
func (t *tuning) start() setting {
	s := setting{margin: marginGrid[startMargin], batch: t.p.Values.Whole("max-batch"), dedicated: t.p.Values.Word("dedicated")}
	if s.dedicated == simulated {
		s.dedicated = ""
	}
	return s
}

// searchThroughput looks for the plan that sustains the highest rate.
func (t *tuning) fastest(ctx context.Context) error {
	grid, at := certify.Grid{Costs: []int{1, 1}}, []int{0, startMargin} // halvings of the largest batch, index of the margin
	first, n := t.start(), 0

	// Choose the dedicated devices first, if simulation is to choose them. The plan for the start of the
	// grid exists then.
	if err := t.divide(ctx, first); err != nil {
		return err
	}
	if t.best != nil {
		first = t.best.setting
		grid.Try(at)
		n++
	}

	// From the best position of the grid, try the nearest one that was not tried, until nothing is left to
	// try or the budget is spent.
	for ; !t.closed && (n < leastTrials || t.work < trialBudget); n++ {
		next, ok := at, n == 0
		if n > 0 {
			next, ok = grid.Nearest(at, []int{certify.Halvings(t.largestBatch()), len(marginGrid)})
		}
		if !ok || ctx.Err() != nil || t.reached() {
			break
		}
		grid.Try(next)
		s := first
		if s.margin = marginGrid[next[1]]; next[0] > 0 {
			s.batch = t.largestBatch() >> next[0]
		}
		one, err := t.plan(ctx, s)
		if err != nil {
			return err
		}
		if one == nil {
			continue
		}
		goes, err := t.consider(ctx, one)
		if err != nil {
			return err
		}
		if !goes {
			break
		}
		if t.best == one {
			at = next
		}
	}

	// Test the best plan, unless it cannot be simulated.
	if t.best == nil || t.closed {
		return nil
	}
	return t.confirm(ctx)
}

// consider simulates a plan and takes it as the best attempt if it sustains more than the best so far.
// proceed is false if the search should end.
func (t *tuning) consider(ctx context.Context, one *attempt) (goes bool, err error) {
	// Workflows with too many requests at once would take too long to simulate: take the plan untested.
	if n := crowd(one.res.Plan); n > mostCrowd {
		one.trial = math.NaN()
		t.best, t.all, t.closed = one, append(t.all, one), true
		one.res.Plan.Assumptions = append(one.res.Plan.Assumptions, fmt.Sprintf("rates are not tested by simulation: about %.3g requests would be under way at once, and their schedule is made anew for every one", n))
		return false, nil
	}

	// A plan that was simulated already sustains the same. If a simulation exceeds its budget, the plan is
	// not confirmed.
	if same := slices.IndexFunc(t.all, func(o *attempt) bool { return certify.Equal(o.res.Plan, one.res.Plan) }); same >= 0 {
		one.load = t.all[same].load
	} else if err := t.sustain(ctx, one); certify.OverBudget(err) {
		if t.best != nil {
			return false, nil
		}
		one.trial = math.NaN()
		t.all, t.closed = append(t.all, one), true
		return false, t.unconfirmed(one, err)
	} else if err != nil {
		if t.best == nil && ctx.Err() != nil { // better an uncertified plan than none
			t.best = one
		}
		return false, err
	}
	one.trial = one.rate()
	t.all = append(t.all, one)
	if t.best == nil || one.rate() > t.best.rate() {
		t.best = one
	}
	return true, nil
}

// maxConcurrentRequests is how many requests of workflows may be in progress at once in a simulation. The
// policy visits all of them at every arrival.
const mostCrowd = 5000

// concurrentRequests returns how many requests of workflows are in progress at once if each takes its whole
// SLO. For other applications it returns 0.
func crowd(plan *formats.Plan) (n float64) {
	if !formats.FlowOf(plan).Workflow() {
		return 0
	}
	for _, a := range plan.Served() {
		n += a.RPS * a.SLOUS.D().Seconds()
	}
	return n
}

// isGapReached returns whether the best plan is within the requested gap of the bound of all plans.
func (t *tuning) reached() bool {
	return t.best != nil && !math.IsNaN(t.bound) && milp.RelativeGap(milp.Maximize, t.best.rate(), t.bound) <= t.p.Values.Number("gap")
}

// largestBatch returns the largest batch of the plans that were solved without halving the batches.
func (t *tuning) largestBatch() int {
	largest := 1
	for _, one := range t.all {
		if one.batch == t.p.Values.Whole("max-batch") {
			for _, d := range one.res.Plan.Deployment {
				for _, l := range d.Pipelines {
					largest = max(largest, l.Batch)
				}
			}
		}
	}
	return largest
}

// findSustainedLoad looks in short runs for the load that a plan sustains.
func (t *tuning) sustain(ctx context.Context, one *attempt) error {
	test, err := certify.New(one.res.Plan, t.asked)
	if err != nil {
		return err
	}
	sc := test.Scenario
	sc.Budget = t.bounds.Search
	sc.Seed = seeded.Seed(test.Asked.Seed, "headroom")
	search := sim.OwnSearch{Shares: test.Shares, Runs: (test.Asked.Runs + 1) / 2, Step: certify.Step, Most: 1, Together: true}
	applications := len(one.res.Plan.Served())

	// Start just where the plan would beat the best one. Long answers of language models are late long
	// before the devices are full, so with these the search starts lower.
	switch {
	case t.best != nil:
		search.Least = slices.Repeat([]float64{t.best.rate() / one.res.Plan.Objective.Value}, applications)
	case asksLanguageModels(t.p.Workload):
		search.From = slices.Repeat([]float64{.6}, applications)
	}
	found, err := sim.FindOwnLoads(ctx, sc, search)
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	t.work += found.Events
	one.load = slices.Min(found.Loads)
	return nil
}

// confirmBest tests the load that the best plan sustained in short runs, lowers it until the test passes,
// and lets the plan promise it.
func (t *tuning) confirm(ctx context.Context) error {
	plan := t.best.res.Plan
	test, err := certify.New(plan, t.asked)
	if err != nil {
		return err
	}
	test.Scenario.Budget = t.bounds.Tests
	ones := slices.Repeat([]float64{1}, len(plan.Served()))

	// Climb down from the load that short runs showed. If they showed none, halve from a small load.
	c := &certify.Climb{Carried: ones, Together: true, Work: certifyBudget}
	load := t.best.load
	if load < certify.Step {
		load, c.Halve = 64*certify.Step, true
	}
	c.From = slices.Repeat([]float64{load}, len(ones))
	loads, shown, err := c.Run(ctx, test)

	// If the test exceeds its budget, the plan promises the load that short runs showed, unconfirmed.
	if certify.OverBudget(err) && !c.Halve {
		t.lower(t.best.load)
		return certify.Unconfirmed(plan, err)
	}
	if err != nil && !certify.OverBudget(err) {
		return err
	}
	if loads == nil {
		return &kind.InfeasibleError{Constraint: "slo", Simulated: true, Reason: fmt.Sprintf(
			"simulation shows no rate at which every application keeps its SLO: the best plan misses it at %s of what its devices carry, too", kind.Percent(certify.Step))}
	}
	t.lower(loads[0])
	test.Store(1, shown.Report)
	return test.Strain(ctx)
}

// promiseLoad lets the best plan promise its rates times load.
func (t *tuning) lower(load float64) {
	t.best.load = 1
	promise(t.best.res.Plan, load)
}

// scalePromise multiplies the promised rates of a plan by a factor, and records the rate without queueing.
func promise(plan *formats.Plan, part float64) {
	fluid := plan.Objective.Value
	plan.Objective.Fluid = &fluid
	plan.Objective.Value *= part
	for i := range formats.FlowOf(plan).Applications {
		formats.FlowOf(plan).Applications[i].RPS *= part
	}
}

// searchCheapest looks for the cheapest plan that carries the requested rates.
func (t *tuning) cheapest(ctx context.Context) error {
	var starts []*attempt
	for _, margin := range []float64{.1, .2, .3} {
		s := t.start()
		s.margin = margin
		one, err := t.plan(ctx, s)
		if err != nil && (len(starts) == 0 || ctx.Err() == nil) {
			return err
		}
		if one != nil {
			starts = append(starts, one)
		}
	}
	if len(starts) == 0 {
		return nil
	}

	// One search for the number of devices starts from all plans. The devices of workflows follow from the
	// plan, so each is tested as it is.
	if !formats.FlowOf(starts[0].res.Plan).Workflow() {
		return t.keep(ctx, starts...)
	}
	for _, one := range starts {
		if err := t.keep(ctx, one); err != nil {
			return err
		}
	}
	if t.best == nil {
		t.first = &kind.InfeasibleError{Constraint: "devices", Simulated: true, Reason: fmt.Sprintf(
			"simulation shows no plan that attains %.4g at the rates of the applications: tried %s", t.leastShare(), t.tried())}
	}
	return nil
}

// confirmCheapest makes the cheapest plan that the search by simulation finds from some attempts, tests it,
// and keeps it if it passes and is the best so far. If the test fails, the next search has to show a larger
// surplus.
func (t *tuning) keep(ctx context.Context, list ...*attempt) error {
	one := list[0]
	t.all = append(t.all, list...)
	surplus := 0.0
	for range floorTries {
		plan, err := one.res.Plan, error(nil)
		if n := crowd(plan); n > mostCrowd {
			t.best = one
			return nil
		}

		// Choose the number of devices by simulation.
		if !formats.FlowOf(plan).Workflow() {
			if plan, err = t.sized(ctx, list, surplus); certify.OverBudget(err) {
				return t.unconfirmed(one, err)
			}
			if err != nil || plan == nil {
				return err
			}
		}

		// Test the rates.
		test, err := certify.New(plan, t.asked)
		if err != nil {
			return err
		}
		test.Scenario.Budget = t.bounds.Tests
		shown, short, err := test.Confirm(ctx, slices.Repeat([]float64{1}, len(plan.Served())))
		if certify.OverBudget(err) {
			one.res.Plan = plan
			return t.unconfirmed(one, err)
		}
		if err != nil {
			return err
		}
		if !slices.Contains(short, true) {
			one.res.Plan, one.load = plan, 1
			if t.best == nil || plan.Objective.Value < t.best.res.Plan.Objective.Value {
				t.best = one
				test.Store(1, shown.Report)
				return test.Strain(ctx)
			}
			return nil
		}
		if formats.FlowOf(plan).Workflow() {
			return nil
		}
		surplus = min(surplus+floorStep, 1-slices.Max(test.Shares))
	}
	return nil
}

// takeUnconfirmed takes a plan that no test confirms, with a note that says why, if there is no best
// attempt yet.
func (t *tuning) unconfirmed(one *attempt, err error) error {
	if t.best != nil {
		return nil
	}
	t.best = one
	return certify.Unconfirmed(one.res.Plan, err)
}

// sizePlans returns the cheapest plan that SizeBySimulation finds from some attempts. The plan attains at
// least surplus more than the applications' shares.
func (t *tuning) sized(ctx context.Context, list []*attempt, least float64) (*formats.Plan, error) {
	var plans []*formats.Plan
	for _, one := range list {
		plans = append(plans, one.res.Plan)
	}
	return Sized(t.p, plans, true, least, func(plan *formats.Plan, hint bool) (float64, error) {
		few := t.asked
		if hint {
			few.Runs = 1
		}
		return t.surplusOf(ctx, plan, few)
	})
}

// attainmentSurplus returns the least amount, over all applications, by which the attainment at the planned
// rates exceeds the share that the application has to attain.
func (t *tuning) surplusOf(ctx context.Context, plan *formats.Plan, asked kind.Asked) (float64, error) {
	test, err := certify.New(plan, asked)
	if err != nil {
		return 0, err
	}
	test.Scenario.Seed, test.Scenario.Budget = seeded.Seed(test.Asked.Seed, "headroom"), t.bounds.Search
	res, err := sim.Replicate(ctx, test.Scenario, test.Asked.Runs)
	if err != nil {
		return 0, fmt.Errorf("simulating a plan: %w", err)
	}
	least := 1.0
	for i := range res.Report.Models {
		least = min(least, res.Report.Models[i].Attainment-test.Shares[i])
	}
	return least, nil
}

// writeBound writes the bound and status of the search into the plan, see certify.State. If language models
// drain and no test confirms the rates, the plan has neither a bound nor a gap.
func (t *tuning) state(res *kind.Result) {
	plan := res.Plan
	if c := plan.Certified; (c == nil || c.LoadFactor < 1) && drains(plan.Deployment, formats.FlowOf(plan).Modules) {
		plan.Objective.Bound, plan.Objective.Gap, plan.Objective.BoundAmong = nil, nil, ""
		plan.StoppedBy = string(milp.StoppedByWork)
		res.StoppedBy, res.Status = plan.StoppedBy, kind.Status(milp.StoppedByWork)
	}
	sense := milp.Minimize
	if res.Plan.Objective.Name == "throughput" {
		sense = milp.Maximize
	}
	certify.State(res, sense, t.bound, t.among, t.p.Values.Number("gap"))
}

// attemptSummary returns a text that lists the attempts and what each of them sustained.
func (t *tuning) tried() string {
	var parts []string
	for _, one := range t.all {
		text := fmt.Sprintf("margin %.2g", one.margin)
		if one.batch != t.p.Values.Whole("max-batch") {
			text += fmt.Sprintf(" with batches up to %d", one.batch)
		}
		if one.dedicated != "" {
			text += " and " + one.dedicated
		}
		switch {
		case one.res.Plan.Objective.Name != "throughput":
		case math.IsNaN(one.trial):
		case one.trial > 0:
			text += fmt.Sprintf(" sustains %.6g", one.trial)
		default:
			text += " sustains less"
		}
		parts = append(parts, text)
	}
	if t.best == nil {
		return strings.Join(parts, ", ")
	}
	return fmt.Sprintf("margin %.2g chosen by simulation (short runs): %s", t.best.margin, strings.Join(parts, ", "))
}
