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

// outcome returns the layout of a candidate as the parts of a plan.
func (s *solving) outcome(ctx context.Context, c *candidate, bound float64) (*kind.Outcome, error) {
	items := make([]int, len(c.p.Items))
	for i := range items {
		items[i] = i
	}
	section, err := c.p.Section(c.found.Layout, items)
	if err != nil {
		return nil, err
	}

	// By rounding, a value may be slightly better than its bound.
	limit := bound
	if s.better(c.value, limit) {
		limit = c.value // by rounding
	}
	gap := milp.RelativeGap(s.sense, c.value, limit)
	out := &kind.Outcome{
		Algorithm: s.in.Values.Word("algorithm"), Values: s.in.Values, Sense: s.sense, Pools: c.p.Pools, Deployment: c.p.Deployment(items), Section: section,
		Objective: formats.Objective{Name: s.objective, Value: c.value, Bound: &limit, Gap: &gap}, Policy: c.p.Policy, Considered: c.found.Tried,
	}

	// Runs in which the backlog grows prove nothing about the long run.
	if out.StoppedBy = s.stopped(ctx, gap); c.found.Grows {
		if out.StoppedBy == milp.StoppedByProof {
			out.StoppedBy = milp.StoppedByWork
		}
		s.run.Warn("what waits grows at these rates: the work is more than the instances do, so attainments are those of %v of arrivals and fall after that", c.p.Span())
	}
	for i := range section.Instances {
		for _, model := range section.Instances[i].Models {
			_, in := s.in.Profile.LLMOn(model, section.Instances[i].Device, section.Instances[i].TensorParallel)
			s.run.WarnInstance(model, in)
		}
	}
	c.expect(section)
	if s.in.Trial {
		return out, nil
	}

	// Add the first groups. If that is interrupted, the plan still holds.
	if err := s.order(ctx, c, section); err != nil && !(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil, err
	}
	s.assume(c)
	out.Phases = []kind.Phase{{Name: "fleets", Pipelines: c.found.Tried, Value: c.value, Bound: limit}}
	return out, nil
}

// stopReason returns what ended the search.
func (s *solving) stopped(ctx context.Context, gap float64) milp.StoppedBy {
	switch {
	case gap <= 1e-9:
		return milp.StoppedByProof
	case gap <= s.in.Values.Number("gap"):
		return milp.StoppedByGap
	case ctx.Err() != nil:
		return milp.StoppedByInterrupt
	}
	return milp.StoppedByWork
}

// addAssumptions adds the assumptions that the plan rests on.
func (s *solving) assume(c *candidate) {
	s.run.Assume("fleets were judged by simulation: %d runs of %v of arrivals each, classes pooled over their models; plan simulate repeats the runs of the plan", max(c.p.Seeds, 1), c.p.Span())
	if s.goal != deploy.Goodput {
		s.run.Assume("the work of the rates takes at most %s of the instances' time, and what waits does not grow", kind.Percent(deploy.Room))
	}
	s.run.Assume("the bound counts the work of requests in time, with at most %d sequences at once on an instance, and holds in the long run for any order and any assignment", slices.Max(c.p.Caps))
}

// writeAttainments writes the attainments of the runs into the classes of the plan.
func (c *candidate) expect(q *formats.QueuePlan) {
	q.Runs = &formats.QueueRuns{Runs: max(c.p.Seeds, 1), DurationUS: document.Micros(c.p.Span()), Seed: max(c.p.Seed, 1)}
	for i := range q.Classes {
		q.Classes[i].Attainment = c.found.Score.ByItem[i].Attained()
	}
}
