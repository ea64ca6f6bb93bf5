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
	basisNodes        = 2000        // branch-and-bound nodes of the program over the templates of the relaxation's basis
	poolNodes         = 4000        // of the program over few templates of each model
	survivorNodes     = 12000       // of the program over all templates that a better plan may use
	sumNodes          = 300         // of the program for the weighted sum
	iterationsPerNode = 60          // simplex iterations per node, as a second limit
	maxColumnWork     = 100_000_000 // simplex iterations times columns, as a third
	smallPerModel     = 15          // templates of each model in the program over few
	widePerModel      = 60          // templates of each model, if too many survive
	maxSurvivors      = 1500        // most templates of the program over survivors
	heuristicEffort   = 0.3
	replanNodeDivisor = 16  // divides the nodes of a re-plan
	hurryNodeDivisor  = 16  // divides the nodes if a plan is wanted soon
	maxStallNodes     = 160 // nodes without a better plan, if one is wanted soon
	replanPerModel    = 6   // templates of each model in a re-plan
)

// planSearch is the state of a solve.
type planSearch struct {
	problem      *Problem
	catalogue    *templateCatalogue
	goal         planGoal
	solver       milp.Solver
	options      Options
	replan       *replanState // of the plan that runs; nil without one
	incumbent    *incumbent
	choice       *waitChoice      // the wait choice under work
	waitChoices  []waitChoice     // the best relaxation first
	tables       []*templateTable // by model; nil if all templates are listed in the catalogue
	droppedBound float64          // proven over the wait choices that were left out
	choiceBound  float64          // proven over the templates of the choice under work
	otherBound   float64          // proven over the other wait choices
	floors       *floorSearch
	outcome      *Outcome
	stoppedBy    milp.StoppedBy
}

// newSearch lists the templates, or generates them if they are too many, and solves the relaxation of every wait
// choice. The search starts with the choice of the best relaxation.
func newSearch(ctx context.Context, p *Problem, solver milp.Solver, options Options, searchGoal planGoal) (*planSearch, error) {
	options.Effort = max(options.Effort, 1)
	x := &planSearch{problem: p, goal: searchGoal, solver: solver, options: options, droppedBound: math.Inf(-1), otherBound: math.Inf(-1), outcome: &Outcome{}}
	x.floors = &floorSearch{search: x}
	if p.needsColumns() {
		return x, x.generateTemplates(ctx)
	}
	catalogue, err := p.listTemplates()
	if err != nil {
		return nil, err
	}
	x.setCatalogue(catalogue)
	x.reportProgress("pipelines", fmt.Sprintf("%d possible pipelines", len(x.catalogue.templates)))
	if err := x.relaxChoices(ctx); err != nil {
		return nil, x.explainError(ctx, err)
	}
	x.selectChoice(0)
	return x, nil
}

// setCatalogue sets the templates of the search, and those of the plan that runs, if there is one.
func (x *planSearch) setCatalogue(catalogue *templateCatalogue) {
	x.catalogue = catalogue
	x.outcome.Templates = len(catalogue.templates)
	x.replan = readRunning(catalogue, x.options.RunningPlan)
	x.incumbent = &incumbent{catalogue: catalogue, goal: x.goal, replan: x.replan}
}

// generateTemplates makes the templates by column generation.
func (x *planSearch) generateTemplates(ctx context.Context) error {
	// Templates of the plan that runs take part in any case.
	var runningTemplates []stages.Template
	if x.options.RunningPlan != nil {
		x.problem.newReplanState(x.options.RunningPlan, func(t *stages.Template) int { runningTemplates = append(runningTemplates, *t); return 0 })
	}
	generation, solved, err := x.problem.generateColumns(ctx, x.solver, x.goal.poolCosts(), runningTemplates)
	if generation != nil {
		x.tables = generation.tables
		x.setCatalogue(generation.catalogue)
		x.choice = &waitChoice{catalogue: x.catalogue, allowedTemplates: indexesBelow(len(x.catalogue.templates)), lp: solved}
	}
	if err != nil {
		if generation == nil || !errors.Is(err, errInfeasible) {
			return err
		}
		return x.explainError(ctx, err)
	}
	x.reportProgress("pipelines", fmt.Sprintf("%d pipelines generated in %d rounds", x.outcome.Templates, generation.rounds))
	x.choice.bound = solved.bound
	x.waitChoices = []waitChoice{*x.choice}
	x.selectChoice(0)
	return nil
}

