package llm

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
)

// someIteration is an iteration of some model.
func someIteration(t *rapid.T) formats.Iteration {
	ns := func(name string, lo, hi float64) float64 { return rapid.Float64Range(lo, hi).Draw(t, name) }
	return formats.Iteration{BaseNS: ns("base", 1e6, 5e7), SequenceNS: ns("sequence", 0, 1e5), ContextNS: ns("context", 0, 500), PromptNS: ns("prompt", 0, 1e5),
		HingeTokens: ns("hinge", 0, 500), AttentionNS: ns("attention", 0, 10), CPUNS: ns("cpu", 0, 1e6), CPUSequenceNS: ns("cpu sequence", 0, 1e4)}
}

// A sequence alone takes its residence, to the rounding of iterations.
func TestResidenceAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		it := someIteration(t)
		prompt, output := rapid.Int32Range(1, 3000).Draw(t, "tokens of the prompt"), rapid.Int32Range(1, 1000).Draw(t, "tokens of the answer")
		budget := rapid.SampledFrom([]int32{0, 512}).Draw(t, "budget")
		out, _, err := ServeAll(Options{TokenBudget: budget}, Model{Iteration: it, KVTokens: 1 << 20}, []Request{{Prompt: prompt, Output: output}})
		if err != nil {
			t.Fatal(err)
		}
		want := it.ResidenceTime(1, float64(prompt), float64(output), budget)
		if off := (out[0].LastToken - want).Abs(); off > time.Duration(output)+8 {
			t.Fatalf("a sequence alone takes %v, its residence is %v", out[0].LastToken, want)
		}
	})
}

// Where so many sequences run all the time, one takes its residence on average.
func TestResidenceAmongOthers(t *testing.T) {
	it := formats.Iteration{BaseNS: 12.79e6, SequenceNS: 30e3, ContextNS: 350, PromptNS: 90e3, HingeTokens: 150, AttentionNS: 2}
	last := time.Duration(0)
	for _, n := range []int32{1, 2, 8, 32, 64} {
		for _, tokens := range [][2]int32{{128, 128}, {1024, 64}, {16, 256}} {
			list := make([]Request, 40*int(n))
			for i := range list {
				list[i] = Request{Prompt: tokens[0], Output: tokens[1]/2 + int32(i*37)%(tokens[1]+1)} // out of step
			}
			out, _, err := ServeAll(Options{}, Model{Iteration: it, KVTokens: 1 << 20, MaxSequences: n}, list)
			if err != nil {
				t.Fatal(err)
			}
			sum, count := 0.0, 0.0
			for _, o := range out[10*n : 30*n] {
				sum, count = sum+(o.LastToken-o.FirstIteration).Seconds(), count+1
			}
			if got, want := sum/count, it.ResidenceTime(n, float64(tokens[0]), float64(tokens[1]), 0).Seconds(); math.Abs(got/want-1) > .06 {
				t.Errorf("%d sequences of %v tokens: one takes %.4f s, its residence is %.4f s", n, tokens, got, want)
			}
		}
		if r := it.ResidenceTime(n, 128, 128, 0); r <= last {
			t.Errorf("%d sequences: %v, not longer than %v of fewer", n, r, last)
		} else {
			last = r
		}
	}
}
