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
const mostSequences = 256

// defaultBlockTokens is the number of tokens per block of KV memory if a profile does not say.
const blockTokens = 16

// requiredModel is a language model that workflows ask.
type asked struct {
	name, at       string  // model, and the field of the workload that names it
	prompt, output float64 // mean tokens of its longest tasks
	longest        int     // tokens of its longest sequence
}

// WithLanguageModels returns a profile with the language models that workflows ask added to its models. A batch of n
// stands for one sequence among n at all times, and its memory is the KV memory of all of them at their ends. The models
// come with the tokens of their usual tasks, which are those of the longest tasks on average, and their instances.
func Measured(p *formats.Profile, apps []formats.Application, at string) (*formats.Profile, map[string]*formats.FlowGeneration, error) {
	out, llms := *p, map[string]*formats.FlowGeneration{}
	out.Models = nil
	for _, a := range askedOf(apps, at) {
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
			return nil, nil, &document.Error{Path: a.at, Found: fmt.Sprintf("%q with tokens", a.name), Expected: "a language model of the profile's llms", Hint: hint}
		}
		m, llm, err := a.measured(&p.LLMs[i])
		if err != nil {
			return nil, nil, err
		}
		out.Models, llms[a.name] = append(out.Models, *m), llm
	}
	out.Models = append(out.Models, p.Models...)
	return &out, llms, nil
}

// requiredModels returns the language models that workflows ask.
func askedOf(apps []formats.Application, at string) (list []asked) {
	for i := range apps {
		for g := range apps[i].Segments {
			for k := range apps[i].Segments[g].Modules {
				m := &apps[i].Segments[g].Modules[k]
				prompts, outputs := m.Tokens()
				if prompts == nil || outputs == nil {
					continue
				}
				prompt, output, longest := arrivals.MeanLength(prompts), arrivals.MeanLength(outputs), prompts.Longest()+outputs.Longest()
				for _, name := range m.Services() {
					n := slices.IndexFunc(list, func(a asked) bool { return a.name == name })
					if n < 0 {
						n, list = len(list), append(list, asked{name: name, at: fmt.Sprintf("%s[%d].segments[%d].modules[%d]", at, i, g, k)})
					}
					a := &list[n]
					if prompt+output > a.prompt+a.output {
						a.prompt, a.output = prompt, output
					}
					a.longest = max(a.longest, longest)
				}
			}
		}
	}
	return list
}

// profileModel returns the language model as one that was measured in batches.
func (a *asked) measured(l *formats.LLMProfile) (*formats.ProfileModel, *formats.FlowGeneration, error) {
	// The memory must be known, in bytes or in tokens.
	kvBytes := l.KVBytesPerToken
	switch {
	case kvBytes > 0 && l.WeightBytes > 0:
	case slices.ContainsFunc(l.Instances, func(in formats.LLMInstance) bool { return in.TensorParallel == 1 && in.KVTokens == 0 }):
		return nil, nil, &document.Error{Path: a.at, Found: fmt.Sprintf("%q, whose profile says nothing of its memory", a.name), Expected: "weight_bytes and kv_bytes_per_token in the profile's llms, or kv_tokens of each instance"}
	default: // the tokens that fit in memory are known, however many bytes a token takes
		kvBytes = max(kvBytes, 1)
	}

	// One measurement for every number of sequences that fits.
	m := &formats.ProfileModel{Model: a.name, Blocks: []formats.Block{{Name: "all", WeightBytes: l.WeightBytes}}}
	llm := &formats.FlowGeneration{PromptMean: a.prompt, OutputMean: a.output, KVBytesPerToken: kvBytes}
	for k := range l.Instances {
		in := l.Instances[k]
		if in.TensorParallel != 1 {
			continue // a device runs whole models only
		}
		if in.Loads != nil {
			m.Loads = append(m.Loads, formats.DeviceLoad{Device: in.Device, ModelLoads: *in.Loads})
		}
		if in.BlockTokens == 0 {
			in.BlockTokens = blockTokens
		}
		most := in.Sequences
		if most == 0 {
			most = mostSequences
		}
		for n := 1; n <= most; n++ {
			kv := a.kv(n, in.BlockTokens)
			if in.KVTokens > 0 && kv > in.KVTokens {
				break
			}
			took := formats.Latency{WallUS: document.Micros(in.Iteration.Residence(int32(n), a.prompt, a.output, int32(in.TokenBudget)))}
			m.Measurements = append(m.Measurements, formats.Measurement{Device: in.Device, Share: 1, Batch: n, Whole: &took, Blocks: []formats.Latency{took}, MemoryBytes: l.WeightBytes + kv*kvBytes})
		}
		llm.Instances = append(llm.Instances, in)
	}
	if len(m.Measurements) == 0 {
		return nil, nil, &document.Error{Path: a.at, Found: fmt.Sprintf("sequences of %q of up to %d tokens", a.name, a.longest), Expected: "an instance of one device in the profile's llms, with KV memory for one of them"}
	}
	return m, llm, nil
}

// kvTokens returns the tokens of KV memory for a number of sequences at their ends: as many of the mean length, and at
// least the longest one, rounded up to whole blocks.
func (a *asked) kv(sequences, block int) int64 {
	tokens := max(int64(float64(sequences)*(a.prompt+a.output)+.5), int64(a.longest))
	return (tokens + int64(block) - 1) / int64(block) * int64(block)
}
