package llm

import (
	"time"

	"inferplan/formats"
)

// Begin forms the next iteration, in which each decoding sequence makes a token and prompts are computed up to the
// token budget. It returns how long the iteration takes, and which sequences take part in one for the first time.
// ok is false if there is no sequence. End must follow.
func (in *Instance) Begin() (duration time.Duration, firstTime []int32, ok bool) {
	in.firstTime = in.firstTime[:0]
	preempted := in.growKV()
	mayAdmit := preempted == 0 // admit only if no sequence had to leave

	// Decoding sequences take a token each; what is left of the budget goes to prompts.
	budget := in.opt.TokenBudget - in.decodingCount
	in.work = formats.IterationWork{DecodingSequences: in.decodingCount, ContextTokens: in.decodingTokens}
	for _, slot := range in.prefilling {
		budget -= in.addChunk(slot, budget)
	}

	// Admit waiting sequences as long as budget, slots and blocks last.
	for mayAdmit && budget > 0 && len(in.waiting.list) > 0 && len(in.running) < int(in.m.MaxSequences) {
		slot := in.waiting.list[0]
		if !in.admit(slot) {
			break
		}
		budget -= in.addChunk(slot, budget)
	}
	if len(in.running) == 0 {
		return 0, nil, false
	}

	// The time of the iteration includes the swaps since the last one.
	in.busy = true
	in.counts.Iterations++
	duration = in.m.Iteration.Duration(in.work) + in.swapDelay
	in.swapDelay = 0
	if in.m.KVTokens > 0 {
		in.counts.KVUseTime += time.Duration(float64(duration) * float64(in.UsedKV()) / float64(in.m.KVTokens))
	}
	return max(duration, 1), in.firstTime, true
}

// growKV takes, before an iteration, the blocks that decoding sequences need for their next token. phases[i] counts
// the sequences whose last block is full at iterations that leave the remainder i, so no sequence is looked at. If
// blocks are short, sequences are preempted; growKV returns how many.
func (in *Instance) growKV() (preempted int) {
	if in.opt.ReserveAnswer {
		return 0
	}
	for {
		need := in.phases[in.iteration%int64(in.opt.BlockTokens)]
		if need <= in.memory.freeBlocks() {
			break
		}
		in.preempt()
		preempted++
	}
	n := in.phases[in.iteration%int64(in.opt.BlockTokens)]
	in.memory.takeBlocks(n)
	return preempted
}

// preempt makes a running sequence wait again, because KV memory is short: the least urgent one, and among equals
// the one that was admitted last. With SwapOut its KV state goes to the host's memory; otherwise it is computed
// again.
func (in *Instance) preempt() {
	victim := in.running[0]
	for _, slot := range in.running[1:] {
		a, b := &in.seqs[slot], &in.seqs[victim]
		if a.rank > b.rank || a.rank == b.rank && a.admittedAs > b.admittedAs {
			victim = slot
		}
	}
	in.counts.Preempted++
	q := &in.seqs[victim]
	in.leaveBatch(victim, in.opt.SwapOut)
	q.state = stateWaiting
	in.waiting.push(victim)
}

// addChunk gives a prompt as many tokens of the iteration as the budget allows, and returns how many. Attention is
// counted in pairs: each new token attends to all before it.
func (in *Instance) addChunk(slot, budget int32) int32 {
	q := &in.seqs[slot]
	n := max(0, min(q.contextNeeded-q.contextDone, budget))
	q.chunk = n
	if n > 0 {
		in.work.PrefillSequences++
		in.work.PromptTokens += n
		in.work.AttentionPairs += float64(n) * (float64(q.contextDone) + float64(n)/2)
		in.counts.ComputedPrompt += int64(n)
	}
	return n
}

// admit adds the first waiting sequence to the batch. It returns false if there are not enough free blocks of KV
// memory for its context, or for its whole answer if that is reserved.
func (in *Instance) admit(slot int32) bool {
	q := &in.seqs[slot]
	wantedBlocks := in.memory.blocksFor(q.contextNeeded)
	if in.opt.ReserveAnswer {
		wantedBlocks = in.memory.blocksFor(q.prompt + q.output)
	}
	if wantedBlocks > in.memory.freeBlocks() {
		return false
	}

	// Context that was swapped out or is cached need not be computed. At least one token is.
	in.waiting.remove(0)
	q.contextDone = 0
	if q.inHostMemory {
		q.contextDone = q.contextNeeded - 1
		in.swapTokens(q.contextNeeded, 0)
		q.inHostMemory = false
	} else if cachedTokens := in.memory.prefixTokens(q.session); cachedTokens > 0 {
		q.contextDone = min(cachedTokens, (q.contextNeeded-1)/in.opt.BlockTokens*in.opt.BlockTokens)
		in.counts.CachedPrompt += int64(q.contextDone)
		in.memory.removePrefix(q.session)
	}

	// Take the blocks, and enter the batch.
	in.memory.takeBlocks(wantedBlocks)
	q.blocks = wantedBlocks
	in.admittedCount++
	q.admittedAs, q.state, q.position = in.admittedCount, statePrefilling, int32(len(in.running))
	in.running, in.prefilling = append(in.running, slot), append(in.prefilling, slot)
	if !q.everAdmitted {
		q.everAdmitted = true
		in.firstTime = append(in.firstTime, q.id)
	}
	return true
}

