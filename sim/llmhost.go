package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/sim/llm"
)

// Kinds of agenda entries of instances of language models.
const (
	iterationEndEntry     uint8 = firstHostKind + iota // an iteration ends
	iterationStartEntry                                // the next iteration begins, after everything else of this instant
	sequenceAdmittedEntry                              // a sequence took part in its first iteration
	sequenceReturnedEntry                              // a batch returns to the policy without a result
	networkChangeEntry                                 // a load or an unload of a network ends
)

// llmHost is the host of instances of language models. Package llm runs their
// iterations. This type dispatches and evicts sequences; its swapper loads and unloads
// networks.
type llmHost struct {
	*loop
	instances      []hostedInstance // by device
	swapper        networkSwapper
	tokenEnding    *tokenEnding    // nil if the run has another ending
	sequences      []sequenceState // by task
	evictions      int64           // so far
	returnedTokens [1]int32        // tokens of the task that BatchReturned is about
}

// hostedInstance is an instance of language models (a server on a device) with the network that it runs. A network is
// the weights of a model.
type hostedInstance struct {
	simulation      llm.Instance // simulates its iterations
	network         int32        // the network that it runs, or -1
	previousNetwork int32        // the network that it ran before, or -1
	isDown          bool
	startQueued     bool           // an iteration is scheduled in this instant
	unloadPending   bool           // its network is unloaded as soon as its sequences have ended
	changingNetwork int32          // network that is being loaded or unloaded, or -1
	changeStart     time.Duration  // when the load or unload began
	faultEpoch      int32          // counts the faults; an agenda entry of an earlier epoch is void
	pendingLoads    []networkOrder // loads that have not begun
	warmNetworks    warmSet

	// time of loads and unloads, in the counted time
	busyTime, loadTime time.Duration
}

// sequenceState holds what the host knows of a task, which is one sequence of tokens, beside its batch.
type sequenceState struct {
	// In tokens: the prompt, the answer, and what was generated so far.
	prompt, output, generated int32
	session                   int64
	firstIterationAt          time.Duration // when its first iteration began, below 0 before that
	swapDevice                int32         // device whose host memory holds its KV, plus one; 0 if none does
}

// newLLMHost returns a host that simulates the instances (servers of language models) of the run's tables, each with
// the network that the plan puts there.
func newLLMHost(loop *loop) host {
	instances := make([]hostedInstance, len(loop.tables.Devices))
	host := &llmHost{loop: loop, instances: instances}
	host.swapper = networkSwapper{loop: loop, instances: instances}
	for deviceIndex := range instances {
		if loop.tables.InstanceOf(int32(deviceIndex)) >= 0 {
			host.runResident(int32(deviceIndex))
		}
	}
	return host
}

// hasLLMInstances reports whether a plan's tables have instances of language models that can be simulated: with the
// costs of a server.
func hasLLMInstances(tables *policy.Tables) bool {
	return slices.ContainsFunc(tables.Instances, func(in policy.Instance) bool { return in.Server != nil })
}

// runResident sets the instance on a device to its state at the start of the plan: it runs the network that the plan
// puts there, and the host's memory holds no other network. A network of -1 is none. It is called at the start, and when
// a lost instance comes back.
func (h *llmHost) runResident(deviceIndex int32) {
	instance := &h.instances[deviceIndex]
	instance.network, instance.previousNetwork, instance.changingNetwork, instance.unloadPending = -1, -1, -1, false
	instance.pendingLoads, instance.warmNetworks = instance.pendingLoads[:0], instance.warmNetworks[:0]
	if int(deviceIndex) < len(h.tables.Resident) && len(h.tables.Resident[deviceIndex]) > 0 {
		instance.runNetwork(h.tables, deviceIndex, h.tables.Resident[deviceIndex][0], h.loop.cfg.Slowdown)
	}
}

// serverOf returns the configuration and costs of the server that the instance on a device is. The device must have one.
func serverOf(tables *policy.Tables, device int32) *policy.Server {
	return tables.Instances[tables.InstanceOf(device)].Server
}

