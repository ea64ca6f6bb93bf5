package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/planner/kind"
	"inferplan/planner/queue/deploy"
	"inferplan/planner/queue/verify"
	"inferplan/solver/milp"
)

// Method is the entry of package planner to this package.
var Method = kind.Method{
	Kind: formats.PlanQueue, Summary: "queues of language models", Solve: solvePlan, Adopt: adoptServers, CheckRunning: checkRunning, SolveUntilConfirmed: solveTested, Certify: certifyPlan, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf,
	Explain: explainPlan, Diff: diff.Queues, RelaxWorkload: loosenClasses, WithTraffic: withTraffic, SimulationDecides: true,
}

// queuePlanner is one solve of a problem.
type queuePlanner struct {
	input     *kind.Problem
	run       *kind.SolveRun
	objective string
	goal      deploy.Goal
	sense     milp.Sense
}

// objectiveGoals maps objectives to goals of package deploy.
var objectiveGoals = map[string]deploy.Goal{"gpus": deploy.GoalPrice, "cost": deploy.GoalPrice, "goodput": deploy.GoalGoodput, "throughput": deploy.GoalFactor}

// newPlanner returns a planner for an objective.
func newPlanner(in *kind.Problem, run *kind.SolveRun, objective string) *queuePlanner {
	return &queuePlanner{input: in, run: run, objective: objective, goal: objectiveGoals[objective], sense: kind.SenseOf(objective)}
}

// solvePlan searches the best plan of language-model servers for the documents, and returns its parts. There is one search for each
// choice of tensor parallelism (how many devices form a server, by pool); those that their bound excludes are skipped.
func solvePlan(ctx context.Context, in *kind.Problem, run *kind.SolveRun) (*kind.Outcome, error) {
	list, err := deploy.Resolve(in, run)
	if err != nil {
		return nil, err
	}
	s := newPlanner(in, run, in.Values.Word("objective"))

	// Bound every choice of tensor parallelism, and refuse rates that are hopeless.
	bounds, bound, err := s.workBounds(ctx, list)
	if err != nil {
		return nil, err
	}
	if err := s.refuseOverload(list[0], bound); err != nil {
		return nil, err
	}
	bound = s.inObjectiveUnit(list[0], bound)

	if in.RunningPlan != nil && !in.FeasibilityOnly {
		return s.replan(ctx, list, bounds, bound)
	}

	// Search the choices for the best layout.
	bestCandidate, err := s.bestLayout(ctx, list, bounds)
	if err != nil {
		return nil, err
	}
	return s.outcome(ctx, bestCandidate, bound)
}

// maxOverload limits the rates for which goodput is planned, as a multiple of what the devices carry.
// Beyond it, the waiting requests take long to simulate and show nothing new.
const maxOverload = 10

// refuseOverload returns an error if goodput is the goal and the rates are more than maxOverload times its bound: most requests would be
// late whatever the plan, and long queues take long to simulate. The error names the class of the highest rate. bound is in requests per
// second.
func (s *queuePlanner) refuseOverload(p *deploy.Search, bound float64) error {
	if s.goal != deploy.GoalGoodput || p.Problem.RPS() <= maxOverload*bound {
		return nil
	}
	llm, largestClass := formats.LLMOf(s.input.Workload), 0
	for c := range llm.Classes {
		if llm.Classes[c].RPS > llm.Classes[largestClass].RPS {
			largestClass = c
		}
	}
	return s.input.FieldError("workload", fmt.Sprintf("llm.classes[%d].rps", largestClass), fmt.Sprintf("rates of %s requests a second in all", kind.FormatNumber(p.Problem.RPS())),
		fmt.Sprintf("at most %d times the %s that the devices do at most", maxOverload, kind.FormatNumber(bound)), "what is above is late in any case: plan for a part of the rates")
}

