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
type llmEngines struct {
	host      *deviceHost
	loop      *loop
	agenda    *agenda
	batches   *batchTable
	tables    *policy.Tables
	workflows *flows.WorkflowTables
	engines   []llmEngine // by device
	stats     *generationStats
}

// llmEngine is the language model that a device runs.
type llmEngine struct {
	instance        llm.Instance
	service         int32         // service whose model runs, or -1
	startedAt       time.Duration // when the model began to run
	iterationQueued bool          // an iteration is scheduled in this instant
	countsAtStart   llm.Counts    // the counts of instance at startedAt
}

// newLLMEngines returns the engines that simulate iterations of language models, one for each device, or nil if no
// service of the tables is a language model. Service -1 means that none runs.
func newLLMEngines(h *deviceHost) *llmEngines {
	workflows := flows.WorkflowTablesOf(h.tables)
	if workflows == nil || len(workflows.LanguageModels) == 0 {
		return nil
	}
	g := &llmEngines{
		host: h, loop: h.loop, agenda: h.agenda, batches: h.batches, tables: h.tables,
		workflows: workflows, engines: make([]llmEngine, len(h.devices)),
	}
	for d := range g.engines {
		g.engines[d].service = -1
	}
	g.stats = newGenerationStats(h.loop, workflows)
	return g
}

// tryJoin adds a sequence to the language model that runs on a device. It returns false if
// another model or none runs there, or if batches wait for the device.
func (g *llmEngines) tryJoin(slot, d int32) bool {
	if g.engines[d].service < 0 || g.engines[d].service != g.batches.at(slot).service || g.host.devices[d].firstWaiting >= 0 {
		return false
	}
	g.addSequence(slot, d)
	return true
}

// startModel makes a free device run the language model of a batch, when the batch is next in its queue, and takes
// in the batches of the same model directly behind it. The device is busy until all of its sequences have ended. It
// returns false if the batch's service is no language model.
func (g *llmEngines) startModel(slot, d int32) bool {
	b := g.batches.at(slot)
	model := g.workflows.LanguageModelOf(b.service)
	if model == nil {
		return false
	}
	dev, e, generation := &g.host.devices[d], &g.engines[d], &model.Engines[g.tables.Devices[d].Kind]
	dev.busy, dev.runningBatch = true, -1
	e.service, e.startedAt, e.countsAtStart = b.service, g.agenda.now, e.instance.Counts()
	e.instance.Reset(llm.Options{TokenBudget: generation.TokenBudget, BlockTokens: generation.BlockTokens}, llm.Model{Iteration: generation.Iteration.SlowedDown(g.loop.cfg.Slowdown), KVTokens: generation.KVTokens, MaxSequences: generation.MaxSequences, TokenBytes: model.KVBytes})

	// Take the batches of the same model that are next in the queue.
	g.addSequence(slot, d)
	for dev.firstWaiting >= 0 && g.batches.at(dev.firstWaiting).service == e.service {
		nextSlot := dev.firstWaiting
		g.host.removeFromQueue(d, nextSlot)
		g.addSequence(nextSlot, d)
	}
	return true
}

// addSequence gives the sequence of a batch to the language model that runs on a device. It takes part from the
// next iteration on. One that could never fit the memory ends the run with an error.
func (g *llmEngines) addSequence(slot, d int32) {
	b, e := g.batches.at(slot), &g.engines[d]
	b.place = generatesTokens
	task := g.batches.members(slot)[0]
	prompt, output := g.tokenCounts(task, slot)
	if err := e.instance.Add(llm.Sequence{ID: slot, Prompt: prompt, Output: output}); err != nil {
		g.loop.failRun(fmt.Errorf("device %d: %w", d, err))
		return
	}
	g.stats.sequenceReady(task)
	g.queueIteration(d)
}

