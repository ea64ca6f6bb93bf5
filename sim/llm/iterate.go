package llm

import (
	"time"

	"inferplan/formats"
)

// Begin forms the next iteration. It returns how long the iteration takes, and which sequences
// take part in one for the first time. ok is false if there is no sequence.
func (in *Instance) Begin() (took time.Duration, began []int32, ok bool) {
	in.began = in.began[:0]
	left := in.grow()
	room := left == 0 // admit only if no sequence had to leave

	// Decoding sequences take a token each; what is left of the budget goes to prompts.
	budget := in.opt.Budget - in.decoding
	in.work = formats.IterationWork{Decoding: in.decoding, Context: in.context}
	for _, slot := range in.fill {
		budget -= in.chunk(slot, budget)
	}

	// Admit waiting sequences as long as budget, slots and blocks last.
	for room && budget > 0 && len(in.wait.list) > 0 && len(in.run) < int(in.m.Sequences) {
		slot := in.wait.list[0]
		if !in.admit(slot) {
			break
		}
		budget -= in.chunk(slot, budget)
	}
	if len(in.run) == 0 {
		return 0, nil, false
	}

	// The time of the iteration includes the swaps since the last one.
	in.busy = true
	in.counts.Iterations++
	took = in.m.Iteration.Time(in.work) + in.owed
	in.owed = 0
	if in.m.KV > 0 {
		in.counts.HeldKV += time.Duration(float64(took) * float64(in.UsedKV()) / float64(in.m.KV))
	}
	return max(took, 1), in.began, true
}

// growKV takes the blocks that decoding sequences need for their next token. If there are not
// enough, sequences are preempted; growKV returns how many.
func (in *Instance) grow() (left int) {
	if in.opt.Reserve {
		return 0
	}
	for {
		need := in.phases[in.iteration%int64(in.opt.Block)]
		if need <= in.mem.free() {
			break
		}
		in.preempt()
		left++
	}
	n := in.phases[in.iteration%int64(in.opt.Block)]
	in.mem.take(n)
	return left
}

// preempt makes a sequence wait again: the least urgent one, and among equals the one that was admitted last.
func (in *Instance) preempt() {
	victim := in.run[0]
	for _, slot := range in.run[1:] {
		a, b := &in.seqs[slot], &in.seqs[victim]
		if a.rank > b.rank || a.rank == b.rank && a.admitted > b.admitted {
			victim = slot
		}
	}
	in.counts.Preempted++
	q := &in.seqs[victim]
	in.leave(victim, in.opt.Swap)
	q.state = waiting
	in.wait.push(victim)
}

// addChunk gives a prompt as many tokens of the iteration as the budget allows, and returns how many.
func (in *Instance) chunk(slot, budget int32) int32 {
	q := &in.seqs[slot]
	n := max(0, min(q.need-q.done, budget))
	q.chunk = n
	if n > 0 {
		in.work.Prefill++
		in.work.Prompt += n
		in.work.Pairs += float64(n) * (float64(q.done) + float64(n)/2)
		in.counts.Prompt += int64(n)
	}
	return n
}

// admit adds a waiting sequence to the batch. It returns false if there are not enough blocks.
func (in *Instance) admit(slot int32) bool {
	q := &in.seqs[slot]
	want := in.mem.of(q.need)
	if in.opt.Reserve {
		want = in.mem.of(q.prompt + q.output)
	}
	if want > in.mem.free() {
		return false
	}

	// Context that was swapped out or is cached need not be computed. At least one token is.
	in.wait.remove(0)
	q.done = 0
	if q.swapped {
		q.done = q.need - 1
		in.swap(q.need, 0)
		q.swapped = false
	} else if hit := in.mem.hit(q.session); hit > 0 {
		q.done = min(hit, (q.need-1)/in.opt.Block*in.opt.Block)
		in.counts.Cached += int64(q.done)
		in.mem.claim(q.session)
	}

	// Take the blocks, and enter the batch.
	in.mem.take(want)
	q.blocks = want
	in.admitted++
	q.admitted, q.state, q.at = in.admitted, filling, int32(len(in.run))
	in.run, in.fill = append(in.run, slot), append(in.fill, slot)
	if !q.began {
		q.began = true
		in.began = append(in.began, q.id)
	}
	return true
}

// swapTokens moves the KV of some tokens to or from the host's memory.
func (in *Instance) swap(tokens int32, hidden float64) {
	bytes := int64(tokens) * in.m.KVBytes
	in.counts.Swapped += bytes
	if in.opt.SwapRate > 0 {
		in.owed += time.Duration(float64(bytes) / in.opt.SwapRate * (1 - hidden) * 1e9)
	}
}

// End ends the iteration that Begin formed. All decoding sequences have one more token.
func (in *Instance) End() *Ended {
	e := &in.ended
	e.First, e.Progress, e.Finished = e.First[:0], e.Progress[:0], e.Finished[:0]
	in.busy = false
	in.iteration++
	in.context += int64(in.decoding)
	in.counts.Output += int64(in.decoding)

	// Look at the decoding sequences that reached their end or a progress report.
	for len(in.marks) > 0 && in.marks[0].iteration <= in.iteration {
		m := in.marks.pop()
		q := &in.seqs[m.slot]
		if q.serial != m.serial || q.state != decoding {
			continue
		}
		if made := in.madeOf(q); made >= q.output {
			e.Finished = append(e.Finished, q.id)
			in.drop(m.slot, false)
		} else {
			e.Progress = append(e.Progress, q.id)
			in.mark(m.slot)
		}
	}

	// Prompts that are complete give their first token.
	kept := in.fill[:0]
	for _, slot := range in.fill {
		q := &in.seqs[slot]
		q.done += q.chunk
		q.chunk = 0
		if q.done < q.need {
			kept = append(kept, slot)
			continue
		}
		in.answer(slot, e)
	}
	in.fill = kept
	return e
}

// addFirstToken gives a sequence the token that follows its prompt. It decodes from then on.
func (in *Instance) answer(slot int32, e *Ended) {
	q := &in.seqs[slot]
	q.made++
	in.counts.Output++
	if q.made == 1 {
		e.First = append(e.First, q.id)
	}
	q.state, q.since = decoding, in.iteration
	in.decoding++
	in.context += int64(q.need)
	in.phases[in.phase(q)]++
	if q.made >= q.output {
		e.Finished = append(e.Finished, q.id)
		in.drop(slot, false)
		return
	}
	in.mark(slot)
}

// blockPhase returns the phase of a decoding sequence: it needs a new block in the iterations
// that are congruent to the phase modulo the block size, before which its tokens fill its
// blocks. In iteration decodingSince it has contextNeeded tokens and writes one more.
func (in *Instance) phase(q *seq) int64 {
	b := int64(in.opt.Block)
	return (q.since + in.mem.of(q.need)*b - int64(q.need)) % b
}

// nextUngrown returns the first iteration for which growKV has not taken blocks yet.
func (in *Instance) grown() int64 {
	if in.busy {
		return in.iteration + 1
	}
	return in.iteration
}

// iterationsOfPhase returns the number of iterations of a phase in [from, to).
func passed(from, to, phase, size int64) int64 {
	return (to+size-1-phase)/size - (from+size-1-phase)/size
}

// scheduleCheck schedules when to look at a decoding sequence: at its end or its next progress report.
func (in *Instance) mark(slot int32) {
	q := &in.seqs[slot]
	made := in.madeOf(q)
	next := q.output
	if p := in.opt.Progress; p > 0 {
		next = min(next, (made/p+1)*p)
	}
	in.marks.push(mark{in.iteration + int64(next-made), slot, q.serial})
}
