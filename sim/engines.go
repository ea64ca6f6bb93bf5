package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
	flows "inferplan/policy/flow"
	"inferplan/sim/llm"
)

// engines are the language models on devices that run batches of stages, too (of
// workflows). A device runs one or the other at a time. Sequences of the model that
// runs join its next iteration, as long as nothing else waits for the device. What
// waits begins when the last of them has ended.
type engines struct {
	*devices
	own    *flows.Workflows
	by     []engine // by device
	counts *generated
}

// engine is what a device has of language models.
type engine struct {
	in      llm.Instance
	service int32         // that runs; -1: none
	since   time.Duration // it has run
	starts  bool          // this instant
	before  llm.Counts    // what it had done then
}

// newEngines is nil where no service of the tables is a language model.
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

// joins lets a sequence join the language model that runs on a device.
func (g *engines) joins(slot, d int32) bool {
	if g.by[d].service < 0 || g.by[d].service != g.batches[slot].service || g.list[d].head >= 0 {
		return false
	}
	g.admit(slot, d)
	return true
}

// begin has a device run the language model of a batch, with those behind it in the
// queue that ask for the same; false: the batch asks for none.
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
	g.admit(slot, d)
	for dev.head >= 0 && g.batches[dev.head].service == e.service {
		next := dev.head
		g.leaveDevice(d, next)
		g.admit(next, d)
	}
	return true
}

// admit has a sequence wait for the next iteration.
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

// lengths are the tokens of a task's prompt and answer. A state of its session that is
// not there is computed with the prompt. Both are cut where the KV memory ends.
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
	on := &model.On[g.t.Devices[g.hop(slot, 0).Device].Kind]
	block := max(1, int64(on.Block))
	most := int32(min(on.KV/block*block, 1<<30))
	prompt = max(1, min(prompt, most-1))
	return prompt, max(1, min(output, most-prompt))
}

// goOn starts the next iteration after all else that happens now, unless one runs.
func (g *engines) goOn(d int32) {
	if e := &g.by[d]; !e.in.Busy() && !e.starts {
		e.starts = true
		g.at(g.now, policy.NumEvents, g.sequence(), item{what: isGenerating, device: d, epoch: g.list[d].epoch})
	}
}

// start starts the next iteration of a device; without a sequence, the device is free.
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

// iterated ends an iteration.
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

// remove takes a sequence that was aborted off its device.
func (g *engines) remove(slot, d int32) {
	if e := &g.by[d]; e.service >= 0 {
		e.in.Remove(slot, false)
		g.goOn(d)
	}
}

// lost empties a device.
func (g *engines) lost(d int32) {
	e := &g.by[d]
	if e.service >= 0 {
		g.counts.ran(e, d)
	}
	e.service, e.starts = -1, false
	e.in.Reset(llm.Options{}, llm.Model{})
}
