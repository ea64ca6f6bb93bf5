package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/kind"
	"inferplan/planner/pool/incumbent"
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/relaxation"
	"inferplan/planner/pool/templates"
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
	maxColumnWork     = 100_000_000 // simplex iterations times columns, as a third
	smallPerModel     = 15          // templates of each model in the program over few
	widePerModel      = 60          // templates of each model, if too many survive
	maxSurvivors      = 1500        // most templates of the program over survivors
	replanNodeDivisor = 16          // divides the nodes of a re-plan
	hurryNodeDivisor  = 16          // divides the nodes if a plan is wanted soon
	maxStallNodes     = 160         // nodes without a better plan, if one is wanted soon
	replanPerModel    = 6           // templates of each model in a re-plan
)

// planSearch is the state of a solve.
type planSearch struct {
	problem      *problem.Problem
	catalogue    *templates.Catalogue
	goal         incumbent.Goal
	solver       milp.Solver
	options      problem.Options
	replan       *placement.RunningState // of the plan that runs; nil without one
	incumbent    *incumbent.Incumbent
	choice       *relaxation.WaitChoice  // the wait choice under work
	waitChoices  []relaxation.WaitChoice // the best relaxation first
	tables       []*templates.Table      // by model; nil if all templates are listed in the catalogue
	droppedBound float64                 // proven over the wait choices that were left out
	floors       *floorSearch
	outcome      *problem.Outcome
	stoppedBy    milp.StoppedBy
}

// newSearch returns a search that is ready to look for plans: it lists the templates, or generates them if they
// are too many, and solves the linear program of every wait choice (bounds on how long batches wait for others
// on time-shared pools). The search starts with the choice of the best value.
func newSearch(ctx context.Context, p *problem.Problem, solver milp.Solver, options problem.Options, searchGoal incumbent.Goal) (*planSearch, error) {
	options.Effort = max(options.Effort, 1)
	search := &planSearch{problem: p, goal: searchGoal, solver: solver, options: options, droppedBound: math.Inf(-1), outcome: &problem.Outcome{}}
	search.floors = &floorSearch{search: search}
	if templates.NeedsColumns(p) {
		return search, search.generateTemplates(ctx)
	}
	catalogue, err := templates.ListAll(p)
	if err != nil {
		return nil, err
	}
	search.setCatalogue(catalogue)
	search.reportProgress("pipelines", fmt.Sprintf("%d possible pipelines", len(search.catalogue.Templates)))
	if err := search.relaxChoices(ctx); err != nil {
		return nil, search.explainError(ctx, err)
	}
	search.selectChoice(0)
	return search, nil
}

// setCatalogue sets the templates of the search, reads the plan that runs, if there is one, so that its
// templates are among them, and starts without a best plan.
func (s *planSearch) setCatalogue(catalogue *templates.Catalogue) {
	s.catalogue = catalogue
	s.outcome.Templates = len(catalogue.Templates)
	s.replan = placement.ReadRunning(catalogue, s.options.RunningPlan)
	s.incumbent = &incumbent.Incumbent{Catalogue: catalogue, Goal: s.goal, Replan: s.replan}
}

// generateTemplates makes, where all templates would be too many, only useful ones, by column generation (the
// linear program asks for those that improve it). The search then has a single wait choice: without time-shared
// pools no batch waits for another.
func (s *planSearch) generateTemplates(ctx context.Context) error {
	// Templates of the plan that runs take part in any case. They are read here for a list of them alone: the state itself,
	// with their indexes in the catalogue, is read once there is one (setCatalogue).
	var runningTemplates []stages.Template
	if s.options.RunningPlan != nil {
		const noIndex = 0
		placement.NewRunningState(s.problem, s.options.RunningPlan, func(t *stages.Template) int {
			runningTemplates = append(runningTemplates, *t)
			return noIndex
		})
	}

	// Generate the templates. If the floors cannot be met, the templates made so far serve to explain why.
	generation, solved, err := relaxation.GenerateColumns(ctx, s.problem, s.solver, s.goal.PoolCosts(), runningTemplates)
	if generation != nil {
		s.tables = generation.Tables
		s.setCatalogue(generation.Catalogue)
		s.choice = &relaxation.WaitChoice{Catalogue: s.catalogue, AllowedTemplates: s.catalogue.AllTemplates(), Relaxation: solved}
	}
	if err != nil {
		if generation == nil || !errors.Is(err, relaxation.ErrInfeasible) {
			return err
		}
		return s.explainError(ctx, err)
	}
	s.reportProgress("pipelines", fmt.Sprintf("%d pipelines generated in %d rounds", s.outcome.Templates, generation.Rounds))

	// The only wait choice is in force.
	s.choice.Bound = solved.Bound
	s.waitChoices = []relaxation.WaitChoice{*s.choice}
	s.selectChoice(0)
	return nil
}

