package sim

import (
	"time"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// agenda holds the clock and the events that are still to happen. Events of this instant
// that follow at once from others (a batch starts, a transfer within a node ends) wait in
// two short queues instead of the heap, and so does the next arrival.
type agenda struct {
	now    time.Duration
	heap   kernel.Queue[item]
	moved  ring // transfers that ended in this instant
	begun  ring // batches that started in this instant
	ahead  bool // the next arrival is known; arrivalAt is its time
	arrive time.Duration
	placed int64 // number of entries so far that belong to no batch
}

// schedule puts an entry on the agenda: when it is due, its order in that instant, and its
// sequence number among those of the same order.
func (g *agenda) at(when time.Duration, order policy.EventKind, sequence int64, it item) kernel.Handle {
	return g.heap.Push(when, uint8(order), sequence, it)
}

// nextSequence returns a sequence number for an entry of no batch. It is larger than those of all batches.
func (g *agenda) sequence() int64 {
	g.placed++
	return 1<<48 + g.placed
}

// peek returns the time and order of the next entry of the heap or of the next arrival. If
// there is none, both are larger than any real ones.
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

// popNext takes the next entry and moves the clock. It returns false if nothing is left.
func (g *agenda) next(it *item) bool {
	// Transfers and starts of this instant go before what is later or has a higher order.
	// Among transfers the serial number of the batch decides.
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
	items []item // its length is a power of two
	first int
	n     int
}

// push appends an item.
func (r *ring) push(it item) { *r.add() = it }

// pushSlot appends an item, which the caller fills in.
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

// front returns the oldest item.
func (r *ring) front() *item { return &r.items[r.first] }

// pop removes the oldest item and copies it to it.
func (r *ring) pop(it *item) {
	*it = r.items[r.first]
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.n--
}
