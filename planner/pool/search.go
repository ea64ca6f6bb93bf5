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

// Limits of the work, per unit of effort. They were set so that the reference cases (100 devices, 3 models) end
// within seconds.
const (
	basisNodes      = 2000        // branch-and-bound nodes of the program over the templates of the relaxation's basis
	poolNodes       = 4000        // of the program over few templates of each model
	survivorNodes   = 12000       // of the program over all templates that a better plan may use
	sumNodes        = 300         // of the program for the weighted sum
	iterationsPer   = 60          // simplex iterations per node, as a second limit
	columnsWork     = 100_000_000 // simplex iterations times columns, as a third
	poolPerModel    = 15          // templates of each model in the program over few
	widePerModel    = 60          // templates of each model, if too many survive
	maxSurvivors    = 1500        // most templates of the program over survivors
	heuristicEffort = 0.3
	stayHurry       = 16  // divides the nodes of a re-plan
	soonHurry       = 16  // divides the nodes if a plan is wanted soon
	stallNodes      = 160 // nodes without a better plan, if one is wanted soon
	stayPerModel    = 6   // templates of each model in a re-plan
)

// planSearch is the state of a solve.
type search struct {
	incumbent
	*candidate // the wait choice under work
	s          milp.Solver
	o          Options
	choices    []candidate // the best relaxation first
	sieves     []*sieve    // by model; nil if all templates are listed in the catalogue
	unruled    float64     // proven over the wait choices that were left out
	inner      float64     // proven over the templates of the choice under work
	other      float64     // proven over the other wait choices
	most       *Outcome    // plan that carries the largest part of the floors; nil if it was not looked for
	mostErr    error       // why there is no such plan
	out        *Outcome
	stopped    milp.StoppedBy
}

// newSearch lists the templates, or generates them if they are too many, and solves the relaxation of every wait
// choice. The search starts with the choice of the best relaxation.
func newSearch(ctx context.Context, p *Problem, s milp.Solver, o Options, g goal) (*search, error) {
	x := &search{incumbent: incumbent{goal: g}, s: s, o: o, unruled: math.Inf(-1), other: math.Inf(-1), out: &Outcome{}}
	x.o.Effort = max(o.Effort, 1)
	if p.generates() {
		return x, x.generate(ctx, p)
	}
	var err error
	if x.catalogue, err = p.list(); err != nil {
		return nil, err
	}
	x.out.Templates = len(x.templates)
	x.remember()
	x.report("pipelines", fmt.Sprintf("%d possible pipelines", len(x.templates)))
	if err := x.relaxChoices(ctx); err != nil {
		return nil, x.explain(ctx, err)
	}
	x.take(0)
	return x, nil
}

// generateTemplates makes the templates by column generation.
func (x *search) generate(ctx context.Context, p *Problem) error {
	// Templates of the plan that runs take part in any case.
	var running []stages.Template
	if x.o.Running != nil {
		p.whatRuns(x.o.Running, func(t *stages.Template) int { running = append(running, *t); return 0 })
	}
	c, r, err := p.generate(ctx, x.s, x.goal.cost(), running)
	if c != nil {
		x.catalogue, x.sieves = c.catalogue, c.sieves
		x.out.Templates = len(c.templates)
		x.remember()
		x.candidate = &candidate{of: x.catalogue, allowed: all(len(x.templates)), lp: r}
	}
	if err != nil {
		if c == nil || !errors.Is(err, errInfeasible) {
			return err
		}
		return x.explain(ctx, err)
	}
	x.report("pipelines", fmt.Sprintf("%d pipelines generated in %d rounds", x.out.Templates, c.rounds))
	x.bound = r.bound
	x.choices = []candidate{*x.candidate}
	x.take(0)
	return nil
}

// relaxChoices solves the linear program over all templates of every wait choice.
func (x *search) relaxChoices(ctx context.Context) error {
	choices, exact := x.blockings()
	solve := func(set []int) (*relaxation, error) { return x.relax(ctx, x.s, x.goal.cost(), set, -1) }

	// Choices under which some model has no template, or floors cannot be met, are left out.
	for _, b := range choices {
		set := x.under(b)
		if b != nil && len(x.unserved(b)) > 0 {
			continue
		}
		r, err := solve(set)
		if errors.Is(err, errInfeasible) {
			continue
		}
		if err != nil {
			return err
		}
		x.choices = append(x.choices, candidate{of: x.catalogue, rule: b, allowed: set, lp: r, bound: r.bound})
	}
	if len(x.choices) == 0 {
		return errInfeasible
	}
	// Of equal values the first comes first, so that the solver's noise does not decide.
	order := func(c candidate) float64 { return -math.Round(c.lp.value*1e9) / 1e9 }
	slices.SortStableFunc(x.choices, func(a, b candidate) int { return cmp.Compare(order(a), order(b)) })
	if !exact {
		// A choice that was left out could be better. The bound is then that of the program without the rule.
		r, err := solve(all(len(x.templates)))
		if err != nil {
			return err
		}
		x.unruled = r.bound
	}
	return nil
}

