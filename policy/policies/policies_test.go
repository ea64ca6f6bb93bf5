package policies_test

import (
	"errors"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// A plan of a kind without run-time tables is refused, and a policy is refused
// the tables of another kind than its own.
func TestKinds(t *testing.T) {
	plan := policytest.Hundred().Plan()
	plan.Kind = "none"
	_, err := policies.Compile(plan)
	if e, ok := errors.AsType[*formats.Error](err); !ok || e.Path != "kind" || !strings.Contains(err.Error(), "compiling the plan") {
		t.Errorf("a plan of an unknown kind: %v, expected an error at kind", err)
	}
	plan.Kind = formats.PlanGear
	if _, err := policies.Compile(plan); err == nil || !strings.Contains(err.Error(), "the gears of a plan of kind gear") {
		t.Errorf("a gear plan without gears: %v", err)
	}
	plan.Kind = formats.PlanPool
	tables, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	if policies.Control(tables) != nil {
		t.Error("the requests of a pool plan have tasks beside their own")
	}
	if _, err := policies.New(formats.PolicySpec{Name: "gear"}, tables); err == nil || !strings.Contains(err.Error(), "of kind gear") {
		t.Errorf("policy gear for a pool plan: %v", err)
	}
}
