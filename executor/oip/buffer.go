package oip

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"inferplan/executor/httplimit"
)

// buffer is a reference-counted byte buffer from a pool. Bodies are read into
// one and tensors point into it, so a large tensor is not copied on its way to
// the backend.
type buffer struct {
	b     []byte
	refs  atomic.Int32
	class int8
	// lender, when set, owns the bytes: a message as gRPC received it.
	lender interface{ Free() }
	// hold, when set, is what the request has booked; it ends with the buffer.
	hold *httplimit.Hold
}

const (
	minClass = 12 // 4 KiB
	maxClass = 24 // 16 MiB; larger ones are left to the garbage collector
)

var pools [maxClass + 1]sync.Pool

// roundUp is the capacity that newBuffer gives for one asked for.
func roundUp(capacity int) int {
	if class := max(minClass, bits.Len(uint(max(capacity, 1)-1))); class <= maxClass {
		return 1 << class
	}
	return capacity
}

// newBuffer returns a buffer with length 0 and at least that capacity, held once.
func newBuffer(capacity int) *buffer {
	class := max(minClass, bits.Len(uint(max(capacity, 1)-1)))
	if class > maxClass {
		b := &buffer{b: make([]byte, 0, capacity), class: -1}
		b.refs.Store(1)
		return b
	}
	b, _ := pools[class].Get().(*buffer)
	if b == nil {
		b = &buffer{b: make([]byte, 0, 1<<class), class: int8(class)}
	}
	b.b = b.b[:0]
	b.refs.Store(1)
	return b
}

func (b *buffer) retain() { b.refs.Add(1) }

func (b *buffer) release() {
	n := b.refs.Add(-1)
	if n < 0 {
		panic("oip: a request's data was released twice")
	}
	if n == 0 && b.hold != nil {
		b.hold.Close()
		b.hold = nil
	}
	switch {
	case n == 0 && b.lender != nil:
		b.lender.Free()
	case n == 0 && b.class >= 0 && cap(b.b) == 1<<b.class:
		pools[b.class].Put(b)
	}
}

// resize moves the bytes to an array of at least that capacity. Only while the
// buffer is held once.
func (b *buffer) resize(capacity int) {
	next := newBuffer(capacity)
	next.b = append(next.b, b.b...)
	b.b, next.b = next.b, b.b
	b.class, next.class = next.class, b.class
	next.release()
}
