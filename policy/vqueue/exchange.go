package vqueue

import (
	"math"
	"slices"
)

// exchangePieces is one move of the search (simulated annealing).
// It swaps a random piece of one queue with a piece of another, or moves a piece within its queue.
// Either piece may be empty, or reach to the end. A worse order is accepted with probability exp(-increase/heat), else the queues are
// restored.
func (s *Search) exchangePieces(heat float64) {
	assignment := &s.current
	oldTotal := assignment.total

	// Choose the queues, and change them.
	queueA, queueB := assignment.queueOf[s.randomGroup()], int32(s.rng.IntN(len(assignment.queues)))
	if queueA < 0 {
		return
	}
	if s.KeepQueues {
		queueB = queueA
	}
	if queueA == queueB {
		s.movePiece(queueA)
	} else {
		s.swapPieces(queueA, queueB)
	}
	if len(s.savedQueues) == 0 {
		return // the pieces cannot change places, so nothing was changed
	}

	// Orders that break the priorities are never accepted.
	increase := assignment.total - oldTotal
	for _, queueIndex := range s.savedQueues {
		if !assignment.queues[queueIndex].keepsPriorities() {
			increase = math.Inf(1)
		}
	}
	s.endStep(increase, oldTotal, heat)
}

// randomPiece returns a random range of positions [start, end) of a queue of queueLength groups: in a third of the cases from a random
// position to the end, else a short piece of at most MaxRemoved/2 groups. It may be empty.
func (s *Search) randomPiece(queueLength int) (start, end int) {
	start = s.rng.IntN(queueLength + 1)
	if s.rng.IntN(3) == 0 {
		return start, queueLength
	}
	return start, min(start+s.rng.IntN(s.MaxRemoved/2+1), queueLength)
}

// swapPieces swaps random pieces of two queues, given by their indexes, if the groups can run there.
// The queues are saved before, so that the caller can restore them; no queue may have been saved in this move so far. As search work, which
// bounds the search, each entry whose cost is recomputed counts half a position.
func (s *Search) swapPieces(queueA, queueB int32) {
	assignment := &s.current
	entriesA, entriesB := assignment.queues[queueA].entries, assignment.queues[queueB].entries
	startA, endA := s.randomPiece(len(entriesA))
	startB, endB := s.randomPiece(len(entriesB))
	if startA == endA && startB == endB || !assignment.problem.allCanRun(entriesA[startA:endA], queueB) || !assignment.problem.allCanRun(entriesB[startB:endB], queueA) {
		return
	}

	// Write both queues anew in their memory, from the copies that saveQueue appends to savedOrders. entriesA and entriesB keep their old
	// lengths, but no longer the old entries.
	s.saveQueue(queueA)
	s.saveQueue(queueB)
	oldEntriesA, oldEntriesB := s.savedOrders[len(s.savedQueues)-2].entries, s.savedOrders[len(s.savedQueues)-1].entries
	assignment.queues[queueA].entries = append(append(entriesA[:startA], oldEntriesB[startB:endB]...), oldEntriesA[endA:]...)
	assignment.queues[queueB].entries = append(append(entriesB[:startB], oldEntriesA[startA:endA]...), oldEntriesB[endB:]...)

	// Update the queues of the groups, and the costs.
	for _, entry := range oldEntriesB[startB:endB] {
		assignment.queueOf[entry.group] = queueA
	}
	for _, entry := range oldEntriesA[startA:endA] {
		assignment.queueOf[entry.group] = queueB
	}
	assignment.updateCosts(queueA, startA)
	assignment.updateCosts(queueB, startB)
	assignment.searchWork += int64(len(entriesA)-startA+len(entriesB)-startB)/2 + 1
}

// movePiece moves a random piece of a queue to another position of it. The queue is saved before, so that the caller can restore it; it may
// not have been saved in this move so far. As search work, which bounds the search, each entry whose cost is recomputed counts half a position.
func (s *Search) movePiece(queueIndex int32) {
	assignment := &s.current
	entries := assignment.queues[queueIndex].entries
	pieceStart, pieceEnd := s.randomPiece(len(entries))
	remainingCount := len(entries) - (pieceEnd - pieceStart)
	insertPosition := s.rng.IntN(remainingCount + 1)
	if pieceStart == pieceEnd || insertPosition == pieceStart {
		return
	}

	// Take the piece out of the queue, and insert it among the other entries, from the copy that saveQueue appends to savedOrders.
	s.saveQueue(queueIndex)
	oldEntries := s.savedOrders[len(s.savedQueues)-1].entries
	entries = append(append(entries[:0], oldEntries[:pieceStart]...), oldEntries[pieceEnd:]...)
	entries = slices.Insert(entries, insertPosition, oldEntries[pieceStart:pieceEnd]...)
	assignment.queues[queueIndex].entries = entries
	firstChanged := min(pieceStart, insertPosition)
	assignment.updateCosts(queueIndex, firstChanged)
	assignment.searchWork += int64(len(entries)-firstChanged)/2 + 1
}

// allCanRun reports whether all groups of a piece of some queue can run in the queue queueIndex.
func (p *Problem) allCanRun(piece []queueEntry, queueIndex int32) bool {
	queue := &p.Queues[queueIndex]
	for i := range piece {
		if groupIndex := piece[i].group; !queue.accepts(&p.Groups[groupIndex], p.Cost(groupIndex, queue.Kind)) {
			return false
		}
	}
	return true
}
