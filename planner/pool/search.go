package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Work limits per unit of effort. They were set so that the reference cases
// (100 devices, 3 models) end within seconds.
const (
	basisNodes      = 2000
	poolNodes       = 4000
	survivorNodes   = 12000
	sumNodes        = 300
	iterationsPer   = 60          // simplex iterations per node, as a second limit
	columnsWork     = 100_000_000 // simplex iterations times columns, as a third
	poolPerModel    = 15
	widePerModel    = 60
	maxSurvivors    = 1500
	heuristicEffort = 0.3
	stayHurry       = 16 // by which a re-plan looks at fewer nodes
	stayPerModel    = 6
)

// search is a solve under way.
type search struct {
	p         *Problem
	s         milp.Solver
	o         Options
	u         units
	goal      goal
	templates []stages.Template
	choices   []candidate // of the blocking rule, the best relaxation first
	unruled   float64     // proven over the choices that were left out
	allowed   []int       // templates under the blocking rule
	lp        *relaxation
	loss      []float64 // per template; +Inf where not allowed
	best      *counts
	rule      *blocking
	inner     float64 // proven over the allowed templates
	other     float64 // proven over the other choices of the blocking rule
	out       *Outcome
	stopped   milp.StoppedBy
	partial   bool     // the templates are not all there are
	stay      *staying // of a plan that runs; nil without one
}

// candidate is a choice of the blocking rule with its relaxation.
type candidate struct {
	rule    *blocking
	allowed []int
	lp      *relaxation
	bound   float64 // proven so far
}

// newSearch lists the templates, or generates them where they are too many, and
// solves the relaxation for every choice that the blocking rule leaves. The
// best choice is taken.
func newSearch(ctx context.Context, p *Problem, s milp.Solver, o Options, g goal) (*search, error) {
	x := &search{p: p, s: s, o: o, goal: g, unruled: math.Inf(-1), other: math.Inf(-1), out: &Outcome{}}
	x.o.Effort = max(o.Effort, 1)
	if p.generates() {
		return x, x.generate(ctx)
	}
	var err error
	if x.templates, err = p.list(); err != nil {
		return nil, err
	}
	x.u = p.units(x.templates)
	x.out.Templates = len(x.templates)
	x.remember()
	x.report("pipelines", fmt.Sprintf("%d possible pipelines", len(x.templates)))
	if err := x.relax(ctx); err != nil {
		return nil, x.explain(ctx, err)
	}
	x.take(0)
	return x, nil
}

// generate makes the templates by column generation.
func (x *search) generate(ctx context.Context) error {
	x.partial = true
	var running []stages.Template
	if x.o.Running != nil {
		x.p.stay(x.o.Running, func(t *stages.Template) int { running = append(running, *t); return 0 })
	}
	c, r, err := x.p.generate(ctx, x.s, x.goal.cost(), running)
	if c != nil {
		x.u, x.templates = c.u, c.list
		x.out.Templates = len(c.list)
		x.remember()
		x.allowed = all(len(x.templates))
	}
	if err != nil {
		if c == nil || !errors.Is(err, errInfeasible) {
			return err
		}
		return x.explain(ctx, err)
	}
	x.report("pipelines", fmt.Sprintf("%d pipelines generated in %d rounds", len(c.list), c.rounds))
	x.choices = []candidate{{allowed: x.allowed, lp: r, bound: r.bound}}
	x.take(0)
	return nil
}

// relax solves the linear program over all templates, for every choice that
// the blocking rule leaves.
func (x *search) relax(ctx context.Context) error {
	choices, exact := x.p.blockings(x.templates)
	if choices == nil {
		choices = []*blocking{nil}
	}
	solve := func(set []int) (*relaxation, error) {
		return x.p.relax(ctx, x.s, x.u, x.goal.cost(), x.templates, set, -1)
	}
	for _, b := range choices {
		set := x.under(b)
		if b != nil && len(b.unserved(x.p, x.templates)) > 0 {
			continue
		}
		r, err := solve(set)
		if errors.Is(err, errInfeasible) {
			continue
		}
		if err != nil {
			return err
		}
		x.choices = append(x.choices, candidate{b, set, r, r.bound})
	}
	if len(x.choices) == 0 {
		return errInfeasible
	}
	// Of alike ones the first: the solver's noise does not decide.
	order := func(c candidate) float64 { return -math.Round(c.lp.value*1e9) / 1e9 }
	slices.SortStableFunc(x.choices, func(a, b candidate) int { return cmp.Compare(order(a), order(b)) })
	if !exact {
		// The choices that were left out could be better: the bound is then
		// that of the program without the rule.
		r, err := solve(all(len(x.templates)))
		if err != nil {
			return err
		}
		x.unruled = r.bound
	}
	return nil
}

