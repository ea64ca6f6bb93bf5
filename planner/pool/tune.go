package pool

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
	trialBudget   = 1_500_000 // work of the trials at --effort 1, about a second of CPU; see certify.WorkOf
	certifyBudget = 3_000_000 // work of certifying at --effort 1, about as much
	leastTrials   = 4         // trials that are made in any case
	mostTrials    = 24        // most trials of neighbours, however little work they are
	mostSaid      = 8         // attempts that the plan's assumptions list
	balances      = 2         // plans made for what the models sustained
	trialGap      = 0.03      // gap at which the search for the plan of a setting stops
	worthwhile    = 0.005     // relative gain in sustained rate for which the search goes on
	inReach       = 0.97      // part of the best rate that a plan must sustain to be looked at further
	close         = 0.02      // part below the best rate up to which long runs also test the best plan with one margin for all
	coarsePart    = 3         // short runs have the full length divided by this
	leastUse      = 0.3       // least part of what replicas carry that a plan uses
)

// pipelineShape limits the pipelines that a plan may use.
type shape struct {
	batch  int     // largest batch; 0 is the largest measured one
	stages int     // most stages
	fill   float64 // factor on the delay of filling a batch that the SLO must leave
	exact  bool    // whether plans are solved to the gap asked for, not only to trialGap
}

// planSetting is the shape of a plan's pipelines and what the plan keeps back of every model.
type setting struct {
	shape
	headroom []formats.Headroom
}

// equal reports whether two settings are the same.
func (s setting) equal(o setting) bool {
	return s.shape == o.shape && slices.Equal(s.headroom, o.headroom)
}

// planAttempt is the plan of a setting with what simulation showed of it.
type attempt struct {
	setting
	res   *kind.Result
	loads []float64 // by model: load that it sustained, as a part of what is promised
	rate  float64   // rps per weight, the least over the models
	trial float64   // sustainedRate as short runs showed it
	// balancedRate estimates what a plan may sustain that distributes its devices as these loads need them.
	hope float64
	// outOfReach says that it sustained far less than the best attempt at that time, and is not looked at
	// further.
	short   bool
	repeats bool // an earlier attempt has the same plan
	looked  bool // long runs tested it
	// meetsFloors says that every model's sustained rate is at least its floor.
	floors bool
}

// planTuner is a search for the setting whose plan sustains most.
type tuning struct {
	p          *kind.Problem
	models     formats.WorkloadModels
	cert       kind.Asked
	solve      kind.Solver
	best       *attempt
	proven     *attempt // best of those that long runs tested
	shortRate  float64  // sustained rate of the best attempt, in short runs, when certifying begins
	all        []*attempt
	sketches   []*attempt // plans that were solved and not simulated
	fillRates  []float64  // by model: requests per second at which batches fill; nil if not known
	work       int64      // of all trials
	budget     int64      // limit of workDone before certifying begins, and then of all
	bounds     certify.Budgets
	overBudget error // why the search simulates no more; nil if it does
	wall       float64
	first      error   // why there is no plan without any margin
	none       error   // why the first setting without a plan has none
	bound      float64 // of every plan that holds; NaN if not known
	fluidBound float64 // the same by the fluid program alone
}

