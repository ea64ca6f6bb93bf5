package llm

import (
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/policy/slots"
)

// Model is what an instance runs.
type Model struct {
	Iteration formats.Iteration
	KV        int64 // tokens of KV memory
	Sequences int32 // at once
	KVBytes   int64 // of a token; 0: not known, swapping costs nothing
}

// Options are how a server is set up.
type Options struct {
	Budget   int32   // tokens of an iteration; 0: no limit
	Block    int32   // tokens of a KV block; 0: 16
	Priority bool    // the more urgent goes first and the least urgent leaves; else first come, first served
	Reserve  bool    // admit a sequence with room for its whole answer, so that none has to leave
	Swap     bool    // one that leaves has its KV in the host's memory; else it computes it anew
	SwapRate float64 // bytes a second to and from the host's memory; 0: swapping costs nothing
	Hidden   float64 // share of swapping out that iterations hide
	Prefix   bool    // free blocks are a cache of prefixes
	Progress int32   // tokens between two reports of a sequence; 0: none
}

// Sequence is a request as an instance sees it.
type Sequence struct {
	ID       int32 // the caller's
	Prompt   int32 // tokens
	Output   int32 // tokens that it makes in all
	Made     int32 // of them elsewhere before
	Priority int32 // lower goes first
	Session  int64 // whose prefixes it shares; 0: nobody's
	Swapped  bool  // its KV is in this host's memory
}

// Ended is what an iteration came to. The lists hold IDs, and are the instance's
// until the next call.
type Ended struct {
	First    []int32 // had their first token, which may be the last
	Progress []int32 // reached a report
	Finished []int32
}

// Counts is what an instance did so far.
type Counts struct {
	Iterations int64
	Preempted  int64 // sequences that left for want of blocks
	Prompt     int64 // tokens of prompts that were computed, also those computed anew
	Cached     int64 // tokens of prompts that were in the prefix cache
	Output     int64 // tokens made
	Swapped    int64 // bytes to and from the host's memory
	PeakKV     int64 // tokens
	// HeldKV is the time of iterations by the share of KV memory that is in use.
	HeldKV time.Duration
}

// Instance is a server that runs one model. It is for one goroutine.
type Instance struct {
	opt    Options
	m      Model
	mem    blocks
	seqs   []seq
	free   []int32
	byID   []int32 // slots plus one
	wait   waitHeap
	run    []int32 // in no order
	fill   []int32 // of them those that compute prompts, in the order of admission
	marks  markHeap
	phases []int64 // decoding sequences by when they need their next block

	decoding  int32
	context   int64 // tokens of decoding sequences
	iteration int64
	came      int64 // sequences so far
	admitted  int64
	owed      time.Duration // of swapping, in the next iteration
	busy      bool
	work      formats.IterationWork
	began     []int32
	ended     Ended
	counts    Counts
}

type seq struct {
	id, prompt, output int32
	made               int32 // before since
	need, done         int32 // tokens of context to compute before the next token, and computed
	chunk              int32 // of this iteration
	rank               int32 // priority, or 0
	serial             int32 // counts the uses of the slot's marks
	at                 int32 // where it is in run, or in the waiting heap
	state              state
	swapped            bool
	began              bool
	order, admitted    int64
	since              int64 // iteration after which it decodes
	blocks             int64
	session            int64
}

type state uint8

const (
	unused state = iota
	waiting
	filling
	decoding
)

// New is an instance without sequences.
func New(o Options, m Model) *Instance {
	in := &Instance{}
	in.Reset(o, m)
	return in
}

// Reset empties an instance and has it run a model. It forgets all sequences and
// keeps its counts and memory.
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

// Holds is the number of sequences, and how many of them wait.
func (in *Instance) Holds() (all, waiting int) {
	return len(in.run) + len(in.wait.list), len(in.wait.list)
}

// Busy tells whether an iteration is under way.
func (in *Instance) Busy() bool { return in.busy }

// UsedKV is how many tokens of KV memory are in use.
func (in *Instance) UsedKV() int64 { return in.mem.used * int64(in.opt.Block) }

// Counts is what the instance did so far.
func (in *Instance) Counts() Counts {
	c := in.counts
	c.PeakKV = max(c.PeakKV, in.mem.most*int64(in.opt.Block))
	return c
}

// Add has a sequence wait. One that the KV memory could not hold to its end is
// refused.
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

// madeOf is how many tokens of its answer a sequence has.
func (in *Instance) madeOf(q *seq) int32 {
	if q.state == decoding {
		return q.made + int32(in.iteration-q.since)
	}
	return q.made
}

// Made is how many tokens of its answer a sequence has.
func (in *Instance) Made(id int32) int32 {
	if slot, ok := in.slot(id); ok {
		return in.madeOf(&in.seqs[slot])
	}
	return 0
}

func (in *Instance) slot(id int32) (int32, bool) {
	if int(id) >= len(in.byID) || in.byID[id] == 0 {
		return 0, false
	}
	return in.byID[id] - 1, true
}

// Remove takes a sequence out, whatever it does, and tells how many tokens it has.
// keep: its KV goes to the host's memory, which is possible once its prompt is
// computed; swapped tells whether it went.
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

// drop takes a sequence out for good.
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

// leave takes a running sequence off the batch and frees its blocks. keep: its KV
// goes to the host's memory.
func (in *Instance) leave(slot int32, keep bool) {
	q := &in.seqs[slot]
	held := q.done
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
	in.mem.give(q.blocks, q.session, held)
	q.blocks, q.done, q.chunk, q.need = 0, 0, 0, q.prompt+q.made
	q.serial++
	last := len(in.run) - 1
	moved := in.run[last]
	in.run[q.at] = moved
	in.seqs[moved].at = q.at
	in.run = in.run[:last]
}
