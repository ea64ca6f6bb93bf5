package flow

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/verify"
	"inferplan/planner/kind"
)

// A plan with a cold start has a table up to all its replicas. A check finds it sound,
// and finds what was taken out of it.
func TestColdStartPlanHasScalingTable(t *testing.T) {
	p := twoModuleProblem("gpus")
	for name, value := range map[string]any{"cold-start": 5 * time.Second, "headroom": 1.2} {
		if err := p.Values.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	plan := planOf(t, p)
	s := formats.FlowOf(plan).Scaling
	if s == nil {
		t.Fatal("no table")
	}
	all := []int{plan.Deployment[0].Replicas(), plan.Deployment[1].Replicas()}
	if last := s.Table[len(s.Table)-1].Replicas; !slices.Equal(last, all) || !slices.Equal(s.Start, all) {
		t.Errorf("the last row has %v replicas, the beginning %v, the plan %v", last, s.Start, all)
	}
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	today := &kind.CheckInput{Plan: plan, Profile: p.Profile, Cluster: p.Cluster, Workload: p.Workload}
	for _, f := range verify.Check(today) {
		t.Errorf("%+v", f)
	}
	for i := range s.Table {
		for m, n := range s.Table[i].Replicas {
			carried := 0.
			for _, l := range plan.Deployment[m].Pipelines {
				here := min(n, l.Stages[0].Replicas)
				carried, n = carried+l.RPS*float64(here)/float64(l.Stages[0].Replicas), n-here
			}
			// A rate is that of the row times the headroom, but for a few replicas that gain little.
			if carried < .97*min(1.2*s.Table[i].AboveRPS, 400) {
				t.Errorf("row %d: module %d carries %.1f of %.1f", i, m, carried, s.Table[i].AboveRPS)
			}
		}
	}
	s.Table[len(s.Table)-1].Replicas = []int{1, 1}
	formats.FlowOf(plan).Modules[0].ColdStartUS = document.Micros(time.Second)
	if list := verify.Check(today); len(list) != 2 || list[0].Constraint != "scaling" || list[1].Constraint != "scaling" {
		t.Errorf("of a cold start and of a row that are wrong: %+v", list)
	}
	formats.FlowOf(plan).Scaling = nil
	if list := verify.Check(today); len(list) != 1 || list[0].Constraint != "scaling" {
		t.Errorf("without the table: %+v", list)
	}
}

// The pace follows how much the arrivals of a trace vary from second to second.
func TestPaceFollowsArrivalVariation(t *testing.T) {
	steady := func(int) int { return 20 }
	bursty := func(s int) int { return []int{4, 60}[s%2] }
	wild := func(s int) int { return []int{1, 1, 1, 80}[s%4] }
	for _, c := range []struct {
		rate func(second int) int
		cv   float64
		want time.Duration
	}{{steady, 0, 5 * time.Second}, {bursty, .875, 4 * time.Second}, {wild, 1.648, 2 * time.Second}} {
		var b strings.Builder
		b.WriteString("t_us,model\n")
		for s := range 41 {
			for i := range c.rate(s) {
				fmt.Fprintf(&b, "%d,seen\n", s*1e6+i*1000)
			}
		}
		p := twoModuleProblem("gpus")
		p.WorkloadDir = t.TempDir()
		p.Workload.Arrivals = &formats.Arrivals{Trace: "trace.csv"}
		path := filepath.Join(p.WorkloadDir, "trace.csv")
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if cv := fmt.Sprintf("coefficient of variation of %.2f", c.cv); !strings.Contains(strings.Join(planOf(t, p).Assumptions, "\n"), cv) {
			t.Errorf("no %s in the plan", cv)
		}
		if got := formats.FlowOf(planOf(t, p)).WindowUS.D(); got != c.want {
			t.Errorf("queueing over %v, expected %v", got, c.want)
		}
	}
}
