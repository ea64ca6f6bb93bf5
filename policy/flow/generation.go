package flow

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/policy"
)

// LanguageModel is a service that is a language model. Its tasks are sequences, which join the iterations of a device
// one by one. The times of its stage are those of one sequence among n (formats.Iteration.ResidenceTime), so a sequence
// alone takes the time of a batch of one.
type LanguageModel struct {
	Engines []Engine // by kind of device; empty if the service is no language model
	KVBytes int64    // bytes per token
	// Prompt and Output are the mean tokens of a task of the usual work.
	Prompt, Output float64
}

// Engine is the server that runs the iterations on a kind of device.
type Engine struct {
	Iteration                formats.Iteration
	KVTokens                 int64 // tokens of KV memory; 0 if the kind does not run it
	BlockTokens, TokenBudget int32 // tokens per block of KV memory (0 stands for 16), and per iteration (0 stands for no limit)
	MaxSequences             int32 // at most at once
}

// GenerationStep is a step of a workflow that asks a language model, with the tokens that it asks for.
type GenerationStep struct {
	App, Segment, Step int32
	Prompt, Output     *formats.Lengths // distributions; nil stands for the mean
	TokenSamples       [][2]int         // samples of both together, in place of these
}

// tokenDraw returns a function that draws, from rng, how many tokens the prompt and the answer of a task of this step
// (which asks a language model) have: a recorded pair at random, or each from its distribution.
func (step *GenerationStep) tokenDraw(rng *rand.Rand) func() (prompt, output int32) {
	if len(step.TokenSamples) > 0 {
		return func() (prompt, output int32) {
			row := step.TokenSamples[rng.IntN(len(step.TokenSamples))]
			return int32(row[0]), int32(row[1])
		}
	}
	prompts, outputs := arrivals.Lengths(step.Prompt, rng), arrivals.Lengths(step.Output, rng)
	return func() (prompt, output int32) { return prompts(), outputs() }
}

// LanguageModelOf returns the figures of a service as a language model. If it is none, it returns nil; so it does
// for nil tables.
func (workflows *WorkflowTables) LanguageModelOf(service int32) *LanguageModel {
	if workflows == nil || int(service) >= len(workflows.LanguageModels) || len(workflows.LanguageModels[service].Engines) == 0 {
		return nil
	}
	return &workflows.LanguageModels[service]
}

// addLanguageModel is called for each service in turn, and appends its entry to the table of language models: the memory
// that a token takes, its usual prompt and answer, and its engine (iteration times and limits) on each pool of devices,
// empty where it cannot run. If generation is nil, the service is no language model and its whole entry stays empty.
func (workflows *WorkflowTables) addLanguageModel(plan *formats.Plan, generation *formats.FlowGeneration) {
	model := LanguageModel{}
	if generation != nil {
		model.KVBytes, model.Prompt, model.Output = generation.KVBytesPerToken, generation.PromptMean, generation.OutputMean
		for i := range plan.Pools {
			engine := Engine{}
			if instance := generation.InstanceOn(plan.Pools[i].Device); instance != nil {
				engine = Engine{Iteration: instance.Iteration, KVTokens: instance.KVTokens, BlockTokens: int32(instance.BlockTokens), TokenBudget: int32(instance.TokenBudget), MaxSequences: int32(instance.Sequences)}
			}
			model.Engines = append(model.Engines, engine)
		}
	}
	workflows.LanguageModels = append(workflows.LanguageModels, model)
}

// numberGenerationSteps is called for each workflow just before it is appended to Apps, so that len(Apps) is its index. It
// lists the steps of it that ask language models in GenerationSteps, with their distributions of tokens, and sets in each
// its number there, from 1 on (Step.GenerationStep). Number 0 means a step that asks none.
func (workflows *WorkflowTables) numberGenerationSteps(workflow *Workflow) {
	for segment := range workflow.Segments {
		for stepIndex := range workflow.Segments[segment].Steps {
			if step := &workflow.Segments[segment].Steps[stepIndex]; step.Output != nil {
				workflows.GenerationSteps = append(workflows.GenerationSteps, GenerationStep{App: int32(len(workflows.Apps)), Segment: int32(segment), Step: int32(stepIndex), Prompt: step.Prompt, Output: step.Output, TokenSamples: step.TokenSamples})
				step.GenerationStep = int32(len(workflows.GenerationSteps))
			}
		}
	}
}

// WithTokenWork returns the segments with the work of those modules that ask language models: the time that one of
// their sequences takes alone on the first kind of device, relative to the model's usual task. Other modules keep
// their work. The given segments are not changed.
func WithTokenWork(segments []formats.Segment, models map[string]*formats.FlowGeneration) []formats.Segment {
	out := slices.Clone(segments)
	for i := range out {
		out[i].Modules = slices.Clone(out[i].Modules)
		for k := range out[i].Modules {
			module := &out[i].Modules[k]
			prompt, output := module.TokenLengths()
			if languageModel := models[module.Services()[0]]; output != nil && languageModel != nil && len(languageModel.Instances) > 0 {
				instance := &languageModel.Instances[0]
				sequenceTime := instance.Iteration.ResidenceTime(1, arrivals.MeanLength(prompt), arrivals.MeanLength(output), int32(instance.TokenBudget))
				module.Work = sequenceTime.Seconds() / instance.Iteration.ResidenceTime(1, languageModel.PromptMean, languageModel.OutputMean, int32(instance.TokenBudget)).Seconds()
			}
		}
	}
	return out
}

// CheckServable returns an error if a device may run a language model and another model. The simulator can do that, but
// the server of a language model runs that model alone.
func (workflows *WorkflowTables) CheckServable(shared *policy.Tables) error {
	serviceOnDevice := make([]int32, len(shared.Devices)) // by device: a service that may run on it, plus one
	for serviceIndex := range shared.Services {
		service := &shared.Services[serviceIndex]
		for pipeline := service.FirstPipeline; pipeline < service.FirstPipeline+service.NumPipelines; pipeline++ {
			for _, device := range shared.DevicesOf(shared.Pipelines[pipeline].FirstStage) {
				// Two services on a device are allowed if none is a language model. Service -1 is none.
				other := serviceOnDevice[device] - 1
				serviceOnDevice[device] = int32(serviceIndex) + 1
				if other < 0 || other == int32(serviceIndex) {
					continue
				}
				if workflows.LanguageModelOf(int32(serviceIndex)) != nil || workflows.LanguageModelOf(other) != nil {
					return sharedDeviceError(shared, other, int32(serviceIndex), device)
				}
			}
		}
	}
	return nil
}

// sharedDeviceError returns the error for two services, given by their indexes, that may both run on a device although
// at least one is a language model. The later one is named as the place of the fault.
func sharedDeviceError(shared *policy.Tables, earlier, later, device int32) error {
	kind := shared.Kinds[shared.Devices[device].Kind]
	return &document.Error{
		Path:     fmt.Sprintf("flow.modules[%d]", later),
		Found:    fmt.Sprintf("%q and %q on the same devices of %s, at least one of them a language model", shared.Services[earlier].Name, shared.Services[later].Name, kind),
		Expected: "devices of its own for each language model",
		Hint:     "the server of a language model runs that model alone: give language models pools of their own in the cluster (another name of the device, with its own measurements)",
	}
}
