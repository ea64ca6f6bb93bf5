package llm

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/policy/slots"
	"inferplan/sim/kernel"
)

// Model holds the figures of the model that an instance runs.
type Model struct {
	Iteration    formats.Iteration // coefficients of an iteration's time
	KVTokens     int64             // size of the KV memory, in tokens
	MaxSequences int32             // most sequences at once
	TokenBytes   int64             // bytes of a token; if 0, they are unknown, and swapping takes no time
}

// Options are the settings of a server.
type Options struct {
	TokenBudget        int32   // most tokens of an iteration; 0 for no limit
	BlockTokens        int32   // tokens of a KV block; 0 stands for 16
	ByPriority         bool    // the most urgent sequence goes first and the least urgent leaves first; else first come, first served
	ReserveAnswer      bool    // admit a sequence only with memory for its whole answer, so that none has to leave
	SwapOut            bool    // a sequence that leaves has its KV in the host's memory; else its KV is computed anew
	SwapBytesPerSecond float64 // rate to and from the host's memory; 0 if swapping takes no time
	HiddenShare        float64 // share of the time of swapping out that iterations hide
	PrefixCache        bool    // free blocks are a cache of prefixes
	ProgressTokens     int32   // tokens between two progress reports of a sequence; 0 for none
}

// Sequence is a request for an instance.
type Sequence struct {
	ID           int32 // number that the caller chose
	Prompt       int32 // tokens
	Output       int32 // tokens of the whole answer
	Generated    int32 // tokens of the answer that exist already
	Priority     int32 // the lower goes first
	Session      int64 // whose cached prefixes it uses; 0 for none
	InHostMemory bool  // its KV is in this host's memory
}

// IterationEnd lists what happened in an iteration. The lists hold IDs and are valid until the
// next call.
type IterationEnd struct {
	First    []int32 // had their first token, which may also be the last
	Progress []int32 // reached a progress report
	Finished []int32
}

// Counts counts what an instance did so far.
type Counts struct {
	Iterations     int64
	Preempted      int64 // sequences that left for lack of blocks
	ComputedPrompt int64 // tokens of prompts that were computed, including those computed anew
	CachedPrompt   int64 // tokens of prompts that were in the prefix cache
	Output         int64 // tokens that were generated
	SwappedBytes   int64 // to and from the host's memory
	PeakKV         int64 // most tokens of KV memory in use
	// KVUseTime is the sum over the iterations of their time multiplied by the share of KV memory in use.
	KVUseTime time.Duration
}

// Instance is a server that runs one model. It must be used by one goroutine at a time.
type Instance struct {
	options     Options
	model       Model
	memory      blockStore
	sequences   []sequence // by slot, a number that is used again
	freeSlots   []int32
	byID        []int32             // slot plus one, by ID
	waiting     kernel.Queue[int32] // slots of waiting sequences, by priority, then in the order of adding
	running     []int32             // slots of the running batch, in no order
	prefilling  []int32             // slots of those that compute their prompts, in the order of admission
	checks      kernel.Queue[check] // by iteration, then by slot, so that runs are reproducible
	phaseCounts []int64             // number of decoding sequences by blockPhase

	decodingCount  int32
	decodingTokens int64 // tokens of all decoding sequences
	iteration      int64
	addedCount     int64 // sequences added so far
	admittedCount  int64
	swapDelay      time.Duration // time of swapping, added to the next iteration
	busy           bool
	work           formats.IterationWork
	firstTime      []int32      // IDs that are in an iteration for the first time
	lastEnd        IterationEnd // result of End
	counts         Counts
}

// sequence holds the state of the sequence (a prompt and its answer) in a slot.
type sequence struct {
	id, prompt, output          int32
	generated                   int32 // tokens of the answer before decodingSince
	contextNeeded, contextDone  int32 // tokens of context to compute before the next token, and those computed
	chunk                       int32 // tokens of the prompt in the current iteration
	priority                    int32 // the lower goes first; 0 if the server ignores priorities
	serial                      int32 // counts the uses of the slot; a check with an earlier one is void
	position                    int32 // index in running
	waitingHandle               kernel.Handle
	state                       sequenceState
	inHostMemory                bool
	everAdmitted                bool
	addedNumber, admittedNumber int64 // numbers in the order of adding and of admission
	decodingSince               int64 // iteration after which it decodes
	blocks                      int64
	session                     int64
}

// check names a decoding sequence (in a slot) to look at. It is void if the sequence has another serial number by then.
type check struct{ slot, serial int32 }

// sequenceState is the state of a sequence slot.
type sequenceState uint8

const (
	stateUnused sequenceState = iota
	stateWaiting
	statePrefilling
	stateDecoding
)

// NewInstance returns an instance (a server) that runs a model and has no sequences.
func NewInstance(options Options, model Model) *Instance {
	instance := &Instance{}
	instance.Reset(options, model)
	return instance
}

