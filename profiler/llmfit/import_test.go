package llmfit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
)

// Others' measurements become a profile with what they tell, and notes of what they
// do not.
func TestImportLLM(t *testing.T) {
	it := formats.Iteration{BaseNS: 16.9e6, SequenceNS: 42000, ContextNS: 139, PromptNS: 90000, HingeTokens: 192, AttentionNS: 1.5}
	on := func(model, device string, list []llmruns.MeasuredStep) []llmruns.MeasuredStep {
		for i := range list {
			list[i].InstanceKey = llmruns.InstanceKey{Model: model, Device: device, TensorParallel: 1}
		}
		return list
	}
	fit := llmruns.InstanceKey{Model: "f", Device: "A100", TensorParallel: 1, Engine: "vllm"}
	s := &llmruns.Set{
		Steps: append(on("m", "A100", measuredBy(&it, func(int) float64 { return 0 })),
			on("v", "A100", []llmruns.MeasuredStep{
				{Phase: llmruns.Partial, Batch: 1, Elapsed: 10 * time.Millisecond}, {Phase: llmruns.Partial, Batch: 64, Elapsed: 11 * time.Millisecond}, {Phase: llmruns.Partial, Batch: 200, Elapsed: 13 * time.Millisecond},
				{Phase: llmruns.Partial, Batch: 1000, Elapsed: 60 * time.Millisecond}, {Phase: llmruns.Partial, Batch: 2000, Elapsed: 115 * time.Millisecond}})...),
		FittedSteps: []llmruns.FittedSteps{
			{InstanceKey: fit, A: 18, B: 0.1, C: 7e-6}, {InstanceKey: fit, Decode: true, SmallOnly: true, Threshold: 95, A: 20, B: 6e-4, C: 0.04}, {InstanceKey: fit, Decode: true, Threshold: 95, A: 7, B: 6e-4, C: 0.16}},
		KV: map[llmruns.InstanceKey]int64{{Model: "f", TensorParallel: 1}: 66144}, Weights: map[string]int64{"m": 20e9, "v": 10e9}, KVBytes: map[string]int64{"m": 131072, "v": 160000},
		Loads: []llmruns.Load{{Model: "M", Device: "A100", Loader: "sllm", Elapsed: time.Second}, {Model: "m", Device: "A100", Loader: "safetensors", Elapsed: 4 * time.Second}, {Model: "m", Device: "A100", Loader: "safetensors", Elapsed: 6 * time.Second}, {Model: "m", Device: "A100", Loader: "safetensors", Elapsed: 5 * time.Second}, {Model: "m", Device: "A100", Loader: "sllm", Elapsed: time.Second}},
	}
	p, err := Import(s, Options{SwapGBps: 20, Batch: 32, Prompt: 1000, Output: 200})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(p.Notes, "\n")
	_, m := p.LLMOn("m", "A100", 1)
	if m == nil || m.Loads.ColdUS != document.Micros(5*time.Second) || m.Loads.WarmUS != document.Micros(time.Second) || m.KVTokens != 0 || m.OneBatch == nil || m.OneBatch.Sequences != 32 {
		t.Fatalf("%+v", m)
	}
	_, v := p.LLMOn("v", "A100", 1)
	if v == nil || !strings.Contains(notes, "v on 1 x A100: a lower bound") {
		t.Errorf("%+v; %s", v, notes)
	}
	_, f := p.LLMOn("f", "A100", 1)
	if f == nil || f.Iteration != (formats.Iteration{BaseNS: 20e6, SequenceNS: 40000, ContextNS: 600, PromptNS: 100000, HingeTokens: 20, AttentionNS: 14}) || f.KVTokens != 66144 || f.KVSource != formats.KVMeasured {
		t.Errorf("%+v", f)
	}
	into := &formats.Profile{Format: formats.FormatProfile, LLMs: []formats.LLMProfile{{Model: "m", Instances: []formats.LLMInstance{{Device: "A100", TensorParallel: 1}, {Device: "H100", TensorParallel: 1}}}}}
	if err := profiler.Merge(into, p); err != nil || len(into.LLMs) != 3 || len(into.LLMs[0].Instances) != 2 || into.LLMs[0].Instances[1].Iteration != m.Iteration || into.LLMs[0].WeightBytes != 20e9 {
		t.Errorf("%+v, %v", into.LLMs, err)
	}
	for _, o := range []Options{{Models: []string{"x"}}, {Rename: "one"}, {Engine: "none"}} {
		if _, err := Import(s, o); !errors.Is(err, profiler.ErrInput) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Of a small model on a CPU every sequence takes as long as the first, and a little more with
// each: the best line has a base below 0. The fit has none to speak of, and keeps the sequences' cost.
func TestFitServedWithoutBase(t *testing.T) {
	var decode []llmruns.MeasuredStep
	for _, sequences := range []int{1, 2, 4} {
		for _, context := range []float64{50, 280, 1050} {
			took := (800e3 + 300*context) * float64(sequences) * (1 + 0.06*float64(sequences-1))
			decode = append(decode, llmruns.MeasuredStep{Phase: llmruns.Decode, Batch: sequences, Context: context, Elapsed: time.Duration(took)})
		}
	}
	var beside []BesidePoint
	for _, prompt := range []int{16, 64, 256} {
		beside = append(beside, BesidePoint{Prompt: prompt, Iterations: 1, Chunks: 1, Elapsed: time.Duration(500e3 * float64(prompt))})
		for _, sequences := range []int{1, 3} {
			took := 500e3*float64(prompt) + 2*900e3*float64(sequences)
			beside = append(beside, BesidePoint{Sequences: sequences, Context: 50, Prompt: prompt, Iterations: 2, Chunks: 1, Elapsed: time.Duration(took)})
		}
	}
	it, fit, err := FitServed(decode, beside)
	if err != nil {
		t.Fatal(err)
	}
	if perSequence := it.SequenceNS + it.CPUSequenceNS; fit.DecodeMAPE > 0.1 || it.BaseNS <= 0 || perSequence < 700e3 || perSequence > 1000e3 {
		t.Errorf("%+v, %+v: expected about 850 µs a sequence", it, fit)
	}
}
