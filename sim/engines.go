package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	flows "inferplan/policy/flow"
	"inferplan/sim/llm"
)

// llmEngines runs the language models of workflows, on devices that run batches of stages
// too. A device runs one or the other at a time. Sequences of the model that runs join its
// next iteration, as long as nothing else waits for the device. A waiting batch begins when
// the last sequence has ended.
type engines struct {
	*devices
	own    *flows.Workflows
	by     []engine // by device
	counts *generated
}

// llmEngine is the language model that a device runs.
type engine struct {
	in      llm.Instance
	service int32         // service whose model runs, or -1
	since   time.Duration // when the model began to run
	starts  bool          // an iteration is scheduled in this instant
	before  llm.Counts    // the counts of instance at startedAt
}

// newLLMEngines returns nil if no service of the tables is a language model.
func newEngines(h *devices) *engines {
	own := flows.WorkflowsOf(h.t)
	if own == nil || len(own.Generations) == 0 {
		return nil
	}
	g := &engines{devices: h, own: own, by: make([]engine, len(h.list))}
	for d := range g.by {
		g.by[d].service = -1
	}
	g.counts = newGenerated(h.loop, own)
	return g
}

// tryJoin adds a sequence to the language model that runs on a device. It returns false if
// another model or none runs there, or if batches wait for the device.
func (g *engines) joins(slot, d int32) bool {
	if g.by[d].service < 0 || g.by[d].service != g.batches[slot].service || g.list[d].head >= 0 {
		return false
	}
	g.admit(slot, d)
	return true
}

// startModel makes a device run the language model of a batch, with the batches next in its
// queue that use the same model. It returns false if the batch uses none.
func (g *engines) begin(slot, d int32) bool {
	b := &g.batches[slot]
	model := g.own.GenerationOf(b.service)
	if model == nil {
		return false
	}
	dev, e, on := &g.list[d], &g.by[d], &model.On[g.t.Devices[d].Kind]
	dev.busy, dev.current = true, -1
	e.service, e.since, e.before = b.service, g.now, e.in.Counts()
	e.in.Reset(llm.Options{Budget: on.Budget, Block: on.Block}, llm.Model{Iteration: on.Iteration.Slower(g.cfg.Slower), KV: on.KV, Sequences: on.Sequences, KVBytes: model.KVBytes})

	// Take the batches of the same model that are next in the queue.
	g.admit(slot, d)
	for dev.head >= 0 && g.batches[dev.head].service == e.service {
		next := dev.head
		g.leaveDevice(d, next)
		g.admit(next, d)
	}
	return true
}

// addSequence makes a sequence wait for the next iteration.
func (g *engines) admit(slot, d int32) {
	b, e := &g.batches[slot], &g.by[d]
	b.at = generates
	task := g.members(slot)[0]
	prompt, output := g.lengths(task, slot)
	if err := e.in.Add(llm.Sequence{ID: slot, Prompt: prompt, Output: output}); err != nil {
		g.fail(fmt.Errorf("device %d: %w", d, err))
		return
	}
	g.counts.admitted(task)
	g.goOn(d)
}

// tokenCounts returns the tokens of a task's prompt and answer. If the state of its session is
// not on the device, it is computed anew and counts as prompt. Both are cut to the KV memory.
func (g *engines) lengths(task, slot int32) (prompt, output int32) {
	fa := &g.flow.facts[task]
	model := g.own.GenerationOf(g.batches[slot].service)
	prompt, output = fa.prompt, fa.output
	if prompt == 0 {
		prompt = int32(flows.Part(int64(model.Prompt+.5), fa.work))
	}
	if output == 0 {
		output = int32(flows.Part(int64(model.Output+.5), fa.work))
	}
	if g.flow.kept != nil {
		prompt += int32(g.flow.kept.anew(slot) / max(1, model.KVBytes))
	}

	// The KV memory holds whole blocks, and an answer has at least one token.
	on := &model.On[g.t.Devices[g.hop(slot, 0).Device].Kind]
	block := max(1, int64(on.Block))
	most := int32(min(on.KV/block*block, 1<<30))
	prompt = max(1, min(prompt, most-1))
	return prompt, max(1, min(output, most-prompt))
}

// queueIteration schedules the next iteration after everything else of this instant, unless one runs or is scheduled.
func (g *engines) goOn(d int32) {
	if e := &g.by[d]; !e.in.Busy() && !e.starts {
		e.starts = true
		g.at(g.now, policy.NumEvents, g.sequence(), item{what: isGenerating, device: d, epoch: g.list[d].epoch})
	}
}

// startIteration starts the next iteration of a device. If there is no sequence, the device is free.
func (g *engines) start(d int32) {
	e := &g.by[d]
	e.starts = false
	took, _, ok := e.in.Begin()
	if !ok {
		dev := &g.list[d]
		dev.ran(g.cfg, e.since, g.now)
		g.counts.ran(e, d)
		e.service, dev.busy, dev.ranUntil = -1, false, g.now
		g.startRun(d)
		return
	}
	g.counts.iteration(e, took)
	g.at(g.now+took, policy.BatchFinished, g.sequence(), item{what: isIterated, device: d, epoch: g.list[d].epoch})
}

// endIteration ends an iteration, and the batches whose sequences are finished.
func (g *engines) iterated(d int32) {
	e := g.by[d].in.End()
	for _, slot := range e.First {
		g.counts.first(g.members(slot)[0])
	}
	for _, slot := range e.Finished {
		b := &g.batches[slot]
		service := b.service
		b.live, b.at = false, nowhere
		g.counts.ended(g.members(slot)[0])
		g.ending.ran(slot, d)
		ev := g.loop.begin(policy.BatchFinished)
		ev.Model, ev.Service, ev.Batch, ev.Device, ev.End = -1, service, slot, d, g.now
		g.tell()
		g.freed(d)
	}
	g.goOn(d)
}

// removeSequence takes an aborted sequence off its device.
func (g *engines) remove(slot, d int32) {
	if e := &g.by[d]; e.service >= 0 {
		e.in.Remove(slot, false)
		g.goOn(d)
	}
}

// loseDevice empties a device that failed.
func (g *engines) lost(d int32) {
	e := &g.by[d]
	if e.service >= 0 {
		g.counts.ran(e, d)
	}
	e.service, e.starts = -1, false
	e.in.Reset(llm.Options{}, llm.Model{})
}
