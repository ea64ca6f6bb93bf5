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
	now            time.Duration
	heap           kernel.Queue[agendaEntry]
	endedTransfers entryRing // transfers that ended in this instant
	startedBatches entryRing // batches that started in this instant
	arrivalPending bool      // the next arrival is known; arrivalAt is its time
	arrivalAt      time.Duration
	hostEntries    int64 // number of entries so far that belong to no batch
}

// schedule puts an entry on the agenda: when it is due, its order in that instant, and its
// sequence number among those of the same order.
func (g *agenda) schedule(due time.Duration, order policy.EventKind, sequence int64, entry agendaEntry) kernel.Handle {
	return g.heap.Push(due, uint8(order), sequence, entry)
}

// scheduleAfter puts an entry of no batch on the agenda, a delay from now. Among the entries
// of its instant and order it comes after those of batches, and after earlier ones of its own sort.
func (g *agenda) scheduleAfter(delay time.Duration, order policy.EventKind, entry agendaEntry) {
	g.hostEntries++
	g.schedule(g.now+delay, order, 1<<48+g.hostEntries, entry)
}

// peek returns the time and order of the next entry of the heap or of the next arrival. If
// there is none, both are larger than any real ones.
func (g *agenda) peek() (time.Duration, uint8) {
	nextAt, order := time.Duration(1<<63-1), uint8(255)
	if g.heap.Len() > 0 {
		nextAt, order = g.heap.Peek()
	}
	if g.arrivalPending && (g.arrivalAt < nextAt || g.arrivalAt == nextAt && uint8(policy.Arrival) < order) {
		return g.arrivalAt, uint8(policy.Arrival)
	}
	return nextAt, order
}

// popNext takes the next entry of the agenda and moves the clock to it. It returns false if nothing is left.
// Entries of one instant come in the order of their kinds. Ended transfers and started batches of the present
// instant have queues of their own, which are faster than the heap.
func (g *agenda) popNext(entry *agendaEntry) bool {
	// Transfers and starts of this instant go before what is later or has a higher order.
	// Among transfers the serial number of the batch decides.
	nextAt, order := g.peek()
	switch {
	case g.endedTransfers.n > 0 && (nextAt > g.now || order > uint8(policy.TransferFinished) ||
		order == uint8(policy.TransferFinished) && g.endedTransfers.front().serial < g.heap.PeekSequence()):
		g.endedTransfers.pop(entry)
	case g.startedBatches.n > 0 && (nextAt > g.now || order > uint8(policy.BatchStarted)):
		g.startedBatches.pop(entry)
	case g.arrivalPending && order == uint8(policy.Arrival):
		g.now, g.arrivalPending = nextAt, false
		entry.kind = isArrival
	case g.heap.Len() > 0:
		g.now = g.heap.PopInto(entry)
	default:
		return false
	}
	return true
}

// entryRing is a first-in first-out queue of items.
type entryRing struct {
	items []agendaEntry // its length is a power of two
	head  int
	n     int
}

// push appends an item.
func (r *entryRing) push(entry agendaEntry) { *r.pushSlot() = entry }

// pushSlot appends an item to the ring and returns it for the caller to fill in, which saves a copy. A full ring is
// doubled; its size is a power of two.
func (r *entryRing) pushSlot() *agendaEntry {
	if r.n == len(r.items) {
		bigger := make([]agendaEntry, max(16, 2*len(r.items)))
		for i := range r.n {
			bigger[i] = r.items[(r.head+i)&(len(r.items)-1)]
		}
		r.items, r.head = bigger, 0
	}
	r.n++
	return &r.items[(r.head+r.n-1)&(len(r.items)-1)]
}

// front returns the oldest item.
func (r *entryRing) front() *agendaEntry { return &r.items[r.head] }

// pop removes the oldest item and copies it to it.
func (r *entryRing) pop(entry *agendaEntry) {
	*entry = r.items[r.head]
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
}
