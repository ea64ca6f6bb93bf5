package queue

import (
	"context"
	"errors"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/queue/deploy"
	"inferplan/solver/milp"
)

// outcome returns the best layout as the parts of a plan: deployment, objective with its bound, the reason why the search stopped, and
// warnings about what may be worse in practice. Unless only feasibility was asked for, it then adds the plan's first request groups. If
// that is interrupted, the plan still holds.
func (s *queuePlanner) outcome(ctx context.Context, c *candidate, bound float64) (*kind.Outcome, error) {
	items := c.search.Problem.AllItems()
	section, err := c.search.Plans.Section(c.result.Layout, items)
	if err != nil {
		return nil, err
	}

	// By rounding, a value may be slightly better than its bound.
	validBound := bound
	if s.isBetter(c.value, validBound) {
		validBound = c.value // by rounding
	}
	if s.goal == deploy.GoalGoodput {
		s.warnLimited(c.simulated, c.value)
	}
	objective := kind.BoundedObjective(s.objective, s.sense, c.value, validBound)
	if c.search.Problem.LeavesOutSizes() {
		objective.BoundAmong = "with servers on one number of devices of each kind"
	}
	outcome := &kind.Outcome{
		Algorithm: s.input.Values.Word("algorithm"), Values: s.input.Values, Sense: s.sense, Pools: c.search.Problem.Pools, Deployment: c.search.Plans.Deployment(items), Section: section,
		Objective: objective, Policy: c.search.Problem.Policy, Candidates: c.result.Simulations,
	}

	// Runs in which the backlog grows prove nothing about the long run.
	if outcome.StoppedBy = s.stopReason(ctx, *objective.Gap); c.result.BacklogGrows {
		if outcome.StoppedBy == milp.StoppedByProof {
			outcome.StoppedBy = milp.StoppedByWork
		}
		s.run.Warn("what waits grows at these rates: the work is more than the instances do, so attainments are those of %v of arrivals and fall after that", c.search.Trials.Span())
	}
	for i := range section.Instances {
		for _, model := range section.Instances[i].Models {
			_, in := s.input.Profile.LLMOn(model, section.Instances[i].Device, section.Instances[i].TensorParallel)
			s.run.WarnInstance(model, in)
		}
	}
	writeAttainments(section, c.search, &c.result.Score)
	if s.input.FeasibilityOnly {
		return outcome, nil
	}

	// Add the first groups. If that is interrupted, the plan still holds.
	if err := s.orderFirstGroups(ctx, c, section); err != nil && !(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil, err
	}
	s.addAssumptions(c)
	outcome.Phases = []kind.Phase{{Name: "fleets", Pipelines: c.result.Simulations, Value: c.value, Bound: validBound}}
	return outcome, nil
}

// stopReason returns why the search ended, by the relative gap between its value and bound: a proof, a gap that the options allow, an
// interruption, or else the limit on work.
func (s *queuePlanner) stopReason(ctx context.Context, gap float64) milp.StoppedBy {
	reason := kind.StopReason(gap, s.input.Values.Number("gap"))
	if reason == milp.StoppedByWork && ctx.Err() != nil {
		return milp.StoppedByInterrupt
	}
	return reason
}

// addAssumptions adds to the plan, for its reader, the assumptions behind its search and its bound.
func (s *queuePlanner) addAssumptions(c *candidate) {
	s.run.Assume("fleets were judged by simulation: %d runs of %v of arrivals each, classes pooled over their models; plan simulate repeats the runs of the plan", max(c.search.Problem.Runs, 1), c.search.Trials.Span())
	if s.goal != deploy.GoalGoodput {
		s.run.Assume("the work of the rates takes at most %s of the instances' time, and what waits does not grow", kind.FormatPercent(deploy.MaxUtilization))
	}
	s.run.Assume("the bound counts the work of requests in time, with at most %d sequences at once on an instance, and holds in the long run for any order and any assignment", slices.Max(c.search.Problem.Caps))
}

// writeAttainments writes into the plan's classes the shares of requests that were in time in the search's
// simulations, and how to repeat these runs.
func writeAttainments(q *formats.QueuePlan, search *deploy.Search, score *deploy.Score) {
	q.Runs = &formats.QueueRuns{Runs: max(search.Problem.Runs, 1), DurationUS: document.Micros(search.Trials.Span()), Seed: max(search.Problem.Seed, 1)}
	for i := range q.Classes {
		q.Classes[i].Attainment = score.ByItem[i].Attainment()
	}
}
