package httplimit

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffer is a reference-counted byte buffer from a pool. Bodies are read into
// one and tensors point into it, so a large tensor is not copied on its way to
// the backend.
type Buffer struct {
	B     []byte
	refs  atomic.Int32
	class int8
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

// NewBuffer returns a buffer with length 0 and at least that capacity, held once.
func NewBuffer(capacity int) *Buffer {
	class := max(minClass, bits.Len(uint(max(capacity, 1)-1)))
	if class > maxClass {
		b := &Buffer{B: make([]byte, 0, capacity), class: -1}
		b.refs.Store(1)
		return b
	}
	b, _ := pools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{B: make([]byte, 0, 1<<class), class: int8(class)}
	}
	b.B = b.B[:0]
	b.refs.Store(1)
	return b
}

// Lent is a buffer around bytes that belong to a lender until the buffer is released,
// and that are booked in a hold.
func Lent(b []byte, lender interface{ Free() }, hold *Hold) *Buffer {
	l := &Buffer{B: b, class: -1, lender: lender, hold: hold}
	l.refs.Store(1)
	return l
}

// Retain adds a holder.
func (b *Buffer) Retain() { b.refs.Add(1) }

// Release ends the hold of one holder; with the last the memory is given back.
func (b *Buffer) Release() {
	n := b.refs.Add(-1)
	if n < 0 {
		panic("httplimit: a request's data was released twice")
	}
	if n == 0 && b.hold != nil {
		b.hold.Close()
		b.hold = nil
	}
	switch {
	case n == 0 && b.lender != nil:
		b.lender.Free()
	case n == 0 && b.class >= 0 && cap(b.B) == 1<<b.class:
		pools[b.class].Put(b)
	}
}

// resize moves the bytes to an array of at least that capacity. Only while the
// buffer is held once.
func (b *Buffer) resize(capacity int) {
	next := NewBuffer(capacity)
	next.B = append(next.B, b.B...)
	b.B, next.B = next.B, b.B
	b.class, next.class = next.class, b.class
	next.Release()
}
