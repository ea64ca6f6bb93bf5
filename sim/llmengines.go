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
	*loop
	host      *deviceHost
	workflows *flows.WorkflowTables
	engines   []llmEngine // by device
	stats     *generationStats
}

// llmEngine is the language model that a device runs.
type llmEngine struct {
	simulation      llm.Instance
	service         int32         // service whose model runs, or -1
	startedAt       time.Duration // when the model began to run
	iterationQueued bool          // an iteration is scheduled in this instant
	countsAtStart   llm.Counts    // the counts of the simulation at startedAt
}

// newLLMEngines returns the engines that simulate iterations of language models, one for each device, or nil if no
// service of the tables is a language model. Service -1 means that none runs.
func newLLMEngines(host *deviceHost) *llmEngines {
	workflows := flows.WorkflowTablesOf(host.tables)
	if workflows == nil || len(workflows.LanguageModels) == 0 {
		return nil
	}
	engines := &llmEngines{loop: host.loop, host: host, workflows: workflows, engines: make([]llmEngine, len(host.devices))}
	for deviceIndex := range engines.engines {
		engines.engines[deviceIndex].service = -1
	}
	engines.stats = newGenerationStats(host.loop, workflows)
	return engines
}

// tryJoin is called when a batch has reached a device. It adds the sequence of the batch (its one task: a prompt and the
// answer to it) to the language model that runs there, and returns true. It returns false if another model or none runs
// there, or if batches wait for the device, which must have their turn.
func (engines *llmEngines) tryJoin(batchSlot, deviceIndex int32) bool {
	runningService, batchesWait := engines.engines[deviceIndex].service, engines.host.devices[deviceIndex].waiting.first >= 0
	if runningService < 0 || runningService != engines.batches.at(batchSlot).service || batchesWait {
		return false
	}
	engines.addSequence(batchSlot, deviceIndex)
	return true
}

// startModel is called when a batch is next in the queue of a free device. It returns false if the batch's service is no
// language model. Otherwise the device runs that model until all of its sequences have ended. A batch for a language
// model is one sequence: a prompt and the answer to it. The batches of the same model directly behind this one in the
// queue join it at once.
func (engines *llmEngines) startModel(batchSlot, deviceIndex int32) bool {
	batch := engines.batches.at(batchSlot)
	model := engines.workflows.LanguageModelOf(batch.service)
	if model == nil {
		return false
	}
	device, engine, server := &engines.host.devices[deviceIndex], &engines.engines[deviceIndex], &model.Engines[engines.tables.Devices[deviceIndex].Kind]

	// Occupy the device. It runs no single batch (-1). The figures of this period count from the start time and the counts.
	device.busy, device.runningBatch = true, -1
	engine.service, engine.startedAt, engine.countsAtStart = batch.service, engines.agenda.now, engine.simulation.Counts()

	// Empty the simulated model, and give it the limits and iteration times of this kind of device, which the run may slow
	// down as a whole (Config.Slowdown).
	engine.simulation.Reset(llm.Options{TokenBudget: server.TokenBudget, BlockTokens: server.BlockTokens}, llm.Model{Iteration: server.Iteration.SlowedDown(engines.loop.cfg.Slowdown), KVTokens: server.KVTokens, MaxSequences: server.MaxSequences, TokenBytes: model.KVBytes})

	// Take the batch, and those of the same model that are next in the queue.
	engines.addSequence(batchSlot, deviceIndex)
	for device.waiting.first >= 0 && engines.batches.at(device.waiting.first).service == engine.service {
		nextSlot := device.waiting.first
		engines.batches.leaveLine(&device.waiting, deviceLine, nextSlot)
		engines.addSequence(nextSlot, deviceIndex)
	}
	return true
}

// addSequence gives the sequence of a batch (which has one task) to the language model that runs on a device. It takes
// part from the next iteration on. A sequence that could never fit the memory ends the run with an error. It also notes
// since when the sequence could have begun.
func (engines *llmEngines) addSequence(batchSlot, deviceIndex int32) {
	batch, engine := engines.batches.at(batchSlot), &engines.engines[deviceIndex]
	batch.activity = generatesTokens
	task := engines.batches.members(batchSlot)[0]
	prompt, output := engines.tokenCounts(task, batchSlot)
	if err := engine.simulation.Add(llm.Sequence{ID: batchSlot, Prompt: prompt, Output: output}); err != nil {
		engines.loop.failRun(fmt.Errorf("device %d: %w", deviceIndex, err))
		return
	}
	engines.stats.sequenceReady(task)
	engines.queueIteration(deviceIndex)
}

