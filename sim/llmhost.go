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
	isIterationEnd     uint8 = firstHostKind + iota // an iteration ends
	isIterationStart                                // the next iteration begins, after everything else of this instant
	isSequenceAdmitted                              // a sequence took part in its first iteration
	isSequenceReturned                              // a batch returns to the policy without a result
	isNetworkChange                                 // a load or an unload of a network ends
)

// llmHost is the host of instances of language models. Package llm runs their
// iterations. This type dispatches and evicts sequences; its swapper loads and unloads
// networks.
type llmHost struct {
	loop           *loop
	agenda         *agenda
	batches        *batchTable
	tables         *policy.Tables
	instances      []llmInstance // by device
	swapper        networkSwapper
	tokenEnding    *tokenEnding    // nil if the run has another ending
	sequences      []sequenceState // by task
	evictions      int64           // so far
	returnedTokens [1]int32        // tokens of the task that BatchReturned is about
}

// llmInstance is an instance with the network that it runs.
type llmInstance struct {
	instance        llm.Instance
	network         int32 // the network that it runs, or -1
	previousNetwork int32 // the network that it ran before, or -1
	isDown          bool
	startQueued     bool           // an iteration is scheduled in this instant
	unloadPending   bool           // its network is unloaded as soon as its sequences have ended
	changingNetwork int32          // network that is being loaded or unloaded, or -1
	changeStart     time.Duration  // when the load or unload began
	epoch           int32          // counts the faults; an agenda entry of an earlier epoch is void
	pendingLoads    []networkOrder // loads that have not begun
	warmNetworks    warmSet

	// Both in the counted time.
	busyTime, loadTime time.Duration
}

// sequenceState holds what the host knows of a task beside its batch.
type sequenceState struct {
	// In tokens: the prompt, the answer, and what was generated so far.
	prompt, output, generated int32
	session                   int64
	firstIterationAt          time.Duration // when its first iteration began, below 0 before that
	swapDevice                int32         // device whose host memory holds its KV, plus one; 0 if none does
}

// newLLMHost returns a host that simulates the instances (servers of language models) of the tables, each with its
// resident network.
func newLLMHost(l *loop) host {
	instances := make([]llmInstance, len(l.tables.Devices))
	h := &llmHost{loop: l, agenda: &l.agenda, batches: &l.batches, tables: l.tables, instances: instances}
	h.swapper = networkSwapper{loop: l, agenda: &l.agenda, tables: l.tables, instances: instances}
	for d := range instances {
		if l.tables.InstanceOf(int32(d)) >= 0 {
			h.runResident(int32(d))
		}
	}
	return h
}

// hasLLMInstances reports whether the tables have instances with the costs of a server.
func hasLLMInstances(t *policy.Tables) bool {
	return slices.ContainsFunc(t.Instances, func(in policy.Instance) bool { return in.Server != nil })
}

// runResident sets an instance to its state at the start of the plan: it runs the network that the plan puts on its
// device, and the host's memory is empty.
func (h *llmHost) runResident(d int32) {
	s := &h.instances[d]
	s.network, s.previousNetwork, s.changingNetwork, s.unloadPending = -1, -1, -1, false
	s.pendingLoads, s.warmNetworks = s.pendingLoads[:0], s.warmNetworks[:0]
	if int(d) < len(h.tables.Resident) && len(h.tables.Resident[d]) > 0 {
		s.runNetwork(h.tables, d, h.tables.Resident[d][0], h.loop.cfg.Slowdown)
	}
}

// serverOf returns the server that the tables have for the instance on a device.
func serverOf(t *policy.Tables, device int32) *policy.Server {
	return t.Instances[t.InstanceOf(device)].Server
}

