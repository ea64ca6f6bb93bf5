package slots

// Ring is a first-in first-out queue in a ring of memory, which grows as needed. The zero value is empty.
type Ring[T any] struct {
	Len   int // number of values
	items []T // their number is a power of two, so that a mask of bits wraps an index around
	head  int
}

// At returns the i-th value, which may be changed in place.
func (r *Ring[T]) At(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

// Add appends a value and returns a pointer to it for the caller to fill in, which saves a copy.
func (r *Ring[T]) Add() *T {
	if r.Len == len(r.items) {
		r.Grow()
	}
	r.Len++
	return r.At(r.Len - 1)
}

// Grow doubles the ring, to at least 16 values, and moves the first one to its start.
func (r *Ring[T]) Grow() {
	items := make([]T, max(16, 2*len(r.items)))
	for i := range r.Len {
		items[i] = *r.At(i)
	}
	r.items, r.head = items, 0
}

// Pop removes the first value and returns a pointer to it, which holds until the next Add. The ring must not be empty.
func (r *Ring[T]) Pop() *T {
	first := r.At(0)
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.Len--
	return first
}
