package llm

import (
	"time"

	"inferplan/formats"
)

// Begin forms the next iteration, in which each decoding sequence makes a token and prompts are computed up to the token
// budget. It returns how long the iteration takes, and the IDs of the sequences that take part in one for the first
// time. ok is false if there is no sequence. If blocks of KV memory are short, sequences are preempted (they wait
// again), and none is admitted. End must follow, when that time has passed.
func (instance *Instance) Begin() (duration time.Duration, firstTime []int32, ok bool) {
	instance.firstTime = instance.firstTime[:0]
	preempted := instance.takeGrowthBlocks()
	mayAdmit := preempted == 0 // admit only if no sequence had to leave

	// Decoding sequences take a token each; what is left of the budget goes to prompts.
	budget := instance.options.TokenBudget - instance.decodingCount
	instance.work = formats.IterationWork{DecodingSequences: instance.decodingCount, ContextTokens: instance.decodingTokens}
	for _, slot := range instance.prefilling {
		budget -= instance.addChunk(slot, budget)
	}

	// Admit waiting sequences as long as budget, slots and blocks last.
	for mayAdmit && budget > 0 && instance.waiting.Len() > 0 && len(instance.running) < int(instance.model.MaxSequences) {
		slot := *instance.waiting.PeekPayload()
		if !instance.admit(slot) {
			break
		}
		budget -= instance.addChunk(slot, budget)
	}
	if len(instance.running) == 0 {
		return 0, nil, false
	}

	// The time of the iteration includes the swaps since the last one.
	instance.busy = true
	instance.counts.Iterations++
	duration = instance.model.Iteration.Duration(instance.work) + instance.swapDelay
	instance.swapDelay = 0
	if instance.model.KVTokens > 0 {
		instance.counts.KVUseTime += time.Duration(float64(duration) * float64(instance.UsedKV()) / float64(instance.model.KVTokens))
	}
	return max(duration, 1), instance.firstTime, true
}

// takeGrowthBlocks takes, before an iteration, the blocks that decoding sequences need for their next token: one for
// each sequence whose blocks are full now. These are the sequences whose phase is the iteration's remainder by the
// block size, and phaseCounts has their number, so no sequence is looked at. If blocks are short, sequences are
// preempted; it returns how many. If memory for whole answers was reserved at the admission, no block is needed.
func (instance *Instance) takeGrowthBlocks() (preempted int) {
	if instance.options.ReserveAnswer {
		return 0
	}
	phase := instance.iteration % int64(instance.options.BlockTokens)
	for instance.phaseCounts[phase] > instance.memory.freeBlocks() {
		instance.preempt() // frees blocks, and may lower the need
		preempted++
	}
	instance.memory.takeBlocks(instance.phaseCounts[phase])
	return preempted
}

// preempt makes a running sequence wait again, because KV memory is short: the least urgent one, and among equals the
// one that was admitted last. With SwapOut its KV state goes to the host's memory; otherwise it is computed again.
func (instance *Instance) preempt() {
	victim := instance.running[0]
	for _, slot := range instance.running[1:] {
		candidate, current := &instance.sequences[slot], &instance.sequences[victim]
		if candidate.priority > current.priority || candidate.priority == current.priority && candidate.admittedNumber > current.admittedNumber {
			victim = slot
		}
	}
	instance.counts.Preempted++
	instance.leaveBatch(victim, instance.options.SwapOut)
	instance.addWaiting(victim)
}

// addChunk gives the prompt of the sequence in a slot as many tokens of the iteration as the budget allows, and returns
// how many. Attention is counted in pairs: each new token attends to all before it. The chunk adds to the work of the
// iteration, from which its duration follows.
func (instance *Instance) addChunk(slot, budget int32) int32 {
	sequence := &instance.sequences[slot]
	tokens := max(0, min(sequence.contextNeeded-sequence.contextDone, budget))
	sequence.chunk = tokens
	if tokens > 0 {
		instance.work.PrefillSequences++
		instance.work.PromptTokens += tokens
		instance.work.AttentionPairs += float64(tokens) * (float64(sequence.contextDone) + float64(tokens)/2)
		instance.counts.ComputedPrompt += int64(tokens)
	}
	return tokens
}