// tokenCounts returns the tokens of a task's prompt and answer: its own, or the usual ones scaled by its work. If
// the state of its session is not on the device, it is computed anew and counts as prompt. Both are cut to the KV
// memory, so that each sequence can end.
func (g *llmEngines) tokenCounts(task, slot int32) (prompt, output int32) {
	record := &g.loop.flow.records[task]
	model := g.workflows.LanguageModelOf(g.batches.at(slot).service)
	prompt, output = record.prompt, record.output
	if prompt == 0 {
		prompt = int32(flows.ScaleByWork(int64(model.Prompt+.5), record.work))
	}
	if output == 0 {
		output = int32(flows.ScaleByWork(int64(model.Output+.5), record.work))
	}
	if g.loop.flow.sessions != nil {
		prompt += int32(g.loop.flow.sessions.recomputedBytes(slot) / max(1, model.KVBytes))
	}

	// The KV memory holds whole blocks, and an answer has at least one token.
	generation := &model.Engines[g.tables.Devices[g.batches.hopAt(slot, 0).Device].Kind]
	block := max(1, int64(generation.BlockTokens))
	maxTokens := int32(min(generation.KVTokens/block*block, 1<<30))
	prompt = max(1, min(prompt, maxTokens-1))
	return prompt, max(1, min(output, maxTokens-prompt))
}

// queueIteration schedules the next iteration after everything else of this instant, unless one runs or is scheduled.
func (g *llmEngines) queueIteration(d int32) {
	if e := &g.engines[d]; !e.instance.Busy() && !e.iterationQueued {
		e.iterationQueued = true
		g.agenda.scheduleAfter(0, policy.NumEvents, agendaEntry{kind: isGenerationStart, device: d, epoch: g.host.devices[d].epoch})
	}
}

// startIteration starts the next iteration of a device's language model (one token for each sequence, or a part of
// a prompt). If no sequence is left, the model stops and the device takes its next batch.
func (g *llmEngines) startIteration(d int32) {
	e := &g.engines[d]
	e.iterationQueued = false
	duration, _, ok := e.instance.Begin()
	if !ok {
		dev := &g.host.devices[d]
		dev.busyTime += g.loop.cfg.countedSpan().overlap(timeSpan{e.startedAt, g.agenda.now})
		g.stats.engineStopped(e, d)
		e.service, dev.busy, dev.lastRunEnd = -1, false, g.agenda.now
		g.host.startNextRun(d)
		return
	}
	g.stats.addIteration(e, duration)
	g.agenda.scheduleAfter(duration, policy.BatchFinished, agendaEntry{kind: isGenerationEnd, device: d, epoch: g.host.devices[d].epoch})
}

// endIteration ends an iteration of a device: it notes first tokens, ends the batches whose sequences are finished,
// tells the policy, and queues the next iteration. A batch is one sequence here.
func (g *llmEngines) endIteration(d int32) {
	ended := g.engines[d].instance.End()
	for _, slot := range ended.First {
		g.stats.firstToken(g.batches.members(slot)[0])
	}
	for _, slot := range ended.Finished {
		b := g.batches.at(slot)
		service := b.service
		b.live, b.place = false, atNoPlace
		g.stats.sequenceEnded(g.batches.members(slot)[0])
		g.loop.ending.batchRan(slot, d)
		ev := g.loop.beginEvent(policy.BatchFinished)
		ev.Model, ev.Service, ev.Batch, ev.Device, ev.End = -1, service, slot, d, g.agenda.now
		g.loop.tellPolicy()
		g.host.onBatchEnd(d)
	}
	g.queueIteration(d)
}

// removeSequence takes an aborted sequence off its device.
func (g *llmEngines) removeSequence(slot, d int32) {
	if e := &g.engines[d]; e.service >= 0 {
		e.instance.Remove(slot, false)
		g.queueIteration(d)
	}
}

// loseDevice empties the language model of a device that failed; its sequences are lost.
func (g *llmEngines) loseDevice(d int32) {
	e := &g.engines[d]
	if e.service >= 0 {
		g.stats.engineStopped(e, d)
	}
	e.service, e.iterationQueued = -1, false
	e.instance.Reset(llm.Options{}, llm.Model{})
}