// runNetwork makes an instance run a network. Its iterations take longer than profiled by
// the share slowdown.
func (s *llmInstance) runNetwork(t *policy.Tables, d, network int32, slowdown float64) {
	in := &t.Instances[t.InstanceOf(d)]
	v := in.Server
	c := &v.Costs[network]
	s.network = network
	s.instance.Reset(llm.Options{
		TokenBudget: in.TokenBudget, BlockTokens: v.BlockTokens, ByPriority: v.ByPriority, ReserveAnswer: v.ReserveAnswer, SwapOut: v.SwapKV,
		SwapBytesPerSecond: v.SwapGBps * 1e9, HiddenShare: v.HiddenSwapShare, PrefixCache: v.PrefixCache, ProgressTokens: in.ProgressTokens,
	}, llm.Model{Iteration: c.Iteration.SlowedDown(slowdown), KVTokens: c.KVTokens, MaxSequences: c.MaxSequences, TokenBytes: c.KVTokenBytes})
	s.warmNetworks.markUsed(network, t.Networks, v.WarmBytes)
}

// dispatch hands a batch, which is one sequence of tokens, to its instance (a simulated server of language models).
// If the network is not loaded or the KV memory could never hold the sequence, the batch returns to the policy. It
// implements host.
func (h *llmHost) dispatch(slot int32) {
	d := h.batches.hopAt(slot, 0).Device
	s := &h.instances[d]
	if s.isDown {
		return
	}
	b := h.batches.at(slot)
	if b.model >= 0 {
		h.loop.ledger.acc.Batch(b.model, int(b.size), h.agenda.now)
	}

	// The sequence needs the network, and a prompt and an answer of at least one token.
	if s.network < 0 || s.network != h.tables.Pipelines[b.pipeline].Network {
		h.returnBatch(slot, d, policy.ReturnNotLoaded)
		return
	}
	task := h.batches.members(slot)[0]
	sequence := h.sequenceOf(task)
	if sequence.prompt < 1 || sequence.output < 1 {
		h.loop.failRun(&document.Error{
			Path: "prompt_tokens", Found: fmt.Sprintf("a request for %s with a prompt of %d tokens and an answer of %d", h.tables.Models[h.loop.ledger.requests[h.loop.ledger.tasks.List[task].Req].model].Key(), sequence.prompt, sequence.output),
			Expected: "at least one token each", Hint: "a trace needs the columns prompt_tokens and output_tokens",
		})
		return
	}

	// Hand the sequence to the instance, which starts after everything else of this instant.
	seq := llm.Sequence{ID: slot, Prompt: sequence.prompt, Output: sequence.output, Generated: sequence.generated, Priority: b.tag, Session: sequence.session, InHostMemory: sequence.swapDevice == d+1}
	sequence.swapDevice = 0
	if err := s.instance.Add(seq); err != nil {
		h.returnBatch(slot, d, policy.ReturnRefused)
		return
	}
	if !s.instance.Busy() && !s.startQueued {
		s.startQueued = true
		h.agenda.scheduleAfter(0, policy.NumEvents, agendaEntry{kind: isIterationStart, host: 1, device: d, epoch: s.epoch})
	}
}

// sequenceOf returns the state of a task. The first dispatch of the task begins it. Its lengths come from the truth
// of the run, that is, what requests really ask for.
func (h *llmHost) sequenceOf(task int32) *sequenceState {
	for int(task) >= len(h.sequences) {
		h.sequences = append(h.sequences, sequenceState{})
	}
	sequence := &h.sequences[task]
	if t := &h.loop.ledger.locations[task]; !t.seenByInstance {
		t.seenByInstance = true
		*sequence = sequenceState{output: h.loop.truth.Tokens(task), firstIterationAt: -1}
		if p, ok := h.loop.truth.(Prompter); ok {
			sequence.prompt, sequence.session = p.Prompt(task)
		}
	}
	return sequence
}

// returnBatch ends a batch without a result, later in this instant.
func (h *llmHost) returnBatch(slot, d int32, reason policy.ReturnReason) {
	b := h.batches.at(slot)
	h.agenda.schedule(h.agenda.now, policy.BatchReturned, b.serial, agendaEntry{kind: isSequenceReturned, host: 1, serial: b.serial, batch: slot, device: d, arg: int32(reason)})
}