// relaxChoices solves the linear program over all templates of every wait choice.
func (x *planSearch) relaxChoices(ctx context.Context) error {
	choices, exact := x.catalogue.waitBoundChoices()
	relaxOver := func(templates []int) (*relaxation, error) {
		return x.catalogue.solveRelaxation(ctx, x.solver, x.goal.poolCosts(), templates, -1)
	}

	// Choices under which some model has no template, or floors cannot be met, are left out.
	for _, bounds := range choices {
		templates := x.catalogue.templatesWithin(bounds)
		if bounds != nil && len(x.catalogue.unservedModels(bounds)) > 0 {
			continue
		}
		solved, err := relaxOver(templates)
		if errors.Is(err, errInfeasible) {
			continue
		}
		if err != nil {
			return err
		}
		x.waitChoices = append(x.waitChoices, waitChoice{catalogue: x.catalogue, waits: bounds, allowedTemplates: templates, lp: solved, bound: solved.bound})
	}
	if len(x.waitChoices) == 0 {
		return errInfeasible
	}
	// Of equal values the first comes first, so that the solver's noise does not decide.
	roundedValue := func(c waitChoice) float64 { return -math.Round(c.lp.value*1e9) / 1e9 }
	slices.SortStableFunc(x.waitChoices, func(a, bounds waitChoice) int { return cmp.Compare(roundedValue(a), roundedValue(bounds)) })
	if !exact {
		// A choice that was left out could be better. The bound is then that of the program without the rule.
		solved, err := relaxOver(indexesBelow(len(x.catalogue.templates)))
		if err != nil {
			return err
		}
		x.droppedBound = solved.bound
	}
	return nil
}

// selectChoice goes on with a wait choice: it sets the bounds, the exempt models and the losses.
func (x *planSearch) selectChoice(i int) {
	choice := &x.waitChoices[i]
	x.choice, x.choiceBound, x.otherBound = choice, choice.bound, x.droppedBound
	for j := range x.waitChoices {
		if j != i {
			x.otherBound = max(x.otherBound, x.waitChoices[j].bound)
		}
	}
	x.outcome.ExemptModels = nil
	if x.choice.waits != nil {
		for d, exempt := range x.choice.waits.exemptModels {
			if exempt {
				x.outcome.ExemptModels = append(x.outcome.ExemptModels, d)
			}
		}
	}
	x.choice.computeLosses()
	if choice.bound == choice.lp.bound {
		x.recordPhase("relaxation", len(x.choice.allowedTemplates), milp.Stats{})
	}
}

// planChoices plans under each of the first maxChoices wait choices that may still hold a better plan. While no
// plan serves every model, which may be for lack of memory, it also plans under those that follow.
func (x *planSearch) planChoices(ctx context.Context, maxChoices int) error {
	current, bestChoice := 0, 0
	for i := range x.waitChoices {
		// After the first choice, stop or skip choices that cannot hold a better plan.
		if i > 0 {
			if ctx.Err() != nil || i >= maxChoices && x.incumbent.servesAll() {
				break
			}
			if i == 1 {
				if err := x.dropHopelessChoices(ctx, i); err != nil {
					return err
				}
			}
			if !x.mayHoldBetter(&x.waitChoices[i]) {
				continue
			}
			x.selectChoice(i)
			current = i
		}

		// Plan under the choice, and note its bound.
		previousBest := x.incumbent.plan
		if err := newPlanImprover(x).improvePlan(ctx); err != nil {
			return err
		}
		if x.incumbent.plan != previousBest {
			bestChoice = i
		}
		x.waitChoices[i].bound = min(x.waitChoices[i].bound, x.choiceBound)
		if x.incumbent.plan != nil && x.shouldStop(ctx) {
			break
		}
	}

	// Go back to the choice of the best plan.
	if current != bestChoice {
		x.selectChoice(bestChoice)
		x.shouldStop(ctx)
	}
	return nil
}

// mayHoldBetter reports whether there may be a better plan under a wait choice than the best one.
func (x *planSearch) mayHoldBetter(choice *waitChoice) bool {
	score := x.incumbent.score()
	return choice.bound > x.goal.noPlanScore() && (x.incumbent.plan == nil || choice.bound > score+provenGap*math.Abs(score))
}

