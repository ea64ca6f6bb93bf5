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

// The search tries these margins, largest batches and stages. PPipe fixes a margin of 0.4
// (0.1 in its ablation).
var (
	marginGrid  = []float64{0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6}
	startMargin = 0.2
)

const (
	trialBudget   = 1_500_000 // work of the trials at --effort 1, about a second of CPU; see certify.WorkOf
	certifyBudget = 3_000_000 // work of certifying at --effort 1, about as much
	leastTrials   = 4         // trials in any case
	mostTrials    = 24        // trials of neighbours, however little work they are
	mostSaid      = 8         // trials that the plan tells of
	balances      = 2         // plans for what the models showed
	trialGap      = 0.03      // at which the search for the plan of a setting stops
	worthwhile    = 0.005     // gain for which the search goes on
	inReach       = 0.97      // of the best, which a plan must sustain to be looked at further
	close         = 0.02      // below the best, a plan that long runs look at as well
	coarsePart    = 3         // part of a run's length while plans are compared
	leastUse      = 0.3       // of what replicas carry
)

// shape limits the pipelines that a plan may use.
type shape struct {
	batch  int     // the largest; 0: the largest measured
	stages int     // at most
	fill   float64 // times the delay of filling a batch that the SLO must leave
	exact  bool    // whether plans are solved to the gap asked; if not, to trialGap
}

// setting holds the shape of a plan's pipelines and what the plan keeps back of every model.
type setting struct {
	shape
	headroom []formats.Headroom
}

func (s setting) equal(o setting) bool {
	return s.shape == o.shape && slices.Equal(s.headroom, o.headroom)
}

// attempt is a plan with what simulation showed of it.
type attempt struct {
	setting
	res   *kind.Result
	loads []float64 // that each model sustained, of what is promised
	rate  float64   // sustained rps per weight, the least over models
	trial float64   // the same as short runs showed it
	// hope is what a plan may sustain that has devices where these loads want them.
	hope float64
	// short says that it came nowhere near the best then, and was looked at no further.
	short   bool
	repeats bool // says that an earlier one has the same plan
	looked  bool // says that long runs looked at it
	// floors says that every model's sustained rate is at least its floor.
	floors bool
}

// tuning is a search for what to keep back of every model.
type tuning struct {
	p          *kind.Problem
	models     formats.WorkloadModels
	cert       kind.Asked
	solve      kind.Solver
	best       *attempt
	proven     *attempt // best of those that long runs looked at
	shortRate  float64  // of the first of these, in short runs
	all        []*attempt
	sketches   []*attempt // plans that were solved and not simulated
	fillRates  []float64  // requests per second of each model, at which batches are taken to fill; nil: not known
	work       int64      // of all trials
	budget     int64      // of the work before certifying begins, and then of all
	bounds     certify.Budgets
	overBudget error // why the search simulates no more; nil: it does
	wall       float64
	first      error   // why there is no plan without any margin
	none       error   // why there is no plan with the first margin
	bound      float64 // of every plan that holds; NaN: not known
	fluidBound float64 // the same by the fluid program alone
}

