package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/queue/deploy"
	"inferplan/planner/queue/verify"
	"inferplan/policy/policies"
	"inferplan/solver/milp"
)

// Method is the entry of package planner to this package. It cannot start from a plan that runs.
var Method = kind.Method{
	Kind: formats.PlanQueue, About: "queues of language models", Solve: plan, Hold: hold, Certify: certified, Check: verify.Check, Figures: verify.Figures, WorkloadOf: verify.WorkloadOf,
	Explain: explain, Diff: moved, Loosened: loosened, Simulated: true,
}

// queuePlanner is one solve of a problem.
type solving struct {
	in        *kind.Problem
	run       *kind.Run
	objective string
	goal      deploy.Goal
	sense     milp.Sense
}

// objectiveGoals maps objectives to goals of package deploy.
var goals = map[string]deploy.Goal{"gpus": deploy.Price, "cost": deploy.Price, "goodput": deploy.Goodput, "throughput": deploy.Factor}

// solvePlan solves the problem of the documents and returns the parts of a plan.
func plan(ctx context.Context, in *kind.Problem, run *kind.Run) (*kind.Outcome, error) {
	list, err := deploy.Resolve(in, run)
	if err != nil {
		return nil, err
	}
	s := &solving{in: in, run: run, objective: in.Values.Word("objective")}
	if s.goal = goals[s.objective]; s.goal != deploy.Price {
		s.sense = milp.Maximize
	}

	// Bound every choice of tensor parallelism, and refuse rates that are hopeless.
	bounds, bound, err := s.bounds(ctx, list)
	if err != nil {
		return nil, err
	}
	if err := s.overloaded(list[0], bound); err != nil {
		return nil, err
	}
	bound = s.scale(list[0], bound)

	// Search the choices for the best layout.
	best, err := s.best(ctx, list, bounds)
	if err != nil {
		return nil, err
	}
	return s.outcome(ctx, best, bound)
}

// maxOverload limits the rates for which goodput is planned, as a multiple of what the devices carry.
// Beyond it, the waiting requests take long to simulate and show nothing new.
const mostOverload = 10

// refuseOverload returns an error if the rates are too far above a bound of the goodput.
func (s *solving) overloaded(p *deploy.Search, bound float64) error {
	if s.goal != deploy.Goodput || p.RPS() <= mostOverload*bound {
		return nil
	}
	llm, most := formats.LLMOf(s.in.Workload), 0
	for c := range llm.Classes {
		if llm.Classes[c].RPS > llm.Classes[most].RPS {
			most = c
		}
	}
	return s.in.Fail("workload", fmt.Sprintf("llm.classes[%d].rps", most), fmt.Sprintf("rates of %s requests a second in all", kind.Number(p.RPS())),
		fmt.Sprintf("at most %d times the %s that the devices do at most", mostOverload, kind.Number(bound)), "what is above is late in any case: plan for a part of the rates")
}

// candidate is a judged layout with the search that it comes from and its value of the objective.
type candidate struct {
	p     *deploy.Search
	found *deploy.Found
	value float64
}

// workBounds returns the bound of each choice of tensor parallelism, and the best of them. It sorts the
// list by bound, the best first.
func (s *solving) bounds(ctx context.Context, list []*deploy.Search) (map[*deploy.Search]float64, float64, error) {
	out := map[*deploy.Search]float64{}
	for _, p := range list {
		s.run.Progress(kind.Progress{Phase: "bound", Value: math.NaN(), Bound: math.NaN()})
		b, err := p.Floor(ctx, s.run.Solver, s.goal)
		if err != nil {
			return nil, 0, err
		}
		out[p] = b
	}
	slices.SortStableFunc(list, func(a, b *deploy.Search) int {
		if s.sense == milp.Maximize {
			return cmp.Compare(out[b], out[a])
		}
		return cmp.Compare(out[a], out[b])
	})
	best := out[list[0]]
	if math.IsInf(best, 1) {
		return nil, 0, s.tooFew(ctx, list)
	}
	return out, best, nil
}

// bestLayout searches every choice of tensor parallelism whose bound is better than the best layout so far.
func (s *solving) best(ctx context.Context, list []*deploy.Search, bounds map[*deploy.Search]float64) (*candidate, error) {
	var best *candidate
	for _, p := range list {
		if best != nil && !s.better(s.scale(p, bounds[p]), best.value) || math.IsInf(bounds[p], 1) {
			continue
		}
		c, err := s.search(ctx, p, bounds[p])
		switch {
		case errors.Is(err, deploy.ErrTooFew):
		case err != nil && best != nil && ctx.Err() != nil:
			return best, nil
		case err != nil:
			return nil, err
		case best == nil || s.better(c.value, best.value):
			best = c
		}
	}
	if best == nil {
		return nil, s.tooFew(ctx, list)
	}
	return best, nil
}