// take goes on with a choice of the blocking rule.
func (x *search) take(i int) {
	c := &x.choices[i]
	x.lp, x.allowed, x.rule = c.lp, c.allowed, c.rule
	x.inner, x.other = c.bound, x.unruled
	for j := range x.choices {
		if j != i {
			x.other = max(x.other, x.choices[j].bound)
		}
	}
	x.out.Exempt = nil
	if x.rule != nil {
		for d, e := range x.rule.exempt {
			if e {
				x.out.Exempt = append(x.out.Exempt, d)
			}
		}
	}
	x.weigh()
	if c.bound == c.lp.bound {
		x.phase("relaxation", len(x.allowed), milp.Stats{})
	}
}

// each plans under each of the first most choices of the blocking rule that may
// still hold something better than the best plan; without a plan that serves
// every model, which memory may be too small for, also under those that follow.
func (x *search) each(ctx context.Context, most int) error {
	at, best := 0, 0
	for i := range x.choices {
		if i > 0 {
			if ctx.Err() != nil || i >= most && x.best != nil && x.best.value > 0 {
				break
			}
			if score := x.score(); x.best != nil && x.choices[i].bound <= score+proof*math.Abs(score) {
				continue
			}
			x.take(i)
			at = i
		}
		before := x.best
		if err := x.plan(ctx); err != nil {
			return err
		}
		if x.best != before {
			best = i
		}
		x.choices[i].bound = min(x.choices[i].bound, x.inner)
		if x.best != nil && x.done(ctx) {
			break
		}
	}
	if at != best {
		x.take(best)
		x.done(ctx)
	}
	return nil
}

// weigh works out the losses.
func (x *search) weigh() {
	x.loss = slices.Repeat([]float64{math.Inf(1)}, len(x.templates))
	for _, i := range x.allowed {
		x.loss[i] = x.p.loss(x.u, &x.templates[i], x.lp)
	}
}

// served tells whether there is a plan that serves every model, and else why not.
func (x *search) served(ctx context.Context) error {
	if x.best != nil && x.best.value > 0 {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("planning ended before the first plan was found: %w", context.Cause(ctx))
	}
	return x.explain(ctx, errNoPlan)
}

// list enumerates the templates of all models; an *Infeasible names the models
// that have none.
func (p *Problem) list() ([]stages.Template, error) {
	var all []stages.Template
	for d := range p.Models {
		list, tooBig, err := p.enumerate(d)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, p.noPipeline(d, tooBig)
		}
		if all = append(all, list...); len(all) > stages.MaxTemplates {
			return nil, fmt.Errorf("%w: more than %d", stages.ErrTooMany, stages.MaxTemplates)
		}
	}
	return all, nil
}

func (x *search) theta(v float64) float64 { return v * x.u.theta }

func (x *search) report(phase, detail string) {
	if x.o.Progress == nil {
		return
	}
	pr := Progress{Phase: phase, Value: math.NaN(), Bound: math.NaN(), Detail: detail}
	if x.best != nil {
		pr.Value = x.shown(x.score())
	}
	if b := x.bound(); len(x.choices) > 0 && !math.IsInf(b, 0) {
		pr.Bound = x.shown(b)
	}
	x.o.Progress(pr)
}

// under lists the templates that keep the blocking rule.
func (x *search) under(b *blocking) []int {
	var set []int
	for i := range x.templates {
		if b.allows(x.p, &x.templates[i]) {
			set = append(set, i)
		}
	}
	return set
}

func (x *search) phase(name string, n int, st milp.Stats) {
	ph := Phase{Name: name, Pipelines: n, Nodes: st.Nodes, Iterations: st.Iterations, Bound: x.shown(x.bound())}
	if x.best != nil {
		ph.Value = x.shown(x.score())
	}
	x.out.Phases = append(x.out.Phases, ph)
	x.report(name, fmt.Sprintf("%d pipelines", n))
}

// score is the best plan's, in units.
func (x *search) score() float64 {
	if x.best == nil {
		return x.goal.none()
	}
	return x.goal.score(x, x.best)
}

func (x *search) shown(score float64) float64 { return x.goal.shown(x, score) }

// value is the throughput of the best plan, in units; 0 without one.
func (x *search) value() float64 {
	if x.best == nil {
		return 0
	}
	return x.best.value / x.u.theta
}

// bound is the best proven bound on the score of any plan.
func (x *search) bound() float64 {
	return max(x.goal.tighten(max(x.inner, x.other)), x.score())
}

