package llm

import (
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/policy/slots"
)

// Model holds the figures of the model that an instance runs.
type Model struct {
	Iteration formats.Iteration // coefficients of an iteration's time
	KV        int64             // size of the KV memory, in tokens
	Sequences int32             // most sequences at once
	KVBytes   int64             // bytes of a token; if 0, they are unknown, and swapping takes no time
}

// Options are the settings of a server.
type Options struct {
	Budget   int32   // most tokens of an iteration; 0 for no limit
	Block    int32   // tokens of a KV block; 0 stands for 16
	Priority bool    // the most urgent sequence goes first and the least urgent leaves first; else first come, first served
	Reserve  bool    // admit a sequence only with memory for its whole answer, so that none has to leave
	Swap     bool    // a sequence that leaves has its KV in the host's memory; else its KV is computed anew
	SwapRate float64 // rate to and from the host's memory; 0 if swapping takes no time
	Hidden   float64 // share of the time of swapping out that iterations hide
	Prefix   bool    // free blocks are a cache of prefixes
	Progress int32   // tokens between two progress reports of a sequence; 0 for none
}

// Sequence is a request for an instance.
type Sequence struct {
	ID       int32 // number that the caller chose
	Prompt   int32 // tokens
	Output   int32 // tokens of the whole answer
	Made     int32 // tokens of the answer that exist already
	Priority int32 // the lower goes first
	Session  int64 // whose cached prefixes it uses; 0 for none
	Swapped  bool  // its KV is in this host's memory
}

// IterationEnd lists what happened in an iteration. The lists hold IDs and are valid until the
// next call.
type Ended struct {
	First    []int32 // had their first token, which may also be the last
	Progress []int32 // reached a progress report
	Finished []int32
}

// Counts counts what an instance did so far.
type Counts struct {
	Iterations int64
	Preempted  int64 // sequences that left for lack of blocks
	Prompt     int64 // tokens of prompts that were computed, including those computed anew
	Cached     int64 // tokens of prompts that were in the prefix cache
	Output     int64 // tokens that were generated
	Swapped    int64 // to and from the host's memory
	PeakKV     int64 // most tokens of KV memory in use
	// KVUseTime is the sum over the iterations of their time multiplied by the share of KV memory in use.
	HeldKV time.Duration
}

// Instance is a server that runs one model. It must be used by one goroutine at a time.
type Instance struct {
	opt    Options
	m      Model
	mem    blocks
	seqs   []seq
	free   []int32
	byID   []int32 // slot plus one, by ID
	wait   waitHeap
	run    []int32 // slots of the running batch, in no order
	fill   []int32 // slots of those that compute their prompts, in the order of admission
	marks  markHeap
	phases []int64 // number of decoding sequences by blockPhase

	decoding  int32
	context   int64 // tokens of all decoding sequences
	iteration int64
	came      int64 // sequences added so far
	admitted  int64
	owed      time.Duration // time of swapping, added to the next iteration
	busy      bool
	work      formats.IterationWork
	began     []int32 // IDs that are in an iteration for the first time
	ended     Ended
	counts    Counts
}

// sequence is the entry of a sequence slot.
type seq struct {
	id, prompt, output int32
	made               int32 // tokens of the answer before decodingSince
	need, done         int32 // tokens of context to compute before the next token, and those computed
	chunk              int32 // tokens of the prompt in the current iteration
	rank               int32 // priority, or 0 if the server ignores it
	serial             int32 // counts the uses of the slot; a check with an earlier one is void
	at                 int32 // index in running, or in the waiting heap
	state              state
	swapped            bool
	began              bool
	order, admitted    int64 // numbers in the order of adding and of admission
	since              int64 // iteration after which it decodes
	blocks             int64
	session            int64
}

// sequenceState is the state of a sequence slot.
type state uint8

const (
	unused state = iota
	waiting
	filling
	decoding
)

// NewInstance returns an instance without sequences.
func New(o Options, m Model) *Instance {
	in := &Instance{}
	in.Reset(o, m)
	return in
}

// Reset empties an instance and makes it run a model. It forgets all sequences and keeps the
// counts and the allocated memory.
func (in *Instance) Reset(o Options, m Model) {
	if o.Block < 1 {
		o.Block = 16
	}
	if o.Budget < 1 {
		o.Budget = 1<<31 - 1
	}
	if m.Sequences < 1 {
		m.Sequences = 1<<31 - 1
	}
	in.opt, in.m = o, m
	in.counts.PeakKV = in.Counts().PeakKV
	in.mem.init(m.KV, o.Block, o.Prefix)
	in.seqs, in.free, in.run, in.fill, in.marks = in.seqs[:0], in.free[:0], in.run[:0], in.fill[:0], in.marks[:0]
	in.wait.in, in.wait.list = in, in.wait.list[:0]
	clear(in.byID)
	if len(in.phases) != int(o.Block) {
		in.phases = make([]int64, o.Block)
	}
	clear(in.phases)
	in.decoding, in.context, in.owed, in.busy = 0, 0, 0, false
}

