package waiting

import "time"

// Request is a request that waits or runs.
type Request struct {
	Deadline time.Duration
	Arrived  time.Duration
	Req      int32
	Device   int32 // that holds its tensors between stages, where a policy asks
	Looked   bool  // passed its first look as the head
	Lost     bool  // was on a device that was lost
}

// before orders requests by deadline, then arrival. With one SLO per model that
// is the order of arrival.
func (a *Request) before(b *Request) bool {
	if a.Deadline != b.Deadline {
		return a.Deadline < b.Deadline
	}
	return a.Arrived < b.Arrived
}

// Queue is a ring of requests in order of deadline. The zero value is empty.
type Queue struct {
	Len   int
	ring  []Request // length a power of two
	first int
}

// At is the i-th request, to be changed in place but for its order.
func (q *Queue) At(i int) *Request { return &q.ring[(q.first+i)&(len(q.ring)-1)] }

// Insert puts r at its place; in the usual case the end.
func (q *Queue) Insert(r Request) {
	if q.Len == len(q.ring) {
		q.Grow()
	}
	i := q.Len
	q.Len++
	for ; i > 0 && r.before(q.At(i-1)); i-- {
		*q.At(i) = *q.At(i - 1)
	}
	*q.At(i) = r
}

// Grow makes room for more.
func (q *Queue) Grow() {
	bigger := make([]Request, max(16, 2*len(q.ring)))
	for i := range q.Len {
		bigger[i] = *q.At(i)
	}
	q.ring, q.first = bigger, 0
}

// Pop takes the first request out.
func (q *Queue) Pop() Request {
	r := *q.At(0)
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.Len--
	return r
}

// PopLast takes the last request out.
func (q *Queue) PopLast() Request {
	q.Len--
	return *q.At(q.Len)
}

// Remove takes a request out and tells whether it was there.
func (q *Queue) Remove(req int32) bool {
	for i := range q.Len {
		if q.At(i).Req != req {
			continue
		}
		for ; i+1 < q.Len; i++ {
			*q.At(i) = *q.At(i + 1)
		}
		q.Len--
		return true
	}
	return false
}