// Reset empties an instance and makes it run a model, when a network was loaded or the instance was lost. It forgets
// all sequences and keeps the counts and the allocated memory. Limits below 1 mean none (2^31-1), and blocks have 16
// tokens if their size is not given, as in vLLM. phaseCounts, the number of decoding sequences by phase (blockPhase),
// has an element for each token of a block.
func (instance *Instance) Reset(options Options, model Model) {
	if options.BlockTokens < 1 {
		options.BlockTokens = 16
	}
	if options.TokenBudget < 1 {
		options.TokenBudget = 1<<31 - 1
	}
	if model.MaxSequences < 1 {
		model.MaxSequences = 1<<31 - 1
	}

	// Empty the KV memory. It has the peak of its own use in blocks, with which Counts raises the peak so far; keep that
	// before the memory and the size of its blocks are lost.
	instance.counts.PeakKV = instance.Counts().PeakKV
	instance.options, instance.model = options, model
	instance.memory.init(model.KVTokens, options.BlockTokens, options.PrefixCache)

	// Forget all sequences, and keep the memory of the lists.
	instance.sequences, instance.freeSlots = instance.sequences[:0], instance.freeSlots[:0]
	instance.running, instance.prefilling = instance.running[:0], instance.prefilling[:0]
	instance.waiting.Clear()
	instance.checks.Clear()
	clear(instance.byID)
	if len(instance.phaseCounts) != int(options.BlockTokens) {
		instance.phaseCounts = make([]int64, options.BlockTokens)
	}
	clear(instance.phaseCounts)
	instance.decodingCount, instance.decodingTokens, instance.swapDelay, instance.busy = 0, 0, 0, false
}

// SequenceCounts returns how many sequences the instance has, and how many of them wait to be admitted.
func (instance *Instance) SequenceCounts() (total, waiting int) {
	return len(instance.running) + instance.waiting.Len(), instance.waiting.Len()
}

// Busy reports whether an iteration is under way: Begin was called, and End was not yet.
func (instance *Instance) Busy() bool { return instance.busy }

// UsedKV returns how many tokens of KV memory are in use, in whole blocks.
func (instance *Instance) UsedKV() int64 {
	return instance.memory.usedBlocks * int64(instance.options.BlockTokens)
}

// Counts returns what the instance did since it was made.
func (instance *Instance) Counts() Counts {
	counts := instance.counts
	counts.PeakKV = max(counts.PeakKV, instance.memory.maxUsedBlocks*int64(instance.options.BlockTokens))
	return counts
}

// Add adds a sequence (a prompt and its answer) to those that wait for the batch. It joins the batch in a later
// iteration, when it is admitted. Add returns an error if the sequence has no prompt, if all tokens of its answer exist
// already, or if the KV memory could not hold it to its end even alone.
func (instance *Instance) Add(request Sequence) error {
	if request.Prompt < 1 || request.Output <= request.Generated || request.Generated < 0 {
		return fmt.Errorf("a sequence with a prompt of %d tokens, %d of an answer of %d made: expected at least 1 token, and some to make", request.Prompt, request.Generated, request.Output)
	}
	if instance.memory.blocksFor(request.Prompt+request.Output) > instance.memory.totalBlocks {
		return fmt.Errorf("a sequence of %d tokens does not fit the KV memory of %d", request.Prompt+request.Output, instance.memory.totalBlocks*int64(instance.options.BlockTokens))
	}

	// Enter the sequence into a slot.
	slot := slots.Take(&instance.sequences, &instance.freeSlots)
	entry := &instance.sequences[slot]
	instance.addedCount++
	*entry = sequence{id: request.ID, prompt: request.Prompt, output: request.Output, generated: request.Generated, contextNeeded: request.Prompt + request.Generated, serial: entry.serial + 1, addedNumber: instance.addedCount, session: request.Session, inHostMemory: request.InHostMemory}
	if instance.options.ByPriority {
		entry.priority = request.Priority
	}

	// Enter the slot into the index by ID, plus 1, so that 0 means none. Then the sequence waits.
	for int(request.ID) >= len(instance.byID) {
		instance.byID = append(instance.byID, 0)
	}
	instance.byID[request.ID] = slot + 1
	instance.addWaiting(slot)
	return nil
}

// addWaiting makes the sequence in a slot wait for its admission.
func (instance *Instance) addWaiting(slot int32) {
	const onlyKind = 0
	sequence := &instance.sequences[slot]
	sequence.state = stateWaiting
	sequence.waitingHandle = instance.waiting.Push(time.Duration(sequence.priority), onlyKind, sequence.addedNumber, slot)
}

// generatedBy returns how many tokens of its answer a sequence has. A decoding sequence gets one in each iteration,
// so they are not counted one by one.
func (instance *Instance) generatedBy(sequence *sequence) int32 {
	if sequence.state == stateDecoding {
		return sequence.generated + int32(instance.iteration-sequence.decodingSince)
	}
	return sequence.generated
}

