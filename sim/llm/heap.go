package llm

// waitingHeap orders waiting sequences by priority, lower first, then in the order of adding.
// Without priorities all have the same one.
type waitHeap struct {
	list []int32 // slots
	in   *Instance
}

// isBefore reports whether slot a goes before slot b.
func (h *waitHeap) before(a, b int32) bool {
	x, y := &h.in.seqs[a], &h.in.seqs[b]
	return x.rank < y.rank || x.rank == y.rank && x.order < y.order
}

// push adds a slot.
func (h *waitHeap) push(slot int32) {
	h.list = append(h.list, slot)
	h.up(len(h.list) - 1)
}

// setAt puts a slot at index i.
func (h *waitHeap) set(i int, slot int32) {
	h.list[i] = slot
	h.in.seqs[slot].at = int32(i)
}

// up moves the slot at index i towards the root.
func (h *waitHeap) up(i int) {
	slot := h.list[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(slot, h.list[parent]) {
			break
		}
		h.set(i, h.list[parent])
		i = parent
	}
	h.set(i, slot)
}

// down moves the slot at index i away from the root.
func (h *waitHeap) down(i int) {
	slot := h.list[i]
	for {
		child := 2*i + 1
		if child >= len(h.list) {
			break
		}
		if child+1 < len(h.list) && h.before(h.list[child+1], h.list[child]) {
			child++
		}
		if !h.before(h.list[child], slot) {
			break
		}
		h.set(i, h.list[child])
		i = child
	}
	h.set(i, slot)
}

// remove removes the slot at index i.
func (h *waitHeap) remove(i int) {
	last := len(h.list) - 1
	slot := h.list[last]
	h.list = h.list[:last]
	if i == last {
		return
	}
	h.set(i, slot)
	h.down(i)
	if h.list[i] == slot {
		h.up(i)
	}
}

// iterationCheck says in which iteration to look at a decoding sequence. It is void if the
// sequence has left the batch meanwhile.
type mark struct {
	iteration int64
	slot      int32
	serial    int32
}

// checkHeap orders checks by iteration, then by slot, so that runs are reproducible.
type markHeap []mark

// isBefore reports whether check a comes before check b.
func (a mark) before(b mark) bool {
	return a.iteration < b.iteration || a.iteration == b.iteration && a.slot < b.slot
}

// push adds a check.
func (h *markHeap) push(m mark) {
	*h = append(*h, m)
	list := *h
	i := len(list) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !m.before(list[parent]) {
			break
		}
		list[i] = list[parent]
		i = parent
	}
	list[i] = m
}

// pop removes the first check.
func (h *markHeap) pop() mark {
	list := *h
	top, last := list[0], len(list)-1
	m := list[last]
	list = list[:last]
	*h = list
	if last == 0 {
		return top
	}

	// Sift the last check down from the root.
	i := 0
	for {
		child := 4*i + 1
		if child >= last {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, last); c++ {
			if list[c].before(list[least]) {
				least = c
			}
		}
		if !list[least].before(m) {
			break
		}
		list[i] = list[least]
		i = least
	}
	list[i] = m
	return top
}
