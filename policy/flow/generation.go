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
// one by one. The times of its stage are those of one sequence among n (formats.Iteration.Residence), so a sequence
// alone takes the time of a batch of one.
type Generation struct {
	On      []Engine // by kind of device; empty if the service is no language model
	KVBytes int64    // bytes per token
	// Prompt and Output are the mean tokens of a task of the usual work.
	Prompt, Output float64
}

// Engine is the server that runs the iterations on a kind of device.
type Engine struct {
	Iteration     formats.Iteration
	KV            int64 // tokens of KV memory; 0 if the kind does not run it
	Block, Budget int32 // tokens per block of KV memory (0: 16), and per iteration (0: no limit)
	Sequences     int32 // at most at once
}

// GenerationStep is a step that asks a language model.
type Asking struct {
	App, Segment, Step int32
	Prompt, Output     *formats.Lengths // distributions; nil stands for the mean
	Sample             [][2]int         // samples of both together, in place of these
}

// tokenDraw returns a function that draws the tokens of a task.
func (a *Asking) draw(rng *rand.Rand) func() (prompt, output int32) {
	if len(a.Sample) > 0 {
		return func() (prompt, output int32) {
			row := a.Sample[rng.IntN(len(a.Sample))]
			return int32(row[0]), int32(row[1])
		}
	}
	prompts, outputs := arrivals.Lengths(a.Prompt, rng), arrivals.Lengths(a.Output, rng)
	return func() (prompt, output int32) { return prompts(), outputs() }
}

// LanguageModelOf returns a service as a language model. If it is none, it returns nil.
func (w *Workflows) GenerationOf(service int32) *Generation {
	if w == nil || int(service) >= len(w.Generations) || len(w.Generations[service].On) == 0 {
		return nil
	}
	return &w.Generations[service]
}

// addLanguageModel adds the next service as a language model. If l is nil, the service is none.
func (w *Workflows) generate(plan *formats.Plan, l *formats.FlowGeneration) {
	g := Generation{}
	if l != nil {
		g.KVBytes, g.Prompt, g.Output = l.KVBytesPerToken, l.PromptMean, l.OutputMean
		for i := range plan.Pools {
			e := Engine{}
			if in := l.On(plan.Pools[i].Device); in != nil {
				e = Engine{Iteration: in.Iteration, KV: in.KVTokens, Block: int32(in.BlockTokens), Budget: int32(in.TokenBudget), Sequences: int32(in.Sequences)}
			}
			g.On = append(g.On, e)
		}
	}
	w.Generations = append(w.Generations, g)
}

// numberGenerationSteps numbers the steps of the next application that ask language models.
func (w *Workflows) number(a *Workflow) {
	for g := range a.Segments {
		for k := range a.Segments[g].Steps {
			if s := &a.Segments[g].Steps[k]; s.Output != nil {
				w.Asks = append(w.Asks, Asking{App: int32(len(w.Apps)), Segment: int32(g), Step: int32(k), Prompt: s.Prompt, Output: s.Output, Sample: s.Sample})
				s.Ask = int32(len(w.Asks))
			}
		}
	}
}

// WithTokenWork returns the segments with the work of those modules that ask language models: the time that one of their
// sequences takes alone on the first kind of device, relative to the model's usual task.
func WithWork(segments []formats.Segment, models map[string]*formats.FlowGeneration) []formats.Segment {
	out := slices.Clone(segments)
	for i := range out {
		out[i].Modules = slices.Clone(out[i].Modules)
		for k := range out[i].Modules {
			m := &out[i].Modules[k]
			prompt, output := m.Tokens()
			if l := models[m.Services()[0]]; output != nil && l != nil && len(l.Instances) > 0 {
				in := &l.Instances[0]
				own := in.Iteration.Residence(1, arrivals.MeanLength(prompt), arrivals.MeanLength(output), int32(in.TokenBudget))
				m.Work = own.Seconds() / in.Iteration.Residence(1, l.PromptMean, l.OutputMean, int32(in.TokenBudget)).Seconds()
			}
		}
	}
	return out
}

// CheckServable returns an error if workflows cannot be served: a device may run a language model and another model, but
// the server of a language model runs that model alone.
func (w *Workflows) Servable(t *policy.Tables) error {
	first := make([]int32, len(t.Devices)) // by device: a service that may run on it, plus one
	for s := range t.Services {
		service := &t.Services[s]
		for p := service.FirstPipeline; p < service.FirstPipeline+service.NumPipelines; p++ {
			for _, d := range t.DevicesOf(t.Pipelines[p].FirstStage) {
				other := first[d] - 1
				if first[d] = int32(s) + 1; other < 0 || other == int32(s) || w.GenerationOf(int32(s)) == nil && w.GenerationOf(other) == nil {
					continue
				}
				return &document.Error{Path: fmt.Sprintf("flow.modules[%d]", s), Expected: "devices of its own for each language model",
					Found: fmt.Sprintf("%q and %q on the same devices of %s, at least one of them a language model", t.Services[other].Name, t.Services[s].Name, t.Kinds[t.Devices[d].Kind]),
					Hint:  "the server of a language model runs that model alone: give language models pools of their own in the cluster (another name of the device, with its own measurements)"}
			}
		}
	}
	return nil
}
