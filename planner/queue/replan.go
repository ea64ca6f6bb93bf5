package queue

import (
	"context"
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/queue/deploy"
	"inferplan/solver/milp"
)

// checkRunning returns an error if a new plan cannot start from the one that runs, which must be a plan of queues.
func checkRunning(p *kind.Problem) error {
	if formats.QueueOf(p.RunningPlan) == nil {
		return p.FieldError("running", "kind", p.RunningPlan.Kind, formats.PlanQueue, "the workload asks for language models: start from a plan of these, or leave out --from")
	}
	return nil
}

// Limits of the search near the fleet that runs: fleets that are judged, and those of them that are compared before one is taken.
const (
	nearbyFleets = 60
	nearbyBatch  = 6
)

// fleetValue says how good a fleet is by the goal. Less is better, of misses first.
type fleetValue struct {
	misses float64 // by how much the SLOs are missed, if the goal asks for them
	amount float64 // the price, or the negative of the objective that is maximised
}

// isBelow reports whether a value is better than another one by more than rounding.
func (v fleetValue) isBelow(o fleetValue) bool {
	if math.Abs(v.misses-o.misses) > 1e-9*max(v.misses, o.misses) {
		return v.misses < o.misses
	}
	return v.amount < o.amount-1e-9*math.Abs(o.amount)
}

// judgedFleet is a fleet with its value.
type judgedFleet struct {
	fleet deploy.Fleet
	value fleetValue
}

// replanner searches a fleet that moves few devices of the one that runs.
type replanner struct {
	*queuePlanner
	search     *deploy.Search // with servers of all sizes
	running    deploy.Fleet
	maxDevices int     // that may move
	bound      float64 // in the unit of the goal
	remaining  int     // fleets that may still be judged
}

// replan returns the outcome of a fleet that starts from the one that runs, which moves at most the share of the devices that the option
// max-moved says, and is no worse. The candidates are the fleet that runs, the best one that is planned anew, if it moves few enough, and
// those on the way from the first to the second: each step changes one server. list has the searches of plans made anew.
func (s *queuePlanner) replan(ctx context.Context, list []*deploy.Search, bounds map[*deploy.Search]float64, bound float64) (*kind.Outcome, error) {
	search, running, err := deploy.ResolveRunning(s.input, s.run, formats.QueueOf(s.input.RunningPlan))
	if err != nil {
		return nil, err
	}
	if !running.IsOneSize() || list[0].Problem.LeavesOutSizes() { // the bounds of list are for servers of one size
		workBound, err := search.Problem.WorkBound(ctx, s.run.Solver, s.goal)
		switch {
		case err != nil:
			return nil, err
		case math.IsInf(workBound, 1): // as in workBounds
			return nil, s.tooFewDevicesError(ctx, list)
		}
		bound = s.inObjectiveUnit(search, workBound)
	}
	r := &replanner{queuePlanner: s, search: search, running: running, bound: bound, remaining: nearbyFleets << (s.input.Values.WholeNumber("effort") - 1)}
	devices := lists.Sum(len(search.Problem.Pools), func(i int) int { return search.Problem.Pools[i].Count })
	maxMoved := s.input.Values.Number("max-moved")
	r.maxDevices = int(maxMoved*float64(devices) + 1e-9)

	// What runs, if it serves everything that is asked.
	var best, before *judgedFleet
	if running.Serves(search.Problem) {
		if before, err = r.judge(ctx, running); err != nil {
			return nil, err
		}
	}

	// The best fleet of all, near what runs. If ctx ends before there is one, what runs stands, if it keeps the SLOs.
	anew, err := s.bestLayout(ctx, list, bounds)
	if err != nil && ctx.Err() != nil && before != nil && before.value.misses == 0 {
		return r.outcome(ctx, before, before, devices, maxMoved)
	}
	if err != nil {
		return nil, err
	}
	target, err := anew.search.Instances(anew.result.Layout)
	if err != nil {
		return nil, err
	}
	target = deploy.PlaceNear(running, target, search.Problem.Pools)
	_, targetMoves := deploy.Moves(running, target)

	// Steps from what runs. A fleet that serves nothing of a model yet has no value: it begins with the servers that are there. The fleet that
	// was planned anew takes the place of what they lead to if it is better by more than the gap that is asked for, or moves less.
	if best, err = r.improve(ctx, before, target); err != nil {
		return nil, err
	}
	if targetMoves <= r.maxDevices && !r.isNearBound(best) {
		judged, err := r.takeIfBetter(ctx, best, target)
		switch {
		case err != nil && (ctx.Err() == nil || best == nil):
			return nil, err
		case err == nil && judged != best && r.isWorthMoves(judged, best):
			best = judged
		}
	}
	if best == nil || best.value.misses > 0 {
		return nil, &kind.InfeasibleError{Constraint: "max-moved", RefutedBySimulation: true, Reason: fmt.Sprintf("no fleet was found that keeps the SLOs and loads something new on at most %d of %d devices; the best one does so on %d (--max-moved %.3g)",
			r.maxDevices, devices, targetMoves, math.Ceil(1000*float64(targetMoves)/float64(devices))/1000)}
	}
	return r.outcome(ctx, best, before, devices, maxMoved)
}

