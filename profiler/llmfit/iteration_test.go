package llmfit

import (
	"errors"
	"math"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
)

// measuredBy is what an iteration costs, taken at batches, contexts and prompts.
func measuredBy(it *formats.Iteration, off func(i int) float64) []llmruns.MeasuredStep {
	var out []llmruns.MeasuredStep
	add := func(m llmruns.MeasuredStep) {
		o := observation{step: &m}
		m.Elapsed = time.Duration(predict(it, &o) * (1 + off(len(out))))
		out = append(out, m)
	}
	for _, batch := range []int{1, 4, 16, 64, 256} {
		for _, context := range []float64{16, 256, 1024, 4096} {
			add(llmruns.MeasuredStep{Phase: llmruns.Decode, Batch: batch, Context: context})
		}
	}
	for _, tokens := range []int{16, 64, 128, 192, 256, 512, 1024, 2048, 4096} {
		add(llmruns.MeasuredStep{Phase: llmruns.Prefill, Batch: 1, Tokens: tokens})
	}
	for _, batch := range []int{1, 16, 64} {
		add(llmruns.MeasuredStep{Phase: llmruns.WholeStep, Batch: batch, Tokens: 512, Output: 512})
	}
	return out
}

// What an iteration was made of comes back, exactly without noise and nearly with
// some.
func TestFitIteration(t *testing.T) {
	want := formats.Iteration{BaseNS: 16.9e6, SequenceNS: 42000, ContextNS: 139, PromptNS: 90000, HingeTokens: 192, AttentionNS: 1.5}
	for _, c := range []struct {
		name  string
		noise float64
		near  float64
	}{{"exact", 0, 1e-4}, {"with 2 % of noise", 0.02, 0.08}} {
		list := measuredBy(&want, func(i int) float64 { return c.noise * math.Sin(float64(7*i)) })
		list = append(list, llmruns.MeasuredStep{Phase: llmruns.Partial, Batch: 8, Elapsed: time.Second}) // no bound of it enters
		it, fit, err := Iteration(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []struct {
			name      string
			got, want float64
		}{{"base", it.BaseNS, want.BaseNS}, {"sequence", it.SequenceNS, want.SequenceNS}, {"context", it.ContextNS, want.ContextNS}, {"prompt", it.PromptNS, want.PromptNS}} {
			if math.Abs(f.got/f.want-1) > c.near {
				t.Errorf("%s: %s %g, want %g", c.name, f.name, f.got, f.want)
			}
		}
		if fit.Points != len(list)-1 || fit.DecodeMAPE > 2*c.noise+1e-5 || fit.PrefillMAPE > 2*c.noise+1e-5 {
			t.Errorf("%s: errors %+v", c.name, fit)
		}
	}
}

// A coefficient that would be negative is 0, and attention costs no more than its
// part of reading the context.
func TestFitIterationKeepsBounds(t *testing.T) {
	odd := formats.Iteration{BaseNS: 10e6, SequenceNS: 50000, ContextNS: 64, PromptNS: 10000, AttentionNS: 40}
	it, _, err := Iteration(measuredBy(&odd, func(int) float64 { return 0 }))
	if err != nil {
		t.Fatal(err)
	}
	if it.AttentionNS > 1.1*it.ContextNS/tile || it.PromptNS <= 0 {
		t.Errorf("fitted %+v", it)
	}
	falling := []llmruns.MeasuredStep{ // longer contexts are faster: that is noise
		{Phase: llmruns.Decode, Batch: 1, Context: 100, Elapsed: 11 * time.Millisecond}, {Phase: llmruns.Decode, Batch: 1, Context: 10000, Elapsed: 10 * time.Millisecond},
		{Phase: llmruns.Decode, Batch: 8, Context: 100, Elapsed: 12 * time.Millisecond}, {Phase: llmruns.Prefill, Batch: 1, Tokens: 100, Elapsed: 11 * time.Millisecond}, {Phase: llmruns.Prefill, Batch: 1, Tokens: 1000, Elapsed: 40 * time.Millisecond},
	}
	if it, _, err = Iteration(falling); err != nil || it.ContextNS != 0 || it.SequenceNS < 0 {
		t.Errorf("fitted %+v, %v", it, err)
	}
	for _, list := range [][]llmruns.MeasuredStep{nil, falling[:3], falling[3:]} {
		if _, _, err := Iteration(list); !errors.Is(err, profiler.ErrInput) {
			t.Errorf("%d measurements of one phase: %v", len(list), err)
		}
	}
}

// The profile of one batch is right for its batch and wrong for others, and says so.
func TestOneBatch(t *testing.T) {
	it := formats.Iteration{BaseNS: 16.9e6, SequenceNS: 42000, ContextNS: 139, PromptNS: 90000, HingeTokens: 192, AttentionNS: 1.5}
	b := OneBatch(&it, measuredBy(&it, func(int) float64 { return 0 }), 64, 1000, 200)
	if b.TokenUS != document.Micros(it.TokenTime(64, 1100)) || b.PrefillUS != document.Micros(it.PrefillTime(1000, 0)) || b.Inefficiency <= 1 || b.Error < 0.1 {
		t.Errorf("%+v", b)
	}
	// A batch of 64 makes at most 64 tokens per iteration.
	if most := 64 / it.TokenTime(64, 1100).Seconds(); b.TokensPerSecond >= most || b.TokensPerSecond < most/10 {
		t.Errorf("%g tokens a second, at most %g", b.TokensPerSecond, most)
	}
}