// runNetwork makes the instance on a device run a network, with the times and the KV memory that the tables have for it.
// Its iterations take longer than profiled by the share slowdown. It empties the simulated server, and makes the network
// the last used one of those that the host's memory holds (warmNetworks).
func (instance *hostedInstance) runNetwork(tables *policy.Tables, deviceIndex, network int32, slowdown float64) {
	instanceTable := &tables.Instances[tables.InstanceOf(deviceIndex)]
	server := instanceTable.Server
	costs := &server.Costs[network]
	instance.network = network
	instance.simulation.Reset(llm.Options{
		TokenBudget: instanceTable.TokenBudget, BlockTokens: server.BlockTokens, ByPriority: server.ByPriority, ReserveAnswer: server.ReserveAnswer, SwapOut: server.SwapKV,
		SwapBytesPerSecond: server.SwapGBps * 1e9, HiddenShare: server.HiddenSwapShare, PrefixCache: server.PrefixCache, ProgressTokens: instanceTable.ProgressTokens,
	}, llm.Model{Iteration: costs.Iteration.SlowedDown(slowdown), KVTokens: costs.KVTokens, MaxSequences: costs.MaxSequences, TokenBytes: costs.KVTokenBytes})
	instance.warmNetworks.markUsed(network, tables.Networks, server.WarmBytes)
}

// dispatch hands a batch, which is one sequence of tokens, to its instance (a simulated server of language models).
// If the network is not loaded or the KV memory could never hold the sequence, the batch returns to the policy. If that of
// no instance could, the run ends with an error. It implements host.
func (h *llmHost) dispatch(batchSlot int32) {
	deviceIndex := h.batches.hopAt(batchSlot, 0).Device
	instance := &h.instances[deviceIndex]
	if instance.isDown {
		return // the policy aborts the batch when it hears of the loss
	}

	// The report counts the batches of single models.
	batch := h.batches.at(batchSlot)
	if batch.model >= 0 {
		h.loop.ledger.reportCounts.Batch(batch.model, int(batch.size), h.agenda.now)
	}

	// The sequence needs the network, and a prompt and an answer of at least one token.
	if instance.network < 0 || instance.network != h.tables.Pipelines[batch.pipeline].Network {
		h.returnBatch(batchSlot, deviceIndex, policy.ReturnNotLoaded)
		return
	}
	task := h.batches.members(batchSlot)[0]
	sequence := h.sequenceOf(task)
	if sequence.prompt < 1 || sequence.output < 1 {
		h.loop.failRun(&document.Error{
			Path: "prompt_tokens", Found: fmt.Sprintf("a request for %s with a prompt of %d tokens and an answer of %d", h.tables.Models[h.loop.ledger.requests[h.loop.ledger.tasks.List[task].Req].model].Key(), sequence.prompt, sequence.output),
			Expected: "at least one token each", Hint: "a trace needs the columns prompt_tokens and output_tokens",
		})
		return
	}

	// Hand the sequence to the instance. If the host's memory of this device holds its KV, from an eviction, that is used
	// up now: swapDevice is the device whose host's memory holds it, plus 1, or 0 for none. The next iteration starts
	// after everything else of this instant (NumEvents is behind all events).
	newSequence := llm.Sequence{ID: batchSlot, Prompt: sequence.prompt, Output: sequence.output, Generated: sequence.generated, Priority: batch.tag, Session: sequence.session, InHostMemory: sequence.swapDevice == deviceIndex+1}
	sequence.swapDevice = 0
	if err := instance.simulation.Add(newSequence); err != nil {
		// A policy asks again and again where a request is refused. One that no instance could hold would never end.
		if tokens, capacity := int64(sequence.prompt)+int64(sequence.output), h.largestKV(instance.network); tokens > capacity {
			h.loop.failRun(&document.Error{
				Path: "queue.models", Found: fmt.Sprintf("a request for %s of %d tokens with its answer", h.tables.Models[h.loop.ledger.requests[h.loop.ledger.tasks.List[task].Req].model].Key(), tokens),
				Expected: fmt.Sprintf("at most the %d tokens that the KV memory of an instance holds (kv_tokens)", capacity), Hint: "no instance could ever serve it: limit the lengths of requests, or plan with more memory",
			})
			return
		}
		h.returnBatch(batchSlot, deviceIndex, policy.ReturnRefused)
		return
	}
	if !instance.simulation.Busy() && !instance.startQueued {
		instance.startQueued = true
		h.agenda.scheduleAfter(0, policy.NumEvents, agendaEntry{kind: iterationStartEntry, host: instanceHost, device: deviceIndex, epoch: instance.faultEpoch})
	}
}