// tuneBySimulation chooses, by simulation, the setting that a plan is made with: how much of every model's SLO, and of what
// its replicas carry, is kept back, the largest batch, and the number of stages. For each setting it plans,
// simulates the plan on the workload's arrivals, and finds the load that every model sustains beside the others.
// All runs that compare plans use the same random numbers.
//
//  1. The fluid program without any margin gives the bound of all plans that hold.
//  2. All models have the same margin at first. Then each has the margin at which a formula of queueing
//     expects a request to cost least.
//  3. The search goes on to the nearest setting to the best one that was not tried, until its work is done.
//  4. Each model promises what it sustained, so that the next plan gives devices to the models that need
//     them. That plan is solved to the gap asked for.
//  5. Long runs with other random numbers certify the best plan, which promises what they show. If that is less
//     than short runs showed, other plans that showed more in short runs are certified, too.
//
// If a plan runs, the search starts from what that plan keeps back. If the objective is minimised, the best plan
// is the cheapest one that sustains the floors. When ctx ends, the best plan so far is returned.
func tune(ctx context.Context, p *kind.Problem, cert kind.Asked, solve kind.Solver) (*kind.Result, error) {
	if len(formats.ModelsOf(p.Workload)) == 0 {
		q := *p
		if err := q.Values.Set("margin", startMargin); err != nil {
			return nil, err
		}
		return solve(ctx, &q, p.Progress) // returns the error for what is missing
	}
	effort := p.Values.Whole("effort")
	a := &tuning{p: p, models: formats.ModelsOf(p.Workload), cert: cert, solve: solve, budget: trialBudget * int64(effort), bounds: certify.NewBudgets(cert, effort), bound: math.NaN()}

	// Run the steps. An interruption ends them, and keeps the best plan so far.
	for _, step := range []func(context.Context, *tuning) error{fluid, begin, mix, neighbours, balance, refine} {
		if err := step(ctx, a); err != nil && (a.best == nil || ctx.Err() == nil) {
			return nil, err
		}
		if ctx.Err() != nil && a.best != nil {
			break
		}
	}
	if a.best == nil {
		return nil, cmp.Or(a.first, ctx.Err(), a.none)
	}

	// Certify the best plan, and write down what was tried.
	if err := a.certify(ctx); err != nil && ctx.Err() == nil {
		return nil, err
	}
	summary, res := tried(a), a.best.res
	a.state(res)
	if ctx.Err() != nil {
		res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.Status(milp.StoppedByInterrupt)
		res.Plan.StoppedBy = res.StoppedBy
	}
	res.WallMS = a.wall
	if a.best.fill != widest(a).fill {
		for i := range a.models {
			res.Plan.Assumptions = append(res.Plan.Assumptions, fmt.Sprintf("batches of %s fill at %.6g requests per second, which the first plan sustained", a.models[i].Model, a.fillRates[i]))
		}
	}
	res.Plan.Assumptions = append(res.Plan.Assumptions, summary)
	return res, nil
}

// solveFluidBound solves the fluid program without any margin, for the bound of all plans. In this program
// shares of a device may go to different models whatever the rounding, so its bound holds for both roundings. A
// share of 1 - attainment of the requests may be late or dropped. So plans that hold may be offered the bound
// divided by the attainment, or less if arrivals are random (randomBound), and need carry only the floors
// multiplied by it.
func fluid(ctx context.Context, a *tuning) error {
	// The fluid problem: no margin, floors for the least attainment, no delay of filling batches.
	q, err := a.problem(a.same(0, widest(a)))
	if err != nil {
		return err
	}
	attained := 1.0
	for _, m := range a.models {
		attained = min(attained, cmp.Or(a.cert.Attainment, document.ShareAt(m.Percentile)))
	}
	models := formats.ModelsOf(q.Workload)
	if !a.grows() {
		for i := range models {
			models[i].MinRPS = attained * a.floor(i)
		}
		if err := q.Values.Set("min-load", 0.0); err != nil {
			return err
		}
	}
	q.Attained = attained
	for name, value := range map[string]any{"gpu-rounding": "fractional", "batch-build": 0.0} {
		if err := q.Values.Set(name, value); err != nil {
			return err
		}
	}

	// Solve it. Without a plan there is none with any margin either.
	res, err := a.solve(ctx, q, func(u kind.Progress) { a.progress("bound", u, 0) })
	if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		a.first = inf
		return nil
	}
	if err != nil {
		return err
	}

	// The bound of all plans that hold.
	a.wall += res.WallMS
	a.work += certify.WorkOf(res)
	if b := res.Plan.Objective.Bound; b != nil {
		a.bound = *b
		if a.grows() {
			a.bound = min(a.bound, res.Plan.FrontEndBound()) / attained
		}
		a.fluidBound = a.bound
		if a.grows() {
			a.bound = min(a.bound, randomBound(a, res.Plan, attained))
		}
	}
	return nil
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
func randomBound(a *tuning, plan *formats.Plan, attained float64) float64 {
	arrivals := a.p.Workload.Arrivals
	random := arrivals == nil || arrivals.Trace == "" && (arrivals.Process == "" || arrivals.Process == "poisson")
	if !random || len(plan.Deployment) != 1 || 1-attained < leastMissed {
		return math.Inf(1)
	}
	served := plan.Promised(0)
	carried := *plan.Objective.Bound * served.Weight
	places := max(0, carried*served.SLOUS.D().Seconds()-1)
	return carried * queueing.MostLoad(places, 1-attained) / served.Weight
}

