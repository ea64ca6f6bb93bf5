package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// Options steer a solve.
type Options struct {
	Gap    float64 // relative gap at which to stop
	Effort int     // multiplies the work limits; 1 is the default
	Seed   int32
	// Earlier are templates to have among those that column generation makes.
	Earlier []Template
	// Progress is called from the solving goroutine; it must return soon.
	Progress func(Progress)
}

// Progress is the state of a solve: values are in requests/s per weight.
type Progress struct {
	Phase        string
	Value, Bound float64 // NaN while unknown
	Incumbent    bool    // Value has just improved
	Detail       string
}

// Phase is the work of one phase.
type Phase struct {
	Name       string
	Pipelines  int // templates in the program
	Nodes      int64
	Iterations int64
	Value      float64 // best plan after it
	Bound      float64 // best bound after it
}

// Outcome is the best plan found, with its proof.
type Outcome struct {
	Pipelines []Pipeline // by model, then by falling rate
	RPS       []float64  // per model
	Value     float64
	Bound     float64
	StoppedBy milp.StoppedBy
	Templates int // possible pipelines, less the dominated ones
	Phases    []Phase
	Limits    []Limit
	// Exempt are the models whose pipelines may wait longer on a time-shared
	// pool than their SLO allows.
	Exempt   []int
	Warnings []string
}

// Pipeline is a chosen template.
type Pipeline struct {
	Template
	RPS      float64
	Replicas []int
	Devices  []float64 // per stage: replicas/share, or the share of the pool's time
	Placed   [][]Run
}

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
)

// search is a solve under way.
type search struct {
	p         *Problem
	s         milp.Solver
	o         Options
	u         units
	templates []Template
	allowed   []int // templates under the blocking rule
	lp        *relaxation
	loss      []float64 // per template; +Inf where not allowed
	best      *counts
	rule      *blocking
	inner     float64 // proven over the allowed templates, in units
	other     float64 // proven over the other choices of the blocking rule
	out       *Outcome
	stopped   milp.StoppedBy
	partial   bool // the templates are not all there are
}

// Solve plans for throughput: max min over models of rps / weight, and then,
// at that value, the largest weighted sum of rps. When ctx ends after a plan
// was found, it returns that plan; StoppedBy tells.
func Solve(ctx context.Context, p *Problem, s milp.Solver, o Options) (*Outcome, error) {
	o.Effort = max(o.Effort, 1)
	x, err := newSearch(ctx, p, s, o)
	if err != nil {
		return nil, err
	}
	if err := x.plan(ctx); err != nil {
		return nil, err
	}
	if err := x.served(ctx); err != nil {
		return nil, err
	}
	if err := x.largestSum(ctx); err != nil {
		return nil, err
	}
	if err := x.leastLatency(ctx); err != nil {
		return nil, err
	}
	return x.finish(ctx)
}

// newSearch lists the templates and solves the relaxation.
func newSearch(ctx context.Context, p *Problem, s milp.Solver, o Options) (*search, error) {
	if p.generates() {
		return p.generated(ctx, s, o)
	}
	templates, err := p.list()
	if err != nil {
		return nil, err
	}
	x := &search{p: p, s: s, o: o, u: p.units(templates), templates: templates, out: &Outcome{Templates: len(templates)}}
	x.report("pipelines", fmt.Sprintf("%d possible pipelines", len(templates)))
	if err := x.relax(ctx); err != nil {
		return nil, x.explain(ctx, err)
	}
	return x, nil
}

