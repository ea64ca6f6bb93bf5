package flow

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
)

// defaultSequences is the number of sequences that run at once if a profile does not say.
const defaultSequences = 256

// defaultBlockTokens is the number of tokens per block of KV memory if a profile does not say.
const defaultBlockTokens = 16

// requiredModel is a language model that workflows ask.
type requiredModel struct {
	name, path             string  // model, and the field of the workload that names it
	promptMean, outputMean float64 // mean tokens of its longest tasks
	longestTokens          int     // tokens of its longest sequence
}

// WithLanguageModels returns a profile with the language models that workflows ask added to its models. A batch of n
// stands for one sequence among n at all times, and its memory is the KV memory of all of them at their ends. The models
// come with the tokens of their usual tasks, which are those of the longest tasks on average, and their instances.
func WithLanguageModels(p *formats.Profile, apps []formats.Application, path string) (*formats.Profile, map[string]*formats.FlowGeneration, error) {
	out, llms := *p, map[string]*formats.FlowGeneration{}
	out.Models = nil
	for _, a := range requiredModels(apps, path) {
		i := slices.IndexFunc(p.LLMs, func(m formats.LLMProfile) bool { return m.Model == a.name })
		if i < 0 {
			var names []string
			for k := range p.LLMs {
				names = append(names, p.LLMs[k].Model)
			}
			hint := "the profile has " + strings.Join(names, ", ")
			if len(names) == 0 {
				hint = "the profile has none: plan profile --llm or plan import adds one"
			}
			return nil, nil, &document.Error{Path: a.path, Found: fmt.Sprintf("%q with tokens", a.name), Expected: "a language model of the profile's llms", Hint: hint}
		}
		m, llm, err := a.profileModel(&p.LLMs[i])
		if err != nil {
			return nil, nil, err
		}
		out.Models, llms[a.name] = append(out.Models, *m), llm
	}
	out.Models = append(out.Models, p.Models...)
	return &out, llms, nil
}

// requiredModels returns the language models that steps of workflows ask, each once, with the mean tokens of its
// longest task, the most tokens that a task may have, and where it is first named.
func requiredModels(apps []formats.Application, path string) (required []requiredModel) {
	for i := range apps {
		for g := range apps[i].Segments {
			for k := range apps[i].Segments[g].Modules {
				m := &apps[i].Segments[g].Modules[k]
				prompts, outputs := m.TokenLengths()
				if prompts == nil || outputs == nil {
					continue
				}
				prompt, output, longest := arrivals.MeanLength(prompts), arrivals.MeanLength(outputs), prompts.MaxTokens()+outputs.MaxTokens()
				for _, name := range m.Services() {
					n := slices.IndexFunc(required, func(a requiredModel) bool { return a.name == name })
					if n < 0 {
						n, required = len(required), append(required, requiredModel{name: name, path: fmt.Sprintf("%s[%d].segments[%d].modules[%d]", path, i, g, k)})
					}
					a := &required[n]
					if prompt+output > a.promptMean+a.outputMean {
						a.promptMean, a.outputMean = prompt, output
					}
					a.longestTokens = max(a.longestTokens, longest)
				}
			}
		}
	}
	return required
}

// profileModel returns a language model in the form of one that was measured in batches, so that the planner treats
// both alike: a batch of n is n sequences at a time, and takes as long as a sequence among n. It returns an error
// if its memory is not known or no sequence fits.
func (a *requiredModel) profileModel(l *formats.LLMProfile) (*formats.ProfileModel, *formats.FlowGeneration, error) {
	// The memory must be known, in bytes or in tokens.
	kvBytes := l.KVBytesPerToken
	switch {
	case kvBytes > 0 && l.WeightBytes > 0:
	case slices.ContainsFunc(l.Instances, func(instance formats.LLMInstance) bool { return instance.TensorParallel == 1 && instance.KVTokens == 0 }):
		return nil, nil, &document.Error{Path: a.path, Found: fmt.Sprintf("%q, whose profile says nothing of its memory", a.name), Expected: "weight_bytes and kv_bytes_per_token in the profile's llms, or kv_tokens of each instance"}
	default: // the tokens that fit in memory are known, however many bytes a token takes
		kvBytes = max(kvBytes, 1)
	}

	// One measurement for every number of sequences that fits.
	m := &formats.ProfileModel{Model: a.name, Blocks: []formats.Block{{Name: "all", WeightBytes: l.WeightBytes}}}
	llm := &formats.FlowGeneration{PromptMean: a.promptMean, OutputMean: a.outputMean, KVBytesPerToken: kvBytes}
	for k := range l.Instances {
		instance := l.Instances[k]
		if instance.TensorParallel != 1 {
			continue // a device runs whole models only
		}
		if instance.Loads != nil {
			m.Loads = append(m.Loads, formats.DeviceLoad{Device: instance.Device, ModelLoads: *instance.Loads})
		}
		if instance.BlockTokens == 0 {
			instance.BlockTokens = defaultBlockTokens
		}
		maxSequences := instance.Sequences
		if maxSequences == 0 {
			maxSequences = defaultSequences
		}
		for n := 1; n <= maxSequences; n++ {
			kv := a.kvTokens(n, instance.BlockTokens)
			if instance.KVTokens > 0 && kv > instance.KVTokens {
				break
			}
			residence := formats.Latency{WallUS: document.Micros(instance.Iteration.ResidenceTime(int32(n), a.promptMean, a.outputMean, int32(instance.TokenBudget)))}
			m.Measurements = append(m.Measurements, formats.Measurement{Device: instance.Device, Share: 1, Batch: n, WholeModel: &residence, Blocks: []formats.Latency{residence}, MemoryBytes: l.WeightBytes + kv*kvBytes})
		}
		llm.Instances = append(llm.Instances, instance)
	}
	if len(m.Measurements) == 0 {
		return nil, nil, &document.Error{Path: a.path, Found: fmt.Sprintf("sequences of %q of up to %d tokens", a.name, a.longestTokens), Expected: "an instance of one device in the profile's llms, with KV memory for one of them"}
	}
	return m, llm, nil
}

// kvTokens returns the tokens of KV memory for a number of sequences at their ends: as many of the mean length, and at
// least the longest one, rounded up to whole blocks.
func (a *requiredModel) kvTokens(sequences, block int) int64 {
	tokens := max(int64(float64(sequences)*(a.promptMean+a.outputMean)+.5), int64(a.longestTokens))
	return (tokens + int64(block) - 1) / int64(block) * int64(block)
}