// reachedGap reports whether the best plan is within the gap asked for of the bound of all plans.
func reached(a *tuning) bool {
	asked := choicesOf(a.p.Values)
	if a.best == nil || math.IsNaN(a.bound) {
		return false
	}
	if a.grows() {
		return a.best.rate <= a.bound && milp.RelativeGap(milp.Maximize, a.best.rate, a.bound) <= asked.Gap
	}
	return a.best.floors && milp.RelativeGap(milp.Minimize, a.best.res.Plan.Objective.Value, a.bound) <= asked.Gap
}

// widestShape returns the shape that the options allow.
func widest(a *tuning) shape {
	v := a.p.Values
	return shape{v.Whole("max-batch"), v.Whole("max-partitions"), v.Number("batch-build"), false}
}

// uniformSetting returns the setting with one margin for all models whose margin the workload leaves open.
func (a *tuning) same(margin float64, of shape) setting {
	s := setting{of, make([]formats.Headroom, len(a.models))}
	for i := range s.headroom {
		s.headroom[i] = a.fixed(i, formats.Headroom{Margin: margin, Utilisation: 1})
	}
	return s
}

// tryFirstSetting tries what the running plan keeps back. If no plan runs, or that setting has no plan, it tries
// one margin for all models.
func begin(ctx context.Context, a *tuning) error {
	if a.first != nil {
		return nil
	}
	if headroom := a.running(); headroom != nil {
		if _, err := a.try(ctx, setting{widest(a), headroom}); err != nil || a.best != nil {
			return err
		}
	}
	t, err := a.try(ctx, a.same(startMargin, widest(a)))
	if t == nil || len(t.loads) == 0 {
		return err
	}
	for i := range t.loads {
		a.fillRates = append(a.fillRates, cmp.Or(a.models[i].BatchBuildRPS, t.loads[i]*t.res.Plan.Promised(i).RPS))
	}
	return err
}

// tryNeighbours tries settings with one margin for all models, the nearest to the best one first. Halves of the
// largest batch count from the largest that a plan used.
func neighbours(ctx context.Context, a *tuning) error {
	if a.first != nil || a.best != nil && a.running() != nil {
		return nil
	}
	most := widest(a)
	// Coordinates of the grid: fewer stages, halvings of the batch, delays of filling batches, margins.
	grid, at := certify.Grid{Costs: []int{2, 1, 1, 1}}, []int{0, 0, 0, slices.Index(marginGrid, startMargin)}
	infeasible := len(marginGrid)
	if a.best != nil {
		grid.Try(at)
	}
	for n := len(a.all); n < leastTrials || n < mostTrials && a.work < a.budget; n++ {
		delays := fills(a)
		next, ok := grid.Nearest(at, []int{most.stages, certify.Halvings(a.largestBatch()), len(delays), infeasible})
		if !ok || ctx.Err() != nil || a.overBudget != nil || reached(a) {
			break
		}
		grid.Try(next)
		t, err := a.try(ctx, a.same(marginGrid[next[3]], shape{halved(a, next[1]), max(1, most.stages-next[0]), delays[next[2]], false}))
		if err != nil {
			return err
		}
		if t == nil && next[0] == 0 && next[1] == 0 && next[2] == 0 {
			infeasible = min(infeasible, next[3]) // a larger margin leaves less
		}
		if a.best == nil || t == a.best {
			at = next
		}
	}
	return nil
}

// halvedBatch returns a largest batch: the one that the options allow, or, halved so many times, the largest
// that any plan used.
func halved(a *tuning, times int) int {
	if times == 0 {
		return a.p.Values.Whole("max-batch")
	}
	return max(1, a.largestBatch()>>times)
}