// relaxChoices lists the wait choices (bounds on how long batches wait for others on time-shared pools, with
// the templates that keep their SLO then) and solves the linear program of each. They come by falling value of
// that program, the most promising first.
func (s *planSearch) relaxChoices(ctx context.Context) error {
	choices, isComplete := templates.ListWaitBounds(s.catalogue) // not complete if choices were left out, as too many
	relaxOver := func(templates []int) (*relaxation.Solution, error) {
		return relaxation.Solve(ctx, s.catalogue, s.solver, s.goal.PoolCosts(), templates)
	}

	// Leave out choices under which some model has no template, or floors (least rates) cannot be met. The only choice is nil
	// if waits have no bounds, and then all templates may be used.
	for _, bounds := range choices {
		templates := s.catalogue.TemplatesWithin(bounds)
		if bounds != nil && len(s.catalogue.UnservedModels(bounds)) > 0 {
			continue
		}
		solved, err := relaxOver(templates)
		if errors.Is(err, relaxation.ErrInfeasible) {
			continue
		}
		if err != nil {
			return err
		}
		s.waitChoices = append(s.waitChoices, relaxation.WaitChoice{Catalogue: s.catalogue, Waits: bounds, AllowedTemplates: templates, Relaxation: solved, Bound: solved.Bound})
	}
	if len(s.waitChoices) == 0 {
		return relaxation.ErrInfeasible
	}
	// The highest value first. Of values that are equal but for the solver's noise, the first listed comes first.
	roundedValue := func(c relaxation.WaitChoice) float64 { return math.Round(c.Relaxation.Value*1e9) / 1e9 }
	slices.SortStableFunc(s.waitChoices, func(a, b relaxation.WaitChoice) int { return cmp.Compare(roundedValue(b), roundedValue(a)) })
	if !isComplete {
		// A choice that was left out could be better. No plan under it is better than the program over all templates, whatever
		// the waits, which bounds these plans.
		solved, err := relaxOver(s.catalogue.AllTemplates())
		if err != nil {
			return err
		}
		s.droppedBound = solved.Bound
	}
	return nil
}

// selectChoice makes wait choice i, an index of waitChoices, the one under which the search plans. A wait choice is a set
// of bounds on how long batches wait for others on time-shared pools, with the templates that keep their SLO even after
// such waits. It sets the bound on plans under the choice and the largest bound under the others, the models that are
// exempt from the rule on waiting, and the losses of the templates. As long as the bound under the choice is still that of
// its relaxation, as when it is first selected, the relaxation is recorded as a phase.
func (s *planSearch) selectChoice(i int) {
	// The bound under other choices also covers those that were not listed (droppedBound; -Inf if there are none).
	choice := &s.waitChoices[i]
	s.choice, s.incumbent.ChoiceBound, s.incumbent.OtherBound = choice, choice.Bound, s.droppedBound
	for j := range s.waitChoices {
		if j != i {
			s.incumbent.OtherBound = max(s.incumbent.OtherBound, s.waitChoices[j].Bound)
		}
	}
	s.outcome.ExemptModels = nil
	if s.choice.Waits != nil {
		for d, exempt := range s.choice.Waits.ExemptModels {
			if exempt {
				s.outcome.ExemptModels = append(s.outcome.ExemptModels, d)
			}
		}
	}
	s.choice.ComputeLosses()
	if choice.Bound == choice.Relaxation.Bound {
		s.recordPhase("relaxation", len(s.choice.AllowedTemplates), milp.Stats{})
	}
}

// planChoices makes plans under each of the first maxChoices wait choices that may still hold a better plan,
// and keeps the best one. A wait choice is one set of bounds on how long batches wait for others on time-shared
// pools, with the templates that keep their SLO then. While no plan serves every model, which may be for lack
// of memory, it also tries those that follow. At the end, the choice of the best plan is in force again, for
// polishing.
func (s *planSearch) planChoices(ctx context.Context, maxChoices int) error {
	current, bestChoice := 0, 0
	for i := range s.waitChoices {
		// After the first choice, stop or skip choices that cannot hold a better plan.
		if i > 0 {
			if ctx.Err() != nil || i >= maxChoices && s.incumbent.ServesAll() {
				break
			}
			if i == 1 {
				if err := dropHopelessChoices(ctx, s, i); err != nil {
					return err
				}
			}
			if !s.mayHoldBetter(&s.waitChoices[i]) {
				continue
			}
			s.selectChoice(i)
			current = i
		}

		// Plan under the choice, and note its bound.
		previousBest := s.incumbent.Plan
		if err := improvePlan(ctx, s); err != nil {
			return err
		}
		if s.incumbent.Plan != previousBest {
			bestChoice = i
		}
		s.waitChoices[i].Bound = min(s.waitChoices[i].Bound, s.incumbent.ChoiceBound)
		if s.incumbent.Plan != nil && s.shouldStop(ctx) {
			break
		}
	}

	// Go back to the choice of the best plan.
	if current != bestChoice {
		s.selectChoice(bestChoice)
		s.shouldStop(ctx) // the bounds have changed: note anew why the search stops
	}
	return nil
}