// largestKV returns how many tokens, in whole blocks, the KV memory of the largest instance holds that can run a network.
func (h *llmHost) largestKV(network int32) (tokens int64) {
	for i := range h.tables.Instances {
		if server := h.tables.Instances[i].Server; server != nil {
			blockTokens := max(1, int64(server.BlockTokens))
			tokens = max(tokens, server.Costs[network].KVTokens/blockTokens*blockTokens)
		}
	}
	return tokens
}

// sequenceOf returns the state of a task's sequence. The first dispatch of the task begins it. Its lengths come from
// the truth of the run: what requests really ask for.
func (h *llmHost) sequenceOf(task int32) *sequenceState {
	for int(task) >= len(h.sequences) {
		h.sequences = append(h.sequences, sequenceState{})
	}
	sequence := &h.sequences[task]
	if location := &h.loop.ledger.locations[task]; !location.seenByInstance {
		location.seenByInstance = true
		*sequence = sequenceState{output: h.loop.truth.Tokens(task), firstIterationAt: -1}
		if prompter, ok := h.loop.truth.(Prompter); ok {
			sequence.prompt, sequence.session = prompter.Prompt(task)
		}
	}
	return sequence
}

// returnBatch is called when an instance does not take a batch, or gives it up. It schedules, later in this instant,
// that the batch comes back to the policy without a result, for a reason.
func (h *llmHost) returnBatch(batchSlot, deviceIndex int32, reason policy.ReturnReason) {
	batch := h.batches.at(batchSlot)
	h.agenda.schedule(h.agenda.now, policy.BatchReturned, batch.serial, agendaEntry{kind: sequenceReturnedEntry, host: instanceHost, serial: batch.serial, subject: batchSlot, device: deviceIndex, detail: int32(reason)})
}

// startIteration is called when an iteration has ended, or the first sequence has come to an idle instance. It starts
// the next iteration of the instance on a device (one token for each running sequence, or a part of a prompt), and puts
// its end on the agenda. The policy hears of sequences that are newly admitted to the batch. If no sequence is left, a
// change of network that waited for that begins.
func (h *llmHost) startIteration(deviceIndex int32) {
	instance := &h.instances[deviceIndex]
	duration, admittedSlots, ok := instance.simulation.Begin()
	if !ok {
		h.swapper.continuePending(deviceIndex)
		return
	}

	// Count its time and put it into the trace, tell the policy of the sequences that begin with it, and put its end on the agenda.
	instance.busyTime += h.loop.cfg.countedSpan().overlap(timeSpan{h.agenda.now, h.agenda.now + duration})
	h.loop.trace.addIteration(deviceIndex, instance.network, h.agenda.now, h.agenda.now+duration)
	for _, batchSlot := range admittedSlots {
		if sequence := h.sequenceOf(h.batches.members(batchSlot)[0]); sequence.firstIterationAt < 0 {
			sequence.firstIterationAt = h.agenda.now
		}
		*h.agenda.startedBatches.Add() = agendaEntry{kind: sequenceAdmittedEntry, host: instanceHost, serial: h.batches.at(batchSlot).serial, subject: batchSlot, device: deviceIndex, start: h.agenda.now}
	}
	h.agenda.scheduleAfter(duration, policy.TokenProgress, agendaEntry{kind: iterationEndEntry, host: instanceHost, device: deviceIndex, epoch: instance.faultEpoch})
}

