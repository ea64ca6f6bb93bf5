package policies_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// A plan of a kind without run-time tables is refused, and a policy is refused
// the tables of another kind than its own.
func TestPoliciesRefuseTablesOfOtherKinds(t *testing.T) {
	plan := policytest.Hundred().Plan()
	plan.Kind = "none"
	_, err := policies.Compile(plan)
	if e, ok := errors.AsType[*document.Error](err); !ok || e.Path != "kind" || !strings.Contains(err.Error(), "compiling the plan") {
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
	if policies.NewControl(tables) != nil {
		t.Error("the requests of a pool plan have tasks beside their own")
	}
	if _, err := policies.New(formats.PolicySpec{Name: "gear"}, tables); err == nil || !strings.Contains(err.Error(), "of kind gear") {
		t.Errorf("policy gear for a pool plan: %v", err)
	}
}

// A policy that an instrument registers is made for plans of its kind, and none is registered twice
// or for a kind that there is not.
func TestPolicyIsRegisteredOnceForAKnownKind(t *testing.T) {
	tables, err := policies.Compile(policytest.Hundred().Plan())
	if err != nil {
		t.Fatal(err)
	}
	spec := formats.PolicySpec{Name: "compared", Params: map[string]float64{"x": 1}}
	if _, err := policies.New(spec, tables); err == nil || !strings.Contains(err.Error(), "expected one of reserve, artifact") {
		t.Errorf("a policy that nobody registered: %v", err)
	}
	var given map[string]float64
	maker := func(_ *policy.Tables, params map[string]float64) (policy.Policy, error) {
		given = params
		return nil, nil
	}
	policies.Register(formats.PlanPool, "compared", maker)
	if _, err := policies.New(spec, tables); err != nil || given["x"] != 1 {
		t.Errorf("a registered policy with the parameters %v: %v", given, err)
	}
	for _, kind := range []string{formats.PlanPool, formats.PlanFlow} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a second policy of a name, or one for a kind that is none, is registered for %s", kind)
				}
			}()
			policies.Register(kind, "compared", maker)
		}()
	}
}

// Instances on different numbers of devices of a kind have times of their own. Where a plan states one estimate for all, which was of
// either, the policy that estimates refuses it.
func TestInstancesOfSeveralSizes(t *testing.T) {
	plan, err := formats.ReadPlan("../../testdata/compat/plan-queue.v2.json")
	if err != nil {
		t.Fatal(err)
	}
	q := formats.QueueOf(plan)
	q.Models[0].Instances[1].KVTokens = q.Models[0].Instances[0].KVTokens
	refused := func() string {
		tables, err := policies.Compile(plan)
		if err == nil {
			if a, b := tables.Devices[0].Kind, tables.Devices[1].Kind; a == b || tables.Kinds[a] != tables.Kinds[b] || tables.KindCounts[a]+tables.KindCounts[b] != 3 {
				t.Errorf("kinds %d and %d of %q with %d devices", a, b, tables.Kinds, tables.KindCounts)
			}
			if got := fmt.Sprint(tables.KindLabels()); got != "[1 x A100 2 x A100]" {
				t.Errorf("labels %s", got)
			}
			_, err = policies.New(formats.PolicySpec{Name: "vqueue"}, tables)
		}
		return fmt.Sprint(err)
	}
	if got := refused(); !strings.Contains(got, "queue.instances[1].tensor_parallel: found 2, expected 1, as the instances before on A100") {
		t.Error(got)
	}
	slow := q.Estimates[0]
	q.Estimates[0].TensorParallel, q.Estimates[1].TensorParallel, slow.TensorParallel = 1, 1, 2
	if got := refused(); !strings.Contains(got, "found none of chat-7b on 2 x A100") {
		t.Error(got)
	}
	q.Estimates = append(q.Estimates, slow)
	if got := refused(); got != "<nil>" {
		t.Error(got)
	}
}

// Plans that every later version must read run under the policy that they name, with its parameters. That of language
// models has instances of two sizes, so that it shows every field, and no estimate is for both.
func TestKeptPlansRun(t *testing.T) {
	files, err := filepath.Glob("../../testdata/compat/plan*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, path := range files {
		plan, err := formats.ReadPlan(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if plan.Kind == formats.PlanQueue {
			continue
		}
		tables, err := policies.Compile(plan)
		if err == nil {
			_, err = policies.New(plan.Policy, tables)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