// generated is newSearch by column generation.
func (p *Problem) generated(ctx context.Context, s milp.Solver, o Options) (*search, error) {
	c, r, err := p.generate(ctx, s, o.Earlier)
	x := &search{p: p, s: s, o: o, partial: true, out: &Outcome{}}
	if c != nil {
		x.u, x.templates, x.allowed = c.u, c.list, all(len(c.list))
		x.out.Templates = len(c.list)
	}
	if err != nil {
		if c == nil || !errors.Is(err, errInfeasible) {
			return nil, err
		}
		return nil, x.explain(ctx, err)
	}
	x.report("pipelines", fmt.Sprintf("%d pipelines generated in %d rounds", len(c.list), c.rounds))
	x.lp, x.inner = r, r.bound
	x.weigh()
	x.phase("relaxation", len(x.allowed), milp.Stats{})
	return x, nil
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
func (p *Problem) list() ([]Template, error) {
	var all []Template
	for d := range p.Models {
		list, tooBig, err := p.enumerate(d)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, p.noPipeline(d, tooBig)
		}
		if all = append(all, list...); len(all) > maxTemplates {
			return nil, fmt.Errorf("%w: more than %d", ErrTooMany, maxTemplates)
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
		pr.Value = x.best.value
	}
	if b := x.bound(); b > 0 {
		pr.Bound = x.theta(b)
	}
	x.o.Progress(pr)
}

// relax solves the linear program over all templates, for every choice that
// the blocking rule leaves, and keeps the best choice.
func (x *search) relax(ctx context.Context) error {
	choices, exact := x.p.blockings(x.templates)
	if choices == nil {
		choices = []*blocking{nil}
	}
	var bounds []float64
	chosen := -1
	for _, b := range choices {
		set := x.under(b)
		if b != nil && len(b.unserved(x.p, x.templates)) > 0 {
			continue
		}
		r, err := x.p.relax(ctx, x.s, x.u, x.templates, set, -1)
		if err != nil {
			if !errors.Is(err, errInfeasible) {
				return err
			}
			continue
		}
		if x.lp == nil || r.value > x.lp.value*(1+1e-9) {
			x.lp, x.allowed, x.rule, chosen = r, set, b, len(bounds)
		}
		bounds = append(bounds, r.bound)
	}
	if x.lp == nil {
		return errInfeasible
	}
	for i, b := range bounds {
		if i != chosen {
			x.other = max(x.other, b)
		}
	}
	x.inner = x.lp.bound
	if !exact {
		// The choices that were left out could be better: the bound is then
		// that of the program without the rule.
		all := make([]int, len(x.templates))
		for i := range all {
			all[i] = i
		}
		r, err := x.p.relax(ctx, x.s, x.u, x.templates, all, -1)
		if err != nil {
			return err
		}
		x.other = max(x.other, r.bound)
	}
	if x.rule != nil {
		for d, e := range x.rule.exempt {
			if e {
				x.out.Exempt = append(x.out.Exempt, d)
			}
		}
	}
	x.weigh()
	x.phase("relaxation", len(x.allowed), milp.Stats{})
	return nil
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
	ph := Phase{Name: name, Pipelines: n, Nodes: st.Nodes, Iterations: st.Iterations, Bound: x.theta(x.bound())}
	if x.best != nil {
		ph.Value = x.best.value
	}
	x.out.Phases = append(x.out.Phases, ph)
	x.report(name, fmt.Sprintf("%d pipelines", n))
}

// value is the best plan's objective in units, 0 without one.
func (x *search) value() float64 {
	if x.best == nil {
		return 0
	}
	return x.best.value / x.u.theta
}

// bound is the best proven bound on any plan, in units.
func (x *search) bound() float64 { return max(x.inner, x.other, x.value()) }

// gap is (bound - value) / bound.
func (x *search) gap() float64 {
	b := x.bound()
	if !(b > 0) {
		return 0
	}
	return (b - x.value()) / b
}

// proof is the relative gap that counts as proved.
const proof = 1e-6

// plan runs the integer programs until the gap closes or the work is done.
func (x *search) plan(ctx context.Context) error {
	basis := slices.Clone(x.lp.used)
	if x.shrink(); x.best != nil {
		x.phase("rounding", len(basis), milp.Stats{})
		if x.done(ctx) {
			return nil
		}
	}
	if _, err := x.integer(ctx, "basis", basis, basisNodes); err != nil {
		return err
	}
	if x.done(ctx) {
		return nil
	}
	if len(x.p.Models) >= manyModels && x.best != nil && !slices.ContainsFunc(x.p.Pools, func(p Pool) bool { return p.Time }) {
		if err := x.bundles(ctx); err != nil {
			return err
		}
		if x.done(ctx) || x.partial {
			return nil // the programs that follow are too large for what is left
		}
	}
	ranked := x.ranked()
	small := x.pick(ranked, basis, poolPerModel)
	solved, err := x.integer(ctx, "pool", small, poolNodes)
	if err != nil {
		return err
	}
	if x.done(ctx) {
		return nil
	}
	// What a better plan could use: the rest cannot be in one.
	var survivors []int
	for _, i := range ranked {
		if x.loss[i] < x.lp.bound-x.value() {
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
// whose replicas, rounded up, fit the devices. On large clusters it is close to
// the bound at once; elsewhere it is a start.
func (x *search) shrink() {
	if slices.ContainsFunc(x.p.Pools, func(p Pool) bool { return p.Time }) {
		return
	}
	at := func(f float64) *counts {
		list := make([]count, len(x.lp.used))
		for i, ti := range x.lp.used {
			t := &x.templates[ti]
			c := count{template: ti, model: t.Model, replicas: make([]int, len(t.Stages))}
			for si := range t.Stages {
				c.replicas[si] = int(math.Ceil(f*x.lp.rate[i]*x.u.rps[t.Model]/t.Stages[si].Rate - 1e-9))
			}
			list[i] = c
		}
		return x.p.recount(x.templates, list)
	}
	lo, hi := 0.0, 1.0
	for range shrinkSteps {
		mid := (lo + hi) / 2
		if c := at(mid); c != nil {
			lo = mid
			if c.value > 0 && (x.best == nil || c.value > x.best.value) {
				x.best = c
			}
		} else {
			hi = mid
		}
	}
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
	if x.best != nil {
		for _, c := range x.best.list {
			set = append(set, c.template)
		}
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := x.p.mip(x.u, x.templates, set, x.inner, 0)
	o := milp.Options{
		Gap:             max(x.o.Gap/2, proof),
		MaxNodes:        nodes * int64(x.o.Effort),
		MaxIterations:   min(nodes*iterationsPer, columnsWork/int64(q.m.NumVars())) * int64(x.o.Effort),
		Seed:            x.o.Seed,
		HeuristicEffort: heuristicEffort,
	}
	if x.best != nil {
		o.Start = q.start(x.u, x.best)
	}
	if x.o.Progress != nil {
		o.Incumbent = func(in milp.Incumbent) {
			// The solver's figures, for the progress line; the plan's own are recomputed.
			if v := x.theta(in.Value); x.best == nil || v > x.best.value {
				x.o.Progress(Progress{Phase: name, Value: v, Bound: x.theta(x.bound()), Incumbent: true})
			}
		}
	}
	sol, err := x.s.Solve(ctx, q.m, o)
	if err != nil {
		return false, fmt.Errorf("solving the integer program over %d pipelines: %w", len(set), err)
	}
	if sol.Feasible() {
		if c := q.read(x.p, x.u, x.templates, sol); c != nil && (x.best == nil || c.value > x.best.value) {
			x.best = c
		}
	}
	upper := math.Inf(1)
	switch sol.Status {
	case milp.Optimal, milp.Gap:
		upper, solved = sol.Bound, true
	case milp.Infeasible:
		upper, solved = 0, true
	default:
		if !math.IsNaN(sol.Bound) {
			upper = sol.Bound
		}
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
	x.inner = max(min(x.inner, max(upper, x.lp.bound-outside)), x.value())
	x.phase(name, len(set), sol.Stats)
	return solved, nil
}

// largestSum looks, among the plans of the best objective, for the one with the
// largest weighted sum of rates, so that no model is left with needless slack.
func (x *search) largestSum(ctx context.Context) error {
	if len(x.p.Models) < 2 || ctx.Err() != nil {
		return nil
	}
	set := x.pick(x.ranked(), x.lp.used, poolPerModel)
	for _, c := range x.best.list {
		set = append(set, c.template)
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := x.p.mip(x.u, x.templates, set, x.value(), x.value()*(1-1e-9))
	if x.partial {
		q.pin(x.best) // the plan stays as it is: only what it leaves idle is looked at
	}
	q.m.SetObj(q.theta, 0)
	total := 0.0
	for d := range x.p.Models {
		total += x.p.Models[d].Weight * x.u.rps[d]
	}
	for i, ti := range set {
		d := x.templates[ti].Model
		q.m.SetObj(q.x[i], x.p.Models[d].Weight*x.u.rps[d]/total)
	}
	sol, err := x.s.Solve(ctx, q.m, milp.Options{
		Gap: 1e-3, MaxNodes: sumNodes * int64(x.o.Effort), MaxIterations: sumNodes * iterationsPer * int64(x.o.Effort),
		Seed: x.o.Seed, Start: q.start(x.u, x.best),
	})
	if err != nil {
		return fmt.Errorf("solving for the largest weighted sum: %w", err)
	}
	if sol.Feasible() {
		if c := q.read(x.p, x.u, x.templates, sol); c != nil && c.value >= x.best.value*(1-1e-12) && c.sum > x.best.sum {
			x.best = c
		}
	}
	x.phase("weighted sum", len(set), sol.Stats)
	return nil
}

// finish places the plan and writes the outcome.
func (x *search) finish(ctx context.Context) (*Outcome, error) {
	plan, where, warnings := x.p.place(x.templates, x.best)
	if plan == nil {
		return nil, fmt.Errorf("placing the plan: no replica can be left out to make %d pipelines fit", len(x.best.list))
	}
	if plan.value < x.best.value && x.stopped == milp.StoppedByProof {
		x.stopped = milp.StoppedByWork
	}
	x.best = plan
	o := x.out
	o.Warnings = append(o.Warnings, warnings...)
	o.RPS, o.Value = plan.rps, plan.value
	o.Bound = x.theta(x.bound())
	o.StoppedBy = x.stopped
	o.Pipelines = x.p.pipelines(x.templates, plan, where)
	o.Limits = x.limits(ctx)
	if ctx.Err() != nil {
		// Whatever was proved before, what came after was cut short.
		o.StoppedBy = milp.StoppedByInterrupt
	}
	return o, nil
}

// pipelines writes out a placed plan.
func (p *Problem) pipelines(templates []Template, plan *counts, where placed) []Pipeline {
	var out []Pipeline
	for ci, c := range plan.list {
		t := &templates[c.template]
		pl := Pipeline{Template: *t, RPS: c.rps, Replicas: slices.Clone(c.replicas), Placed: where[ci]}
		for si := range t.Stages {
			s := &t.Stages[si]
			if p.Pools[s.Pool].Time {
				pl.Replicas[si] = p.Pools[s.Pool].Count
				pl.Devices = append(pl.Devices, c.rps/s.Rate)
				continue
			}
			pl.Devices = append(pl.Devices, float64(c.replicas[si])/float64(s.Share))
		}
		out = append(out, pl)
	}
	slices.SortStableFunc(out, func(a, b Pipeline) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.RPS, a.RPS))
	})
	return out
}