// handleEntry handles an agenda entry of an instance that is due: the end or start of an iteration, the end of a change
// of network (a load or unload of the weights that it runs), or an event for the policy: a sequence was admitted to the
// batch, or returned without being served, with the tokens that it has. Entries from before a loss of the instance
// (another fault epoch) or of aborted batches (another serial number) are void. It implements host.
func (h *llmHost) handleEntry(entry *agendaEntry) {
	switch entry.kind {
	case iterationEndEntry:
		if h.instances[entry.device].faultEpoch == entry.epoch {
			h.endIteration(entry.device)
		}
	case iterationStartEntry:
		if instance := &h.instances[entry.device]; instance.faultEpoch == entry.epoch {
			instance.startQueued = false
			if !instance.simulation.Busy() {
				h.startIteration(entry.device)
			}
		}
	case networkChangeEntry:
		if h.instances[entry.device].faultEpoch == entry.epoch {
			h.swapper.finishChange(entry)
		}
	case sequenceAdmittedEntry, sequenceReturnedEntry:
		// The policy may have aborted the batch meanwhile.
		batch := h.batches.at(entry.batchSlot())
		if !batch.isLive || batch.serial != entry.serial {
			return
		}
		if entry.kind == sequenceAdmittedEntry {
			h.loop.beginBatchEvent(policy.BatchStarted, entry.batchSlot(), entry.device).Start = entry.start
			h.loop.tellPolicy()
			return
		}
		h.returnedTokens[0] = h.sequenceOf(h.batches.members(entry.batchSlot())[0]).generated
		h.loop.returnBatchToPolicy(entry.batchSlot(), entry.device, entry.returnReason(), h.returnedTokens[:])
	}
}

// endIteration ends an iteration of the instance on a device: it starts the next one, answers finished requests, and
// tells the policy of these and of the progress of the others. The next one starts first because a server does not
// wait for the policy.
func (h *llmHost) endIteration(deviceIndex int32) {
	instance := &h.instances[deviceIndex]
	iteration := instance.simulation.End()

	// Note the first tokens, and go on.
	for _, batchSlot := range iteration.First {
		if h.tokenEnding != nil {
			h.tokenEnding.firstToken(h.batches.members(batchSlot)[0])
		}
	}
	h.startIteration(deviceIndex)

	// Answer the requests whose sequences are finished.
	for _, batchSlot := range iteration.Finished {
		batch, task := h.batches.at(batchSlot), h.batches.members(batchSlot)[0]
		sequence := h.sequenceOf(task)
		sequence.generated = sequence.output
		if h.tokenEnding != nil {
			h.tokenEnding.judgeAnswer(task, sequence.generated)
		}
		batch.isLive = false
		h.loop.ending.batchRan(batchSlot, deviceIndex)
		ev := h.loop.beginBatchEvent(policy.BatchFinished, batchSlot, deviceIndex)
		ev.End, ev.Tokens = h.agenda.now, sequence.generated
		h.loop.tellPolicy()
	}

	// Report the progress of the others.
	for _, list := range [2][]int32{iteration.First, iteration.Progress} {
		for _, batchSlot := range list {
			if h.batches.at(batchSlot).isLive && instance.simulation.GeneratedTokens(batchSlot) > 0 {
				h.loop.beginBatchEvent(policy.TokenProgress, batchSlot, deviceIndex).Tokens = instance.simulation.GeneratedTokens(batchSlot)
				h.loop.tellPolicy()
			}
		}
	}
}

// abort takes the sequence of an aborted batch off its instance. The request keeps the tokens that were generated;
// their KV is lost. It implements host.
func (h *llmHost) abort(batchSlot int32) { h.removeSequence(batchSlot, false) }

// removeSequence takes the sequence of a batch off its instance, when the policy aborts or evicts it. With keepKV its KV
// goes to the host's memory, if that is possible (swapDevice then names the device); a later dispatch to the same
// instance goes on with it. A load or unload that waited for the last sequence begins.
func (h *llmHost) removeSequence(batchSlot int32, keepKV bool) {
	deviceIndex := h.batches.hopAt(batchSlot, 0).Device
	instance := &h.instances[deviceIndex]
	sequence := h.sequenceOf(h.batches.members(batchSlot)[0])
	generated, swapped := instance.simulation.Remove(batchSlot, keepKV)
	sequence.generated = max(sequence.generated, generated)
	if swapped {
		sequence.swapDevice = deviceIndex + 1
	}

	// A load or unload may have waited for the last sequence.
	if sequences, _ := instance.simulation.SequenceCounts(); sequences == 0 && !instance.simulation.Busy() {
		h.swapper.continuePending(deviceIndex)
	}
}