// admit adds the first of the waiting sequences, which is the one in this slot, to the batch. It returns false if there
// are not enough free blocks of KV memory for its context, or for its whole answer if that is reserved. If the sequence
// is in the batch for the first time, it is added to firstTime.
func (instance *Instance) admit(slot int32) bool {
	sequence := &instance.sequences[slot]
	wantedBlocks := instance.memory.blocksFor(sequence.contextNeeded)
	if instance.options.ReserveAnswer {
		wantedBlocks = instance.memory.blocksFor(sequence.prompt + sequence.output)
	}
	if wantedBlocks > instance.memory.freeBlocks() {
		return false
	}

	// Context that was swapped out or is cached need not be computed: contextDone tokens are there. But at least one token
	// of contextNeeded is computed, because that gives the next token, and of a cached prefix only whole blocks are used.
	// Swapping in is not hidden behind computation (a hidden share of 0). The blocks of a cached prefix are free blocks
	// that still have their content. They are among those that the sequence takes below, so they leave the cache.
	instance.waiting.Remove(sequence.waitingHandle)
	sequence.contextDone = 0
	if sequence.inHostMemory {
		sequence.contextDone = sequence.contextNeeded - 1
		const hiddenShare = 0
		instance.swapTokens(sequence.contextNeeded, hiddenShare)
		sequence.inHostMemory = false
	} else if cachedTokens := instance.memory.prefixTokens(sequence.session); cachedTokens > 0 {
		sequence.contextDone = min(cachedTokens, (sequence.contextNeeded-1)/instance.options.BlockTokens*instance.options.BlockTokens)
		instance.counts.CachedPrompt += int64(sequence.contextDone)
		instance.memory.removePrefix(sequence.session)
	}

	// Take the blocks, and enter the batch.
	instance.memory.takeBlocks(wantedBlocks)
	sequence.blocks = wantedBlocks
	instance.admittedCount++
	sequence.admittedNumber, sequence.state, sequence.position = instance.admittedCount, statePrefilling, int32(len(instance.running))
	instance.running, instance.prefilling = append(instance.running, slot), append(instance.prefilling, slot)
	if !sequence.everAdmitted {
		sequence.everAdmitted = true
		instance.firstTime = append(instance.firstTime, sequence.id)
	}
	return true
}

// swapTokens moves the KV state of some tokens to or from the host's memory. The next iteration is longer by the
// time of that, less the share that is hidden behind computation.
func (instance *Instance) swapTokens(tokens int32, hiddenShare float64) {
	bytes := int64(tokens) * instance.model.TokenBytes
	instance.counts.SwappedBytes += bytes
	if instance.options.SwapBytesPerSecond > 0 {
		instance.swapDelay += time.Duration(float64(bytes) / instance.options.SwapBytesPerSecond * (1 - hiddenShare) * 1e9)
	}
}