// selectChoice goes on with a wait choice: it sets the bounds, the exempt models and the losses.
func (x *search) take(i int) {
	c := &x.choices[i]
	x.candidate, x.inner, x.other = c, c.bound, x.unruled
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

// planChoices plans under each of the first maxChoices wait choices that may still hold a better plan. While no
// plan serves every model, which may be for lack of memory, it also plans under those that follow.
func (x *search) each(ctx context.Context, most int) error {
	at, best := 0, 0
	for i := range x.choices {
		// After the first choice, stop or skip choices that cannot hold a better plan.
		if i > 0 {
			if ctx.Err() != nil || i >= most && x.best != nil && x.best.value > 0 {
				break
			}
			if i == 1 {
				if err := x.dropHopeless(ctx, i); err != nil {
					return err
				}
			}
			score := x.score()
			if x.choices[i].bound <= x.goal.none() || x.best != nil && x.choices[i].bound <= score+proof*math.Abs(score) {
				continue
			}
			x.take(i)
			at = i
		}

		// Plan under the choice, and note its bound.
		before := x.best
		if err := (&phases{x}).plan(ctx); err != nil {
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

	// Go back to the choice of the best plan.
	if at != best {
		x.take(best)
		x.done(ctx)
	}
	return nil
}

// requirePlan returns an error that says why no plan serves every model. If there is one, it returns nil.
func (x *search) served(ctx context.Context) error {
	if err := x.rescue(ctx); err != nil {
		return err
	}
	if x.best != nil && x.best.value > 0 {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("planning ended before the first plan was found: %w", context.Cause(ctx))
	}
	return x.explain(ctx, errNoPlan)
}

// reportProgress reports a phase with the best plan's value and the bound, if somebody listens.
func (x *search) report(phase, detail string) {
	if x.o.Progress == nil {
		return
	}
	pr := Progress{Phase: phase, Value: math.NaN(), Bound: math.NaN(), Detail: detail}
	if x.best != nil {
		pr.Value = x.shown(x.score())
	}
	if b := x.proven(); len(x.choices) > 0 && !math.IsInf(b, 0) {
		pr.Bound = x.shown(b)
	}
	x.o.Progress(pr)
}

// recordPhase notes the work of a phase in the outcome, and reports it.
func (x *search) phase(name string, n int, st milp.Stats) {
	ph := Phase{Name: name, Pipelines: n, Nodes: st.Nodes, Iterations: st.Iterations, Bound: x.shown(x.proven())}
	if x.best != nil {
		ph.Value = x.shown(x.score())
	}
	x.out.Phases = append(x.out.Phases, ph)
	x.report(name, fmt.Sprintf("%d pipelines", n))
}

// provenBound returns the best proven bound on the score of any plan.
func (x *search) proven() float64 {
	return max(x.goal.tighten(max(x.inner, x.other)), x.score())
}

// gap returns the relative distance of the best plan to the bound.
func (x *search) gap() float64 { return x.goal.gap(x.score(), x.proven()) }

// provenGap is the relative gap that counts as proven.
const proof = 1e-6

// shouldStop reports whether the search may stop, and notes why.
func (x *search) done(ctx context.Context) bool {
	g := x.gap()
	switch {
	case g <= proof:
		x.stopped = milp.StoppedByProof
	case g <= x.o.Gap || x.enough() || x.useless():
		x.stopped = milp.StoppedByGap
	case ctx.Err() != nil:
		x.stopped = milp.StoppedByInterrupt
	default:
		x.stopped = milp.StoppedByWork
		return false
	}
	return true
}

// reachedEnough reports whether the throughput asked for is reached. If nothing else is asked, it also reports
// true once that throughput is proven to be impossible.
func (x *search) enough() bool {
	if x.o.Enough <= 0 {
		return false
	}
	return x.best != nil && x.best.value >= x.o.Enough || x.o.Untold && x.theta(x.proven()) < x.o.Enough*(1-tolerance)
}

// missesLeast reports whether no plan can have the throughput below which a plan is of no use. Before there is a
// plan it returns false.
func (x *search) useless() bool {
	return x.o.Least > 0 && x.value() > 0 && x.theta(x.proven()) < x.o.Least*(1-tolerance)
}

// workLimits returns the limits of a solve of so many nodes per unit of effort.
func (x *search) work(nodes int64) milp.Options {
	nodes *= int64(x.o.Effort)
	return milp.Options{MaxNodes: nodes, MaxIterations: nodes * iterationsPer, Seed: x.o.Seed}
}

// templatesPerModel returns how many templates of each model the small program has beside those of the basis.
func (x *search) perModel() int {
	if x.stay != nil {
		return stayPerModel
	}
	return poolPerModel
}
