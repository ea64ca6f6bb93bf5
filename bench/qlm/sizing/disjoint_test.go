package sizing

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// TestDisjointBelowEveryRun: requests that come over time are served by an instance.
// With deadlines at their ends or later, the instance is busy for at least the work of
// the requests, in whichever way iterations are counted.
func TestDisjointBelowEveryRun(t *testing.T) {
	tight := 0.0
	rapid.Check(t, func(t *rapid.T) {
		it := formats.Iteration{
			BaseNS: rapid.Float64Range(1e6, 3e7).Draw(t, "base"), SequenceNS: rapid.Float64Range(0, 2e5).Draw(t, "sequence"), ContextNS: rapid.Float64Range(0, 900).Draw(t, "context"),
			PromptNS: rapid.Float64Range(0, 3e5).Draw(t, "prompt"), HingeTokens: rapid.Float64Range(0, 300).Draw(t, "hinge"), AttentionNS: rapid.Float64Range(0, 10).Draw(t, "attention"),
			CPUNS: rapid.Float64Range(0, 1e6).Draw(t, "cpu"), CPUSequenceNS: rapid.Float64Range(0, 1e5).Draw(t, "cpu of a sequence"),
		}
		most := rapid.IntRange(1, 64).Draw(t, "sequences")
		m := llm.Model{Iteration: it, KVTokens: rapid.Int64Range(4000, 100000).Draw(t, "kv"), MaxSequences: int32(rapid.IntRange(1, most).Draw(t, "cap"))}
		list := make([]llm.Request, rapid.IntRange(1, 40).Draw(t, "requests"))
		at := time.Duration(0)
		for i := range list {
			at += time.Duration(rapid.IntRange(0, 4000).Draw(t, "gap")) * time.Millisecond
			list[i] = llm.Request{ArrivedAt: at, Prompt: int32(rapid.IntRange(1, 2500).Draw(t, "prompt tokens")), Output: int32(rapid.IntRange(1, 200).Draw(t, "answer"))}
		}
		out, _, err := llm.ServeAll(llm.Options{TokenBudget: 2048}, m, list)
		if err != nil {
			t.Fatal(err)
		}
		spans := make([]span, len(list))
		for i := range list {
			slack := time.Duration(rapid.IntRange(0, 2000).Draw(t, "slack")) * time.Millisecond
			spans[i] = span{list[i].ArrivedAt, out[i].LastToken + slack, list[i].Output}
		}
		took, marked := busy(out).Seconds(), disjoint(spans)
		for way := range countings {
			for _, prompts := range []bool{false, true} {
				least := 0.0
				for i, apart := range marked {
					least += deploy.MinRequestWork(&it, list[i], way.iterations(most, m.KVTokens, list[i], apart), !prompts, false)
				}
				if least > took*(1+1e-9)+1e-6 {
					t.Fatalf("counted by way %d the bound is %.6f s, the instance was busy for %.6f s", way, least, took)
				}
				tight = max(tight, least/took)
			}
		}
	})
	if tight < 0.7 {
		t.Errorf("the bound is never above %.2f of a run: it says nothing", tight)
	}
}

// busy is how long an instance has requests that began.
func busy(out []llm.Outcome) time.Duration {
	slices.SortFunc(out, func(a, b llm.Outcome) int { return int(a.FirstIteration - b.FirstIteration) })
	sum, until := time.Duration(0), time.Duration(0)
	for _, o := range out {
		if o.LastToken > until {
			sum += o.LastToken - max(o.FirstIteration, until)
			until = o.LastToken
		}
	}
	return sum
}

// TestDisjointAgainstSubsets: the marked requests are those of the best of all
// subsets.
func TestDisjointAgainstSubsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]span, rapid.IntRange(0, 9).Draw(t, "requests"))
		for i := range list {
			from := rapid.IntRange(0, 20).Draw(t, "from")
			list[i] = span{time.Duration(from), time.Duration(from + rapid.IntRange(1, 10).Draw(t, "length")), int32(rapid.IntRange(1, 9).Draw(t, "iterations"))}
		}
		value := func(in func(i int) bool) int {
			sum := 0
			for i := range list {
				if !in(i) {
					continue
				}
				sum += int(list[i].Iterations)
				for k := range i {
					if in(k) && list[i].From < list[k].To && list[k].From < list[i].To {
						return -1
					}
				}
			}
			return sum
		}
		best := 0
		for set := range 1 << len(list) {
			best = max(best, value(func(i int) bool { return set>>i&1 == 1 }))
		}
		marked := disjoint(list)
		if got := value(func(i int) bool { return marked[i] }); got != best {
			t.Fatalf("marked %v with %d iterations, the best is %d", marked, got, best)
		}
	})
}