// startIteration starts the next iteration of an instance (one token for each running sequence, or a part of a
// prompt). Newly admitted sequences count as started. If no sequence is left, a change of network that waited for
// that goes on.
func (h *llmHost) startIteration(d int32) {
	s := &h.instances[d]
	duration, admittedSlots, ok := s.instance.Begin()
	if !ok {
		h.swapper.continuePending(d)
		return
	}
	s.busyTime += h.loop.cfg.countedSpan().overlap(timeSpan{h.agenda.now, h.agenda.now + duration})
	for _, slot := range admittedSlots {
		if f := h.sequenceOf(h.batches.members(slot)[0]); f.firstIterationAt < 0 {
			f.firstIterationAt = h.agenda.now
		}
		h.agenda.startedBatches.push(agendaEntry{kind: isSequenceAdmitted, host: 1, serial: h.batches.at(slot).serial, batch: slot, device: d, start: h.agenda.now})
	}
	h.agenda.scheduleAfter(duration, policy.TokenProgress, agendaEntry{kind: isIterationEnd, host: 1, device: d, epoch: s.epoch})
}

// handleEntry handles an agenda entry of an instance: its iterations, changes of network, and news for the policy.
// Entries from before a loss of the instance (another epoch) or of aborted batches are void. It implements host.
func (h *llmHost) handleEntry(entry *agendaEntry) {
	switch entry.kind {
	case isIterationEnd:
		if h.instances[entry.device].epoch == entry.epoch {
			h.endIteration(entry.device)
		}
	case isIterationStart:
		if s := &h.instances[entry.device]; s.epoch == entry.epoch {
			if s.startQueued = false; !s.instance.Busy() {
				h.startIteration(entry.device)
			}
		}
	case isNetworkChange:
		if h.instances[entry.device].epoch == entry.epoch {
			h.swapper.finishChange(entry)
		}
	case isSequenceAdmitted, isSequenceReturned:
		// The policy may have aborted the batch meanwhile.
		b := h.batches.at(entry.batch)
		if !b.live || b.serial != entry.serial {
			return
		}
		if entry.kind == isSequenceAdmitted {
			h.loop.beginBatchEvent(policy.BatchStarted, entry.batch, entry.device).Start = entry.start
			h.loop.tellPolicy()
			return
		}
		h.returnedTokens[0] = h.sequenceOf(h.batches.members(entry.batch)[0]).generated
		h.loop.returnBatchToPolicy(entry.batch, entry.device, policy.ReturnReason(entry.arg), h.returnedTokens[:])
	}
}

// endIteration ends an iteration of an instance: it starts the next one, answers finished requests, and tells the
// policy of these and of the progress of the others. The next one starts first because a server does not wait for
// the policy.
func (h *llmHost) endIteration(d int32) {
	s := &h.instances[d]
	ended := s.instance.End()

	// Note the first tokens, and go on.
	for _, slot := range ended.First {
		if h.tokenEnding != nil {
			h.tokenEnding.firstToken(h.batches.members(slot)[0])
		}
	}
	h.startIteration(d)

	// Answer the requests whose sequences are finished.
	for _, slot := range ended.Finished {
		b, task := h.batches.at(slot), h.batches.members(slot)[0]
		f := h.sequenceOf(task)
		f.generated = f.output
		if h.tokenEnding != nil {
			h.tokenEnding.judgeAnswer(task, f.generated)
		}
		b.live = false
		h.loop.ending.batchRan(slot, d)
		ev := h.loop.beginBatchEvent(policy.BatchFinished, slot, d)
		ev.End, ev.Tokens = h.agenda.now, f.generated
		h.loop.tellPolicy()
	}

	// Report the progress of the others.
	for _, list := range [2][]int32{ended.First, ended.Progress} {
		for _, slot := range list {
			if h.batches.at(slot).live && s.instance.GeneratedTokens(slot) > 0 {
				h.loop.beginBatchEvent(policy.TokenProgress, slot, d).Tokens = s.instance.GeneratedTokens(slot)
				h.loop.tellPolicy()
			}
		}
	}
}