// requirePlan returns an error that says why no plan serves every model. If there is one, it returns nil.
func (x *planSearch) requirePlan(ctx context.Context) error {
	if err := x.floors.adoptPlan(ctx); err != nil {
		return err
	}
	if x.incumbent.servesAll() {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("planning ended before the first plan was found: %w", context.Cause(ctx))
	}
	return x.explainError(ctx, errNoPlan)
}

// displayValue returns a score as users see it: requests/s per weight, or a price.
func (x *planSearch) displayValue(score float64) float64 {
	return x.goal.displayValue(x.catalogue, score)
}

// reportProgress reports a phase with the best plan's value and the bound, if somebody listens.
func (x *planSearch) reportProgress(phase, detail string) {
	if x.options.Progress == nil {
		return
	}
	progress := Progress{Phase: phase, Value: math.NaN(), Bound: math.NaN(), Detail: detail}
	if x.incumbent.plan != nil {
		progress.Value = x.displayValue(x.incumbent.score())
	}
	if bound := x.provenBound(); len(x.waitChoices) > 0 && !math.IsInf(bound, 0) {
		progress.Bound = x.displayValue(bound)
	}
	x.options.Progress(progress)
}

// recordPhase notes the work of a phase in the outcome, and reports it.
func (x *planSearch) recordPhase(name string, numPipelines int, stats milp.Stats) {
	record := Phase{Name: name, Pipelines: numPipelines, Nodes: stats.Nodes, Iterations: stats.Iterations, Bound: x.displayValue(x.provenBound())}
	if x.incumbent.plan != nil {
		record.Value = x.displayValue(x.incumbent.score())
	}
	x.outcome.Phases = append(x.outcome.Phases, record)
	x.reportProgress(name, fmt.Sprintf("%d pipelines", numPipelines))
}

// provenBound returns the best proven bound on the score of any plan.
func (x *planSearch) provenBound() float64 {
	return max(x.goal.roundBound(max(x.choiceBound, x.otherBound)), x.incumbent.score())
}

// lowerBound lowers the bound of the choice under work to a proven one, but not below the score of the best plan.
func (x *planSearch) lowerBound(proven float64) {
	x.choiceBound = max(min(x.choiceBound, proven), x.incumbent.score())
}

// gap returns the relative distance of the best plan to the bound.
func (x *planSearch) gap() float64 { return x.goal.relativeGap(x.incumbent.score(), x.provenBound()) }

// provenGap is the relative gap that counts as proven.
const provenGap = 1e-6

// shouldStop reports whether the search may stop, and notes why.
func (x *planSearch) shouldStop(ctx context.Context) bool {
	gap := x.gap()
	switch {
	case gap <= provenGap:
		x.stoppedBy = milp.StoppedByProof
	case gap <= x.options.Gap || x.reachedEnough() || x.missesLeast():
		x.stoppedBy = milp.StoppedByGap
	case ctx.Err() != nil:
		x.stoppedBy = milp.StoppedByInterrupt
	default:
		x.stoppedBy = milp.StoppedByWork
		return false
	}
	return true
}

// reachedEnough reports whether the throughput asked for is reached. If nothing else is asked, it also reports
// true once that throughput is proven to be impossible.
func (x *planSearch) reachedEnough() bool {
	if x.options.EnoughRPS <= 0 {
		return false
	}
	return x.incumbent.plan != nil && x.incumbent.plan.value >= x.options.EnoughRPS || x.options.NoDiagnosis && x.catalogue.unitsToRate(x.provenBound()) < x.options.EnoughRPS*(1-floorTolerance)
}

// missesLeast reports whether no plan can have the throughput below which a plan is of no use. Before there is a
// plan it returns false.
func (x *planSearch) missesLeast() bool {
	return x.options.LeastRPS > 0 && x.incumbent.value() > 0 && x.catalogue.unitsToRate(x.provenBound()) < x.options.LeastRPS*(1-floorTolerance)
}

// workLimits returns the limits of a solve of so many nodes per unit of effort.
func (x *planSearch) workLimits(nodes int64) milp.Options {
	nodes *= int64(x.options.Effort)
	return milp.Options{MaxNodes: nodes, MaxIterations: nodes * iterationsPerNode, Seed: x.options.Seed}
}

// templatesPerModel returns how many templates of each model the small program has beside those of the basis.
func (x *planSearch) templatesPerModel() int {
	if x.replan != nil {
		return replanPerModel
	}
	return smallPerModel
}
