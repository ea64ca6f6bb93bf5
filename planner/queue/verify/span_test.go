package verify

import (
	"math"
	"testing"

	"inferplan/formats"
)

// Fewer seconds are simulated where a cost of today's profile makes the work more than the
// instances do, whichever cost it is, and as many as ever where it does not.
func TestSpanOfOverloadedInstances(t *testing.T) {
	on := formats.LLMInstance{Device: "A100", TensorParallel: 1, Iteration: formats.Iteration{BaseNS: 13e6, SequenceNS: 87e3, ContextNS: 183, PromptNS: 64e3, HingeTokens: 128, AttentionNS: 2}}
	class := formats.QueueClass{Served: formats.Served{Model: "m7", RPS: 1}, PromptMean: 300, OutputMean: 60}
	q := &formats.QueuePlan{
		Models: []formats.LLMProfile{{Model: "m7", Instances: []formats.LLMInstance{on}}}, Classes: []formats.QueueClass{class},
		Instances: []formats.QueueInstance{{Device: "A100", TensorParallel: 1, Models: []string{"m7"}, Sequences: []int{64}}},
	}
	plan := &formats.Plan{Kind: formats.PlanQueue, Section: q}
	if got := arrivalSeconds(plan, nil); got != maxSeconds {
		t.Errorf("as planned: %v s, expected %v", got, maxSeconds)
	}
	for name, change := range map[string]func(*formats.Iteration){
		"base": func(it *formats.Iteration) { it.BaseNS = 6e10 }, "context": func(it *formats.Iteration) { it.ContextNS = 1e6 },
		"prompt": func(it *formats.Iteration) { it.PromptNS = 1e9 }, "attention": func(it *formats.Iteration) { it.AttentionNS = 1e6 },
	} {
		slow := on
		change(&slow.Iteration)
		if got := arrivalSeconds(plan, &formats.Profile{LLMs: []formats.LLMProfile{{Model: "m7", Instances: []formats.LLMInstance{slow}}}}); !(got < maxSeconds/10) || got < 1 || math.IsNaN(got) {
			t.Errorf("%s: %v s", name, got)
		}
	}
	class.RPS = 1e9
	q.Classes = []formats.QueueClass{class}
	if got := arrivalSeconds(plan, nil); got*class.RPS > simulatedRequests {
		t.Errorf("at %g requests a second: %v s", class.RPS, got)
	}
}
