package drop_test

import (
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// Where a branch skips a module, feas leaves rare ways out by itself, and drops less than by the longest way; with one of
// two branches it counts the longest. pard refuses to leave ways out.
func TestRareWaysAreLeftOutWhereModulesAreSkipped(t *testing.T) {
	plan := func(policy string, ways ...formats.Branch) *formats.Plan {
		stage := func(name string, took time.Duration, after ...string) policytest.FlowStage {
			return policytest.FlowStage{Name: name, After: after, Infer: []time.Duration{took}, Workers: 1}
		}
		first := stage("a", 4*ms)
		first.Branches = ways
		last := stage("c", 4*ms, "a", "b")
		if len(ways[0].Targets) == 1 && len(ways[1].Targets) == 1 && ways[1].Targets[0] == "d" {
			return policytest.FlowPlan(50*ms, policy, first, stage("b", 30*ms, "a"), stage("d", 30*ms, "a"), stage("c", 4*ms, "b", "d"))
		}
		return policytest.FlowPlan(50*ms, policy, first, stage("b", 30*ms, "a"), last)
	}
	skip := []formats.Branch{{Targets: []string{"b"}, Probability: .1}, {Targets: []string{"c"}, Probability: .9}}
	fork := []formats.Branch{{Targets: []string{"b"}, Probability: .1}, {Targets: []string{"d"}, Probability: .9}}
	dropped := func(p *formats.Plan, params map[string]float64) int64 {
		p.Policy.Params = params
		sc, err := sim.NewScenario(p)
		if err != nil {
			t.Fatal(err)
		}
		sc.Load, sc.Duration = 1, 60*time.Second
		res, err := sim.Replicate(t.Context(), sc, 1)
		if err != nil {
			t.Fatal(err)
		}
		return res.Report.Models[0].Dropped
	}
	longest := map[string]float64{"paths": 0}
	if seen, all := dropped(plan("feas", skip...), nil), dropped(plan("feas", skip...), longest); seen >= all {
		t.Errorf("%d are dropped where a rare module is left out, %d where it counts for all", seen, all)
	}
	if seen, all := dropped(plan("feas", fork...), nil), dropped(plan("feas", fork...), longest); seen != all {
		t.Errorf("%d are dropped with one of two branches, %d where the longest way counts", seen, all)
	}
	p := plan("pard", skip...)
	p.Policy.Params = map[string]float64{"paths": .25}
	tables, err := policies.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policies.New(p.Policy, tables); err == nil || !strings.Contains(err.Error(), "feas takes it") {
		t.Errorf("pard with paths: %v", err)
	}
}
