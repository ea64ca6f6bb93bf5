package deploy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/sim/llm"
	"inferplan/solver/highs"
	"inferplan/testkit/methodspage"
)

// TestQueueExample computes the bound of the worked example of docs/methods/queue.md: one model and one class on servers of
// one kind.
func TestQueueExample(t *testing.T) {
	iteration := formats.Iteration{BaseNS: 10e6, SequenceNS: .1e6, PromptNS: .01e6}
	request := llm.Request{Prompt: 100, Output: 101}
	sample := make([]llm.Request, 10)
	for i := range sample {
		sample[i] = request
	}
	p := &Problem{
		Models:  []Model{{Name: "m", ByKind: []*formats.LLMInstance{{Iteration: iteration}}}},
		Classes: []Class{{Figure: formats.FigureE2E, SLO: 10 * time.Second, RequiredShare: .9, Sample: sample}},
		Items:   []Item{{RPS: 20, Weight: 1}}, Kinds: []Kind{{TP: 1, MaxInstances: 2, Price: 1}}, Caps: []int{10},
	}
	work := MinRequestWork(&iteration, request, fullBatchIterations(10, request), false, false)
	bounds := map[Goal]float64{}
	for _, goal := range []Goal{GoalPrice, GoalGoodput, GoalFactor} {
		bound, err := p.WorkBound(context.Background(), highs.Solver{}, goal)
		if err != nil {
			t.Fatal(err)
		}
		bounds[goal] = bound
	}
	methodspage.Require(t, "queue.md", "## Example", fmt.Sprintf("= %.0f ms", 1e3*work), fmt.Sprintf("bound is %g instances", bounds[GoalPrice]),
		fmt.Sprintf("%.2f requests/s in time", bounds[GoalGoodput]), fmt.Sprintf("%.3f times the rates", bounds[GoalFactor]))
}