// largestBatch returns the largest batch that a plan without halved batches used.
func (a *tuning) largestBatch() int {
	largest := 1
	for _, t := range a.all {
		if t.batch != a.p.Values.Whole("max-batch") {
			continue
		}
		for _, m := range t.res.Plan.Deployment {
			for _, l := range m.Pipelines {
				largest = max(largest, l.Batch)
			}
		}
	}
	return largest
}

// maximises reports whether the objective is maximised.
func (a *tuning) grows() bool {
	c := choicesOf(a.p.Values)
	return c.sense() == milp.Maximize
}

// isBetterStart reports whether s is a better attempt than t to balance from.
func (a *tuning) promises(s, t *attempt) bool {
	if a.grows() {
		return s.hope > t.hope
	}
	return a.compare(s, t) > 0
}

// runningHeadroom returns what the running plan keeps back of each model. If that is not known, it returns nil.
func (a *tuning) running() []formats.Headroom {
	if a.p.Running == nil {
		return nil
	}
	was := formats.PoolOf(a.p.Running)
	if was == nil || len(was.Headroom) == 0 {
		return nil
	}
	kept := make([]formats.Headroom, len(a.models))
	for i := range kept {
		h := formats.Headroom{Margin: startMargin, Utilisation: 1}
		if at := slices.IndexFunc(was.Models, func(m formats.Served) bool { return m.Key() == a.models[i].Key() }); at >= 0 {
			h = was.Headroom[at]
		}
		kept[i] = a.fixed(i, h)
	}
	return kept
}

// withWorkloadValues returns what is kept back of model i, with the workload's own values where it has any.
func (a *tuning) fixed(i int, h formats.Headroom) formats.Headroom {
	m := &a.models[i]
	if m.Margin != nil {
		h.Margin = *m.Margin
	}
	h.Utilisation = cmp.Or(m.Utilisation, h.Utilisation)
	return h
}

// rebalance makes plans for what the models sustained, starting from the attempt of the best balanced rate.
func balance(ctx context.Context, a *tuning) error {
	if a.best == nil || a.overBudget != nil || reached(a) {
		return nil
	}
	from := a.best
	for _, t := range a.all {
		if t.shape == from.shape && a.promises(t, from) {
			from = t
		}
	}
	for range balances {
		headroom := a.balanced(from)
		if a.grows() && alike(headroom, from.headroom) {
			return nil // the same plan, with smaller promises
		}
		next, err := a.try(ctx, setting{from.shape, headroom})
		if err != nil || next == nil || a.best != next || a.grows() && next.rate < from.rate*(1+worthwhile) {
			return err
		}
		from = next
	}
	return nil
}

// solveToGap solves, to the gap asked for, the problem with what the best plan keeps back.
func refine(ctx context.Context, a *tuning) error {
	if a.best == nil || a.overBudget != nil || len(a.best.loads) == 0 || reached(a) {
		return nil
	}
	s := setting{a.best.shape, a.balanced(a.best)}
	s.exact = true
	_, err := a.try(ctx, s)
	return err
}

// sameDeviceShares reports whether the utilisations of all models changed by the same factor: then their shares
// of the devices stay as they are.
func alike(kept, was []formats.Headroom) bool {
	part := func(i int) float64 { return kept[i].Utilisation / was[i].Utilisation }
	for i := range kept {
		if math.Abs(part(i)-part(0)) > tolerance {
			return false
		}
	}
	return true
}

// balancedHeadroom returns what to keep back if the models sustain what they did in an attempt.
func (a *tuning) balanced(t *attempt) []formats.Headroom {
	out := slices.Clone(t.headroom)
	for i := range out {
		part := t.loads[i]
		if floor := a.floor(i); !a.grows() && floor > 0 {
			part *= t.res.Plan.Promised(i).RPS / floor
		}
		out[i].Utilisation = min(1, max(leastUse, t.headroom[i].Utilisation*part))
		out[i] = a.fixed(i, out[i])
	}
	return out
}

