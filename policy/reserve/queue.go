package reserve

import "time"

// pending is a request that waits or runs.
type pending struct {
	deadline time.Duration
	arrived  time.Duration
	req      int32
	looked   bool // passed its first look as the head, see Options.Shed
	lost     bool // was on a device that was lost
}

// before orders requests by deadline, then arrival. With one SLO per model that
// is the order of arrival.
func (a *pending) before(b *pending) bool {
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	return a.arrived < b.arrived
}

// queue is a ring of pending requests in order of deadline.
type queue struct {
	ring  []pending // length a power of two
	first int
	n     int
}

func (q *queue) at(i int) *pending { return &q.ring[(q.first+i)&(len(q.ring)-1)] }

// insert puts r at its place; in the usual case the end.
func (q *queue) insert(r pending) {
	if q.n == len(q.ring) {
		q.grow()
	}
	i := q.n
	q.n++
	for ; i > 0 && r.before(q.at(i-1)); i-- {
		*q.at(i) = *q.at(i - 1)
	}
	*q.at(i) = r
}

func (q *queue) grow() {
	bigger := make([]pending, max(16, 2*len(q.ring)))
	for i := range q.n {
		bigger[i] = *q.at(i)
	}
	q.ring, q.first = bigger, 0
}

func (q *queue) pop() pending {
	r := *q.at(0)
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.n--
	return r
}

// remove takes a request out and tells whether it was there.
func (q *queue) remove(req int32) bool {
	for i := range q.n {
		if q.at(i).req != req {
			continue
		}
		for ; i+1 < q.n; i++ {
			*q.at(i) = *q.at(i + 1)
		}
		q.n--
		return true
	}
	return false
}
