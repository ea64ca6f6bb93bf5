package waiting

import (
	"time"

	"inferplan/policy/slots"
)

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

// Queue is a ring of requests in the order of their deadlines. The order of a request must not be changed in place. The zero
// value is empty.
type Queue struct{ slots.Ring[Request] }

// Insert inserts a request at its place in the order of deadlines. That is usually the end, so later requests are moved back
// one by one from there.
func (q *Queue) Insert(request Request) {
	i := q.Len
	q.Add()
	for ; i > 0 && request.isBefore(q.At(i-1)); i-- {
		*q.At(i) = *q.At(i - 1)
	}
	*q.At(i) = request
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
