package headroom

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
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/solver/milp"
	"inferplan/solver/queueing"
)

// The search tries these margins, in combination with largest batches and numbers of stages. PPipe fixes the
// margin at 0.4 (0.1 in its ablation).
var (
	marginGrid  = []float64{0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6}
	startMargin = 0.2
)

const (
	trialBudget      = 2_500_000 // work of the trials at --effort 1, about 2 s of CPU; see certify.SolveWork
	certifyBudget    = 3_000_000 // work of certifying at --effort 1, about as much
	minTrials        = 4         // trials that are made in any case
	maxTrials        = 24        // most trials of neighbours whose plan no earlier trial had, however little work they are
	maxReported      = 3         // attempts that the plan's assumptions list
	maxRebalances    = 2         // plans made for what the models sustained
	trialGap         = 0.03      // gap at which the search for the plan of a setting stops
	minRateGain      = 0.005     // relative gain in sustained rate for which the search goes on
	reachShare       = 0.97      // part of the best rate that a plan must sustain to be looked at further
	uniformTolerance = 0.02      // part below the best rate up to which long runs also test the best plan with one margin for all
	shortRunDivisor  = 3         // short runs have the full length divided by this
	minUtilisation   = 0.3       // least part of what replicas carry that a plan uses
)

// pipelineShape limits the pipelines that a plan may use.
type pipelineShape struct {
	maxBatch   int     // largest batch; 0 is the largest measured one
	maxStages  int     // most stages
	fillFactor float64 // factor on the delay of filling a batch that the SLO must leave
	fullGap    bool    // whether plans are solved to the gap asked for, not only to trialGap
}

// planSetting is the shape of a plan's pipelines and what the plan keeps back of every model.
type planSetting struct {
	shape    pipelineShape
	headroom []formats.Headroom
}

// equal reports whether two settings are the same.
func (s planSetting) equal(o planSetting) bool {
	return s.shape == o.shape && slices.Equal(s.headroom, o.headroom)
}

// planAttempt is the plan of a setting with what simulation showed of it.
type planAttempt struct {
	setting       planSetting
	result        *kind.Result
	loads         []float64 // by model: load that it sustained, as a part of what is promised
	sustainedRate float64   // rps per weight, the least over the models
	shortRunRate  float64   // sustainedRate as short runs showed it
	// balancedRate estimates what a plan may sustain that distributes its devices as these loads need them.
	balancedRate float64
	// outOfReach says that it sustained far less than the best attempt at that time, and is not looked at
	// further.
	outOfReach   bool
	isRepeat     bool // an earlier attempt has the same plan
	longRunsDone bool // long runs tested it
	// meetsFloors says that every model's sustained rate is at least its floor.
	meetsFloors bool
}

// planTuner is a search for the setting whose plan sustains most.
type planTuner struct {
	problem          *kind.Problem
	models           formats.WorkloadModels
	certifyRequest   kind.TestSettings
	solve            kind.SolveFunc
	bestAttempt      *planAttempt
	confirmedBest    *planAttempt // best of those that long runs tested
	bestShortRunRate float64      // sustained rate of the best attempt, in short runs, when certifying begins
	attempts         []*planAttempt
	sketches         []*planAttempt // plans that were solved and not simulated
	fillRates        []float64      // by model: requests per second at which batches fill; nil if not known
	workDone         int64          // of all trials
	workBudget       int64          // limit of workDone before certifying begins, and then of all
	runBudgets       certify.Budgets
	overBudgetErr    error // why the search simulates no more; nil if it does
	wallMS           float64
	noMarginErr      error   // why there is no plan without any margin
	infeasibleErr    error   // why the first setting without a plan has none
	planBound        float64 // of every plan that keeps its SLOs; NaN if not known
	fluidBound       float64 // the same by the fluid program alone, without the queueing of random arrivals
}