// abort implements host. The request keeps the tokens that were generated; their KV is lost.
func (h *llmHost) abort(slot int32) { h.removeSequence(slot, false) }

// removeSequence takes a sequence off its instance. With keepKV its KV goes to the host's
// memory, if that is possible.
func (h *llmHost) removeSequence(slot int32, keepKV bool) {
	d := h.batches.hopAt(slot, 0).Device
	s := &h.instances[d]
	f := h.sequenceOf(h.batches.members(slot)[0])
	generated, swapped := s.instance.Remove(slot, keepKV)
	f.generated = max(f.generated, generated)
	if swapped {
		f.swapDevice = d + 1
	}
	if sequences, _ := s.instance.SequenceCounts(); sequences == 0 && !s.instance.Busy() {
		h.swapper.continuePending(d)
	}
}

// evict implements host.
func (h *llmHost) evict(slot int32, keepKV bool) {
	h.removeSequence(slot, keepKV)
	h.evictions++
	h.returnBatch(slot, h.batches.hopAt(slot, 0).Device, policy.ReturnEvicted)
}

// handleOrder implements host.
func (h *llmHost) handleOrder(o networkOrder) { h.swapper.handleOrder(o) }

// bringInputs implements host.
func (h *llmHost) bringInputs(task, device int32) { h.loop.baseHost.bringInputs(task, device) }

// setDeviceUp loses an instance or brings it back, when a fault of the run is due. A lost one forgets all
// sequences; one that comes back runs its resident network, whose limits the policy hears. A new epoch makes
// earlier entries void. It implements host.
func (h *llmHost) setDeviceUp(d int32, up bool) {
	s := &h.instances[d]
	if s.isDown != up {
		return
	}
	s.isDown = !up
	s.epoch++
	kind := policy.WorkerBack
	if !up {
		kind = policy.WorkerLost
		h.clearInstance(d)
	} else {
		h.runResident(d)
	}
	ev := h.loop.beginEvent(kind)
	ev.Device = d
	if s.network >= 0 {
		c := &serverOf(h.tables, d).Costs[s.network]
		ev.Value, ev.Limit = int64(c.MaxSequences), int32(c.KVTokens)
	}
	h.loop.tellPolicy()
}

// clearInstance empties a lost instance. Its requests keep the tokens that were generated, which the clients may
// have; the KV memory and what the host's memory held are lost.
func (h *llmHost) clearInstance(d int32) {
	s := &h.instances[d]
	for slot := range h.batches.list {
		if b := int32(slot); h.batches.at(b).live && h.batches.hopAt(b, 0).Device == d {
			f := h.sequenceOf(h.batches.members(b)[0])
			f.generated = max(f.generated, s.instance.GeneratedTokens(b))
		}
	}
	for i := range h.sequences {
		if h.sequences[i].swapDevice == d+1 {
			h.sequences[i].swapDevice = 0
		}
	}
	s.instance.Reset(llm.Options{}, llm.Model{})
	s.network, s.changingNetwork, s.unloadPending, s.startQueued, s.pendingLoads = -1, -1, false, false, s.pendingLoads[:0]
}

// busyTime implements host.
func (h *llmHost) busyTime(d int32) time.Duration { return h.instances[d].busyTime }

// loadTime returns how long networks were loaded and unloaded in the counted time.
func (h *llmHost) loadTime(d int32) time.Duration { return h.instances[d].loadTime }

// checkIdle returns an error if an instance still works or holds memory at the end of a run: then the simulator has
// lost something. It implements host.
func (h *llmHost) checkIdle() error {
	for d := range h.instances {
		s := &h.instances[d]
		if sequences, _ := s.instance.SequenceCounts(); sequences > 0 || s.instance.Busy() || s.changingNetwork >= 0 {
			return fmt.Errorf("the instance on device %d still works when nothing is left to happen", d)
		}
		if s.instance.UsedKV() > 0 {
			return fmt.Errorf("the instance on device %d is empty and uses %d tokens of KV memory", d, s.instance.UsedKV())
		}
	}
	return nil
}
