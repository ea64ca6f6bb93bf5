package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/queue"
)

// TestNeverWritesWhatCheckFails: a plan that breaks a rule of its own check is refused with
// the rule; one that passes comes back as it was.
func TestNeverWritesWhatCheckFails(t *testing.T) {
	in := documents()
	res, err := solve(in, "objective", "gpus")
	if err != nil {
		t.Fatal(err)
	}
	again := func(change func(p *formats.Plan)) (*kind.Result, error) {
		plan, section := *res.Plan, *formats.QueueOf(res.Plan)
		section.Classes = append([]formats.QueueClass(nil), section.Classes...)
		plan.Section = &section
		change(&plan)
		once := func(context.Context, *kind.Problem, func(kind.Progress)) (*kind.Result, error) {
			return &kind.Result{Plan: &plan}, nil
		}
		return queue.Checked(once)(t.Context(), &kind.Problem{Documents: in}, nil)
	}
	if _, err := again(func(*formats.Plan) {}); err != nil {
		t.Errorf("a plan that passes: %v", err)
	}
	for constraint, change := range map[string]func(p *formats.Plan){
		"rps":       func(p *formats.Plan) { formats.QueueOf(p).Classes[0].RPS = 500 },
		"objective": func(p *formats.Plan) { p.Objective.Value++ },
	} {
		_, err := again(change)
		inf, ok := errors.AsType[*planner.InfeasibleError](err)
		if !ok || inf.Constraint != constraint || !strings.Contains(err.Error(), "plan check") {
			t.Errorf("%s: %v, expected the rule of plan check", constraint, err)
		}
	}
}