// Tune chooses, by simulation, the setting that a plan is made with: how much of every model's SLO, and of what
// its replicas carry, is kept back, the largest batch, and the number of stages. For each setting it plans,
// simulates the plan on the workload's arrivals, and finds the load that every model sustains beside the others.
// All runs that compare plans use the same random numbers.
//
//  1. A solve without any margin, and without queueing (the fluid program), gives the bound of all plans that
//     keep their SLOs.
//  2. All models have the same margin at first. Then each has the margin with which a request of it takes the
//     least price of devices, if a formula of queueing is right about what they sustain.
//  3. The search goes on to the nearest setting to the best one that was not tried, until its work is done.
//  4. Each model promises what it sustained, so that the next plan gives devices to the models that need
//     them. That plan is solved to the gap asked for.
//  5. Long runs with other random numbers certify the best plan, which promises what they show. If that is less
//     than short runs showed, other plans that showed more in short runs are certified, too.
//
// If a plan runs, the search starts from what that plan keeps back. If the objective is minimised, the best plan
// is the cheapest one that sustains the floors. When ctx ends, the best plan so far is returned.
func Tune(ctx context.Context, p *kind.Problem, request kind.TestSettings, solve kind.SolveFunc) (*kind.Result, error) {
	// A workload without models cannot be planned. Any solve returns the error that says so; it needs a margin in numbers.
	if len(formats.ModelsOf(p.Workload)) == 0 {
		marginProblem := *p
		if err := marginProblem.Values.Set("margin", startMargin); err != nil {
			return nil, err
		}
		return solve(ctx, &marginProblem, p.Progress)
	}
	effort := p.Values.WholeNumber("effort")
	tuner := &planTuner{
		problem: p, models: formats.ModelsOf(p.Workload), certifyRequest: request, solve: solve,
		workBudget: trialBudget * int64(effort), runBudgets: certify.NewBudgets(request, effort), planBound: math.NaN(),
	}

	// Run the steps. An interruption ends them, and keeps the best plan so far.
	for _, step := range []func(context.Context, *planTuner) error{solveFluidBound, tryFirstSetting, tryMixedMargins, tryNeighbours, rebalance, solveToGap} {
		if err := step(ctx, tuner); err != nil && (tuner.bestAttempt == nil || ctx.Err() == nil) {
			return nil, err
		}
		if ctx.Err() != nil && tuner.bestAttempt != nil {
			break
		}
	}
	if tuner.bestAttempt == nil {
		// The reason: there is no plan even without a margin, or the search was interrupted, or no setting had a plan.
		return nil, cmp.Or(tuner.noMarginErr, ctx.Err(), tuner.infeasibleErr)
	}

	// Certify the best plan, and write down what was tried. If its SLOs leave time for batches to fill that the options did
	// not ask for, it states the rates that this time is computed from.
	if err := tuner.certifyPlans(ctx); err != nil && ctx.Err() == nil {
		return nil, err
	}
	summary, res := describeAttempts(tuner), tuner.bestAttempt.result
	tuner.writeBounds(res)
	if ctx.Err() != nil {
		res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.StatusOf(milp.StoppedByInterrupt)
		res.Plan.StoppedBy = res.StoppedBy
	}
	res.WallMS = tuner.wallMS
	if tuner.bestAttempt.setting.shape.fillFactor != widestShape(tuner).fillFactor {
		for i := range tuner.models {
			res.Plan.Assumptions = append(res.Plan.Assumptions, fmt.Sprintf("batches of %s fill at %.6g requests per second, which the first plan sustained", tuner.models[i].Model, tuner.fillRates[i]))
		}
	}
	res.Plan.Assumptions = append(res.Plan.Assumptions, summary)
	return res, nil
}

// solveFluidBound solves the problem without any margin and without queueing (the fluid program), for the bound of
// all plans that keep their SLOs. In this program shares of a device may go to different models whatever the
// rounding, so its bound holds for both roundings. A share of 1 - attainment of the requests may be late or dropped.
// So plans may be offered the program's bound divided by the attainment, which is fluidBound, and need carry only the
// floors (least rates) times the attainment. If arrivals are random, less than fluidBound can be offered
// (randomBound). The lower of the two is planBound, to which the search compares its plans.
func solveFluidBound(ctx context.Context, tuner *planTuner) error {
	attainment := lists.Min(1.0, len(tuner.models), func(i int) float64 {
		return cmp.Or(tuner.certifyRequest.Attainment, document.ShareAt(tuner.models[i].Percentile))
	})
	problem, err := fluidProblem(tuner, attainment)
	if err != nil {
		return err
	}

	// Solve the problem. If it has no plan, margins, which only take from the SLOs, leave none either: noMarginErr makes the
	// other steps end.
	res, err := tuner.solve(ctx, problem, func(update kind.Progress) { tuner.reportProgress("bound", update, 0) })
	if infeasible, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		tuner.noMarginErr = infeasible
		return nil
	}
	if err != nil {
		return err
	}

	// A bound on a price holds as it is. A bound on a rate is also limited by the front end, the process that takes in all
	// requests, and counts all requests that are offered, also the share that may be late.
	tuner.wallMS += res.WallMS
	tuner.workDone += certify.SolveWork(res)
	bound := res.Plan.Objective.Bound
	switch {
	case bound == nil:
	case tuner.maximises():
		tuner.fluidBound = min(*bound, res.Plan.FrontEndBound()) / attainment
		tuner.planBound = min(tuner.fluidBound, randomBound(tuner, res.Plan, attainment))
	default:
		tuner.fluidBound, tuner.planBound = *bound, *bound
	}
	return nil
}

