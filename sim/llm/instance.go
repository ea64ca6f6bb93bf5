package llm

import (
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/policy/slots"
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
	opt        Options
	m          Model
	memory     blockStore
	seqs       []sequence
	freeSlots  []int32
	byID       []int32 // slot plus one, by ID
	waiting    waitingHeap
	running    []int32 // slots of the running batch, in no order
	prefilling []int32 // slots of those that compute their prompts, in the order of admission
	checks     checkHeap
	phases     []int64 // number of decoding sequences by blockPhase

	decodingCount  int32
	decodingTokens int64 // tokens of all decoding sequences
	iteration      int64
	addedCount     int64 // sequences added so far
	admittedCount  int64
	swapDelay      time.Duration // time of swapping, added to the next iteration
	busy           bool
	work           formats.IterationWork
	firstTime      []int32 // IDs that are in an iteration for the first time
	end            IterationEnd
	counts         Counts
}

// sequence is the entry of a sequence slot.
type sequence struct {
	id, prompt, output         int32
	generated                  int32 // tokens of the answer before decodingSince
	contextNeeded, contextDone int32 // tokens of context to compute before the next token, and those computed
	chunk                      int32 // tokens of the prompt in the current iteration
	rank                       int32 // priority, or 0 if the server ignores it
	serial                     int32 // counts the uses of the slot; a check with an earlier one is void
	position                   int32 // index in running, or in the waiting heap
	state                      sequenceState
	inHostMemory               bool
	everAdmitted               bool
	addedAs, admittedAs        int64 // numbers in the order of adding and of admission
	decodingSince              int64 // iteration after which it decodes
	blocks                     int64
	session                    int64
}

// sequenceState is the state of a sequence slot.
type sequenceState uint8

const (
	stateUnused sequenceState = iota
	stateWaiting
	statePrefilling
	stateDecoding
)

// NewInstance returns an instance without sequences.
func NewInstance(o Options, m Model) *Instance {
	in := &Instance{}
	in.Reset(o, m)
	return in
}

// Reset empties an instance and makes it run a model, when a network was loaded or the instance was lost. It
// forgets all sequences and keeps the counts and the allocated memory. Limits below 1 mean none (2^31-1), and
// blocks have 16 tokens if their size is not given, as in vLLM.
func (in *Instance) Reset(o Options, m Model) {
	if o.BlockTokens < 1 {
		o.BlockTokens = 16
	}
	if o.TokenBudget < 1 {
		o.TokenBudget = 1<<31 - 1
	}
	if m.MaxSequences < 1 {
		m.MaxSequences = 1<<31 - 1
	}
	in.opt, in.m = o, m
	in.counts.PeakKV = in.Counts().PeakKV
	in.memory.init(m.KVTokens, o.BlockTokens, o.PrefixCache)
	in.seqs, in.freeSlots, in.running, in.prefilling, in.checks = in.seqs[:0], in.freeSlots[:0], in.running[:0], in.prefilling[:0], in.checks[:0]
	in.waiting.instance, in.waiting.list = in, in.waiting.list[:0]
	clear(in.byID)
	if len(in.phases) != int(o.BlockTokens) {
		in.phases = make([]int64, o.BlockTokens)
	}
	clear(in.phases)
	in.decodingCount, in.decodingTokens, in.swapDelay, in.busy = 0, 0, 0, false
}

// SequenceCounts returns the number of sequences, and how many of them wait.
func (in *Instance) SequenceCounts() (total, waiting int) {
	return len(in.running) + len(in.waiting.list), len(in.waiting.list)
}

// Busy reports whether an iteration is under way.
func (in *Instance) Busy() bool { return in.busy }

// UsedKV returns how many tokens of KV memory are in use.
func (in *Instance) UsedKV() int64 { return in.memory.usedBlocks * int64(in.opt.BlockTokens) }

// Counts returns what the instance did so far.
func (in *Instance) Counts() Counts {
	c := in.counts
	c.PeakKV = max(c.PeakKV, in.memory.maxUsed*int64(in.opt.BlockTokens))
	return c
}

