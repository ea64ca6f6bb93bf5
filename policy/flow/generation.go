package flow

import (
	"inferplan/formats"
)

// Generation is a service that is a language model. Its tasks are sequences. They join
// the iterations of a device where the model runs, and leave them one by one. The times
// of its stage are those of one sequence among so many (formats.Iteration.Residence), so
// what one takes alone is that of a batch of one.
type Generation struct {
	On      []Engine // by kind of device; none: no language model
	KVBytes int64    // of a token
	// Prompt and Output are the mean tokens of a task of the usual work.
	Prompt, Output float64
}

// Engine is what runs the iterations on a kind of devices.
type Engine struct {
	Iteration     formats.Iteration
	KV            int64 // tokens of KV memory; 0: the kind does not run it
	Block, Budget int32 // tokens of a block of KV memory, and of an iteration; 0: 16, no limit
	Sequences     int32 // at once
}

// Asking is a step that asks for a language model.
type Asking struct {
	App, Segment, Step int32
	Prompt, Output     *formats.Lengths // nil: always the mean
}

// GenerationOf is a service as a language model; nil where it is none.
func (w *Workflows) GenerationOf(service int32) *Generation {
	if w == nil || int(service) >= len(w.Generations) || len(w.Generations[service].On) == 0 {
		return nil
	}
	return &w.Generations[service]
}
