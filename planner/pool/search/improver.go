package search

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/kind"
	"inferplan/planner/pool/bundles"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/losses"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/programs"
	"inferplan/solver/milp"
)

// improvePlan looks for better plans and bounds under the wait choice in force (bounds on the waiting on time-shared
// pools, with the templates that keep their SLO then). It runs one phase after another, from cheap to dear, until the
// gap is small enough or all have run. The best plan and the bound are in search.incumbent, the phases in the outcome.
func improvePlan(ctx context.Context, search *planSearch) error {
	basis, stop, err := findFirstPlan(ctx, search)
	if stop || err != nil {
		return err
	}

	// With many models, bundles; else integer programs over few templates.
	if search.problem.UsesBundles() && search.incumbent.Plan != nil {
		if err := bundles.Plan(ctx, search.solver, search.choice, search.incumbent, search.tables, &search.options, search.recordPhase); err != nil {
			return err
		}
		search.outcome.Templates = max(search.outcome.Templates, len(search.catalogue.Templates))
		if search.shouldStop(ctx) || search.catalogue.Incomplete {
			return nil // the programs that follow are too large for what is left
		}
	} else if stop, err := solveSmallPrograms(ctx, search, basis); stop || err != nil {
		return err
	}
	return solveLargePrograms(ctx, search, basis)
}

// findFirstPlan makes a first plan of the search, from the plan that runs or from the relaxation with its rates rounded to
// whole replicas, without an integer program over replicas. basis holds the templates that the integer programs start
// with, as indexes in the catalogue. stop is true if the plan is good enough already, or there is none under the wait
// choice in force; the bound of the choice is then set to the score of the best plan.
func findFirstPlan(ctx context.Context, search *planSearch) (basis []int, stop bool, err error) {
	// The plan that runs, if there is one, is the first incumbent.
	basis = slices.Clone(search.choice.Relaxation.UsedTemplates)
	if search.replan != nil {
		search.incumbent.KeepIfBetter(placement.Recompute(search.catalogue, search.replan.Pipelines))
		search.recordPhase("what runs", len(search.replan.Pipelines), milp.Stats{})
		if search.incumbent.ServesAll() && search.shouldStop(ctx) {
			return nil, true, nil
		}
		basis = programs.UnionTemplates(basis, search.replan.Pipelines)
	}

	// Next, scale the rates of the relaxation down until the replicas that carry them fit the devices.
	search.incumbent.RoundRelaxation(search.choice)
	if search.incumbent.Plan != nil {
		search.recordPhase("rounding", len(basis), milp.Stats{})
		if search.shouldStop(ctx) {
			return nil, true, nil
		}
	}
	if search.incumbent.ServesAll() {
		return basis, false, nil
	}

	// If memory is tight, the relaxation may give no plan: start from one pipeline of every model.
	if slices.Contains(search.catalogue.TightMemory(search.choice.AllowedTemplates), true) {
		templates, impossible, err := programs.OnePipelineEach(ctx, search.solver, search.choice, search.options.Seed)
		if err != nil {
			return nil, false, err
		}
		if impossible {
			search.incumbent.ChoiceBound = search.incumbent.Score()
			return nil, true, nil
		}
		basis = programs.UnionTemplates(append(basis, templates...))
	}

	// If not even one replica of everything fits, there is no plan.
	if !search.catalogue.Incomplete && slices.ContainsFunc(programs.MissingDevices(ctx, search.solver, search.choice), func(n int) bool { return n > 0 }) {
		search.incumbent.ChoiceBound = search.incumbent.Score()
		return nil, true, nil
	}
	return basis, false, nil
}

// nodeDivisor returns by how much the nodes of the integer programs are divided: more than 1 if a plan is
// wanted soon, for a re-plan or in a hurry.
func nodeDivisor(search *planSearch) int64 {
	switch {
	case search.replan != nil:
		return replanNodeDivisor
	case search.options.Hurry:
		return hurryNodeDivisor
	}
	return 1
}

// solveSmallPrograms runs the phases that need few templates: the integer program over the basis (the templates
// that the relaxation uses), the plan that carries the floors (least rates) if the search has none yet, the bound
// from whole devices for each model, and the bound from sums of losses (the loss of some replicas is how far every
// plan with them stays below the bound of the relaxation). stop reports that the search ends after one of them: the
// gap is small enough, no plan carries the floors, or there is an error.
func solveSmallPrograms(ctx context.Context, search *planSearch, basis []int) (stop bool, err error) {
	if _, err := solveInteger(ctx, search, "basis", basis, basisNodes/nodeDivisor(search)); err != nil || search.shouldStop(ctx) {
		return true, err
	}
	if err := search.floors.adoptPlan(ctx); err != nil || search.floors.areUnreachable() || search.shouldStop(ctx) {
		return true, err
	}
	if err := boundByWholeDevices(ctx, search); err != nil || search.shouldStop(ctx) {
		return true, err
	}
	const workFactor = 1 // solveLargePrograms allows for more work
	losses.LowerBound(search.choice, search.incumbent, &search.options, workFactor, search.recordPhase)
	return search.shouldStop(ctx), nil
}