// gap is the relative distance of the best plan to the bound.
func (x *search) gap() float64 { return x.goal.gap(x.score(), x.bound()) }

// keep takes a plan that is better than the best one. What does not fit on
// devices one by one counts without what is in the way.
func (x *search) keep(c *counts) {
	better := func() bool { return c != nil && (x.best == nil || x.goal.score(x, c) > x.score()) }
	if !better() {
		return
	}
	if c, _, _ = x.p.place(x.templates, c, nil); better() && x.movesLittle(c) {
		x.best = c
	}
}

// proof is the relative gap that counts as proved.
const proof = 1e-6

// plan runs the integer programs until the gap closes or the work is done.
func (x *search) plan(ctx context.Context) error {
	basis := slices.Clone(x.lp.used)
	if x.stay != nil {
		x.keep(x.p.recount(x.templates, x.stay.list))
		x.phase("what runs", len(x.stay.list), milp.Stats{})
		if x.best != nil && x.value() > 0 && x.done(ctx) {
			return nil
		}
		for _, c := range x.stay.list {
			basis = append(basis, c.template)
		}
		slices.Sort(basis)
		basis = slices.Compact(basis)
	}
	if x.shrink(); x.best != nil {
		x.phase("rounding", len(basis), milp.Stats{})
		if x.done(ctx) {
			return nil
		}
	}
	hurry := int64(1)
	if x.stay != nil {
		hurry = stayHurry
	}
	bundled := x.many() && x.best != nil
	if !bundled {
		if _, err := x.integer(ctx, "basis", basis, basisNodes/hurry); err != nil {
			return err
		}
		if x.done(ctx) {
			return nil
		}
		if err := x.wholePerModel(ctx); err != nil {
			return err
		}
		if x.done(ctx) {
			return nil
		}
		if x.sums(lossWork, false) {
			x.sums(lossMore*lossWork, true)
		}
		if x.done(ctx) {
			return nil
		}
	}
	if bundled {
		if err := x.bundles(ctx); err != nil {
			return err
		}
		if x.done(ctx) || x.partial {
			return nil // the programs that follow are too large for what is left
		}
	}
	ranked := x.ranked()
	small := x.pick(ranked, basis, x.perModel())
	solved, err := x.integer(ctx, "pool", small, poolNodes/hurry)
	if err != nil {
		return err
	}
	if x.done(ctx) {
		return nil
	}
	// The plan is better now, so there is less to look at.
	if x.sums(lossMore*lossWork, false) {
		x.sums(lossMore*lossWork, true)
	}
	if x.done(ctx) {
		return nil
	}
	if x.stay != nil && x.o.Effort == 1 {
		return nil // a re-plan is wanted soon: its proof only with more effort
	}
	// What a better plan could use: the rest cannot be in one.
	var survivors []int
	for _, i := range ranked {
		if x.loss[i] < x.lp.bound-x.score() {
			survivors = append(survivors, i)
		}
	}
	if solved && subset(survivors, small) {
		return nil
	}
	if len(survivors) > maxSurvivors*x.o.Effort {
		survivors = x.pick(ranked, basis, widePerModel*x.o.Effort)
	}
	if _, err := x.integer(ctx, "survivors", survivors, survivorNodes); err != nil {
		return err
	}
	x.done(ctx)
	return nil
}

// shrinkSteps are the halvings by which shrink looks for its factor.
const shrinkSteps = 24

// shrink makes a plan of the relaxation: all its rates times the largest factor
// whose replicas, rounded up, fit the devices; for the least price, which asks
// for fixed rates, the rates as they are. On large clusters it is close to the
// bound at once; elsewhere it is a start.
func (x *search) shrink() {
	if x.timed() {
		return
	}
	at := func(f float64) *counts {
		list := make([]count, len(x.lp.used))
		for i, ti := range x.lp.used {
			t := &x.templates[ti]
			list[i] = carry(t, ti, f*x.lp.rate[i]*x.u.rps[t.Model])
		}
		return x.p.recount(x.templates, list)
	}
	if x.goal.cost() != nil {
		x.keep(at(1))
		return
	}
	lo, hi := 0.0, 1.0
	var most *counts
	for range shrinkSteps {
		mid := (lo + hi) / 2
		if c := at(mid); c != nil {
			lo = mid
			if c.value > 0 && (most == nil || c.value > most.value) {
				most = c
			}
		} else {
			hi = mid
		}
	}
	x.keep(most)
}

// perModel is how many templates of each model the small program has beside
// those of the basis.
func (x *search) perModel() int {
	if x.stay != nil {
		return stayPerModel
	}
	return poolPerModel
}

