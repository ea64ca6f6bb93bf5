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
	section, err := c.search.Plans.Section(c.result.Layout, c.search.Problem.AllItems())
	if err != nil {
		return nil, err
	}

	validBound := kind.ValidBound(s.sense, c.value, bound) // by rounding, the value may be slightly better than its bound
	if s.goal == deploy.GoalGoodput {
		s.warnLimited(c.simulated, c.value)
	}
	outcome := s.judgedOutcome(c.search, section, &c.result.Score, c.result.BacklogGrows, c.value, validBound)
	if c.search.Problem.LeavesOutSizes() {
		outcome.Objective.BoundAmong = "with servers on one number of devices of each kind"
	}
	outcome.Candidates, outcome.StoppedBy = c.result.Simulations, s.stopReason(ctx, outcome, c.result.BacklogGrows)
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

// judgedOutcome returns the parts of a plan whose servers are in section, with the attainments of their runs and the warnings that these
// and the measurements give rise to. backlogGrows says that the requests in the system grow during the runs. bound is NaN if it is not
// known.
func (s *queuePlanner) judgedOutcome(search *deploy.Search, section *formats.QueuePlan, score *deploy.Score, backlogGrows bool, value, bound float64) *kind.Outcome {
	if backlogGrows {
		s.run.Warn("what waits grows at these rates: the work is more than the instances do, so attainments are those of %v of arrivals and fall after that", search.Trials.Span())
	}
	for i := range section.Instances {
		for _, model := range section.Instances[i].Models {
			_, costs := s.input.Profile.LLMOn(model, section.Instances[i].Device, section.Instances[i].TensorParallel)
			s.run.WarnInstance(model, costs)
		}
	}
	writeAttainments(section, search, score)
	return &kind.Outcome{
		Algorithm: s.input.Values.Word("algorithm"), Values: s.input.Values, Sense: s.sense, Pools: search.Problem.Pools, Deployment: search.Plans.Deployment(search.Problem.AllItems()), Section: section,
		Objective: kind.BoundedObjective(s.objective, value, bound), Policy: search.Problem.Policy,
	}
}

// stopReason returns why the search ended, by the relative gap between its value and bound: a proof, a gap that the options allow, an
// interruption, or else the limit on work. If the backlog of the runs grows, these prove nothing about the long run.
func (s *queuePlanner) stopReason(ctx context.Context, outcome *kind.Outcome, backlogGrows bool) milp.StoppedBy {
	reason := kind.StopReason(*outcome.Objective.Gap, s.input.Values.Number("gap"))
	switch {
	case reason == milp.StoppedByWork && ctx.Err() != nil:
		return milp.StoppedByInterrupt
	case reason == milp.StoppedByProof && backlogGrows:
		return milp.StoppedByWork
	}
	return reason
}

// assumeRuns adds to the plan the assumption by which runs it was judged.
func (s *queuePlanner) assumeRuns(search *deploy.Search) {
	s.run.Assume("fleets were judged by simulation: %d runs of %v of arrivals each, classes pooled over their models; plan simulate repeats the runs of the plan", max(search.Problem.Runs, 1), search.Trials.Span())
}

// addAssumptions adds to the plan, for its reader, the assumptions behind its search and its bound.
func (s *queuePlanner) addAssumptions(c *candidate) {
	s.assumeRuns(c.search)
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