// SequenceCounts returns the number of sequences, and how many of them wait.
func (in *Instance) Holds() (all, waiting int) {
	return len(in.run) + len(in.wait.list), len(in.wait.list)
}

// Busy reports whether an iteration is under way.
func (in *Instance) Busy() bool { return in.busy }

// UsedKV returns how many tokens of KV memory are in use.
func (in *Instance) UsedKV() int64 { return in.mem.used * int64(in.opt.Block) }

// Counts returns what the instance did so far.
func (in *Instance) Counts() Counts {
	c := in.counts
	c.PeakKV = max(c.PeakKV, in.mem.most*int64(in.opt.Block))
	return c
}

// Add adds a sequence to those that wait. It returns an error if the KV memory could not
// hold the sequence to its end.
func (in *Instance) Add(s Sequence) error {
	if s.Prompt < 1 || s.Output <= s.Made || s.Made < 0 {
		return fmt.Errorf("a sequence with a prompt of %d tokens, %d of an answer of %d made: expected at least 1 token, and some to make", s.Prompt, s.Made, s.Output)
	}
	if in.mem.of(s.Prompt+s.Output) > in.mem.total {
		return fmt.Errorf("a sequence of %d tokens does not fit the KV memory of %d", s.Prompt+s.Output, in.mem.total*int64(in.opt.Block))
	}
	slot := slots.Take(&in.seqs, &in.free)
	q := &in.seqs[slot]
	in.came++
	*q = seq{id: s.ID, prompt: s.Prompt, output: s.Output, made: s.Made, need: s.Prompt + s.Made, serial: q.serial + 1, state: waiting, order: in.came, session: s.Session, swapped: s.Swapped}
	if in.opt.Priority {
		q.rank = s.Priority
	}
	for int(s.ID) >= len(in.byID) {
		in.byID = append(in.byID, 0)
	}
	in.byID[s.ID] = slot + 1
	in.wait.push(slot)
	return nil
}

// generatedBy returns how many tokens of its answer a sequence has.
func (in *Instance) madeOf(q *seq) int32 {
	if q.state == decoding {
		return q.made + int32(in.iteration-q.since)
	}
	return q.made
}

// GeneratedTokens returns how many tokens of its answer a sequence has, or 0 if it is not here.
func (in *Instance) Made(id int32) int32 {
	if slot, ok := in.slot(id); ok {
		return in.madeOf(&in.seqs[slot])
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
func (in *Instance) Remove(id int32, keep bool) (made int32, swapped bool) {
	slot, ok := in.slot(id)
	if !ok {
		return 0, false
	}
	q := &in.seqs[slot]
	made = in.madeOf(q)
	swapped = keep && (q.state == decoding || q.state == waiting && q.swapped)
	in.drop(slot, keep)
	return made, swapped
}

// removeSlot removes a sequence for good.
func (in *Instance) drop(slot int32, keep bool) {
	q := &in.seqs[slot]
	if q.state == waiting {
		in.wait.remove(int(q.at))
	} else {
		in.leave(slot, keep)
	}
	in.byID[q.id] = 0
	q.state = unused
	in.free = append(in.free, slot)
}

// leaveBatch removes a running sequence from the batch and frees its blocks. With toHost its
// KV goes to the host's memory.
func (in *Instance) leave(slot int32, keep bool) {
	q := &in.seqs[slot]
	held := q.done

	// A decoding sequence leaves the sums of all decoding sequences, and owns the blocks that growKV took for it.
	if q.state == decoding {
		tokens := in.iteration - q.since
		held = q.need + int32(tokens)
		in.decoding--
		in.context -= int64(held)
		ph := in.phase(q)
		in.phases[ph]--
		if !in.opt.Reserve {
			q.blocks += passed(q.since, in.grown(), ph, int64(in.opt.Block)) // what grow took for it
		}
		q.made = in.madeOf(q)
		if keep {
			q.swapped = true
			in.swap(held, in.opt.Hidden)
		}
	} else {
		for i, s := range in.fill {
			if s == slot {
				in.fill = append(in.fill[:i], in.fill[i+1:]...)
				break
			}
		}
	}

	// Free the blocks, and fill its place in the batch with the last sequence.
	in.mem.give(q.blocks, q.session, held)
	q.blocks, q.done, q.chunk, q.need = 0, 0, 0, q.prompt+q.made
	q.serial++
	last := len(in.run) - 1
	moved := in.run[last]
	in.run[q.at] = moved
	in.seqs[moved].at = q.at
	in.run = in.run[:last]
}