// tune chooses, by simulation, what a plan is made with: how much of every model's SLO and of
// what its replicas carry is kept back, the largest batch and the stages of a pipeline. It
// plans, simulates the plan on the workload's arrivals, and looks for the load that every
// model sustains beside the others. All runs that compare plans have the same random numbers.
//
//  1. The fluid program without any margin gives the bound of all plans that hold.
//  2. All models have the same margin at first. Then each has the margin at which a formula of queueing
//     expects a request to cost least.
//  3. The search goes to the nearest setting of the best so far that was not tried, until its work is spent.
//  4. Each model promises what it sustained, so that the next plan gives devices to those
//     that need them. That plan is solved to the gap asked.
//  5. Long runs with other random numbers certify the best, which promises what they show. Where that
//     is less than short runs showed, plans that they showed to sustain more are certified, too.
//
// Where a plan runs, the search starts from what is kept back there. With an objective that
// shrinks, the best plan is the least one that sustains the floors. When ctx ends, the best
// plan so far is returned.
func tune(ctx context.Context, p *kind.Problem, cert kind.Asked, solve kind.Solver) (*kind.Result, error) {
	if len(formats.ModelsOf(p.Workload)) == 0 {
		q := *p
		if err := q.Values.Set("margin", startMargin); err != nil {
			return nil, err
		}
		return solve(ctx, &q, p.Progress) // which says what is missing
	}
	effort := p.Values.Whole("effort")
	a := &tuning{p: p, models: formats.ModelsOf(p.Workload), cert: cert, solve: solve, budget: trialBudget * int64(effort), bounds: certify.NewBudgets(cert, effort), bound: math.NaN()}
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

// fluid solves the fluid program without any margin. Shares of a device may go to different
// models there, whatever the rounding, so that its bound is one of both roundings. A share of
// 1 - attainment of the requests may be late or dropped, so plans that hold may be offered
// the bound divided by the attainment, less if arrivals are random (randomBound), and may carry the floors multiplied by it.
func fluid(ctx context.Context, a *tuning) error {
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
	res, err := a.solve(ctx, q, func(u kind.Progress) { a.progress("bound", u, 0) })
	if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		a.first = inf
		return nil
	}
	if err != nil {
		return err
	}
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

// leastMissed is the share of requests from which on randomBound counts: runs of a test do not show rarer ones.
const leastMissed = 5e-4

// randomBound returns the rate per unit of weight that no plan of one model can be offered by random arrivals, given what
// the fluid program carries. If several models are deployed, or arrivals are no Poisson process, or hardly a
// request may be late, it returns +Inf.
//
// At a rate c of that program, a plan runs at most c T requests in any time T, whatever its batches. Requests that come
// within a time t and are answered in time run within t + SLO, so at most c (t + SLO) of them are. Of all
// ways to choose requests under that limit, taking each that still fits chooses most. That is a server of speed c that
// turns a request away if it finds work for more than c SLO - 1 requests.
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

// reached returns whether the best plan is within the gap asked of the bound of all plans.
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

// widest returns the shape that the options allow.
func widest(a *tuning) shape {
	v := a.p.Values
	return shape{v.Whole("max-batch"), v.Whole("max-partitions"), v.Number("batch-build"), false}
}

// same is a setting with one margin for all models that the workload leaves open.
func (a *tuning) same(margin float64, of shape) setting {
	s := setting{of, make([]formats.Headroom, len(a.models))}
	for i := range s.headroom {
		s.headroom[i] = a.fixed(i, formats.Headroom{Margin: margin, Utilisation: 1})
	}
	return s
}

// begin tries the headroom of the plan that runs; if none runs, or it has no plan here, it tries one margin for all models.
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

// neighbours tries settings with one margin for all, the nearest to the best one first. The
// first halves of the largest batch count from what the best plan uses.
func neighbours(ctx context.Context, a *tuning) error {
	if a.first != nil || a.best != nil && a.running() != nil {
		return nil
	}
	most := widest(a)
	// Fewer stages, halves of batches, delays of filling them, margins.
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
			infeasible = min(infeasible, next[3]) // more margin leaves less
		}
		if a.best == nil || t == a.best {
			at = next
		}
	}
	return nil
}

// halved is a largest batch: the one that is allowed, or so many halves of the largest that
// any plan used.
func halved(a *tuning, times int) int {
	if times == 0 {
		return a.p.Values.Whole("max-batch")
	}
	return max(1, a.largestBatch()>>times)
}

// largestBatch is the largest batch that a plan without halved batches used.
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

// grows tells whether more of the objective is better.
func (a *tuning) grows() bool {
	c := choicesOf(a.p.Values)
	return c.sense() == milp.Maximize
}

// promises tells whether a plan is the better one to go on from.
func (a *tuning) promises(s, t *attempt) bool {
	if a.grows() {
		return s.hope > t.hope
	}
	return a.compare(s, t) > 0
}