// solveLargePrograms runs, after the small ones, the integer program over the templates of least loss of every model. A
// template's loss is how far a plan that uses it stays below the bound of the relaxation at least. Then it lowers the bound
// by sums of losses, and runs the integer program over all templates that a better plan may use (the survivors): those
// whose loss is below the distance of the best plan from that bound. It stops as soon as the gap is small enough and, if a
// plan is wanted soon, after the first program. basis holds the templates of the relaxation's solution and others that a
// first plan needs: they take part in the first program in any case.
func solveLargePrograms(ctx context.Context, search *planSearch, basis []int) error {
	byLoss := search.choice.TemplatesByLoss()
	smallSet := search.choice.PickTemplates(byLoss, basis, search.templatesPerModel())
	isOptimal, err := solveInteger(ctx, search, "pool", smallSet, poolNodes/nodeDivisor(search))
	if err != nil || search.shouldStop(ctx) || search.options.Hurry {
		return err
	}
	// The small programs had this step, too. The plan may be better now: then fewer sums of losses can belong to a still
	// better plan, and the search for them, which may take LongFactor times the work, comes further.
	losses.LowerBound(search.choice, search.incumbent, &search.options, losses.LongFactor, search.recordPhase)
	if search.shouldStop(ctx) {
		return nil
	}
	if search.replan != nil && search.options.Effort == 1 {
		return nil // a re-plan is wanted soon: its proof only with more effort
	}
	// The templates that a better plan may use: no other one can be in it.
	var survivors []int
	for _, i := range byLoss {
		if search.choice.Losses[i] < search.choice.Relaxation.Bound-search.incumbent.Score() {
			survivors = append(survivors, i)
		}
	}
	if isOptimal && isSubset(survivors, smallSet) {
		return nil // the first program had all of them, and was solved to its gap
	}
	if len(survivors) > maxSurvivors*search.options.Effort {
		survivors = search.choice.PickTemplates(byLoss, basis, widePerModel*search.options.Effort)
	}
	_, err = solveInteger(ctx, search, "survivors", survivors, survivorNodes)
	search.shouldStop(ctx) // called only for its effect: it notes why the search ends
	return err
}

// solveInteger solves the integer program over a set of templates and those of the best plan. The program chooses
// whole replicas. The plan is kept if it is better than the best one. The bound is lowered: a plan over these templates
// is within the program's bound, and one that uses another template stays below the bound of the relaxation by its
// loss. isOptimal reports whether the program was solved to its gap.
func solveInteger(ctx context.Context, search *planSearch, name string, templates []int, nodes int64) (isOptimal bool, err error) {
	// Start from the best plan, unless it was made under another wait choice (bounds on waiting on time-shared pools) and the
	// present one does not allow all of its templates: those have an infinite loss.
	isForbidden := func(c placement.PlanPipeline) bool { return math.IsInf(search.choice.Losses[c.Template], 1) }
	hasStart := search.incumbent.Plan != nil && !slices.ContainsFunc(search.incumbent.Plan.Pipelines, isForbidden)
	if hasStart {
		templates = programs.UnionTemplates(templates, search.incumbent.Plan.Pipelines)
	} else {
		templates = programs.UnionTemplates(templates)
	}

	// Build the program and solve it.
	program := buildProgram(search, templates)
	options := programOptions(search, name, program, nodes)
	if hasStart {
		options.Start = program.StartPoint(search.incumbent.Plan)
	}
	sol, err := search.solver.Solve(ctx, program.Model, options)
	if err != nil {
		return false, fmt.Errorf("solving the integer program over %d pipelines: %w", len(templates), err)
	}
	if sol.Feasible() {
		search.incumbent.KeepIfBetter(program.ReadPlan(sol))
	}

	// Lower the bound. A re-plan may be searched for again under a lower limit on moves than the user's. The programs of
	// such a search leave out plans that the user allows, so the bound stays as it is.
	programBound, isOptimal := boundWithin(search, sol)
	if search.replan != nil && search.replan.NumSearches > 0 {
		programBound = search.incumbent.ChoiceBound
	}
	// A plan is over these templates or uses another one: the larger bound holds for both.
	search.incumbent.LowerBound(max(programBound, boundOutside(search, templates)))
	search.recordPhase(name, len(templates), sol.Stats)
	return isOptimal, nil
}

// buildProgram returns the integer program for the goal of the search (throughput or price) over a set of templates, given by
// their indexes in the catalogue. If a plan runs, it limits the devices that have to load something.
func buildProgram(search *planSearch, templates []int) *programs.Program {
	bound := search.choice.Relaxation.Bound
	if search.options.Hurry {
		bound = min(bound, search.incumbent.ChoiceBound) // the program then proves less and finds plans sooner
	}
	program := search.goal.NewProgram(search.catalogue, templates, bound)
	if search.replan != nil {
		program.LimitMoves(search.replan, search.replan.MaxMoved)
	}
	return program
}