// swapTokens moves the KV state of some tokens to or from the host's memory. The next iteration is longer by the
// time of that, less the share that is hidden behind computation.
func (in *Instance) swapTokens(tokens int32, hiddenShare float64) {
	bytes := int64(tokens) * in.m.TokenBytes
	in.counts.SwappedBytes += bytes
	if in.opt.SwapBytesPerSecond > 0 {
		in.swapDelay += time.Duration(float64(bytes) / in.opt.SwapBytesPerSecond * (1 - hiddenShare) * 1e9)
	}
}

// End ends the iteration that Begin formed: all decoding sequences have one more token. It returns which sequences
// got their first token, have ended, or are due for a report of progress; the lists are valid until the next call.
func (in *Instance) End() *IterationEnd {
	e := &in.end
	e.First, e.Progress, e.Finished = e.First[:0], e.Progress[:0], e.Finished[:0]
	in.busy = false
	in.iteration++
	in.decodingTokens += int64(in.decodingCount)
	in.counts.Output += int64(in.decodingCount)

	// Look at the decoding sequences that reached their end or a progress report.
	for len(in.checks) > 0 && in.checks[0].iteration <= in.iteration {
		m := in.checks.pop()
		q := &in.seqs[m.slot]
		if q.serial != m.serial || q.state != stateDecoding {
			continue
		}
		if generated := in.generatedBy(q); generated >= q.output {
			e.Finished = append(e.Finished, q.id)
			in.removeSlot(m.slot, false)
		} else {
			e.Progress = append(e.Progress, q.id)
			in.scheduleCheck(m.slot)
		}
	}

	// Prompts that are complete give their first token.
	stillPrefilling := in.prefilling[:0]
	for _, slot := range in.prefilling {
		q := &in.seqs[slot]
		q.contextDone += q.chunk
		q.chunk = 0
		if q.contextDone < q.contextNeeded {
			stillPrefilling = append(stillPrefilling, slot)
			continue
		}
		in.addFirstToken(slot, e)
	}
	in.prefilling = stillPrefilling
	return e
}

// addFirstToken gives a sequence the token that follows its prompt, from which it decodes on: one token in each
// iteration. A sequence that was preempted has had its first token before.
func (in *Instance) addFirstToken(slot int32, e *IterationEnd) {
	q := &in.seqs[slot]
	q.generated++
	in.counts.Output++
	if q.generated == 1 {
		e.First = append(e.First, q.id)
	}
	q.state, q.decodingSince = stateDecoding, in.iteration
	in.decodingCount++
	in.decodingTokens += int64(q.contextNeeded)
	in.phases[in.blockPhase(q)]++
	if q.generated >= q.output {
		e.Finished = append(e.Finished, q.id)
		in.removeSlot(slot, false)
		return
	}
	in.scheduleCheck(slot)
}

// blockPhase returns the phase of a decoding sequence: it needs a new block in the iterations
// that are congruent to the phase modulo the block size, before which its tokens fill its
// blocks. In iteration decodingSince it has contextNeeded tokens and writes one more.
func (in *Instance) blockPhase(q *sequence) int64 {
	b := int64(in.opt.BlockTokens)
	return (q.decodingSince + in.memory.blocksFor(q.contextNeeded)*b - int64(q.contextNeeded)) % b
}

// nextUngrown returns the first iteration for which growKV has not taken blocks yet.
func (in *Instance) nextUngrown() int64 {
	if in.busy {
		return in.iteration + 1
	}
	return in.iteration
}

// iterationsOfPhase returns the number of iterations of a phase in [from, to).
func iterationsOfPhase(from, to, phase, size int64) int64 {
	return (to+size-1-phase)/size - (from+size-1-phase)/size
}

// scheduleCheck schedules when to look at a decoding sequence: at its end or its next progress report.
func (in *Instance) scheduleCheck(slot int32) {
	q := &in.seqs[slot]
	generated := in.generatedBy(q)
	target := q.output
	if p := in.opt.ProgressTokens; p > 0 {
		target = min(target, (generated/p+1)*p)
	}
	in.checks.push(iterationCheck{in.iteration + int64(target-generated), slot, q.serial})
}