// GeneratedTokens returns how many tokens of its answer the sequence with an ID has, or 0 if it is not here.
func (instance *Instance) GeneratedTokens(id int32) int32 {
	if slot, ok := instance.slot(id); ok {
		return instance.generatedBy(&instance.sequences[slot])
	}
	return 0
}

// slot returns the slot of the sequence with an ID, and whether the instance has it.
func (instance *Instance) slot(id int32) (int32, bool) {
	if int(id) >= len(instance.byID) || instance.byID[id] == 0 {
		return 0, false
	}
	return instance.byID[id] - 1, true
}

// Remove removes the sequence with an ID in any state and returns how many tokens of its answer it has. With toHost
// its KV goes to the host's memory, which is possible once its prompt is computed; swapped says whether it did.
func (instance *Instance) Remove(id int32, toHost bool) (generated int32, swapped bool) {
	slot, ok := instance.slot(id)
	if !ok {
		return 0, false
	}
	sequence := &instance.sequences[slot]
	generated = instance.generatedBy(sequence)
	swapped = toHost && (sequence.state == stateDecoding || sequence.state == stateWaiting && sequence.inHostMemory)
	instance.removeSlot(slot, toHost)
	return generated, swapped
}

// removeSlot removes a sequence for good, because it has ended, was aborted or evicted, and frees its slot. With
// toHost its KV state goes to the host's memory.
func (instance *Instance) removeSlot(slot int32, toHost bool) {
	sequence := &instance.sequences[slot]
	if sequence.state == stateWaiting {
		instance.waiting.Remove(sequence.waitingHandle)
	} else {
		instance.leaveBatch(slot, toHost)
	}
	instance.byID[sequence.id] = 0
	sequence.state = stateUnused
	instance.freeSlots = append(instance.freeSlots, slot)
}

// leaveBatch removes a running sequence from the batch and frees its blocks, when it ends, is preempted or is removed.
// With toHost the KV of a decoding sequence goes to the host's memory, which delays the next iteration by the time that
// iterations do not hide (HiddenShare). The sequence keeps the tokens that it has generated; contextNeeded becomes the
// prompt and these, which it must have computed to go on. Its new serial number makes the checks void that were
// scheduled for it. Its place in the batch goes to the last sequence.
func (instance *Instance) leaveBatch(slot int32, toHost bool) {
	sequence := &instance.sequences[slot]
	contextTokens := sequence.contextDone // tokens that have KV
	if sequence.state == stateDecoding {
		contextTokens = instance.leaveDecoding(sequence)
		if toHost {
			sequence.inHostMemory = true
			instance.swapTokens(contextTokens, instance.options.HiddenShare)
		}
	} else { // it prefills (computes its prompt)
		index := slices.Index(instance.prefilling, slot)
		instance.prefilling = slices.Delete(instance.prefilling, index, index+1)
	}

	// Free the blocks, and reset what the sequence has computed.
	instance.memory.returnBlocks(sequence.blocks, sequence.session, contextTokens)
	sequence.blocks, sequence.contextDone, sequence.chunk = 0, 0, 0
	sequence.contextNeeded = sequence.prompt + sequence.generated
	sequence.serial++

	// Fill its place in the batch with the last sequence.
	lastIndex := len(instance.running) - 1
	lastSlot := instance.running[lastIndex]
	instance.running[sequence.position] = lastSlot
	instance.sequences[lastSlot].position = sequence.position
	instance.running = instance.running[:lastIndex]
}

// leaveDecoding takes a sequence out of the sums of all decoding sequences (their number, their tokens of KV, and their
// number by phase), and returns how many tokens of KV the sequence has. It also sets the sequence's generated tokens and
// its blocks, which are not counted while it decodes.
func (instance *Instance) leaveDecoding(sequence *sequence) (contextTokens int32) {
	// It began with contextNeeded tokens of KV, and each iteration since then has added one.
	newTokens := instance.iteration - sequence.decodingSince
	contextTokens = sequence.contextNeeded + int32(newTokens)
	sequence.generated = instance.generatedBy(sequence)
	instance.decodingCount--
	instance.decodingTokens -= int64(contextTokens)
	phase := instance.blockPhase(sequence)
	instance.phaseCounts[phase]--

	// Its count of blocks is still that of its start, because takeGrowthBlocks took the blocks for all sequences of a phase
	// together, without a look at each of them: it got one block in each iteration of its phase. If memory for the whole
	// answer was reserved, it had all blocks from the start.
	if !instance.options.ReserveAnswer {
		sequence.blocks += iterationsOfPhase(sequence.decodingSince, instance.nextUngrown(), phase, int64(instance.options.BlockTokens))
	}
	return contextTokens
}
