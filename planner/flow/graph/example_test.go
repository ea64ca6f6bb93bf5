package graph

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
	"inferplan/testkit/methodspage"
)

// TestFlowExample computes the worked example of docs/methods/flow.md: two modules, one after the other, on three devices.
func TestFlowExample(t *testing.T) {
	modelOf := func(name string, batches map[int]time.Duration) model {
		var list []template
		for batch, worst := range batches {
			list = append(list, template{batch: batch, sharesPerDevice: 1, worstTime: worst, rate: float64(batch) / worst.Seconds()})
		}
		return model{name: name, levels: levelsOf([][]template{list})}
	}
	const ms = time.Millisecond
	p := &problem{
		batchWait: 1, pools: []pool{{kind: "A", count: 3, price: 1}},
		models: []model{modelOf("detect", map[int]time.Duration{1: 4 * ms, 4: 8 * ms, 8: 12 * ms}), modelOf("read", map[int]time.Duration{1: 10 * ms, 4: 20 * ms, 8: 32 * ms})},
		apps: []app{{name: "app", slo: 60 * ms, weight: 1, paths: [][]int{{0, 1}},
			modules: []appModule{{name: "detect", visitShare: 1, choices: []choice{{model: 0}}}, {name: "read", visitShare: 1, choices: []choice{{model: 1}}}}}},
	}
	s := &planSearch{problem: p, solver: highs.Solver{}}
	result, err := s.throughput(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	plan := result.solution
	methodspage.Require(t, "flow.md", "## Example", fmt.Sprintf("θ = %.0f", result.value), fmt.Sprintf("bound %.0f", result.bound),
		fmt.Sprintf("2 · (%d + %d) = %d ms", p.models[0].levels[plan.level[0]].maxTime/ms, p.models[1].levels[plan.level[1]].maxTime/ms, p.longestPathTime(plan, 0)/ms),
		fmt.Sprintf("`detect` has %d device and `read` %d", plan.devices[0][0], plan.devices[1][0]))

	// The deadline split in halves: each module may take 30 ms, its batch at most 15 ms.
	split := *p
	split.apps = []app{p.apps[0]}
	split.models = nil
	for _, m := range p.models {
		short := m
		short.levels = nil
		for _, l := range m.levels {
			if p.moduleTime(&l) <= 30*ms {
				short.levels = append(short.levels, l)
			}
		}
		split.models = append(split.models, short)
	}
	halves, err := s.withProblem(&split).throughput(context.Background())
	if err != nil {
		t.Fatal(err)
	}

	// The bound of all plans.
	in := &kind.Problem{}
	in.Values = document.NewValues(formats.PlanOptions(formats.PlanFlow))
	r := &resolvedProblem{problem: p, objective: "throughput", input: in}
	bound, err := r.objectiveBound(context.Background(), highs.Solver{}, .99)
	if err != nil {
		t.Fatal(err)
	}
	methodspage.Require(t, "flow.md", "## Example", fmt.Sprintf("halves gives %.0f", halves.value), fmt.Sprintf("%.1f requests/s", bound))
}