// candidate is a judged layout with the search that it comes from and its value of the objective. The value is at most what is possible
// in the long run, and simulated what the runs show.
type candidate struct {
	search           *deploy.Search
	result           *deploy.LayoutResult
	value, simulated float64
}

// workBounds returns, for each search (one for each choice of tensor parallelism), a bound on its objective by the work of the rates
// alone, and the best of these bounds. It also sorts list by the bounds, the best first. If no choice has enough devices for the work, it
// returns an error that names the nearest problem with a plan.
func (s *queuePlanner) workBounds(ctx context.Context, list []*deploy.Search) (map[*deploy.Search]float64, float64, error) {
	bounds := map[*deploy.Search]float64{}
	for _, p := range list {
		// While bounds are computed, no value and no bound is known (NaN).
		s.run.Progress(kind.Progress{Phase: "bound", Value: math.NaN(), Bound: math.NaN()})
		b, err := p.Problem.WorkBound(ctx, s.run.Solver, s.goal)
		if err != nil {
			return nil, 0, err
		}
		bounds[p] = b
	}
	slices.SortStableFunc(list, func(a, b *deploy.Search) int {
		if s.sense == milp.Maximize {
			a, b = b, a
		}
		return cmp.Compare(bounds[a], bounds[b])
	})
	// A bound of +Inf says that its program has no solution, so that the devices are too few. Only that of a price can have none: the
	// others allow that no request is in time.
	bestBound := bounds[list[0]]
	if math.IsInf(bestBound, 1) {
		return nil, 0, s.tooFewDevicesError(ctx, list)
	}
	return bounds, bestBound, nil
}

// bestLayout returns the best layout over all choices of tensor parallelism, each of which has a search in list and a bound in bounds. It
// skips a choice whose bound is no better than the best layout so far. When ctx ends, it returns the best so far. If no choice has a
// layout that keeps the SLOs, the error says what would be nearest.
func (s *queuePlanner) bestLayout(ctx context.Context, list []*deploy.Search, bounds map[*deploy.Search]float64) (*candidate, error) {
	var bestCandidate *candidate
	for _, p := range list {
		if bestCandidate != nil && !kind.IsBetter(s.sense, s.inObjectiveUnit(p, bounds[p]), bestCandidate.value) || math.IsInf(bounds[p], 1) {
			continue
		}
		c, err := s.searchLayout(ctx, p, bounds[p])
		switch {
		case errors.Is(err, deploy.ErrTooFewDevices):
		case err != nil && bestCandidate != nil && ctx.Err() != nil:
			return bestCandidate, nil
		case err != nil:
			return nil, err
		case bestCandidate == nil || kind.IsBetter(s.sense, c.value, bestCandidate.value):
			bestCandidate = c
		}
	}
	if bestCandidate == nil {
		return nil, s.tooFewDevicesError(ctx, list)
	}
	return bestCandidate, nil
}

// inObjectiveUnit returns a bound in the unit of the objective. If the goal is a factor on the rates, that is
// requests per second, at the rates of p.
func (s *queuePlanner) inObjectiveUnit(p *deploy.Search, bound float64) float64 {
	if s.goal == deploy.GoalFactor {
		return bound * p.Problem.RPS()
	}
	return bound
}