// tokenCounts returns the tokens of a task's prompt and answer: those that came with the task or, where these are 0, the
// model's usual ones scaled by the task's work. If the state of its session (what the service keeps of the request) is
// not on the device, that is computed anew and counts as prompt. Both are cut to the KV memory, so that each sequence
// can end.
func (engines *llmEngines) tokenCounts(task, batchSlot int32) (prompt, output int32) {
	record := &engines.loop.flow.records[task]
	model := engines.workflows.LanguageModelOf(engines.batches.at(batchSlot).service)
	prompt, output = record.prompt, record.output
	if prompt == 0 {
		prompt = int32(flows.ScaleByWork(int64(model.Prompt+.5), record.work))
	}
	if output == 0 {
		output = int32(flows.ScaleByWork(int64(model.Output+.5), record.work))
	}
	if engines.loop.flow.sessions != nil {
		prompt += int32(engines.loop.flow.sessions.recomputedBytes(batchSlot) / max(1, model.KVBytes))
	}

	// The KV memory holds whole blocks, and an answer has at least one token.
	server := &model.Engines[engines.tables.Devices[engines.batches.hopAt(batchSlot, 0).Device].Kind]
	blockTokens := max(1, int64(server.BlockTokens))
	maxTokens := int32(min(server.KVTokens/blockTokens*blockTokens, 1<<30))
	prompt = max(1, min(prompt, maxTokens-1))
	return prompt, max(1, min(output, maxTokens-prompt))
}

// queueIteration schedules the next iteration of a device's language model after everything else of this instant,
// unless one runs or is scheduled.
func (engines *llmEngines) queueIteration(deviceIndex int32) {
	if engine := &engines.engines[deviceIndex]; !engine.simulation.Busy() && !engine.iterationQueued {
		engine.iterationQueued = true
		engines.agenda.scheduleAfter(0, policy.NumEvents, agendaEntry{kind: generationStartEntry, device: deviceIndex, epoch: engines.host.devices[deviceIndex].faultEpoch})
	}
}

// startIteration is called by the entry that queueIteration has put on the agenda. It starts the next iteration of a
// device's language model (one token for each sequence, or a part of a prompt), and puts its end on the agenda. If no
// sequence is left, the model stops (service -1) and the device takes its next batch.
func (engines *llmEngines) startIteration(deviceIndex int32) {
	engine := &engines.engines[deviceIndex]
	engine.iterationQueued = false
	duration, _, ok := engine.simulation.Begin()

	// Without sequences, free the device for the next batch in its queue.
	if !ok {
		device := &engines.host.devices[deviceIndex]
		device.busyTime += engines.loop.cfg.countedSpan().overlap(timeSpan{engine.startedAt, engines.agenda.now})
		engines.stats.engineStopped(engine, deviceIndex)
		engine.service, device.busy, device.lastRunEnd = -1, false, engines.agenda.now
		engines.host.startNextRun(deviceIndex)
		return
	}
	engines.stats.addIteration(engine, duration)
	engines.agenda.scheduleAfter(duration, policy.BatchFinished, agendaEntry{kind: generationEndEntry, device: deviceIndex, epoch: engines.host.devices[deviceIndex].faultEpoch})
}

// endIteration is called when the iteration of a device that startIteration began is over: it notes first tokens, ends
// the batches whose sequences are finished, tells the policy, and queues the next iteration. A batch is one sequence
// here, and its slot is the sequence's ID.
func (engines *llmEngines) endIteration(deviceIndex int32) {
	iteration := engines.engines[deviceIndex].simulation.End()

	// Note the first tokens.
	for _, batchSlot := range iteration.First {
		engines.stats.firstToken(engines.batches.members(batchSlot)[0])
	}

	// End the batches of finished sequences.
	for _, batchSlot := range iteration.Finished {
		batch := engines.batches.at(batchSlot)
		service := batch.service
		batch.isLive, batch.activity = false, noActivity
		engines.stats.sequenceEnded(engines.batches.members(batchSlot)[0])
		engines.loop.ending.batchRan(batchSlot, deviceIndex)
		ev := engines.loop.beginEvent(policy.BatchFinished)
		ev.Model, ev.Service, ev.Batch, ev.Device, ev.End = -1, service, batchSlot, deviceIndex, engines.agenda.now
		engines.loop.tellPolicy()
		engines.host.resumeAfterBatch(deviceIndex)
	}
	engines.queueIteration(deviceIndex)
}

// removeSequence takes the sequence of an aborted batch off the language model of a device. If none runs there,
// nothing happens.
func (engines *llmEngines) removeSequence(batchSlot, deviceIndex int32) {
	if engine := &engines.engines[deviceIndex]; engine.service >= 0 {
		engine.simulation.Remove(batchSlot, false)
		engines.queueIteration(deviceIndex)
	}
}

// loseDevice empties the language model of a device that failed; its sequences are lost. Service -1 means that no model
// runs.
func (engines *llmEngines) loseDevice(deviceIndex int32) {
	engine := &engines.engines[deviceIndex]
	if engine.service >= 0 {
		engines.stats.engineStopped(engine, deviceIndex)
	}
	engine.service, engine.iterationQueued = -1, false
	engine.simulation.Reset(llm.Options{}, llm.Model{})
}
