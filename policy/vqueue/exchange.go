package vqueue

import "math"

// exchangePieces is one move of the search (simulated annealing). It swaps a random piece of one queue with a piece
// of another, or moves a piece within its queue. Either piece may be empty, or reach to the end. A worse order is
// accepted with probability exp(-increase/heat), else the queues are restored.
func (x *Search) exchangePieces(heat float64) {
	s := &x.current
	oldTotal := s.total

	// Choose the queues, and change them.
	a, b := s.queueOf[x.randomGroup()], int32(x.rng.IntN(len(s.queues)))
	if a < 0 {
		return
	}
	if x.KeepQueues {
		b = a
	}
	if a == b {
		x.movePiece(a)
	} else {
		x.swapPieces(a, b)
	}
	if len(x.savedQueues) == 0 {
		return
	}

	// Orders that break the priorities are never accepted.
	increase := s.total - oldTotal
	for _, q := range x.savedQueues {
		if !s.queues[q].keepsPriorities() {
			increase = math.Inf(1)
		}
	}
	if increase <= 0 || x.rng.Float64() < math.Exp(-increase/heat) {
		x.acceptStep()
	} else {
		x.restoreQueues(oldTotal)
	}
	x.savedQueues = x.savedQueues[:0]
}

// randomPiece returns a random range [start, end) of a queue of n slots to be exchanged: in a third of the cases
// all slots to the end, else a short piece of at most MaxRemoved/2 slots. It may be empty.
func (x *Search) randomPiece(n int) (start, end int) {
	start = x.rng.IntN(n + 1)
	if x.rng.IntN(3) == 0 {
		return start, n
	}
	return start, min(start+x.rng.IntN(x.MaxRemoved/2+1), n)
}

// swapPieces swaps pieces of two queues, if their groups can run there. The queues are saved before, so that the
// caller can restore them. Each changed slot behind a piece counts half as search work.
func (x *Search) swapPieces(a, b int32) {
	s := &x.current
	la, lb := s.queues[a].slots, s.queues[b].slots
	fromA, toA := x.randomPiece(len(la))
	fromB, toB := x.randomPiece(len(lb))
	if fromA == toA && fromB == toB || !s.problem.allCanRun(la[fromA:toA], b) || !s.problem.allCanRun(lb[fromB:toB], a) {
		return
	}

	// Join the pieces from copies of both queues.
	x.saveQueue(a)
	x.saveQueue(b)
	oldA, oldB := x.savedOrders[len(x.savedQueues)-2].slots, x.savedOrders[len(x.savedQueues)-1].slots
	s.queues[a].slots = append(append(la[:fromA], oldB[fromB:toB]...), oldA[toA:]...)
	s.queues[b].slots = append(append(lb[:fromB], oldA[fromA:toA]...), oldB[toB:]...)

	// Update the queues of the groups, and the costs.
	for _, y := range oldB[fromB:toB] {
		s.queueOf[y.group] = a
	}
	for _, y := range oldA[fromA:toA] {
		s.queueOf[y.group] = b
	}
	s.updateCosts(a, fromA)
	s.updateCosts(b, fromB)
	s.searchWork += int64(len(la)-fromA+len(lb)-fromB)/2 + 1
}

// movePiece moves a piece to another place of its queue. The queue is saved before, so that the caller can restore
// it.
func (x *Search) movePiece(q int32) {
	s := &x.current
	l := s.queues[q].slots
	pieceStart, pieceEnd := x.randomPiece(len(l))
	keptSlots := len(l) - (pieceEnd - pieceStart)
	insertAt := x.rng.IntN(keptSlots + 1)
	if pieceStart == pieceEnd || insertAt == pieceStart {
		return
	}

	// Rebuild the queue: the slots that stay, with the piece before number insertAt of them.
	x.saveQueue(q)
	oldSlots := x.savedOrders[len(x.savedQueues)-1].slots
	l = l[:0]
	for i := range keptSlots + 1 { // i counts the slots that stay
		if i == insertAt {
			l = append(l, oldSlots[pieceStart:pieceEnd]...)
		}
		if i == keptSlots {
			break
		}
		if i < pieceStart {
			l = append(l, oldSlots[i])
		} else {
			l = append(l, oldSlots[i+pieceEnd-pieceStart])
		}
	}
	s.queues[q].slots = l
	s.updateCosts(q, min(pieceStart, insertAt))
	s.searchWork += int64(len(l)-min(pieceStart, insertAt))/2 + 1
}

// allCanRun reports whether all groups of a piece can run in a queue.
func (p *Problem) allCanRun(piece []queueSlot, q int32) bool {
	problemQueue := &p.Queues[q]
	for i := range piece {
		if g := piece[i].group; !problemQueue.accepts(&p.Groups[g], p.Cost(g, problemQueue.Kind)) {
			return false
		}
	}
	return true
}
