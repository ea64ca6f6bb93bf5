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

// WithLanguageModels is called before a plan of workflows is searched. It returns a copy of the profile in which the
// language models that the workflows ask are models like the others, so that the planner treats all alike: the time of a
// batch of n is that of a sequence among n, and its memory is the KV memory of n sequences at their ends. The second
// result has, by the model's name, the tokens of a usual task (the means of the longest step that asks the model) and
// the instances. path is the field of the applications that errors name; a model that the profile lacks is an error.
func WithLanguageModels(profile *formats.Profile, apps []formats.Application, path string) (*formats.Profile, map[string]*formats.FlowGeneration, error) {
	profileCopy, llms := *profile, map[string]*formats.FlowGeneration{}
	profileCopy.Models = nil
	for _, model := range requiredModels(apps, path) {
		llmIndex := slices.IndexFunc(profile.LLMs, func(profileModel formats.LLMProfile) bool { return profileModel.Model == model.name })
		if llmIndex < 0 {
			var names []string
			for k := range profile.LLMs {
				names = append(names, profile.LLMs[k].Model)
			}
			hint := "the profile has " + strings.Join(names, ", ")
			if len(names) == 0 {
				hint = "the profile has none: plan profile --llm or plan import adds one"
			}
			return nil, nil, &document.Error{Path: model.path, Found: fmt.Sprintf("%q with tokens", model.name), Expected: "a language model of the profile's llms", Hint: hint}
		}
		profileModel, generation, err := model.profileModel(&profile.LLMs[llmIndex])
		if err != nil {
			return nil, nil, err
		}
		profileCopy.Models, llms[model.name] = append(profileCopy.Models, *profileModel), generation
	}
	profileCopy.Models = append(profileCopy.Models, profile.Models...)
	return &profileCopy, llms, nil
}

// requiredModels returns the language models that steps of workflows ask, each once, with the mean tokens of its
// longest task, the most tokens that a task may have, and the field that names it first. path is the field of the
// applications.
func requiredModels(apps []formats.Application, path string) (required []requiredModel) {
	for app := range apps {
		for segment := range apps[app].Segments {
			for moduleIndex := range apps[app].Segments[segment].Modules {
				module := &apps[app].Segments[segment].Modules[moduleIndex]
				prompts, outputs := module.TokenLengths()
				if prompts == nil || outputs == nil {
					continue
				}

				// Keep the longest task of each model.
				prompt, output, longest := arrivals.MeanLength(prompts), arrivals.MeanLength(outputs), prompts.MaxTokens()+outputs.MaxTokens()
				for _, name := range module.Services() {
					index := slices.IndexFunc(required, func(entry requiredModel) bool { return entry.name == name })
					if index < 0 {
						index, required = len(required), append(required, requiredModel{name: name, path: fmt.Sprintf("%s[%d].segments[%d].modules[%d]", path, app, segment, moduleIndex)})
					}
					entry := &required[index]
					if prompt+output > entry.promptMean+entry.outputMean {
						entry.promptMean, entry.outputMean = prompt, output
					}
					entry.longestTokens = max(entry.longestTokens, longest)
				}
			}
		}
	}
	return required
}

// profileModel returns a language model in the form of one that was measured in batches, so that the planner treats
// both alike: a batch of n is n sequences at a time, and takes as long as a sequence among n. It returns an error if
// the profile does not say its memory or no sequence fits.
func (model *requiredModel) profileModel(profile *formats.LLMProfile) (*formats.ProfileModel, *formats.FlowGeneration, error) {
	// The memory must be known, in bytes or in tokens.
	kvBytes := profile.KVBytesPerToken
	switch {
	case kvBytes > 0 && profile.WeightBytes > 0:
	case slices.ContainsFunc(profile.Instances, func(instance formats.LLMInstance) bool { return instance.TensorParallel == 1 && instance.KVTokens == 0 }):
		return nil, nil, &document.Error{Path: model.path, Found: fmt.Sprintf("%q, whose profile says nothing of its memory", model.name), Expected: "weight_bytes and kv_bytes_per_token in the profile's llms, or kv_tokens of each instance"}
	default: // the tokens that fit in memory are known, however many bytes a token takes
		kvBytes = max(kvBytes, 1)
	}

	// One measurement for every number of sequences that fits the KV memory. Its time is the residence time, which a
	// sequence of mean length spends there among so many.
	profileModel := &formats.ProfileModel{Model: model.name, Blocks: []formats.Block{{Name: "all", WeightBytes: profile.WeightBytes}}}
	generation := &formats.FlowGeneration{PromptMean: model.promptMean, OutputMean: model.outputMean, KVBytesPerToken: kvBytes}
	for k := range profile.Instances {
		instance := profile.Instances[k]
		if instance.TensorParallel != 1 {
			continue // a device runs whole models only
		}
		if instance.Loads != nil {
			profileModel.Loads = append(profileModel.Loads, formats.DeviceLoad{Device: instance.Device, ModelLoads: *instance.Loads})
		}
		if instance.BlockTokens == 0 {
			instance.BlockTokens = defaultBlockTokens
		}
		maxSequences := instance.Sequences
		if maxSequences == 0 {
			maxSequences = defaultSequences
		}
		for sequences := 1; sequences <= maxSequences; sequences++ {
			kvTokens := model.kvTokens(sequences, instance.BlockTokens)
			if instance.KVTokens > 0 && kvTokens > instance.KVTokens {
				break
			}
			residence := formats.Latency{WallUS: document.Micros(instance.Iteration.ResidenceTime(int32(sequences), model.promptMean, model.outputMean, int32(instance.TokenBudget)))}
			profileModel.Measurements = append(profileModel.Measurements, formats.Measurement{Device: instance.Device, Share: 1, Batch: sequences, WholeModel: &residence, Blocks: []formats.Latency{residence}, MemoryBytes: profile.WeightBytes + kvTokens*kvBytes})
		}
		generation.Instances = append(generation.Instances, instance)
	}
	if len(profileModel.Measurements) == 0 {
		return nil, nil, &document.Error{Path: model.path, Found: fmt.Sprintf("sequences of %q of up to %d tokens", model.name, model.longestTokens), Expected: "an instance of one device in the profile's llms, with KV memory for one of them"}
	}
	return profileModel, generation, nil
}

// kvTokens returns the tokens of KV memory that a number of sequences need at their ends: as many of the mean length,
// and at least the longest one, rounded up to whole blocks of blockTokens.
func (model *requiredModel) kvTokens(sequences, blockTokens int) int64 {
	tokens := max(int64(float64(sequences)*(model.promptMean+model.outputMean)+.5), int64(model.longestTokens))
	return (tokens + int64(blockTokens) - 1) / int64(blockTokens) * int64(blockTokens)
}