// fluidProblem returns the problem whose optimum bounds all plans, because it leaves out queueing: it has no margin, no delay
// of filling batches, and devices in fractions. attainment is the smallest share of requests, of any model, that must be
// in time. Floors (least rates) are multiplied by it, because plans need carry no more than those requests.
func fluidProblem(tuner *planTuner, attainment float64) (*kind.Problem, error) {
	problem, err := tuner.problemWith(tuner.uniformSetting(0, widestShape(tuner)))
	if err != nil {
		return nil, err
	}
	problem.BoundAttainment = attainment
	values := map[string]any{"gpu-rounding": "fractional", "batch-build": 0.0}
	if !tuner.maximises() {
		values["min-load"] = 0.0
		models := formats.ModelsOf(problem.Workload)
		for i := range models {
			models[i].MinRPS = attainment * tuner.floorRate(i)
		}
	}
	for name, value := range values {
		if err := problem.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	return problem, nil
}

// leastMissed is the share of requests that may be late from which on randomBound counts: the runs of a test do
// not show rarer ones.
const leastMissed = 5e-4

// randomBound returns the rate per weight above which no plan of one model can be offered random arrivals, given
// what the fluid program carries. If several models are deployed, arrivals are no Poisson process, or hardly a
// request may be late, it returns +Inf.
//
// A plan carries at most the rate c of the fluid program, so at most c·T requests run in any time T, whatever
// the batches. Requests that arrive within a time t and are answered in time run within t + SLO, so at most c·(t
// + SLO) of them are. Of all ways to choose requests under that limit, taking each one that still fits takes the
// most. That is a server of speed c that turns a request away if it has work for more than c·SLO - 1 requests.
func randomBound(tuner *planTuner, plan *formats.Plan, attainment float64) float64 {
	arrivals := tuner.problem.Workload.Arrivals
	random := arrivals == nil || arrivals.Trace == "" && (arrivals.Process == "" || arrivals.Process == "poisson")
	if !random || len(plan.Deployment) != 1 || 1-attainment < leastMissed {
		return math.Inf(1)
	}
	promised := plan.PromiseFor(0)
	carriedRPS := *plan.Objective.Bound * promised.Weight
	places := max(0, carriedRPS*promised.SLOUS.D().Seconds()-1)
	return carriedRPS * queueing.MaxLoad(places, 1-attainment) / promised.Weight
}

// reachedGap reports whether the value of the best plan, as simulation showed it, is so near to the bound of all plans
// that the search may end: within the relative gap asked for. If there is no plan or the bound is unknown, it returns
// false.
func reachedGap(tuner *planTuner) bool {
	gap := tuner.problem.Values.Number("gap")
	if tuner.bestAttempt == nil || math.IsNaN(tuner.planBound) {
		return false
	}
	if tuner.maximises() {
		return tuner.bestAttempt.sustainedRate <= tuner.planBound && milp.RelativeGap(milp.Maximize, tuner.bestAttempt.sustainedRate, tuner.planBound) <= gap
	}
	return tuner.bestAttempt.meetsFloors && milp.RelativeGap(milp.Minimize, tuner.bestAttempt.result.Plan.Objective.Value, tuner.planBound) <= gap
}

// widestShape returns the shape that the options allow.
func widestShape(tuner *planTuner) pipelineShape {
	values := tuner.problem.Values
	return pipelineShape{values.WholeNumber("max-batch"), values.WholeNumber("max-partitions"), values.Number("batch-build"), false}
}

// uniformSetting returns the setting (what is kept back of each model, and limits on pipelines) with one margin
// for all models whose margin the workload leaves open.
func (a *planTuner) uniformSetting(margin float64, shape pipelineShape) planSetting {
	uniform := planSetting{shape, make([]formats.Headroom, len(a.models))}
	for i := range uniform.headroom {
		uniform.headroom[i] = a.withWorkloadValues(i, formats.Headroom{Margin: margin, Utilisation: 1})
	}
	return uniform
}

// tryFirstSetting makes the first attempt of the search. If a plan runs, it tries the margins and utilisations of that
// plan, and ends if there is a plan with them. Else it tries one margin for all models, and notes in fillRates, from
// what that plan sustains, the rates at which batches fill.
func tryFirstSetting(ctx context.Context, tuner *planTuner) error {
	// Not even a plan without any margin exists, so none with a margin does.
	if tuner.noMarginErr != nil {
		return nil
	}
	if headroom := tuner.runningHeadroom(); headroom != nil {
		if _, err := tuner.trySetting(ctx, planSetting{widestShape(tuner), headroom}); err != nil || tuner.bestAttempt != nil {
			return err
		}
	}
	first, err := tuner.trySetting(ctx, tuner.uniformSetting(startMargin, widestShape(tuner)))
	if first == nil || len(first.loads) == 0 {
		return err
	}

	// Batches fill at the rate at which a model's requests arrive: the one that the workload states or, as an estimate, the
	// rate that the model sustained, its load times the promised rate.
	for i := range first.loads {
		tuner.fillRates = append(tuner.fillRates, cmp.Or(tuner.models[i].BatchBuildRPS, first.loads[i]*first.result.Plan.PromiseFor(i).RPS))
	}
	return err
}

// tryNeighbours tries settings around the best one: points of a grid over fewer stages, halvings of the largest
// batch, delays of filling batches, and margins (one for all models). The nearest to the best one that was not
// tried comes next. It makes minTrials trials in any case, and more while work is left, until maxTrials of them had a plan
// of their own. It ends early once the gap is reached. Halves of the largest batch count from the largest that a plan used.
func tryNeighbours(ctx context.Context, tuner *planTuner) error {
	// Nothing is left to try if no plan exists whatever the margins are, or if a plan with the margins of the running plan
	// was found, which the search keeps.
	if tuner.noMarginErr != nil || tuner.bestAttempt != nil && tuner.runningHeadroom() != nil {
		return nil
	}
	widest := widestShape(tuner)

	// The axes of the grid: stages fewer than allowed, a step of which counts as two of another axis, halvings of the largest
	// batch, index of the delay of filling batches, index in marginGrid. position is the best point, where all that the
	// options allow is used and the first margin was tried. infeasibleMargin is the index of the lowest margin without a plan.
	grid, position := certify.SettingGrid{Costs: []int{2, 1, 1, 1}}, []int{0, 0, 0, slices.Index(marginGrid, startMargin)}
	infeasibleMargin := len(marginGrid)
	if tuner.bestAttempt != nil {
		grid.MarkTried(position)
	}
	numRepeats := 0 // trials whose plan an earlier one had, so that no simulation was needed
	for n := len(tuner.attempts); n < minTrials || n-numRepeats < maxTrials && tuner.workDone < tuner.workBudget; n++ {
		delays := fillFactors(tuner)
		axisSizes := []int{widest.maxStages, certify.CountHalvings(tuner.largestBatch()), len(delays), infeasibleMargin}
		neighbour, ok := grid.NearestUntried(position, axisSizes)
		if !ok || ctx.Err() != nil || tuner.overBudgetErr != nil || reachedGap(tuner) {
			break
		}
		grid.MarkTried(neighbour)
		fewerStages, halvings, delayIndex, marginIndex := neighbour[0], neighbour[1], neighbour[2], neighbour[3]
		shape := pipelineShape{maxBatch: halvedBatch(tuner, halvings), maxStages: max(1, widest.maxStages-fewerStages), fillFactor: delays[delayIndex]}
		attempted, err := tuner.trySetting(ctx, tuner.uniformSetting(marginGrid[marginIndex], shape))
		if err != nil {
			return err
		}
		if attempted != nil && attempted.isRepeat {
			numRepeats++
		}
		if attempted == nil && fewerStages == 0 && halvings == 0 && delayIndex == 0 {
			infeasibleMargin = min(infeasibleMargin, marginIndex) // a larger margin leaves less
		}
		if tuner.bestAttempt == nil || attempted == tuner.bestAttempt { // without a plan the search walks on from here
			position = neighbour
		}
	}
	return nil
}

// halvedBatch returns a largest batch: the one that the options allow, or, halved so many times, the largest
// that any plan used.
func halvedBatch(tuner *planTuner, times int) int {
	if times == 0 {
		return tuner.problem.Values.WholeNumber("max-batch")
	}
	return max(1, tuner.largestBatch()>>times)
}

// largestBatch returns the largest batch size of any pipeline in the plans that were tried with the largest batch that the
// options allow, at least 1. Smaller limits on batches are halves of it.
func (a *planTuner) largestBatch() int {
	largest := 1
	for _, t := range a.attempts {
		if t.setting.shape.maxBatch != a.problem.Values.WholeNumber("max-batch") {
			continue
		}
		for _, m := range t.result.Plan.Deployment {
			largest = lists.Max(largest, len(m.Pipelines), func(i int) int { return m.Pipelines[i].Batch })
		}
	}
	return largest
}

// maximises reports whether the objective is maximised.
func (a *planTuner) maximises() bool {
	return kind.SenseOf(a.problem.Values.Word("objective")) == milp.Maximize
}

// isBetterStart reports whether rebalance should rather start from candidate than from current: the one that
// would sustain more if devices were divided by need or, for a price, the better attempt.
func (a *planTuner) isBetterStart(candidate, current *planAttempt) bool {
	if a.maximises() {
		return candidate.balancedRate > current.balancedRate
	}
	return a.compare(candidate, current) > 0
}

// runningHeadroom returns, by model of the workload, the margin and utilisation that the plan that runs has for it. A model
// that it does not serve gets the margin that the search starts with. If no plan runs, or it does not state them, it
// returns nil.
func (a *planTuner) runningHeadroom() []formats.Headroom {
	if a.problem.RunningPlan == nil {
		return nil
	}
	running := formats.PoolOf(a.problem.RunningPlan)
	if running == nil || len(running.Headroom) == 0 {
		return nil
	}
	headrooms := make([]formats.Headroom, len(a.models))
	for i := range headrooms {
		h := formats.Headroom{Margin: startMargin, Utilisation: 1}
		if index := slices.IndexFunc(running.Models, func(m formats.Served) bool { return m.Key() == a.models[i].Key() }); index >= 0 {
			h = running.Headroom[index]
		}
		headrooms[i] = a.withWorkloadValues(i, h)
	}
	return headrooms
}

// withWorkloadValues returns what is kept back of model i, with the workload's own values where it has any.
func (a *planTuner) withWorkloadValues(i int, h formats.Headroom) formats.Headroom {
	m := &a.models[i]
	if m.Margin != nil {
		h.Margin = *m.Margin
	}
	h.Utilisation = cmp.Or(m.Utilisation, h.Utilisation)
	return h
}

// rebalance plans again with the utilisation of each model set to what it sustained in simulation, as a part of what
// its replicas carry. So models that sustained little get more devices for a rate. It starts from the attempt, with
// the best one's limits on batches and stages, that would sustain most with devices divided by need. It goes on,
// maxRebalances times at most, while each plan becomes the best one and, for a rate, sustains clearly more.
func rebalance(ctx context.Context, tuner *planTuner) error {
	if tuner.bestAttempt == nil || tuner.overBudgetErr != nil || reachedGap(tuner) {
		return nil
	}
	base := tuner.bestAttempt
	for _, t := range tuner.attempts {
		if t.setting.shape == base.setting.shape && tuner.isBetterStart(t, base) {
			base = t
		}
	}
	for range maxRebalances {
		// If all utilisations fall by the same factor, a plan for the highest rate divides the devices as before and only
		// promises less. A plan for given floors takes more devices.
		headroom := tuner.balancedHeadroom(base)
		if tuner.maximises() && sameDeviceShares(headroom, base.setting.headroom) {
			return nil
		}
		balanced, err := tuner.trySetting(ctx, planSetting{base.setting.shape, headroom})
		if err != nil || balanced == nil || balanced != tuner.bestAttempt {
			return err
		}
		if tuner.maximises() && balanced.sustainedRate < base.sustainedRate*(1+minRateGain) {
			return nil
		}
		base = balanced
	}
	return nil
}

// solveToGap solves the problem with what the best plan keeps back to the gap asked for. Earlier attempts were
// solved to a coarser gap, to save time.
func solveToGap(ctx context.Context, tuner *planTuner) error {
	if tuner.bestAttempt == nil || tuner.overBudgetErr != nil || len(tuner.bestAttempt.loads) == 0 || reachedGap(tuner) {
		return nil
	}
	exact := planSetting{tuner.bestAttempt.setting.shape, tuner.balancedHeadroom(tuner.bestAttempt)}
	exact.shape.fullGap = true
	_, err := tuner.trySetting(ctx, exact)
	return err
}

// sameDeviceShares reports whether the utilisations of all models changed by the same factor: then their shares
// of the devices stay as they are, and a plan with them would be the same.
func sameDeviceShares(headrooms, previous []formats.Headroom) bool {
	change := func(i int) float64 { return headrooms[i].Utilisation / previous[i].Utilisation }
	return !lists.Contains(len(headrooms), func(i int) bool { return math.Abs(change(i)-change(0)) > problem.FloorTolerance })
}

// balancedHeadroom returns the margin and utilisation of each model for the next plan, on the expectation that models sustain
// the loads of attempt t again. The utilisation, the promised part of the rate that replicas carry, is multiplied by the
// load that the model sustained (a multiple of the rate promised or, if plans must carry floors, of the floor). So a model
// that sustained little gets more devices. It stays between minUtilisation and 1.
func (a *planTuner) balancedHeadroom(t *planAttempt) []formats.Headroom {
	headrooms := slices.Clone(t.setting.headroom)
	for i := range headrooms {
		sustained := t.loads[i]
		if floor := a.floorRate(i); !a.maximises() && floor > 0 {
			sustained *= t.result.Plan.PromiseFor(i).RPS / floor
		}
		headrooms[i].Utilisation = min(1, max(minUtilisation, t.setting.headroom[i].Utilisation*sustained))
		headrooms[i] = a.withWorkloadValues(i, headrooms[i])
	}
	return headrooms
}

// reportProgress reports the progress of a trial of a setting, which it names, if somebody listens. done is the part of
// the trial that is over: 0 while its plan is solved, 0.5 while the plan is simulated. Of the work that remains by the
// budget, a trial counts as a tenth.
func (a *planTuner) reportProgress(setting string, update kind.Progress, done float64) {
	if a.problem.Progress == nil {
		return
	}
	update.Phase = setting + ": " + update.Phase
	workShare := min(float64(a.workDone)/float64(a.workBudget), 0.95)
	update.Fraction = workShare + (1-workShare)*(done+update.Fraction/2)/10
	a.problem.Progress(update)
}

// trySetting plans with a setting (margins, largest batch, stages), finds by simulation the loads that the plan sustains,
// and notes the attempt; the best one so far is in bestAttempt. A plan whose bound is below the best one's rate, or that an
// earlier attempt has, too, is noted without simulation. It returns nil if there is no such plan, if the setting was tried,
// or if the budget does not allow its runs. If the budget, or the end of ctx, does not even allow the runs of the first
// plan, that plan becomes the best attempt, without loads, and is not among the attempts.
func (a *planTuner) trySetting(ctx context.Context, setting planSetting) (*planAttempt, error) {
	if slices.ContainsFunc(a.attempts, func(attempt *planAttempt) bool { return attempt.setting.equal(setting) }) {
		return nil, nil
	}
	minValue := minUsefulValue(a, setting)
	res, err := solveSetting(ctx, a, setting, minValue)
	if res == nil || err != nil {
		return nil, err
	}
	description := a.describeSetting(setting)
	attempt := &planAttempt{setting: setting, result: res}
	if a.maximises() { // with an objective to minimise, rates are asked for, and may not be lowered
		limitToFrontEnd(res)
	}
	a.reportProgress(description, kind.Progress{Phase: "simulating", Value: math.NaN(), Bound: math.NaN()}, 0.5)

	// Find the loads that the plan sustains. A bound that is too low puts it out of reach, with loads of 0. An earlier
	// attempt with the same plan has the loads already. Else simulate it.
	samePlan := slices.IndexFunc(a.attempts, func(o *planAttempt) bool { return !o.outOfReach && certify.EqualPlans(o.result.Plan, res.Plan) })
	if bound := res.Plan.Objective.Bound; bound != nil && *bound < minValue {
		attempt.outOfReach, attempt.loads = true, make([]float64, len(setting.headroom))
	} else if samePlan >= 0 {
		attempt.isRepeat, attempt.loads = true, slices.Clone(a.attempts[samePlan].loads)
		a.scoreAttempt(attempt)
	} else if err := a.simulateLoads(ctx, attempt); certify.OverBudget(err) {
		a.overBudgetErr = err
		if a.bestAttempt != nil {
			return nil, nil
		}
		a.bestAttempt = attempt
		return attempt, certify.NoteUnconfirmed(attempt.result.Plan, err)
	} else if err != nil {
		if a.bestAttempt == nil && ctx.Err() != nil { // a plan that was not simulated is better than none
			a.bestAttempt = attempt
			return attempt, nil
		}
		return nil, err
	}

	// Note the attempt, and keep the best one.
	attempt.shortRunRate = attempt.sustainedRate
	a.attempts = append(a.attempts, attempt)
	if a.bestAttempt == nil || a.compare(attempt, a.bestAttempt) > 0 {
		a.bestAttempt = attempt
	}
	return attempt, nil
}

// solveSetting returns the plan of a setting (margins, largest batch, stages), without simulating it. If a sketch (a plan that
// was solved and not simulated) of the setting exists, that is returned. If there is no plan, it returns nil and notes
// the first such error. Its work and time are added to those of the search. A plan whose value is below minValue need
// not be good, because it is not simulated.
func solveSetting(ctx context.Context, tuner *planTuner, setting planSetting, minValue float64) (*kind.Result, error) {
	if sketched := slices.IndexFunc(tuner.sketches, func(t *planAttempt) bool { return t.setting.equal(setting) }); sketched >= 0 {
		return tuner.sketches[sketched].result, nil
	}
	problem, err := tuner.problemWith(setting)
	if err != nil {
		return nil, err
	}
	problem.MinObjective = minValue
	description := tuner.describeSetting(setting)
	res, err := tuner.solve(ctx, problem, func(update kind.Progress) { tuner.reportProgress(description, update, 0) })
	if infeasible, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		// A solve that fails states no work: count a nominal amount.
		tuner.workDone += 1000
		if tuner.infeasibleErr == nil {
			tuner.infeasibleErr = infeasible
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tuner.wallMS += res.WallMS
	tuner.workDone += certify.SolveWork(res)
	return res, nil
}

// minUsefulValue returns the objective (rate per weight) below which a plan of a setting is not simulated: hardly any plan
// sustains more than its replicas carry, so it could not be better than the best plan. A plan promises the rate that its
// replicas carry times the utilisation, so it may sustain its objective divided by the smallest utilisation. If there is
// no best plan, or a price is minimised, it returns 0.
func minUsefulValue(tuner *planTuner, s planSetting) float64 {
	if tuner.bestAttempt == nil || !tuner.maximises() {
		return 0
	}
	return tuner.bestAttempt.sustainedRate * slices.MinFunc(s.headroom, compareUtilisation).Utilisation
}

// problemWith returns a copy of the problem with the values of a setting: its options and, in the workload, what is
// kept back of each model (a margin of its SLO, and a part of what its replicas carry). The delay until a batch has
// filled, a multiple of the expected one, is the option batch-build; the rates at which batches fill are BatchBuildRPS
// of the models. Trials are solved to a coarse gap, unless the setting asks for the full one.
func (a *planTuner) problemWith(setting planSetting) (*kind.Problem, error) {
	settingProblem := *a.problem // Values.Set below copies the values, so those of a.problem stay
	settingProblem.Quick = true
	gap := a.problem.Values.Number("gap")
	if !setting.shape.fullGap {
		gap = max(gap, trialGap)
	}
	// All models get their own margin below, so the option margin, which holds for models without one, decides nothing. A
	// plan in which all models have the option's margin need not list margins by model.
	options := map[string]any{
		"margin": mostCommonMargin(setting.headroom), "max-batch": setting.shape.maxBatch, "max-partitions": setting.shape.maxStages,
		"batch-build": setting.shape.fillFactor, "gap": gap,
	}
	for name, value := range options {
		if err := settingProblem.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	workload := *a.problem.Workload
	models := slices.Clone(a.models)
	for i := range models {
		models[i].Margin, models[i].Utilisation = &setting.headroom[i].Margin, setting.headroom[i].Utilisation
		if setting.shape.fillFactor > 0 && a.fillRates != nil {
			models[i].BatchBuildRPS = a.fillRates[i]
		}
	}
	workload.Section = models
	settingProblem.Workload = &workload
	return &settingProblem, nil
}

// compareUtilisation compares what is kept back of two models by the part of the devices that is used.
func compareUtilisation(g, h formats.Headroom) int { return cmp.Compare(g.Utilisation, h.Utilisation) }

// mostCommonMargin returns the margin that most models have.
func mostCommonMargin(headrooms []formats.Headroom) float64 {
	count := func(m float64) (n int) {
		for _, h := range headrooms {
			if h.Margin == m {
				n++
			}
		}
		return n
	}
	return slices.MaxFunc(headrooms, func(g, h formats.Headroom) int {
		return cmp.Or(cmp.Compare(count(g.Margin), count(h.Margin)), cmp.Compare(g.Margin, h.Margin))
	}).Margin
}

// floorRate returns the least rate that model i must have.
func (a *planTuner) floorRate(i int) float64 {
	return max(a.models[i].MinRPS, a.problem.Values.Number("min-load")*cmp.Or(a.models[i].Weight, 1))
}

// compare returns a positive number if first is the better attempt, a negative one if second is, and 0 if they are equal. For
// the objective throughput the higher sustained rate is better. For a price, an attempt that carries the floors (least
// rates) is better than one that does not; of two that do, the cheaper one; of two that do not, the higher rate.
func (a *planTuner) compare(first, second *planAttempt) int {
	if a.maximises() {
		return cmp.Compare(first.sustainedRate, second.sustainedRate)
	}
	// Attempts that carry the floors come first, then those of the least price.
	switch {
	case first.meetsFloors != second.meetsFloors && first.meetsFloors:
		return 1
	case first.meetsFloors != second.meetsFloors:
		return -1
	case first.meetsFloors:
		return cmp.Or(cmp.Compare(second.result.Plan.Objective.Value, first.result.Plan.Objective.Value), cmp.Compare(first.sustainedRate, second.sustainedRate))
	}
	return cmp.Compare(first.sustainedRate, second.sustainedRate)
}

// describeAttempts returns a text for the plan's assumptions: the setting that was chosen, and at most maxReported settings
// with the rate per weight that their plans sustained in short runs, the highest first. Attempts whose plan repeats an
// earlier one are left out.
func describeAttempts(tuner *planTuner) string {
	var descriptions []string
	reported := slices.DeleteFunc(slices.Clone(tuner.attempts), func(other *planAttempt) bool { return other.isRepeat && other != tuner.bestAttempt })
	slices.SortStableFunc(reported, func(first, second *planAttempt) int { return cmp.Compare(second.shortRunRate, first.shortRunRate) })
	reported = reported[:min(len(reported), maxReported)]
	for _, t := range reported {
		sustains := fmt.Sprintf("%.6g", t.shortRunRate)
		if t.outOfReach {
			sustains = "less"
		}
		descriptions = append(descriptions, tuner.describeSetting(t.setting)+" sustains "+sustains)
	}
	if len(descriptions) == 0 {
		return tuner.describeSetting(tuner.bestAttempt.setting) + " is the first that was tried"
	}
	text := tuner.describeSetting(tuner.bestAttempt.setting) + " chosen by simulation (rps per weight, short runs): " + strings.Join(descriptions, ", ")
	if numOthers := len(tuner.attempts) - len(reported); numOthers > 0 {
		text += fmt.Sprintf("; %d others are not better", numOthers)
	}
	return text
}

// describeSetting returns a setting in words: what is kept back, and batches and stages if they are fewer than
// the options allow.
func (a *planTuner) describeSetting(described planSetting) string {
	text := describeHeadroom(described.headroom)
	widest := widestShape(a)
	if described.shape.fillFactor != widest.fillFactor {
		text += " with time to fill batches"
	}
	if described.shape.maxBatch != widest.maxBatch {
		text += fmt.Sprintf(" with batches up to %d", described.shape.maxBatch)
	}
	if described.shape.maxStages != widest.maxStages {
		text += fmt.Sprintf(" in at most %d stages", described.shape.maxStages)
	}
	return text
}

// describeHeadroom returns in words what is kept back: one margin or those of the models in order, and the
// utilisation if less is promised than replicas carry.
func describeHeadroom(headrooms []formats.Headroom) string {
	joinValues := func(valueOf func(h formats.Headroom) float64) (text string, first float64) {
		parts := lists.Map(len(headrooms), func(i int) string { return fmt.Sprintf("%.2g", valueOf(headrooms[i])) })
		if len(slices.Compact(slices.Clone(parts))) == 1 {
			parts = parts[:1]
		}
		return strings.Join(parts, "/"), valueOf(headrooms[0])
	}
	margins, _ := joinValues(func(h formats.Headroom) float64 { return h.Margin })
	utilisations, first := joinValues(func(h formats.Headroom) float64 { return h.Utilisation })
	if !strings.Contains(utilisations, "/") && first == 1 {
		return "margin " + margins
	}
	return "margin " + margins + " at utilisation " + utilisations
}