// reportProgress reports a part of a trial, in two halves: solving and simulating.
func (a *tuning) progress(setting string, u kind.Progress, from float64) {
	if a.p.Progress == nil {
		return
	}
	u.Phase = setting + ": " + u.Phase
	spent := min(float64(a.work)/float64(a.budget), 0.95)
	u.Fraction = spent + (1-spent)*(from+u.Fraction/2)/10
	a.p.Progress(u)
}

// trySetting plans and simulates a setting. It returns nil if there is no such plan, if the setting was tried,
// or if the budget does not allow its runs. If that happens to the first plan, the plan becomes the best one,
// marked as not confirmed.
func (a *tuning) try(ctx context.Context, s setting) (*attempt, error) {
	if slices.ContainsFunc(a.all, func(t *attempt) bool { return t.equal(s) }) {
		return nil, nil
	}
	res, err := solved(ctx, a, s, leastValue(a, s))
	if res == nil || err != nil {
		return nil, err
	}

	// Simulate the plan, unless its bound is too low or an earlier attempt has the same plan.
	said := a.said(s)
	t := &attempt{setting: s, res: res}
	if a.grows() {
		shareFrontEnd(res)
	}
	a.progress(said, kind.Progress{Phase: "simulating", Value: math.NaN(), Bound: math.NaN()}, 0.5)
	same := slices.IndexFunc(a.all, func(o *attempt) bool { return !o.short && certify.Equal(o.res.Plan, res.Plan) })
	if o := res.Plan.Objective; o.Bound != nil && *o.Bound < leastValue(a, s) {
		t.short, t.loads = true, make([]float64, len(s.headroom))
	} else if same >= 0 {
		t.repeats, t.loads = true, slices.Clone(a.all[same].loads)
		a.judge(t)
	} else if err := a.simulate(ctx, t); certify.OverBudget(err) {
		if a.overBudget = err; a.best != nil {
			return nil, nil
		}
		a.best = t
		return t, certify.Unconfirmed(t.res.Plan, err)
	} else if err != nil {
		if a.best == nil && ctx.Err() != nil { // an uncertified plan is better than none
			a.best = t
			return t, nil
		}
		return nil, err
	}

	// Note the attempt, and keep the best one.
	t.trial = t.rate
	a.all = append(a.all, t)
	if a.best == nil || a.compare(t, a.best) > 0 {
		a.best = t
	}
	return t, nil
}