// programOptions returns the options for solving the integer program of a phase: limits on its branch-and-bound nodes
// (nodes times the effort that the user asked for) and its iterations, the gap at which it may stop, the value at which it
// may stop if the caller needs no more throughput, and a function that reports better plans under the name of the phase.
func programOptions(search *planSearch, name string, program *programs.Program, nodes int64) milp.Options {
	options := search.options.WorkLimits(nodes)
	options.Gap, options.HeuristicEffort = max(search.options.Gap/2, incumbent.ProvenGap), problem.HeuristicEffort
	if search.options.Hurry {
		options.MaxStall = maxStallNodes
	}

	// An iteration takes time in proportion to the columns of the program, so large programs get fewer of them.
	iterationLimit := maxColumnWork / int64(program.Model.NumVars()) * int64(search.options.Effort)
	options.MaxIterations = min(options.MaxIterations, iterationLimit)
	if search.options.EnoughRPS > 0 {
		// A little more than enough: the plan's rates, computed anew from its replicas, may be lower by the tolerance.
		options.TargetValue = search.options.EnoughRPS / search.catalogue.Units.Throughput * (1 + problem.FloorTolerance)
	}
	if search.options.Progress != nil {
		options.Incumbent = func(found milp.Incumbent) {
			// The value is the solver's, as the plan is computed later. The bound is that of the search: the solver's holds for
			// the templates of this program only.
			if search.incumbent.Plan == nil || found.Value > search.incumbent.Score() {
				search.options.Progress(kind.Progress{Phase: name, Value: search.displayValue(found.Value), Bound: search.displayValue(search.incumbent.ProvenBound())})
			}
		}
	}
	return options
}

// boundWithin returns the bound that the solution of a program proves for plans over its templates, and whether
// the program was solved to its gap. If the solver has no bound, the program proves nothing, and the bound is
// infinite.
func boundWithin(search *planSearch, sol *milp.Solution) (bound float64, isOptimal bool) {
	bound = sol.Bound
	if sol.Status == milp.Infeasible {
		bound = search.goal.NoPlanScore()
	}
	if math.IsNaN(bound) {
		bound = math.Inf(1)
	}
	return bound, sol.Status == milp.Optimal || sol.Status == milp.Gap || sol.Status == milp.Infeasible
}

// boundOutside returns the bound of plans that use a template outside a set, which is sorted: such a plan stays
// below the bound of the relaxation by at least the loss of that template (how far whole replicas of it pull a
// plan below that bound).
func boundOutside(search *planSearch, templates []int) float64 {
	minLoss := math.Inf(1)
	if search.catalogue.Incomplete {
		minLoss = 0 // templates that were not generated may lose nothing
	}
	for _, i := range search.choice.AllowedTemplates {
		if _, ok := slices.BinarySearch(templates, i); !ok {
			minLoss = min(minLoss, search.choice.Losses[i])
		}
	}
	return search.choice.Relaxation.Bound - minLoss
}

// wholeNodes bounds the branch-and-bound nodes of the program of whole devices per model.
const wholeNodes = 400

// boundByWholeDevices lowers the bound by a program in which replicas may be fractions, but each model takes a whole
// number of devices of each kind. This holds for every plan under the slot rule, because no two models share a device
// then. There are few of these numbers, so the program is solved soon. A program of whole replicas has many more whole
// numbers, and its branch and bound hardly comes to those of devices. It does nothing if models may share devices, for a
// price, for one model, for so many that bundles are used, or if not all templates are known.
func boundByWholeDevices(ctx context.Context, search *planSearch) error {
	modelsMayShare := search.problem.HasTimeShared() || search.problem.Rounding != problem.Slot
	if modelsMayShare || search.problem.UsesBundles() || len(search.problem.Models) < 2 {
		return nil
	}
	minimisesPrice := search.goal.PoolCosts() != nil
	if minimisesPrice || search.catalogue.Incomplete || search.incumbent.Plan == nil {
		return nil
	}

	// Only templates that a better plan may use take part: a plan that uses a template is below the bound of the relaxation
	// by its loss at least.
	templates := slices.DeleteFunc(slices.Clone(search.choice.AllowedTemplates), func(ti int) bool {
		return search.choice.Losses[ti] >= search.choice.Relaxation.Bound-search.incumbent.Score()
	})
	options := search.options.WorkLimits(wholeNodes)
	options.Gap = incumbent.ProvenGap // solve the program to its optimum
	sol, err := search.solver.Solve(ctx, programs.NewWholeDevices(search.catalogue, templates, search.incumbent.ChoiceBound), options)
	if err != nil {
		return fmt.Errorf("solving for whole devices per model over %d pipelines: %w", len(templates), err)
	}
	if !math.IsNaN(sol.Bound) && sol.Status != milp.Infeasible {
		search.incumbent.LowerBound(sol.Bound * (1 + 1e-9))
	}
	search.recordPhase("whole devices", len(templates), sol.Stats)
	return nil
}

// isSubset reports whether all of a are in b, which is sorted.
func isSubset(a, b []int) bool {
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); !ok {
			return false
		}
	}
	return true
}
