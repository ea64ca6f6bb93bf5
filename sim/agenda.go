package sim

import (
	"time"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// agenda is what is still to happen. The events of this instant that follow at
// once from others (a batch starts, a transfer within a node ends) wait in two
// short queues instead of the heap, and so does the one arrival that is ahead.
type agenda struct {
	now    time.Duration
	heap   kernel.Queue[item]
	moved  ring // transfers that ended at once
	begun  ring // batches that started now
	ahead  bool // an arrival is
	arrive time.Duration
	placed int64 // entries of hosts that are not of a batch, so far
}

// at puts an entry on the agenda: when, its order in the instant, and its
// sequence among those of the same order.
func (g *agenda) at(when time.Duration, order policy.EventKind, sequence int64, it item) kernel.Handle {
	return g.heap.Push(when, uint8(order), sequence, it)
}

// sequence numbers entries that are not of a batch: they come after those.
func (g *agenda) sequence() int64 {
	g.placed++
	return 1<<48 + g.placed
}

// peek is the time and order of the next entry of the heap or of the next
// arrival, or past all others.
func (g *agenda) peek() (time.Duration, uint8) {
	at, order := time.Duration(1<<63-1), uint8(255)
	if g.heap.Len() > 0 {
		at, order = g.heap.Next()
	}
	if g.ahead && (g.arrive < at || g.arrive == at && uint8(policy.Arrival) < order) {
		return g.arrive, uint8(policy.Arrival)
	}
	return at, order
}

// next takes the next entry and moves the clock; false: nothing is left.
func (g *agenda) next(it *item) bool {
	at, order := g.peek()
	switch {
	case g.moved.n > 0 && (at > g.now || order > uint8(policy.TransferFinished) ||
		order == uint8(policy.TransferFinished) && g.moved.front().serial < g.heap.NextSequence()):
		g.moved.pop(it)
	case g.begun.n > 0 && (at > g.now || order > uint8(policy.BatchStarted)):
		g.begun.pop(it)
	case g.ahead && order == uint8(policy.Arrival):
		g.now, g.ahead = at, false
		it.what = isArrival
	case g.heap.Len() > 0:
		g.now = g.heap.PopInto(it)
	default:
		return false
	}
	return true
}

// ring is a first-in first-out queue of items.
type ring struct {
	items []item // length a power of two
	first int
	n     int
}

func (r *ring) push(it item) { *r.add() = it }

// add makes room for an item, which the caller fills in.
func (r *ring) add() *item {
	if r.n == len(r.items) {
		bigger := make([]item, max(16, 2*len(r.items)))
		for i := range r.n {
			bigger[i] = r.items[(r.first+i)&(len(r.items)-1)]
		}
		r.items, r.first = bigger, 0
	}
	r.n++
	return &r.items[(r.first+r.n-1)&(len(r.items)-1)]
}

func (r *ring) front() *item { return &r.items[r.first] }

func (r *ring) pop(it *item) {
	*it = r.items[r.first]
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.n--
}