// solveSetting plans for a setting. If there is no plan, it returns nil. A plan whose value is below minValue
// need not be good.
func solved(ctx context.Context, a *tuning, s setting, least float64) (*kind.Result, error) {
	if at := slices.IndexFunc(a.sketches, func(t *attempt) bool { return t.equal(s) }); at >= 0 {
		return a.sketches[at].res, nil
	}
	q, err := a.problem(s)
	if err != nil {
		return nil, err
	}
	q.Least = least
	said := a.said(s)
	res, err := a.solve(ctx, q, func(u kind.Progress) { a.progress(said, u, 0) })
	if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		a.work += 1000
		if a.none == nil {
			a.none = inf
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.wall += res.WallMS
	a.work += certify.WorkOf(res)
	return res, nil
}

// minUsefulValue returns the value below which a plan of a setting is not simulated: hardly any plan sustains
// more than its replicas carry.
func leastValue(a *tuning, s setting) float64 {
	if a.best == nil || !a.grows() {
		return 0
	}
	return a.best.rate * slices.MinFunc(s.headroom, byUtilisation).Utilisation
}

// problemWith returns the problem with the values of a setting.
func (a *tuning) problem(s setting) (*kind.Problem, error) {
	q := *a.p
	q.Hurry = true
	gap := a.p.Values.Number("gap")
	if !s.exact {
		gap = max(gap, trialGap)
	}
	for name, value := range map[string]any{"margin": usual(s.headroom), "max-batch": s.batch, "max-partitions": s.stages, "batch-build": s.fill, "gap": gap} {
		if err := q.Values.Set(name, value); err != nil {
			return nil, err
		}
	}
	w := *a.p.Workload
	models := slices.Clone(a.models)
	for i := range models {
		models[i].Margin, models[i].Utilisation = &s.headroom[i].Margin, s.headroom[i].Utilisation
		if s.fill > 0 && a.fillRates != nil {
			models[i].BatchBuildRPS = a.fillRates[i]
		}
	}
	w.Section = models
	q.Workload = &w
	return &q, nil
}

func byUtilisation(g, h formats.Headroom) int { return cmp.Compare(g.Utilisation, h.Utilisation) }

// mostCommonMargin returns the margin that most models have.
func usual(kept []formats.Headroom) float64 {
	count := func(m float64) (n int) {
		for _, h := range kept {
			if h.Margin == m {
				n++
			}
		}
		return n
	}
	return slices.MaxFunc(kept, func(g, h formats.Headroom) int {
		return cmp.Or(cmp.Compare(count(g.Margin), count(h.Margin)), cmp.Compare(g.Margin, h.Margin))
	}).Margin
}

// floorRate returns the least rate that model i must have.
func (a *tuning) floor(i int) float64 {
	return max(a.models[i].MinRPS, a.p.Values.Number("min-load")*cmp.Or(a.models[i].Weight, 1))
}

// compare returns a positive number if s is the better attempt, a negative one if t is.
func (a *tuning) compare(s, t *attempt) int {
	if a.grows() {
		return cmp.Compare(s.rate, t.rate)
	}
	// Attempts that carry the floors come first, then those of the least price.
	switch {
	case s.floors != t.floors && s.floors:
		return 1
	case s.floors != t.floors:
		return -1
	case s.floors:
		return cmp.Or(cmp.Compare(t.res.Plan.Objective.Value, s.res.Plan.Objective.Value), cmp.Compare(s.rate, t.rate))
	}
	return cmp.Compare(s.rate, t.rate)
}

// describeAttempts returns a text on what was tried and what came of it.
func tried(a *tuning) string {
	var parts []string
	told := slices.DeleteFunc(slices.Clone(a.all), func(t *attempt) bool { return t.repeats && t != a.best })
	slices.SortStableFunc(told, func(s, t *attempt) int { return cmp.Compare(t.trial, s.trial) })
	told = told[:min(len(told), mostSaid)]
	for _, t := range told {
		sustains := fmt.Sprintf("%.6g", t.trial)
		if t.short {
			sustains = "less"
		}
		parts = append(parts, a.said(t.setting)+" sustains "+sustains)
	}
	if len(parts) == 0 {
		return a.said(a.best.setting) + " is the first that was tried"
	}
	text := a.said(a.best.setting) + " chosen by simulation (rps per weight, short runs): " + strings.Join(parts, ", ")
	if others := len(a.all) - len(told); others > 0 {
		text += fmt.Sprintf("; %d others are not better", others)
	}
	return text
}

// describeSetting returns a setting in words: what is kept back, and batches and stages if they are fewer than
// the options allow.
func (a *tuning) said(s setting) string {
	text := keptBack(s.headroom)
	most := widest(a)
	if s.fill != most.fill {
		text += " with time to fill batches"
	}
	if s.batch != most.batch {
		text += fmt.Sprintf(" with batches up to %d", s.batch)
	}
	if s.stages != most.stages {
		text += fmt.Sprintf(" in at most %d stages", s.stages)
	}
	return text
}

// describeHeadroom returns in words what is kept back: one margin or those of the models in order, and the
// utilisation if less is promised than replicas carry.
func keptBack(kept []formats.Headroom) string {
	list := func(of func(h formats.Headroom) float64) (text string, first float64) {
		var parts []string
		for _, h := range kept {
			parts = append(parts, fmt.Sprintf("%.2g", of(h)))
		}
		if len(slices.Compact(slices.Clone(parts))) == 1 {
			parts = parts[:1]
		}
		return strings.Join(parts, "/"), of(kept[0])
	}
	margins, _ := list(func(h formats.Headroom) float64 { return h.Margin })
	use, first := list(func(h formats.Headroom) float64 { return h.Utilisation })
	if !strings.Contains(use, "/") && first == 1 {
		return "margin " + margins
	}
	return "margin " + margins + " at utilisation " + use
}