// many tells whether bundles are tried.
func (x *search) many() bool { return len(x.p.Models) >= manyModels && !x.timed() }

// timed tells whether there is a time-shared pool.
func (x *search) timed() bool {
	return slices.ContainsFunc(x.p.Pools, func(p stages.Pool) bool { return p.Time })
}

// placeable tells whether a plan fits on devices one by one.
func (x *search) placeable(c *counts) bool {
	_, stuck := x.p.tryPlace(x.templates, c, nil)
	return stuck < 0
}

// done tells whether to stop, and notes why.
func (x *search) done(ctx context.Context) bool {
	g := x.gap()
	switch {
	case g <= proof:
		x.stopped = milp.StoppedByProof
	case g <= x.o.Gap:
		x.stopped = milp.StoppedByGap
	case ctx.Err() != nil:
		x.stopped = milp.StoppedByInterrupt
	default:
		x.stopped = milp.StoppedByWork
		return false
	}
	return true
}

// ranked lists the allowed templates by rising loss.
func (x *search) ranked() []int {
	out := slices.Clone(x.allowed)
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(x.loss[a], x.loss[b]) })
	return out
}

// pick takes the basis and the first n of each model.
func (x *search) pick(ranked, basis []int, n int) []int {
	taken := make([]int, len(x.p.Models))
	in := make(map[int]bool, len(basis))
	for _, i := range basis {
		in[i] = true
	}
	for _, i := range ranked {
		if d := x.templates[i].Model; taken[d] < n && !math.IsInf(x.loss[i], 1) {
			taken[d]++
			in[i] = true
		}
	}
	out := make([]int, 0, len(in))
	for i := range in {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

func subset(a, b []int) bool {
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); !ok {
			return false
		}
	}
	return true
}

// integer solves the program over a set of templates (and those of the best
// plan), keeps a better plan, and lowers the bound by what the program proves:
// a plan that uses a template outside the set loses at least that template's
// loss. It tells whether the program was solved to its gap.
func (x *search) integer(ctx context.Context, name string, set []int, nodes int64) (solved bool, err error) {
	set = slices.Clone(set)
	// A plan under another choice is no start where it breaks this one.
	started := x.best != nil && !slices.ContainsFunc(x.best.list, func(c count) bool { return math.IsInf(x.loss[c.template], 1) })
	if started {
		for _, c := range x.best.list {
			set = append(set, c.template)
		}
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := x.goal.program(x, set)
	if x.stay != nil {
		x.limitMoves(q, x.stay.most)
	}
	o := milp.Options{
		Gap:             max(x.o.Gap/2, proof),
		MaxNodes:        nodes * int64(x.o.Effort),
		MaxIterations:   min(nodes*iterationsPer, columnsWork/int64(q.m.NumVars())) * int64(x.o.Effort),
		Seed:            x.o.Seed,
		HeuristicEffort: heuristicEffort,
	}
	if started {
		o.Start = x.start(q, x.best)
	}
	if x.o.Progress != nil {
		o.Incumbent = func(in milp.Incumbent) {
			// The solver's figures, for the progress line; the plan's own are recomputed.
			if x.best == nil || in.Value > x.score() {
				x.o.Progress(Progress{Phase: name, Value: x.shown(in.Value), Bound: x.shown(x.bound()), Incumbent: true})
			}
		}
	}
	sol, err := x.s.Solve(ctx, q.m, o)
	if err != nil {
		return false, fmt.Errorf("solving the integer program over %d pipelines: %w", len(set), err)
	}
	if sol.Feasible() {
		x.keep(q.read(x.p, x.u, x.templates, sol))
	}
	var upper float64
	switch sol.Status {
	case milp.Optimal, milp.Gap:
		upper, solved = sol.Bound, true
	case milp.Infeasible:
		upper, solved = x.goal.none(), true
	default:
		upper = sol.Bound
	}
	if math.IsNaN(upper) {
		upper = math.Inf(1) // the solver has no bound: the program proves nothing
	}
	outside := math.Inf(1)
	if x.partial {
		outside = 0 // what was not generated may lose nothing
	}
	for _, i := range x.allowed {
		if _, ok := slices.BinarySearch(set, i); !ok {
			outside = min(outside, x.loss[i])
		}
	}
	if x.stay != nil && x.stay.tries > 0 {
		upper = x.inner // the program was of plans that move less than asked
	}
	x.inner = max(min(x.inner, max(upper, x.lp.bound-outside)), x.score())
	x.phase(name, len(set), sol.Stats)
	return solved, nil
}