// searchLayout searches one choice of tensor parallelism for the best layout, which says what models run together on how many instances,
// and reports better ones as they are found. Layouts are judged by simulation. The goal of s is the price, the goodput, or the highest
// multiple of the rates; bound is its bound, in the goal's unit. The price of a layout's result is the price or, for the other goals, the
// negative of the value.
func (s *queuePlanner) searchLayout(ctx context.Context, search *deploy.Search, bound float64) (*candidate, error) {
	options := deploy.SearchOptions{SeparateClasses: search.Problem.HasModelOfClasses(), FirstFeasible: s.input.FeasibilityOnly}

	// Report better layouts as they are found.
	reportBetter := func(result *deploy.LayoutResult) {
		s.run.Progress(kind.Progress{Phase: "simulating fleets", Fraction: 0.5, Value: result.Price, Bound: bound})
		if s.goal == deploy.GoalPrice {
			s.run.Incumbent(result.Price, bound)
		}
	}
	s.run.Progress(kind.Progress{Phase: "simulating fleets", Value: math.NaN(), Bound: bound})

	// Search by the goal.
	switch s.goal {
	case deploy.GoalPrice:
		result, err := search.CheapestLayout(ctx, options, bound, reportBetter)
		if err != nil {
			return nil, err
		}
		return &candidate{search, result, result.Price, result.Price}, nil
	case deploy.GoalGoodput:
		result, err := search.HighestGoodput(ctx, options, reportBetter)
		if err != nil {
			return nil, err
		}
		goodput := -result.Price
		return &candidate{search, result, min(goodput, bound), goodput}, nil
	}
	// The layout is one for the highest rates, which the problem of scaledSearch has.
	scaledSearch, result, err := search.HighestRates(ctx, options, bound, reportBetter)
	if err != nil {
		return nil, err
	}
	rps := scaledSearch.Problem.RPS()
	return &candidate{scaledSearch, result, rps, rps}, nil
}

// warnLimited warns if the simulated goodput of the chosen fleet is above what is possible in the long run, by more than rounding. Runs are
// short: work that is left at their end counts there as not late, which cannot last. Both are in requests per second.
func (s *queuePlanner) warnLimited(simulated, possible float64) {
	if simulated-possible > 1e-9*possible {
		s.run.Warn("simulation shows %s: work that is put off until arrivals end counts there; in the long run it is at most %s", kind.FormatNumber(simulated), kind.FormatNumber(possible))
	}
}

// tooFewDevicesError returns the error for a cluster without a plan. If the goal is the price, it also finds what would be nearest: lower
// rates if even their work is too much for the devices, else the devices that are missing, from a plan for a much larger cluster. list
// has the searches by tensor parallelism; only the first is asked.
func (s *queuePlanner) tooFewDevicesError(ctx context.Context, list []*deploy.Search) error {
	p := list[0]
	e := &kind.InfeasibleError{Constraint: "devices", Reason: "the devices of the cluster do not keep the SLOs of all classes at the rates asked"}
	if s.goal == deploy.GoalFactor {
		e.Reason = "the devices of the cluster keep the SLOs of all classes at no rate that was tried"
	}
	if s.goal != deploy.GoalPrice {
		return e
	}
	if s.input.FeasibilityOnly {
		return e
	}
	// The largest factor on the rates whose work the devices do. It is only a bound: no plan was found at it.
	factor, err := p.Problem.WorkBound(ctx, s.run.Solver, deploy.GoalFactor)
	if err == nil && factor < 1 {
		e.Reason = fmt.Sprintf("the work of the rates asked is more than the devices of the cluster do: at most %s times the rates, whatever the order", kind.FormatNumber(factor))
		e.Nearest = kind.NearestFeasible{LoadFactor: factor, NotSolved: true}
		return e
	}

	// Look for the devices that would suffice, on a cluster with many of them.
	enlarged := p.WithManyDevices()
	if ok, err := deploy.AllDevicesSuffice(ctx, enlarged); err != nil || !ok {
		return e // an SLO may be too short for any number of devices
	}
	if f, err := enlarged.CheapestLayout(ctx, deploy.SearchOptions{}, 0, nil); err == nil {
		for k := range p.Problem.Kinds {
			if missing := f.Layout.ServerCount(k)*p.Problem.Kinds[k].TP - p.Problem.Pools[p.Problem.Kinds[k].Pool].Count; missing > 0 {
				e.Nearest.Devices = append(e.Nearest.Devices, kind.MissingCount{Device: p.Problem.Kinds[k].Device, Count: missing})
			}
		}
	}
	return e
}
