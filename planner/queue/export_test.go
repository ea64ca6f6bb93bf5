package queue

import (
	"context"
	"strings"

	"inferplan/planner/kind"
	"inferplan/planner/queue/deploy"
	"inferplan/solver/milp"
)

// Checked is what every solve of queues passes.
var Checked = withRuleCheck

// LimitWarnings returns the warnings of a search for the most goodput whose bound is a part of what simulation shows: before its fleet is
// chosen, and after that.
func LimitWarnings(ctx context.Context, in *kind.Problem, run *kind.SolveRun, part float64) (before, after string, err error) {
	s := &queuePlanner{input: in, run: run, objective: "goodput", goal: deploy.GoalGoodput, sense: milp.Maximize}
	list, err := deploy.Resolve(in, run)
	if err != nil {
		return "", "", err
	}
	c, err := s.bestLayout(ctx, list[:1], map[*deploy.Search]float64{list[0]: 1e9})
	if err != nil {
		return "", "", err
	}
	bound := part * c.simulated
	if c, err = s.bestLayout(ctx, list[:1], map[*deploy.Search]float64{list[0]: bound}); err != nil {
		return "", "", err
	}
	before = strings.Join(run.Warnings, "\n")
	_, err = s.outcome(ctx, c, bound)
	return before, strings.Join(run.Warnings, "\n"), err
}
