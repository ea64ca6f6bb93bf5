package verify_test

import (
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// languageModelDocuments are the documents of a debate beside pictures, on two kinds of devices of which
// the smaller one has less KV memory.
func languageModelDocuments() kind.Documents {
	iteration := formats.Iteration{BaseNS: 12.79e6, SequenceNS: 30e3, ContextNS: 350, PromptNS: 90e3, HingeTokens: 150}
	slower := iteration
	slower.BaseNS *= 2
	took := formats.Latency{WallUS: 5e8}
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "new"}, {Device: "old"}},
		Models: []formats.ProfileModel{{Model: "draw", Blocks: []formats.Block{{Name: "all", WeightBytes: 3e9}},
			Measurements: []formats.Measurement{{Device: "new", Share: 1, Batch: 1, Blocks: []formats.Latency{took}, WholeModel: &took}}}},
		LLMs: []formats.LLMProfile{{Model: "llama", WeightBytes: 13.5e9, KVBytesPerToken: 1 << 19, Instances: []formats.LLMInstance{
			{Device: "new", TensorParallel: 1, Sequences: 32, Iteration: iteration}, {Device: "old", TensorParallel: 1, Sequences: 32, Iteration: slower}}}}}
	fixed := &formats.Lengths{Distribution: formats.LengthsFixed, Mean: 128}
	return kind.Documents{Profile: p,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "new", Count: 3, Memory: 40e9}, {Device: "old", Count: 2, Memory: 16e9}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{{Name: "talk", SLO: document.SLO{Duration: 30 * time.Second}, RPS: 1, Segments: []formats.Segment{
			{Name: "say", Modules: []formats.Module{{Name: "agent", Model: "llama", Prompt: fixed, Output: fixed}}, NextBranches: []formats.Branch{{Targets: []string{"show"}, Probability: 1}}},
			{Name: "show", Modules: []formats.Module{{Name: "picture", Model: "draw", Predecessors: []string{"agent"}}}},
		}}}}}
}

// A plan with language models holds, on each kind with as many sequences as its memory
// has room for. What is changed in it, or in the documents, is found.
func TestLanguageModelsAreChecked(t *testing.T) {
	in := languageModelDocuments()
	plan := solve(t, in, "throughput")
	if found := errorsOf(plan, in); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	g := formats.FlowOf(plan).Modules[0].Generation
	for _, x := range g.Instances {
		weights, pool := int64(13.5e9), map[string]int64{"new": 40e9, "old": 16e9}[x.Device]
		if weights+x.KVTokens*g.KVBytesPerToken > pool || x.KVTokens < int64(x.Sequences)*256 {
			t.Errorf("%s: %d sequences with %d tokens", x.Device, x.Sequences, x.KVTokens)
		}
	}
	if old := g.InstanceOn("old"); len(g.Instances) != 2 || old.Sequences >= 32 {
		t.Errorf("%+v, expected both kinds, the old one with fewer sequences", g.Instances)
	}
	for name, spoil := range map[string]func(p *formats.FlowPlan, in *kind.Documents){
		"tokens": func(p *formats.FlowPlan, _ *kind.Documents) { p.Modules[0].Generation.OutputMean = 100 },
		"memory": func(p *formats.FlowPlan, _ *kind.Documents) { p.Modules[0].Generation.Instances[0].KVTokens /= 2 },
		"rps": func(_ *formats.FlowPlan, in *kind.Documents) {
			for k := range in.Profile.LLMs[0].Instances {
				in.Profile.LLMs[0].Instances[k].Iteration.BaseNS *= 3
			}
		},
		"sequences":   func(_ *formats.FlowPlan, in *kind.Documents) { in.Profile.LLMs[0].Instances[0].Sequences = 2 },
		"measurement": func(_ *formats.FlowPlan, in *kind.Documents) { in.Profile.LLMs[0].Instances[1].Device = "other" },
		"model":       func(_ *formats.FlowPlan, in *kind.Documents) { in.Profile.LLMs = nil },
	} {
		in := languageModelDocuments()
		plan := solve(t, in, "throughput")
		spoil(formats.FlowOf(plan), &in)
		if found := errorsOf(plan, in); !slices.ContainsFunc(found, func(f kind.Finding) bool { return f.Constraint == name }) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
