package workflows

import (
	"fmt"
	"math/rand/v2"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

// RAG is an application that answers from documents: a language model rewrites the question, an
// embedder turns it into a vector by which documents are found, a reranker reads each of them, and a
// language model answers from the best. Some requests ask twice. Some are checked by a language model
// in the end.
type RAG struct {
	Devices int // with 80 GB
	SLO     document.SLO
	Rewrite, Answer,
	Check Asked // of no tokens: there is no check
	Embed, Rank time.Duration // of a batch of eight
	Documents   int           // that are ranked
	Twice       float64       // share of the requests that ask twice
}

// Asked is a language model with what it is asked.
type Asked struct {
	Size           float64 // times and bytes, as parts of those of a model of 7 billion parameters
	Prompt, Output float64 // mean tokens
}

// ragDevice is the kind of devices.
const ragDevice = "A100-80GB"

// ExampleRAG is an application with a model of 7 billion parameters on eight devices.
func ExampleRAG() *RAG {
	return &RAG{Devices: 8, SLO: document.SLO{Duration: 20 * time.Second},
		Rewrite: Asked{.15, 300, 30}, Answer: Asked{1, 1500, 220},
		Embed: 12 * time.Millisecond, Rank: 130 * time.Millisecond, Documents: 4, Twice: .2}
}

// DrawRAG draws an application.
func DrawRAG(seed uint64) *RAG {
	rng := seeded.New(seed, "rag")
	a := &RAG{Devices: 4 + rng.IntN(9), SLO: document.SLO{Factor: between(rng, 5.5, 9)},
		Rewrite: Asked{between(rng, .1, .4), between(rng, 100, 800), between(rng, 20, 80)},
		Answer:  Asked{between(rng, .5, 2), between(rng, 500, 3000), between(rng, 80, 400)},
		Embed:   time.Duration(between(rng, 5, 20) * 1e6), Rank: time.Duration(between(rng, 40, 200) * 1e6), Documents: 2 + rng.IntN(7), Twice: between(rng, 0, .3)}
	if rng.IntN(2) == 0 {
		a.Check = Asked{between(rng, .1, 1), between(rng, 300, 1500), between(rng, 5, 30)}
	}
	return a
}

// between draws a number.
func between(rng *rand.Rand, least, most float64) float64 { return least + (most-least)*rng.Float64() }

// profile is a language model of the application in a profile.
func (a *Asked) profile(name string) formats.LLMProfile {
	weights := 14.48e9 * a.Size
	return formats.LLMProfile{Model: name, WeightBytes: int64(weights), KVBytesPerToken: int64(131072 * a.Size), Instances: []formats.LLMInstance{{
		Device: ragDevice, TensorParallel: 1, BlockTokens: 16, Sequences: 256, TokenBudget: 2048, KVTokens: int64((80e9*.9 - weights) / (131072 * a.Size)), KVSource: formats.KVComputed,
		Iteration: formats.Iteration{BaseNS: 13_350_000 * a.Size, SequenceNS: 87_000 * a.Size, ContextNS: 183 * a.Size, PromptNS: 64_000 * a.Size, HingeTokens: 128, AttentionNS: 2 * a.Size, CPUNS: 300_000, CPUSequenceNS: 30_000},
		Loads:     &formats.ModelLoads{WarmUS: document.Micros(time.Duration(weights / 23.6))},
	}}}
}

// lengths are those of a module that asks for a language model. Their spread is that of
// conversations.
func (a *Asked) lengths(m formats.Module) formats.Module {
	m.Prompt, m.Output = spread(a.Prompt), spread(a.Output)
	return m
}

// spread returns lengths around a mean. They end at a power of two, at least four times the mean.
func spread(mean float64) *formats.Lengths {
	most := 1
	for float64(most) < 4*mean {
		most *= 2
	}
	return &formats.Lengths{Distribution: formats.LengthsLognormal, Mean: mean, SD: .75 * mean, Max: most}
}

// Profile returns the times and sizes of the models.
func (a *RAG) Profile() *formats.Profile {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: ragDevice, Method: "assumed"}}}
	p.LLMs = append(p.LLMs, a.Rewrite.profile("rewrite"), a.Answer.profile("chat"))
	if a.Check.Output > 0 {
		p.LLMs = append(p.LLMs, a.Check.profile("check"))
	}
	for _, m := range []struct {
		name string
		took time.Duration // of a batch of eight
	}{{"embedder", a.Embed}, {"reranker", a.Rank}} {
		pm := formats.ProfileModel{Model: m.name, Blocks: []formats.Block{{Name: "all", WeightBytes: 1_200_000_000}},
			Loads: []formats.DeviceLoad{{Device: ragDevice, ModelLoads: formats.ModelLoads{WarmUS: document.Micros(200 * time.Millisecond)}}}}
		for n := 1; n <= 8; n++ {
			took := formats.Latency{WallUS: document.Micros(m.took * time.Duration(2+n) / 10)}
			pm.Measurements = append(pm.Measurements, formats.Measurement{Device: ragDevice, Share: 1, Batch: n, WholeModel: &took, Blocks: []formats.Latency{took}, MemoryBytes: 1_200_000_000 + int64(n)*200_000_000})
		}
		p.Models = append(p.Models, pm)
	}
	return p
}

// Workload is the application.
func (a *RAG) Workload() *formats.Workload {
	answer := formats.Segment{Name: "answer", Modules: []formats.Module{a.Answer.lengths(formats.Module{Name: "reply", Model: "chat"})}}
	if a.Check.Output > 0 {
		answer.Modules = append(answer.Modules, a.Check.lengths(formats.Module{Name: "check", Model: "check", Predecessors: []string{"reply"}}))
	}
	find := formats.Segment{Name: "find", MaxVisits: 2, Modules: []formats.Module{
		a.Rewrite.lengths(formats.Module{Name: "question", Model: "rewrite"}),
		{Name: "vector", Model: "embedder", Predecessors: []string{"question"}},
		{Name: "documents", Model: "reranker", Predecessors: []string{"vector"}, Items: fmt.Sprint(a.Documents), Outputs: map[string]string{"again": "bool"}},
	}, NextBranches: []formats.Branch{
		{Targets: []string{"find"}, Condition: "visit < 2 && documents.again.exists(d, d)", Probability: a.Twice, LaterProbabilities: []float64{0}},
		{Targets: []string{"answer"}, Probability: 1 - a.Twice, LaterProbabilities: []float64{1}}}}
	return &formats.Workload{Format: formats.FormatWorkload, Arrivals: &formats.Arrivals{Process: "poisson"},
		Section: formats.Applications{{Name: "rag", SLO: a.SLO, Percentile: "p99", Weight: 1, Segments: []formats.Segment{find, answer}}}}
}

// Cluster is the devices.
func (a *RAG) Cluster() *formats.Cluster {
	return &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: ragDevice, Count: a.Devices, PerNode: 8, NICGbps: 100, Memory: 80e9}}}
}
