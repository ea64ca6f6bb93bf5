package vqueue

import "math"

// exchange swaps a piece of one queue with a piece of another, or moves a piece within its queue. Either piece may
// be empty, or reach to the end.
func (x *Search) exchange(heat float64) {
	s := &x.state
	before := s.total

	// Choose the queues, and change them.
	a, b := s.where[x.any()], int32(x.rng.IntN(len(s.queues)))
	if a < 0 {
		return
	}
	if x.Stay {
		b = a
	}
	if a == b {
		x.move(a)
	} else {
		x.swap(a, b)
	}
	if len(x.savedQ) == 0 {
		return
	}

	// Orders that break the priorities are never accepted.
	rise := s.total - before
	for _, q := range x.savedQ {
		if !s.queues[q].ranked() {
			rise = math.Inf(1)
		}
	}
	if rise <= 0 || x.rng.Float64() < math.Exp(-rise/heat) {
		x.accept()
	} else {
		x.undo(before)
	}
	x.savedQ = x.savedQ[:0]
}

// randomPiece returns the range [from, to) of a piece of n slots: a short one, or all slots to the end.
func (x *Search) piece(n int) (from, to int) {
	from = x.rng.IntN(n + 1)
	if x.rng.IntN(3) == 0 {
		return from, n
	}
	return from, min(from+x.rng.IntN(x.Most/2+1), n)
}

// swapPieces swaps pieces of two queues, if their groups can run there.
func (x *Search) swap(a, b int32) {
	s := &x.state
	la, lb := s.queues[a].slots, s.queues[b].slots
	fromA, toA := x.piece(len(la))
	fromB, toB := x.piece(len(lb))
	if fromA == toA && fromB == toB || !s.p.fits(la[fromA:toA], b) || !s.p.fits(lb[fromB:toB], a) {
		return
	}

	// Join the pieces from copies of both queues.
	x.save(a)
	x.save(b)
	oldA, oldB := x.saved[len(x.savedQ)-2].slots, x.saved[len(x.savedQ)-1].slots
	s.queues[a].slots = append(append(la[:fromA], oldB[fromB:toB]...), oldA[toA:]...)
	s.queues[b].slots = append(append(lb[:fromB], oldA[fromA:toA]...), oldB[toB:]...)

	// Update the queues of the groups, and the costs.
	for _, y := range oldB[fromB:toB] {
		s.where[y.group] = a
	}
	for _, y := range oldA[fromA:toA] {
		s.where[y.group] = b
	}
	s.update(a, fromA)
	s.update(b, fromB)
	s.work += int64(len(la)-fromA+len(lb)-fromB)/2 + 1
}

// movePiece moves a piece to another place of its queue.
func (x *Search) move(q int32) {
	s := &x.state
	l := s.queues[q].slots
	from, to := x.piece(len(l))
	rest := len(l) - (to - from)
	at := x.rng.IntN(rest + 1)
	if from == to || at == from {
		return
	}

	// Rebuild the queue: the slots that stay, with the piece before number insertAt of them.
	x.save(q)
	old := x.saved[len(x.savedQ)-1].slots
	l = l[:0]
	for i := range rest + 1 { // i counts the slots that stay
		if i == at {
			l = append(l, old[from:to]...)
		}
		if i == rest {
			break
		}
		if i < from {
			l = append(l, old[i])
		} else {
			l = append(l, old[i+to-from])
		}
	}
	s.queues[q].slots = l
	s.update(q, min(from, at))
	s.work += int64(len(l)-min(from, at))/2 + 1
}

// allCanRun reports whether all groups of a piece can run in a queue.
func (p *Problem) fits(piece []slot, q int32) bool {
	def := &p.Queues[q]
	for i := range piece {
		if g := piece[i].group; !def.takes(&p.Groups[g], p.Cost(g, def.Kind)) {
			return false
		}
	}
	return true
}