// isBetter returns whether value a of the objective is better than b.
func (s *solving) better(a, b float64) bool {
	if s.sense == milp.Maximize {
		return a > b
	}
	return a < b
}

// inObjectiveUnit returns a bound in the unit of the objective: for a factor on the rates, requests per
// second.
func (s *solving) scale(p *deploy.Search, bound float64) float64 {
	if s.goal == deploy.Factor {
		return bound * p.RPS()
	}
	return bound
}

// searchLayout searches one choice of tensor parallelism for the layout that is best by the goal.
func (s *solving) search(ctx context.Context, p *deploy.Search, bound float64) (*candidate, error) {
	structures := deploy.Structures{Classes: s.keepsClassesApart(p), Any: s.in.Trial}

	// Report better layouts as they are found.
	told := func(f *deploy.Found) {
		s.run.Progress(kind.Progress{Phase: "simulating fleets", Fraction: 0.5, Value: f.Price, Bound: bound})
		if s.goal == deploy.Price {
			s.run.Incumbent(f.Price, bound)
		}
	}
	s.run.Progress(kind.Progress{Phase: "simulating fleets", Value: math.NaN(), Bound: bound})

	// Search by the goal.
	switch s.goal {
	case deploy.Price:
		f, err := p.Fewest(ctx, structures, bound, told)
		if err != nil {
			return nil, err
		}
		return &candidate{p, f, f.Price}, nil
	case deploy.Goodput:
		f, err := p.Most(ctx, structures, told)
		if err != nil {
			return nil, err
		}
		return &candidate{p, f, s.atMost(-f.Price, bound)}, nil
	}
	q, f, err := p.Highest(ctx, structures, bound, told)
	if err != nil {
		return nil, err
	}
	return &candidate{q, f, q.RPS()}, nil
}

// limitToBound returns the value, or its bound if that is lower. Runs are short, so that simulated figures
// can exceed a bound that holds in the long run.
func (s *solving) atMost(value, bound float64) float64 {
	if value > bound {
		s.run.Warn("simulation shows %s: work that is put off until arrivals end counts there; in the long run it is at most %s", kind.Number(value), kind.Number(bound))
		return bound
	}
	return value
}

// policySeparatesClasses returns whether the plan's policy can run pools that serve only one class.
func (s *solving) keepsClassesApart(p *deploy.Search) bool {
	probe, err := p.Apart()
	if err != nil || probe == nil {
		return false
	}
	t, err := policies.Compile(probe)
	if err != nil {
		return false
	}
	_, err = policies.New(probe.Policy, t)
	return err == nil
}

// tooFewDevicesError returns an error that says that the cluster cannot do what is asked, and what would be
// nearest: lower rates if even the work is too much, else more devices.
func (s *solving) tooFew(ctx context.Context, list []*deploy.Search) error {
	p := list[0]
	e := &kind.InfeasibleError{Constraint: "devices", Reason: "the devices of the cluster do not keep the SLOs of all classes at the rates asked"}
	if s.goal == deploy.Factor {
		e.Reason = "the devices of the cluster keep the SLOs of all classes at no rate that was tried"
	}
	if s.goal != deploy.Price {
		return e
	}
	if s.in.Trial {
		return e
	}
	// The factor is a bound by work alone, and no plan was found at it.
	factor, err := p.Floor(ctx, s.run.Solver, deploy.Factor)
	if err == nil && factor < 1 {
		e.Reason = fmt.Sprintf("the work of the rates asked is more than the devices of the cluster do: at most %s times the rates, whatever the order", kind.Number(factor))
		e.Nearest = kind.Nearest{LoadFactor: factor, NotSolved: true}
		return e
	}

	// Look for the devices that would suffice, on a cluster with many of them.
	roomy := p.Roomy()
	if ok, err := deploy.Enough(ctx, roomy, deploy.Structures{}); err != nil || !ok {
		return e // an SLO may be too short for any number of devices
	}
	if f, err := roomy.Fewest(ctx, deploy.Structures{}, 0, nil); err == nil {
		for k := range p.Kinds {
			if more := f.Layout.Used(k)*p.Kinds[k].TP - p.Pools[p.Kinds[k].Pool].Count; more > 0 {
				e.Nearest.Devices = append(e.Nearest.Devices, kind.MissingCount{Device: p.Kinds[k].Device, Count: more})
			}
		}
	}
	return e
}