// End ends the iteration that Begin formed: all decoding sequences have one more token. It returns which sequences
// got their first token, have ended, or are due for a report of progress; the lists are valid until the next call.
func (instance *Instance) End() *IterationEnd {
	end := &instance.lastEnd
	end.First, end.Progress, end.Finished = end.First[:0], end.Progress[:0], end.Finished[:0]
	instance.busy = false
	instance.iteration++
	instance.decodingTokens += int64(instance.decodingCount)
	instance.counts.Output += int64(instance.decodingCount)

	// Look at the decoding sequences that reached their end or a progress report.
	var check check
	for instance.checks.Len() > 0 {
		if dueIn, _ := instance.checks.Peek(); int64(dueIn) > instance.iteration {
			break
		}
		instance.checks.PopInto(&check)
		sequence := &instance.sequences[check.slot]
		// The sequence may have left, and its slot may be used again.
		if sequence.serial != check.serial || sequence.state != stateDecoding {
			continue
		}
		if generated := instance.generatedBy(sequence); generated >= sequence.output {
			end.Finished = append(end.Finished, sequence.id)
			instance.removeSlot(check.slot, false)
		} else {
			end.Progress = append(end.Progress, sequence.id)
			instance.scheduleCheck(check.slot)
		}
	}

	// Prompts that are complete give their first token.
	stillPrefilling := instance.prefilling[:0]
	for _, slot := range instance.prefilling {
		sequence := &instance.sequences[slot]
		sequence.contextDone += sequence.chunk
		sequence.chunk = 0
		if sequence.contextDone < sequence.contextNeeded {
			stillPrefilling = append(stillPrefilling, slot)
			continue
		}
		instance.addFirstToken(slot, end)
	}
	instance.prefilling = stillPrefilling
	return end
}

// addFirstToken gives a sequence the token that follows the context that it has computed, from which it decodes on: one
// token in each iteration. That is the first token of its answer, unless the sequence was preempted: then the context
// had the tokens of the answer so far, and this is the next one. If it is the last token of the answer, the sequence
// ends at once.
func (instance *Instance) addFirstToken(slot int32, end *IterationEnd) {
	sequence := &instance.sequences[slot]
	sequence.generated++
	instance.counts.Output++
	if sequence.generated == 1 {
		end.First = append(end.First, sequence.id)
	}

	// It decodes from now on, and counts in the sums of all decoding sequences: their number, their tokens of KV (this
	// token has none yet), and how many need a new block in the same iterations (blockPhase). The check is the iteration
	// in which the sequence ends or reports progress; it is not looked at before.
	sequence.state, sequence.decodingSince = stateDecoding, instance.iteration
	instance.decodingCount++
	instance.decodingTokens += int64(sequence.contextNeeded)
	instance.phaseCounts[instance.blockPhase(sequence)]++
	if sequence.generated >= sequence.output {
		end.Finished = append(end.Finished, sequence.id)
		instance.removeSlot(slot, false)
		return
	}
	instance.scheduleCheck(slot)
}

// blockPhase returns the phase of a decoding sequence: it needs a new block in the iterations that are congruent to
// the phase modulo the block size, before which its tokens fill its blocks. In iteration decodingSince it has
// contextNeeded tokens and writes one more.
func (instance *Instance) blockPhase(sequence *sequence) int64 {
	blockTokens := int64(instance.options.BlockTokens)
	return (sequence.decodingSince + instance.memory.blocksFor(sequence.contextNeeded)*blockTokens - int64(sequence.contextNeeded)) % blockTokens
}

// nextUngrown returns the first iteration for which takeGrowthBlocks has not taken blocks yet.
func (instance *Instance) nextUngrown() int64 {
	if instance.busy {
		return instance.iteration + 1
	}
	return instance.iteration
}

// iterationsOfPhase returns how many iterations in [from, to) leave the remainder phase modulo blockTokens, the size
// of a block.
func iterationsOfPhase(from, to, phase, blockTokens int64) int64 {
	return (to+blockTokens-1-phase)/blockTokens - (from+blockTokens-1-phase)/blockTokens
}

// scheduleCheck schedules in which iteration to look at the decoding sequence in a slot: at its end or, before, when it
// has a multiple of ProgressTokens, which are to be reported. Between checks a sequence costs nothing.
func (instance *Instance) scheduleCheck(slot int32) {
	sequence := &instance.sequences[slot]
	generated := instance.generatedBy(sequence)
	target := sequence.output
	if interval := instance.options.ProgressTokens; interval > 0 {
		target = min(target, (generated/interval+1)*interval)
	}
	const onlyKind = 0
	instance.checks.Push(time.Duration(instance.iteration+int64(target-generated)), onlyKind, int64(slot), check{slot, sequence.serial})
}
