package llm

// waitingHeap orders waiting sequences, by their slots, by priority, lower first, then in the order of adding.
// Without priorities all have the same one.
type waitingHeap struct {
	list     []int32 // slots
	instance *Instance
}

// isBefore reports whether the sequence in a slot is admitted before the one in another slot.
func (h *waitingHeap) isBefore(slot, otherSlot int32) bool {
	first, second := &h.instance.sequences[slot], &h.instance.sequences[otherSlot]
	return first.priority < second.priority || first.priority == second.priority && first.addedNumber < second.addedNumber
}

// push adds the slot of a sequence that waits to be admitted to the running batch.
func (h *waitingHeap) push(slot int32) {
	h.list = append(h.list, slot)
	h.siftUp(len(h.list) - 1)
}

// setAt puts a sequence's slot at an index of the heap, and notes the index in the sequence.
func (h *waitingHeap) setAt(index int, slot int32) {
	h.list[index] = slot
	h.instance.sequences[slot].position = int32(index)
}

// siftUp moves the slot at an index of the heap towards the root, until its parent is before it.
func (h *waitingHeap) siftUp(index int) {
	slot := h.list[index]
	for index > 0 {
		parent := (index - 1) / 2
		if !h.isBefore(slot, h.list[parent]) {
			break
		}
		h.setAt(index, h.list[parent])
		index = parent
	}
	h.setAt(index, slot)
}

// siftDown moves the slot at an index of the heap away from the root, until no child is before it.
func (h *waitingHeap) siftDown(index int) {
	slot := h.list[index]
	for {
		child := 2*index + 1
		if child >= len(h.list) {
			break
		}
		if child+1 < len(h.list) && h.isBefore(h.list[child+1], h.list[child]) {
			child++
		}
		if !h.isBefore(h.list[child], slot) {
			break
		}
		h.setAt(index, h.list[child])
		index = child
	}
	h.setAt(index, slot)
}

// remove removes the slot at an index of the heap: the last one takes its place and moves down or up.
func (h *waitingHeap) remove(index int) {
	lastIndex := len(h.list) - 1
	slot := h.list[lastIndex]
	h.list = h.list[:lastIndex]
	if index == lastIndex {
		return
	}
	h.setAt(index, slot)
	h.siftDown(index)
	if h.list[index] == slot {
		h.siftUp(index)
	}
}

// iterationCheck says in which iteration to look at a decoding sequence (in a slot). It is void if the sequence has
// left the batch meanwhile, which changes the serial number.
type iterationCheck struct {
	iteration int64
	slot      int32
	serial    int32
}

// checkHeap orders checks by iteration, then by slot, so that runs are reproducible.
type checkHeap []iterationCheck

// isBefore reports whether a check comes before another one: in an earlier iteration or, in the same one, of a lower slot.
func (check iterationCheck) isBefore(other iterationCheck) bool {
	return check.iteration < other.iteration || check.iteration == other.iteration && check.slot < other.slot
}

// push adds a check (an iteration in which a sequence is to be looked at) to the heap. It has four children per node,
// so it has fewer levels than a binary one.
func (h *checkHeap) push(check iterationCheck) {
	*h = append(*h, check)
	list := *h
	index := len(list) - 1
	for index > 0 {
		parent := (index - 1) / 4
		if !check.isBefore(list[parent]) {
			break
		}
		list[index] = list[parent]
		index = parent
	}
	list[index] = check
}

// pop removes and returns the first check (the one of the earliest iteration) of the heap, which must not be empty.
func (h *checkHeap) pop() iterationCheck {
	list := *h
	top, lastIndex := list[0], len(list)-1
	last := list[lastIndex]
	list = list[:lastIndex]
	*h = list
	if lastIndex == 0 {
		return top
	}

	// Sift the last check down from the root.
	index := 0
	for {
		child := 4*index + 1
		if child >= lastIndex {
			break
		}
		smallest := child
		for candidate := child + 1; candidate < min(child+4, lastIndex); candidate++ {
			if list[candidate].isBefore(list[smallest]) {
				smallest = candidate
			}
		}
		if !list[smallest].isBefore(last) {
			break
		}
		list[index] = list[smallest]
		index = smallest
	}
	list[index] = last
	return top
}
