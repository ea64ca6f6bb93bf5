package worker

// SlotPool hands out the slots of a stage: parts of shared memory, each for the input and output of one batch. It
// hands out the slot that was returned last, so that few pages are touched and stay in the CPU's cache.
type SlotPool struct {
	freeSlots []int32
	size      int
}

// NewSlotPool makes a pool of the slots 0 to n-1, all free. Slot 0 is taken first.
func NewSlotPool(n int) *SlotPool {
	p := &SlotPool{freeSlots: make([]int32, n), size: n}
	for i := range p.freeSlots {
		p.freeSlots[i] = int32(n - 1 - i)
	}
	return p
}

// Take returns a free slot and marks it as taken, or returns false if there is none.
func (p *SlotPool) Take() (int32, bool) {
	n := len(p.freeSlots)
	if n == 0 {
		return 0, false
	}
	s := p.freeSlots[n-1]
	p.freeSlots = p.freeSlots[:n-1]
	return s, true
}

// Give returns a slot.
func (p *SlotPool) Give(s int32) { p.freeSlots = append(p.freeSlots, s) }

// InUse returns the number of slots taken.
func (p *SlotPool) InUse() int { return p.size - len(p.freeSlots) }

// IsFull reports whether no slot is free.
func (p *SlotPool) IsFull() bool { return len(p.freeSlots) == 0 }