// Add adds a sequence (a prompt and its answer) to those that wait for the batch. It returns an error if it has no
// token to make, or the KV memory could not hold it to its end even alone.
func (in *Instance) Add(s Sequence) error {
	if s.Prompt < 1 || s.Output <= s.Generated || s.Generated < 0 {
		return fmt.Errorf("a sequence with a prompt of %d tokens, %d of an answer of %d made: expected at least 1 token, and some to make", s.Prompt, s.Generated, s.Output)
	}
	if in.memory.blocksFor(s.Prompt+s.Output) > in.memory.total {
		return fmt.Errorf("a sequence of %d tokens does not fit the KV memory of %d", s.Prompt+s.Output, in.memory.total*int64(in.opt.BlockTokens))
	}
	slot := slots.Take(&in.seqs, &in.freeSlots)
	q := &in.seqs[slot]
	in.addedCount++
	*q = sequence{id: s.ID, prompt: s.Prompt, output: s.Output, generated: s.Generated, contextNeeded: s.Prompt + s.Generated, serial: q.serial + 1, state: stateWaiting, addedAs: in.addedCount, session: s.Session, inHostMemory: s.InHostMemory}
	if in.opt.ByPriority {
		q.rank = s.Priority
	}
	for int(s.ID) >= len(in.byID) {
		in.byID = append(in.byID, 0)
	}
	in.byID[s.ID] = slot + 1
	in.waiting.push(slot)
	return nil
}

// generatedBy returns how many tokens of its answer a sequence has. A decoding sequence gets one in each iteration,
// so they are not counted one by one.
func (in *Instance) generatedBy(q *sequence) int32 {
	if q.state == stateDecoding {
		return q.generated + int32(in.iteration-q.decodingSince)
	}
	return q.generated
}

// GeneratedTokens returns how many tokens of its answer a sequence has, or 0 if it is not here.
func (in *Instance) GeneratedTokens(id int32) int32 {
	if slot, ok := in.slot(id); ok {
		return in.generatedBy(&in.seqs[slot])
	}
	return 0
}

// slot returns the slot of an ID, and whether it has one.
func (in *Instance) slot(id int32) (int32, bool) {
	if int(id) >= len(in.byID) || in.byID[id] == 0 {
		return 0, false
	}
	return in.byID[id] - 1, true
}

// Remove removes a sequence in any state and returns how many tokens of its answer it has. With
// toHost its KV goes to the host's memory, which is possible once its prompt is computed;
// swapped says whether it did.
func (in *Instance) Remove(id int32, toHost bool) (generated int32, swapped bool) {
	slot, ok := in.slot(id)
	if !ok {
		return 0, false
	}
	q := &in.seqs[slot]
	generated = in.generatedBy(q)
	swapped = toHost && (q.state == stateDecoding || q.state == stateWaiting && q.inHostMemory)
	in.removeSlot(slot, toHost)
	return generated, swapped
}

// removeSlot removes a sequence for good, because it has ended, was aborted or evicted, and frees its slot. With
// toHost its KV state goes to the host's memory.
func (in *Instance) removeSlot(slot int32, toHost bool) {
	q := &in.seqs[slot]
	if q.state == stateWaiting {
		in.waiting.remove(int(q.position))
	} else {
		in.leaveBatch(slot, toHost)
	}
	in.byID[q.id] = 0
	q.state = stateUnused
	in.freeSlots = append(in.freeSlots, slot)
}

// leaveBatch removes a running sequence from the batch and frees its blocks. With toHost its KV goes to the host's
// memory. It is called when a sequence ends, is preempted or is removed.
func (in *Instance) leaveBatch(slot int32, toHost bool) {
	q := &in.seqs[slot]
	tokens := q.contextDone

	// A decoding sequence leaves the sums of all decoding sequences, and owns the blocks that growKV took for it.
	if q.state == stateDecoding {
		newTokens := in.iteration - q.decodingSince
		tokens = q.contextNeeded + int32(newTokens)
		in.decodingCount--
		in.decodingTokens -= int64(tokens)
		phase := in.blockPhase(q)
		in.phases[phase]--
		if !in.opt.ReserveAnswer {
			q.blocks += iterationsOfPhase(q.decodingSince, in.nextUngrown(), phase, int64(in.opt.BlockTokens)) // what grow took for it
		}
		q.generated = in.generatedBy(q)
		if toHost {
			q.inHostMemory = true
			in.swapTokens(tokens, in.opt.HiddenShare)
		}
	} else {
		for i, s := range in.prefilling {
			if s == slot {
				in.prefilling = append(in.prefilling[:i], in.prefilling[i+1:]...)
				break
			}
		}
	}

	// Free the blocks, and fill its place in the batch with the last sequence.
	in.memory.returnBlocks(q.blocks, q.session, tokens)
	q.blocks, q.contextDone, q.chunk, q.contextNeeded = 0, 0, 0, q.prompt+q.generated
	q.serial++
	lastIndex := len(in.running) - 1
	lastSlot := in.running[lastIndex]
	in.running[q.position] = lastSlot
	in.seqs[lastSlot].position = q.position
	in.running = in.running[:lastIndex]
}
