package httplimit

import (
	"math/bits"
	"sync"
)

// Buffer is a byte buffer from a pool. Bodies are read into one and tensors point into it,
// so a large tensor is not copied on its way to the backend.
type Buffer struct {
	B     []byte
	class int8
	given bool // it was released
	// lender, when set, owns the bytes: a message as gRPC received it.
	lender interface{ Free() }
	// hold, when set, is what the request has booked; it ends with the buffer.
	hold *Hold
}

const (
	minClass = 12 // 4 KiB
	maxClass = 24 // 16 MiB; larger ones are left to the garbage collector
)

var pools [maxClass + 1]sync.Pool

// roundUp is the capacity that NewBuffer gives for one asked for.
func roundUp(capacity int) int {
	if class := max(minClass, bits.Len(uint(max(capacity, 1)-1))); class <= maxClass {
		return 1 << class
	}
	return capacity
}

// NewBuffer returns a buffer with length 0 and at least that capacity.
func NewBuffer(capacity int) *Buffer {
	class := max(minClass, bits.Len(uint(max(capacity, 1)-1)))
	if class > maxClass {
		return &Buffer{B: make([]byte, 0, capacity), class: -1}
	}
	b, _ := pools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{B: make([]byte, 0, 1<<class), class: int8(class)}
	}
	b.B, b.given = b.B[:0], false
	return b
}

// Lent is a buffer around bytes that belong to a lender until the buffer is released,
// and that are booked in a hold.
func Lent(b []byte, lender interface{ Free() }, hold *Hold) *Buffer {
	return &Buffer{B: b, class: -1, lender: lender, hold: hold}
}

// Release gives the memory back.
func (b *Buffer) Release() {
	if b.given {
		panic("httplimit: a request's data was released twice")
	}
	b.given = true
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

// resize moves the bytes to an array of at least that capacity.
func (b *Buffer) resize(capacity int) {
	next := NewBuffer(capacity)
	next.B = append(next.B, b.B...)
	b.B, next.B = next.B, b.B
	b.class, next.class = next.class, b.class
	next.Release()
}