// evict takes a batch off its instance, as the policy orders, and returns it to the policy later in this instant. It
// implements host.
func (h *llmHost) evict(batchSlot int32, keepKV bool) {
	h.removeSequence(batchSlot, keepKV)
	h.evictions++
	h.returnBatch(batchSlot, h.batches.hopAt(batchSlot, 0).Device, policy.ReturnEvicted)
}

// handleOrder passes an order to load or unload a network to the swapper. It implements host.
func (h *llmHost) handleOrder(order networkOrder) { h.swapper.handleOrder(order) }

// bringInputs passes a task on to the host of devices, which brings its inputs to a device. It implements host.
func (h *llmHost) bringInputs(task, device int32) { h.loop.baseHost.bringInputs(task, device) }

// setDeviceUp loses an instance (up is false) or brings it back (true), when a fault of the run is due, and tells the
// policy. A lost one forgets all sequences and runs no network. One that comes back runs the network that the plan puts
// there, and the event gives that network's limits: Value is the most sequences at a time, Limit the tokens of KV
// memory. A new epoch makes earlier entries of the agenda void. It implements host.
func (h *llmHost) setDeviceUp(deviceIndex int32, up bool) {
	instance := &h.instances[deviceIndex]
	isUp := !instance.isDown
	if isUp == up {
		return // it is in that state already
	}
	instance.isDown = !up
	instance.faultEpoch++
	var kind policy.EventKind
	if up {
		kind = policy.WorkerBack
		h.runResident(deviceIndex)
	} else {
		kind = policy.WorkerLost
		h.clearInstance(deviceIndex)
	}

	// Tell the policy, with the limits of the network that runs, if there is one (-1 is none, as on a lost instance).
	ev := h.loop.beginEvent(kind)
	ev.Device = deviceIndex
	if instance.network >= 0 {
		costs := &serverOf(h.tables, deviceIndex).Costs[instance.network]
		ev.Value, ev.Limit = int64(costs.MaxSequences), int32(costs.KVTokens)
	}
	h.loop.tellPolicy()
}

// clearInstance empties the instance on a lost device. Its requests keep the tokens that were generated, which the
// clients may have; the KV memory and what the host's memory held are lost. A network of -1 is none, and swapDevice is
// the device of the host's memory plus 1.
func (h *llmHost) clearInstance(deviceIndex int32) {
	instance := &h.instances[deviceIndex]
	for slot := range h.batches.list {
		if batchSlot := int32(slot); h.batches.at(batchSlot).isLive && h.batches.hopAt(batchSlot, 0).Device == deviceIndex {
			sequence := h.sequenceOf(h.batches.members(batchSlot)[0])
			sequence.generated = max(sequence.generated, instance.simulation.GeneratedTokens(batchSlot))
		}
	}

	// The host's memory holds no KV of any sequence any more.
	for i := range h.sequences {
		if h.sequences[i].swapDevice == deviceIndex+1 {
			h.sequences[i].swapDevice = 0
		}
	}
	instance.simulation.Reset(llm.Options{}, llm.Model{})
	instance.network, instance.changingNetwork = -1, -1
	instance.unloadPending, instance.startQueued, instance.pendingLoads = false, false, instance.pendingLoads[:0]
}

// busyTime returns how long the instance on a device ran iterations in the counted time. It implements host.
func (h *llmHost) busyTime(deviceIndex int32) time.Duration { return h.instances[deviceIndex].busyTime }

// loadTime returns how long the instance on a device loaded and unloaded networks in the counted time.
func (h *llmHost) loadTime(deviceIndex int32) time.Duration { return h.instances[deviceIndex].loadTime }

// checkIdle returns an error if an instance still works or holds memory at the end of a run: then the simulator has
// lost something. It implements host.
func (h *llmHost) checkIdle() error {
	for deviceIndex := range h.instances {
		instance := &h.instances[deviceIndex]
		if sequences, _ := instance.simulation.SequenceCounts(); sequences > 0 || instance.simulation.Busy() || instance.changingNetwork >= 0 {
			return fmt.Errorf("the instance on device %d still works when nothing is left to happen", deviceIndex)
		}
		if instance.simulation.UsedKV() > 0 {
			return fmt.Errorf("the instance on device %d is empty and uses %d tokens of KV memory", deviceIndex, instance.simulation.UsedKV())
		}
	}
	return nil
}