// mayHoldBetter reports whether there may be a better plan under a wait choice than the best one.
func (s *planSearch) mayHoldBetter(choice *relaxation.WaitChoice) bool {
	score := s.incumbent.Score()
	return choice.Bound > s.goal.NoPlanScore() && (s.incumbent.Plan == nil || choice.Bound > score+incumbent.ProvenGap*math.Abs(score))
}

// requirePlan returns nil if the best plan serves every model, if need be after taking the plan that the search
// for the largest part of the floors found. Else it returns an error that says why no plan does.
func (s *planSearch) requirePlan(ctx context.Context) error {
	if err := s.floors.adoptPlan(ctx); err != nil {
		return err
	}
	if s.incumbent.ServesAll() {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("planning ended before the first plan was found: %w", context.Cause(ctx))
	}
	return s.explainError(ctx, errNoPlan)
}

// displayValue returns a score as users see it: requests/s per weight, or a price.
func (s *planSearch) displayValue(score float64) float64 {
	return s.goal.DisplayValue(s.catalogue, score)
}

// reportProgress reports a phase, if the caller listens, with the best plan's value and the bound as users see them. Each is
// NaN while unknown.
func (s *planSearch) reportProgress(phase, detail string) {
	if s.options.Progress == nil {
		return
	}
	progress := kind.Progress{Phase: phase, Value: math.NaN(), Bound: math.NaN(), Detail: detail}
	if s.incumbent.Plan != nil {
		progress.Value = s.displayValue(s.incumbent.Score())
	}
	// Until there are wait choices (relaxations under bounds on waits), of which one is selected, the bounds are not set.
	if bound := s.incumbent.ProvenBound(); len(s.waitChoices) > 0 && !math.IsInf(bound, 0) {
		progress.Bound = s.displayValue(bound)
	}
	s.options.Progress(progress)
}

// recordPhase notes a finished phase of the search in the outcome, with its work, value and bound, and reports
// it.
func (s *planSearch) recordPhase(name string, numPipelines int, stats milp.Stats) {
	record := kind.Phase{Name: name, Pipelines: numPipelines, Nodes: stats.Nodes, Iterations: stats.Iterations, Bound: s.displayValue(s.incumbent.ProvenBound())}
	if s.incumbent.Plan != nil {
		record.Value = s.displayValue(s.incumbent.Score())
	}
	s.outcome.Phases = append(s.outcome.Phases, record)
	s.reportProgress(name, fmt.Sprintf("%d pipelines", numPipelines))
}

// shouldStop reports whether the search may stop: the gap between the best plan and the bound is small enough, the plan
// is as good as the caller needs or none can be, or the context ended. It notes the reason in stoppedBy, and the limit
// on work if the search goes on, since that ends it then.
func (s *planSearch) shouldStop(ctx context.Context) bool {
	gap := s.incumbent.Gap()
	switch {
	case gap <= incumbent.ProvenGap:
		s.stoppedBy = milp.StoppedByProof
	case gap <= s.options.Gap || s.reachedEnough() || s.missesLeast():
		s.stoppedBy = milp.StoppedByGap
	case ctx.Err() != nil:
		s.stoppedBy = milp.StoppedByInterrupt
	default:
		s.stoppedBy = milp.StoppedByWork
		return false
	}
	return true
}

// reachedEnough reports whether the best plan reaches the throughput EnoughRPS that the caller asked for, in
// requests/s per weight. If only its existence is asked (no diagnosis), it also reports true once no plan can.
func (s *planSearch) reachedEnough() bool {
	if s.options.EnoughRPS <= 0 {
		return false
	}
	if s.incumbent.Plan != nil && s.incumbent.Plan.Value >= s.options.EnoughRPS {
		return true
	}
	return s.options.NoDiagnosis && s.catalogue.UnitsToRate(s.incumbent.ProvenBound()) < s.options.EnoughRPS*(1-problem.FloorTolerance)
}

// missesLeast reports whether no plan can have the throughput below which a plan is of no use. Before there is a
// plan it returns false.
func (s *planSearch) missesLeast() bool {
	return s.options.LeastRPS > 0 && s.incumbent.Value() > 0 && s.catalogue.UnitsToRate(s.incumbent.ProvenBound()) < s.options.LeastRPS*(1-problem.FloorTolerance)
}

// templatesPerModel returns how many templates of each model the small integer program has beside those of the
// relaxation's solution. A re-plan, which is wanted soon, has another number.
func (s *planSearch) templatesPerModel() int {
	if s.replan != nil {
		return replanPerModel
	}
	return smallPerModel
}
