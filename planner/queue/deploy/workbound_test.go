package deploy

import (
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/sim/llm"
)

// anyIteration draws what an iteration costs.
func anyIteration(t *rapid.T) formats.Iteration {
	return formats.Iteration{
		BaseNS: rapid.Float64Range(1e6, 3e7).Draw(t, "base"), SequenceNS: rapid.Float64Range(0, 2e5).Draw(t, "sequence"), ContextNS: rapid.Float64Range(0, 900).Draw(t, "context"),
		PromptNS: rapid.Float64Range(0, 3e5).Draw(t, "prompt"), HingeTokens: rapid.Float64Range(0, 300).Draw(t, "hinge"), AttentionNS: rapid.Float64Range(0, 10).Draw(t, "attention"),
		CPUNS: rapid.Float64Range(0, 1e6).Draw(t, "cpu"), CPUSequenceNS: rapid.Float64Range(0, 1e5).Draw(t, "cpu of a sequence"),
	}
}

// TestLeastWorkBelowEveryRun: an instance that drains any queue takes at least the
// work of its requests, with any cap, budget and KV memory.
func TestLeastWorkBelowEveryRun(t *testing.T) {
	tight := 0.0
	rapid.Check(t, func(t *rapid.T) {
		it := anyIteration(t)
		most := rapid.IntRange(1, 64).Draw(t, "sequences")
		m := llm.Model{Iteration: it, KVTokens: rapid.Int64Range(4000, 100000).Draw(t, "kv"), MaxSequences: int32(rapid.IntRange(1, most).Draw(t, "cap"))}
		list := make([]llm.Request, rapid.IntRange(1, 60).Draw(t, "requests"))
		least := 0.0
		for i := range list {
			list[i] = llm.Request{Prompt: int32(rapid.IntRange(1, 2500).Draw(t, "prompt tokens")), Output: int32(rapid.IntRange(1, 400).Draw(t, "answer"))}
			least += MinRequestWork(&it, list[i], fullBatchIterations(most, list[i]), false, false)
		}
		out, _, err := llm.ServeAll(llm.Options{TokenBudget: int32(rapid.SampledFrom([]int{0, 256, 2048}).Draw(t, "budget"))}, m, list)
		if err != nil {
			t.Fatal(err)
		}
		took := 0.0
		for _, o := range out {
			took = max(took, o.LastToken.Seconds())
		}
		if least > took*(1+1e-9)+1e-6 {
			t.Fatalf("the bound is %.6f s, the instance took %.6f s", least, took)
		}
		tight = max(tight, least/took)
	})
	if tight < 0.5 {
		t.Errorf("the bound is never above %.2f of a run: it says nothing", tight)
	}
}