// judge returns a fleet with its value.
func (r *replanner) judge(ctx context.Context, fleet deploy.Fleet) (*judgedFleet, error) {
	r.remaining--
	judged := &judgedFleet{fleet: fleet}
	if r.goal == deploy.GoalFactor {
		factor, err := r.search.ServersFactor(ctx, fleet, 0, r.factorBound())
		judged.value.amount = -factor
		return judged, err
	}
	result, err := r.search.JudgePlan(ctx, fleet, 1, max(r.search.Problem.Runs, 1))
	if err != nil {
		return nil, err
	}
	if judged.value.amount = -result.Goodput; r.goal == deploy.GoalPrice {
		judged.value.amount = fleet.Price(r.search.Problem)
		if !result.KeepsSLOs {
			judged.value.misses = max(result.Misses, 1e-6) // the queue may grow without a miss
		}
	}
	return judged, nil
}

// isNearBound reports whether no fleet can be better by more than the gap that is asked for.
func (r *replanner) isNearBound(judged *judgedFleet) bool {
	return judged != nil && judged.value.misses == 0 && milp.RelativeGap(r.sense, r.objectiveOf(judged), r.bound) <= r.input.Values.Number("gap")
}

// isWorthMoves reports whether a fleet that is better than another one, which may be nil, is so by more than the gap that is asked for, or
// moves no more.
func (r *replanner) isWorthMoves(judged, other *judgedFleet) bool {
	if other == nil || other.value.misses > judged.value.misses {
		return true
	}
	_, moved := deploy.Moves(r.running, judged.fleet)
	_, otherMoved := deploy.Moves(r.running, other.fleet)
	return moved <= otherMoved || other.value.amount-judged.value.amount > r.input.Values.Number("gap")*math.Abs(other.value.amount)
}

// factorBound returns the bound as a multiple of the rates.
func (r *replanner) factorBound() float64 { return r.bound / r.search.Problem.RPS() }

// takeIfBetter returns the better one of a judged fleet, which may be nil, and another one. For the highest rates it only asks whether the other
// one carries more.
func (r *replanner) takeIfBetter(ctx context.Context, best *judgedFleet, fleet deploy.Fleet) (*judgedFleet, error) {
	if r.goal == deploy.GoalFactor && best != nil && best.value.amount < 0 {
		r.remaining--
		factor, err := r.search.ServersFactor(ctx, fleet, -best.value.amount, r.factorBound())
		if err != nil || factor <= -best.value.amount {
			return best, err
		}
		return &judgedFleet{fleet, fleetValue{amount: -factor}}, nil
	}
	other, err := r.judge(ctx, fleet)
	if err != nil || best != nil && !other.value.isBelow(best.value) {
		return best, err
	}
	return other, nil
}

// improve changes a fleet step by step, as long as that makes it better, and returns the best. A step changes one server, or the sequences
// of one sort of servers. It ends where no step is better, or where the bound leaves nothing to gain. best may be nil: then the first fleet
// that serves everything is the beginning. If ctx ends, it returns the best so far.
func (r *replanner) improve(ctx context.Context, best *judgedFleet, target deploy.Fleet) (*judgedFleet, error) {
	for !r.isNearBound(best) {
		from := r.running
		if best != nil {
			from = best.fleet
		}
		list, err := r.search.Neighbours(from, r.running, target, r.maxDevices, r.goal == deploy.GoalPrice)
		if err != nil {
			return nil, err
		}
		improved := best
		for i, fleet := range list {
			if r.remaining <= 0 || ctx.Err() != nil || i%nearbyBatch == 0 && improved != best {
				break
			}
			if improved, err = r.takeIfBetter(ctx, improved, fleet); err != nil && ctx.Err() == nil {
				return nil, err
			}
		}
		if improved == best {
			return best, nil
		}
		best = improved
		r.run.Progress(kind.Progress{Phase: "simulating fleets", Fraction: 0.9, Value: r.objectiveOf(best), Bound: r.bound})
	}
	return best, nil
}

