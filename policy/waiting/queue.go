package waiting

import "time"

// Request is a request that waits or runs.
type Request struct {
	Deadline        time.Duration
	ArrivedAt       time.Duration
	Req             int32
	Device          int32 // device that holds its tensors between stages, if a policy needs it
	PassedFirstLook bool  // it has passed the check when it first became the head
	WasLost         bool  // it was on a device that was lost
}

// isBefore orders requests by deadline, then by arrival. With one SLO per model that is the order of arrival.
func (a *Request) isBefore(b *Request) bool {
	if a.Deadline != b.Deadline {
		return a.Deadline < b.Deadline
	}
	return a.ArrivedAt < b.ArrivedAt
}

// Queue is a ring of requests in the order of their deadlines. The zero value is empty.
type Queue struct {
	Len  int       // number of requests
	ring []Request // its length is a power of two
	head int
}

// At returns the i-th request. It may be changed in place, except for its order.
func (q *Queue) At(i int) *Request { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

// Insert inserts a request at its place in the order of deadlines. That is usually the end, so later requests are moved back
// one by one from there.
func (q *Queue) Insert(r Request) {
	if q.Len == len(q.ring) {
		q.Grow()
	}
	i := q.Len
	q.Len++
	for ; i > 0 && r.isBefore(q.At(i-1)); i-- {
		*q.At(i) = *q.At(i - 1)
	}
	*q.At(i) = r
}

// Grow doubles the ring, to at least 16 requests, and moves the first request to its start.
func (q *Queue) Grow() {
	bigger := make([]Request, max(16, 2*len(q.ring)))
	for i := range q.Len {
		bigger[i] = *q.At(i)
	}
	q.ring, q.head = bigger, 0
}

// Pop removes the first request and returns it. The head then is the next index of the ring, whose length is a power of two,
// so that a mask of bits wraps it around.
func (q *Queue) Pop() Request {
	r := *q.At(0)
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.Len--
	return r
}

// PopLast removes the last request and returns it.
func (q *Queue) PopLast() Request {
	q.Len--
	return *q.At(q.Len)
}

// Remove removes a request by its slot, moves those behind it forward, and returns true. If the request is not in the queue,
// it returns false.
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
