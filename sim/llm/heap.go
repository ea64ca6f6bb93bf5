package llm

// waitingHeap orders waiting sequences by priority, lower first, then in the order of adding.
// Without priorities all have the same one.
type waitingHeap struct {
	list     []int32 // slots
	instance *Instance
}

// isBefore reports whether slot a goes before slot b.
func (h *waitingHeap) isBefore(a, b int32) bool {
	x, y := &h.instance.seqs[a], &h.instance.seqs[b]
	return x.rank < y.rank || x.rank == y.rank && x.addedAs < y.addedAs
}

// push adds the slot of a sequence that waits to be admitted.
func (h *waitingHeap) push(slot int32) {
	h.list = append(h.list, slot)
	h.siftUp(len(h.list) - 1)
}

// setAt puts a slot at index i.
func (h *waitingHeap) setAt(i int, slot int32) {
	h.list[i] = slot
	h.instance.seqs[slot].position = int32(i)
}

// siftUp moves the slot at index i towards the root.
func (h *waitingHeap) siftUp(i int) {
	slot := h.list[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.isBefore(slot, h.list[parent]) {
			break
		}
		h.setAt(i, h.list[parent])
		i = parent
	}
	h.setAt(i, slot)
}

// siftDown moves the slot at index i of a binary heap away from the root, until no child is before it.
func (h *waitingHeap) siftDown(i int) {
	slot := h.list[i]
	for {
		child := 2*i + 1
		if child >= len(h.list) {
			break
		}
		if child+1 < len(h.list) && h.isBefore(h.list[child+1], h.list[child]) {
			child++
		}
		if !h.isBefore(h.list[child], slot) {
			break
		}
		h.setAt(i, h.list[child])
		i = child
	}
	h.setAt(i, slot)
}

// remove removes the slot at index i from the heap: the last one takes its place and moves down or up.
func (h *waitingHeap) remove(i int) {
	lastIndex := len(h.list) - 1
	slot := h.list[lastIndex]
	h.list = h.list[:lastIndex]
	if i == lastIndex {
		return
	}
	h.setAt(i, slot)
	h.siftDown(i)
	if h.list[i] == slot {
		h.siftUp(i)
	}
}

// iterationCheck says in which iteration to look at a decoding sequence. It is void if the
// sequence has left the batch meanwhile.
type iterationCheck struct {
	iteration int64
	slot      int32
	serial    int32
}

// checkHeap orders checks by iteration, then by slot, so that runs are reproducible.
type checkHeap []iterationCheck

// isBefore reports whether check a comes before check b.
func (a iterationCheck) isBefore(b iterationCheck) bool {
	return a.iteration < b.iteration || a.iteration == b.iteration && a.slot < b.slot
}

// push adds a check (an iteration at which something is to be looked at) to the heap. It has four children per
// node, so it has fewer levels than a binary one.
func (h *checkHeap) push(m iterationCheck) {
	*h = append(*h, m)
	list := *h
	i := len(list) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !m.isBefore(list[parent]) {
			break
		}
		list[i] = list[parent]
		i = parent
	}
	list[i] = m
}

// pop removes and returns the first check (the one of the earliest iteration) of the heap, which must not be empty.
func (h *checkHeap) pop() iterationCheck {
	list := *h
	top, lastIndex := list[0], len(list)-1
	m := list[lastIndex]
	list = list[:lastIndex]
	*h = list
	if lastIndex == 0 {
		return top
	}

	// Sift the last check down from the root.
	i := 0
	for {
		child := 4*i + 1
		if child >= lastIndex {
			break
		}
		smallest := child
		for c := child + 1; c < min(child+4, lastIndex); c++ {
			if list[c].isBefore(list[smallest]) {
				smallest = c
			}
		}
		if !list[smallest].isBefore(m) {
			break
		}
		list[i] = list[smallest]
		i = smallest
	}
	list[i] = m
	return top
}