// objectiveOf returns the value of a fleet in the unit of the objective.
func (r *replanner) objectiveOf(judged *judgedFleet) float64 {
	switch r.goal {
	case deploy.GoalPrice:
		return judged.value.amount
	case deploy.GoalGoodput:
		return -judged.value.amount
	}
	return -judged.value.amount * r.search.Problem.RPS()
}

// freshSeedStep is added to the seed of the search for random numbers that no fleet was chosen by.
const freshSeedStep = 7919

// confirmGoodput judges the chosen fleet and that which runs again as their plans run, also with random numbers by which none was chosen,
// and takes the lower of both values for each. If the chosen one is not better then, it returns the one that runs twice: nothing moves by
// luck.
func (r *replanner) confirmGoodput(ctx context.Context, best, before *judgedFleet) (chosen, running *judgedFleet, err error) {
	fresh := r.search.WithSeed(max(r.search.Problem.Seed, 1) + freshSeedStep)
	lower := func(judged *judgedFleet) (*judgedFleet, error) {
		goodput := math.Inf(1)
		for _, search := range []*deploy.Search{r.search, fresh} {
			result, err := search.JudgeAt(ctx, judged.fleet, 1, max(r.search.Problem.Runs, 1), 0)
			if err != nil {
				return nil, err
			}
			goodput = min(goodput, result.Goodput)
		}
		return &judgedFleet{judged.fleet, fleetValue{amount: -goodput}}, nil
	}
	if chosen, err = lower(best); err != nil || before == nil {
		return chosen, nil, err
	}
	if running, err = lower(before); err != nil {
		return nil, nil, err
	}
	if !chosen.value.isBelow(running.value) {
		return running, running, nil
	}
	return chosen, running, nil
}

// outcome returns the chosen fleet as the parts of a plan, with its moves and its gain. If ctx has ended, the goodput is not confirmed.
func (r *replanner) outcome(ctx context.Context, best, before *judgedFleet, devices int, maxMoved float64) (*kind.Outcome, error) {
	if r.goal == deploy.GoalGoodput && ctx.Err() == nil {
		chosen, running, err := r.confirmGoodput(ctx, best, before)
		switch {
		case err == nil:
			best, before = chosen, running
		case ctx.Err() == nil:
			return nil, err
		}
	}

	// The runs of the plan are those at its rates.
	search, factor, runs := r.search, 1.0, max(r.search.Problem.Runs, 1)
	if r.goal == deploy.GoalFactor {
		factor, runs = -best.value.amount, 2*runs
		if factor == 0 {
			return nil, &kind.InfeasibleError{Constraint: "devices", RefutedBySimulation: true, Reason: "no fleet that moves so few devices keeps the SLOs of all classes at any rate that was tried"}
		}
	}
	result, err := r.search.JudgeAt(context.WithoutCancel(ctx), best.fleet, factor, runs, 0) // these runs end, and an interrupted search needs them
	if err != nil {
		return nil, err
	}
	if factor != 1 {
		search = r.search.AtFactor(factor)
		search.Problem.Runs = runs
	}
	value, bound := r.objectiveOf(best), r.bound
	if r.goal == deploy.GoalGoodput {
		r.warnLimited(value, bound)
		value = min(value, bound)
	} else {
		bound = kind.ValidBound(r.sense, value, bound) // by rounding
	}
	outcome, err := r.serversOutcome(search, best.fleet, result, value, bound)
	if err != nil {
		return nil, err
	}
	outcome.StoppedBy = r.stopReason(ctx, outcome, result.BacklogGrows)

	// Note the moves and the gain.
	moves, moved := deploy.Moves(r.running, best.fleet)
	outcome.Replan = &formats.Replan{MovedGPUs: moved, GPUs: devices, MaxMoved: maxMoved, Moves: moves}
	switch {
	case before == nil:
		r.run.Assume("the plan that runs does not serve every model and class that is asked for, so that it has no value of the objective")
	case before.value.misses > 0:
		r.run.Assume("the plan that runs does not keep the SLOs today")
	default:
		runningValue := r.objectiveOf(before)
		if r.goal == deploy.GoalGoodput {
			runningValue = min(runningValue, bound)
		}
		outcome.Replan.RunningValue = &runningValue
	}
	r.run.Assume("an instance goes on if its server has its models, takes as many sequences at once, and has its options: what is changed in plan serve alone moves nothing")
	return outcome, nil
}