// running is what a plan that runs keeps back; nil where that is not known.
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

// fixed is what is kept back of a model, with what the workload says itself.
func (a *tuning) fixed(i int, h formats.Headroom) formats.Headroom {
	m := &a.models[i]
	if m.Margin != nil {
		h.Margin = *m.Margin
	}
	h.Utilisation = cmp.Or(m.Utilisation, h.Utilisation)
	return h
}

// balance plans for what the models sustained, from the plan that promises most.
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
			return nil // the same plan, at smaller promises
		}
		next, err := a.try(ctx, setting{from.shape, headroom})
		if err != nil || next == nil || a.best != next || a.grows() && next.rate < from.rate*(1+worthwhile) {
			return err
		}
		from = next
	}
	return nil
}

// refine solves to the gap asked for what the best plan keeps back.
func refine(ctx context.Context, a *tuning) error {
	if a.best == nil || a.overBudget != nil || len(a.best.loads) == 0 || reached(a) {
		return nil
	}
	s := setting{a.best.shape, a.balanced(a.best)}
	s.exact = true
	_, err := a.try(ctx, s)
	return err
}

// alike tells whether all models may use the same part of what they may under was: their
// shares of the devices stay as they are.
func alike(kept, was []formats.Headroom) bool {
	part := func(i int) float64 { return kept[i].Utilisation / was[i].Utilisation }
	for i := range kept {
		if math.Abs(part(i)-part(0)) > tolerance {
			return false
		}
	}
	return true
}

// balanced is what to keep back where the models sustain what they do in a plan.
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

// progress tells of a part of a trial, in two halves: solving and simulating.
func (a *tuning) progress(setting string, u kind.Progress, from float64) {
	if a.p.Progress == nil {
		return
	}
	u.Phase = setting + ": " + u.Phase
	spent := min(float64(a.work)/float64(a.budget), 0.95)
	u.Fraction = spent + (1-spent)*(from+u.Fraction/2)/10
	a.p.Progress(u)
}

// try plans and simulates. It returns nil where there is no such plan, where it was tried, or where the
// budget does not allow its runs; the first plan is then the best, and says that it is not confirmed.
func (a *tuning) try(ctx context.Context, s setting) (*attempt, error) {
	if slices.ContainsFunc(a.all, func(t *attempt) bool { return t.equal(s) }) {
		return nil, nil
	}
	res, err := solved(ctx, a, s, leastValue(a, s))
	if res == nil || err != nil {
		return nil, err
	}
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
		if a.best == nil && ctx.Err() != nil { // better an uncertified plan than none
			a.best = t
			return t, nil
		}
		return nil, err
	}
	t.trial = t.rate
	a.all = append(a.all, t)
	if a.best == nil || a.compare(t, a.best) > 0 {
		a.best = t
	}
	return t, nil
}

// solved plans for a setting. It returns nil if there is no such plan. A plan below least need not be good.
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

// leastValue is the value below which a plan of a setting is not simulated: hardly a plan sustains more than its replicas carry.
func leastValue(a *tuning, s setting) float64 {
	if a.best == nil || !a.grows() {
		return 0
	}
	return a.best.rate * slices.MinFunc(s.headroom, byUtilisation).Utilisation
}

// problem is the problem with a setting.
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

// usual is the margin of most models.
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

// floor is the rate that a model is to have at least.
func (a *tuning) floor(i int) float64 {
	return max(a.models[i].MinRPS, a.p.Values.Number("min-load")*cmp.Or(a.models[i].Weight, 1))
}

// compare is above 0 where s is the better one.
func (a *tuning) compare(s, t *attempt) int {
	if a.grows() {
		return cmp.Compare(s.rate, t.rate)
	}
	// First to carry the floors, then the least of what is paid.
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

// tried says what was tried and what came of it.
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

// said is a setting in words: what is kept back, and batches and stages where they are fewer
// than the options allow.
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

// keptBack says what is kept back: one margin, or those of the models in order, and where
// less is promised than replicas carry, how much.
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
