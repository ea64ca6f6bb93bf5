package httplimit

import (
	"math/bits"
	"sync"
)

// Buffer is a byte buffer from a pool. Bodies are read into a buffer and tensors alias it, so that a large tensor is
// not copied.
type Buffer struct {
	B        []byte
	class    int8
	released bool
	// lender, if set, owns the bytes: they are a message as gRPC has received it.
	lender interface{ Free() }
	// hold, if set, is the memory that the request has booked. It is closed when the buffer is released.
	hold *MemoryHold
}

const (
	minClass = 12 // 4 KiB
	maxClass = 24 // 16 MiB; larger buffers are not pooled
)

var pools [maxClass + 1]sync.Pool

// pooledCapacity returns the capacity of the buffer that NewBuffer returns for a wanted capacity.
func pooledCapacity(capacity int) int {
	if class := max(minClass, bits.Len(uint(max(capacity, 1)-1))); class <= maxClass {
		return 1 << class
	}
	return capacity
}

// NewBuffer returns an empty buffer with at least the given capacity in bytes. Capacities are powers of two, by which
// released buffers are pooled for use again. Larger ones than 1 << maxClass are not pooled (class -1).
func NewBuffer(capacity int) *Buffer {
	class := max(minClass, bits.Len(uint(max(capacity, 1)-1)))
	if class > maxClass {
		return &Buffer{B: make([]byte, 0, capacity), class: -1}
	}
	b, _ := pools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{B: make([]byte, 0, 1<<class), class: int8(class)}
	}
	b.B, b.released = b.B[:0], false
	return b
}

// NewLentBuffer returns a buffer of bytes that belong to a lender until the buffer is released, and that are booked
// in hold.
func NewLentBuffer(b []byte, lender interface{ Free() }, hold *MemoryHold) *Buffer {
	return &Buffer{B: b, class: -1, lender: lender, hold: hold}
}

// Release gives the buffer's memory back to its pool or to its lender, and its bytes back to the budget. Nothing may
// read B afterwards. It panics if the buffer was released before.
func (b *Buffer) Release() {
	if b.released {
		panic("httplimit: a request's data was released twice")
	}
	b.released = true
	if b.hold != nil {
		b.hold.Close()
		b.hold = nil
	}
	switch {
	case b.lender != nil:
		b.lender.Free()
	case b.class >= 0 && cap(b.B) == 1<<b.class:
		pools[b.class].Put(b)
	}
}

// resize moves the bytes to an array of at least the given capacity.
func (b *Buffer) resize(capacity int) {
	larger := NewBuffer(capacity)
	larger.B = append(larger.B, b.B...)
	b.B, larger.B = larger.B, b.B
	b.class, larger.class = larger.class, b.class
	larger.Release()
}
