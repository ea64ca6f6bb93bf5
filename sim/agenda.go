package sim

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/slots"
	"inferplan/sim/kernel"
)

// agenda holds the clock and the events that are still to happen. Events of this instant that follow at once from
// others (a batch starts, a transfer within a node ends) wait in two short queues instead of the heap, and so does
// the next arrival.
type agenda struct {
	now            time.Duration
	heap           kernel.Queue[agendaEntry]
	endedTransfers slots.Ring[agendaEntry] // transfers that ended in this instant
	startedBatches slots.Ring[agendaEntry] // batches that started in this instant
	arrivalPending bool                    // the next arrival is known; arrivalAt is its time
	arrivalAt      time.Duration
	hostEntries    int64 // number of entries so far that belong to no batch
}

// schedule puts an entry on the agenda that is due at a time. Entries of one instant come by their order (the kind of
// event that they mean to the policy), and those of equal order by their sequence number. The result is the handle by
// which the entry can be moved or removed.
func (agenda *agenda) schedule(due time.Duration, order policy.EventKind, sequence int64, entry agendaEntry) kernel.Handle {
	return agenda.heap.Push(due, uint8(order), sequence, entry)
}

// scheduleInPlace puts an entry on the agenda like schedule, and returns a pointer to it for the caller to fill in at
// once, which saves a copy.
func (agenda *agenda) scheduleInPlace(due time.Duration, order policy.EventKind, sequence int64) *agendaEntry {
	_, entry := agenda.heap.Add(due, uint8(order), sequence)
	return entry
}

// hostSequenceBase is added to the sequence numbers of entries that belong to no batch. Those of entries of batches are
// serial numbers of batches, which stay below it.
const hostSequenceBase = 1 << 48

// scheduleAfter puts an entry that belongs to no batch on the agenda, a delay from now. Among the entries of its
// instant and order it comes after those of batches, and after earlier entries that belong to no batch.
func (agenda *agenda) scheduleAfter(delay time.Duration, order policy.EventKind, entry agendaEntry) {
	agenda.hostEntries++
	agenda.schedule(agenda.now+delay, order, hostSequenceBase+agenda.hostEntries, entry)
}

// peek returns the time and the order (within its instant) of whichever is first: the next entry of the heap or the
// next arrival. If their times are equal, the one of the lower order is first. If there is neither, it returns the
// largest time and the largest order.
func (agenda *agenda) peek() (time.Duration, uint8) {
	nextAt, order := time.Duration(1<<63-1), uint8(255)
	if agenda.heap.Len() > 0 {
		nextAt, order = agenda.heap.Peek()
	}
	if agenda.arrivalPending && (agenda.arrivalAt < nextAt || agenda.arrivalAt == nextAt && uint8(policy.Arrival) < order) {
		return agenda.arrivalAt, uint8(policy.Arrival)
	}
	return nextAt, order
}

// popNext writes the next entry of the agenda into entry and moves the clock to it. It returns false if nothing is
// left. Entries of one instant come by their order, the number of the kind of event that they mean to the policy
// (policy.EventKind). Transfers that ended and batches that started in the present instant have queues of their own,
// which are faster than the heap.
func (agenda *agenda) popNext(entry *agendaEntry) bool {
	// Compare the queues of this instant with the rest, the heap and the next arrival, of which nextAt and order belong to
	// whichever is first. An entry of the queues goes before what is later or has a higher order. Ends of transfers may
	// also be in the heap: of two at this instant the one of the batch with the lower serial number goes first, and that
	// number is the sequence number in the heap. What is in the queues happens now, so the clock stays.
	nextAt, order := agenda.peek()
	switch {
	case agenda.endedTransfers.Len > 0 && (nextAt > agenda.now || order > uint8(policy.TransferFinished) ||
		order == uint8(policy.TransferFinished) && agenda.endedTransfers.At(0).serial < agenda.heap.PeekSequence()):
		*entry = *agenda.endedTransfers.Pop()
	case agenda.startedBatches.Len > 0 && (nextAt > agenda.now || order > uint8(policy.BatchStarted)):
		*entry = *agenda.startedBatches.Pop()
	case agenda.arrivalPending && order == uint8(policy.Arrival):
		agenda.now, agenda.arrivalPending = nextAt, false
		entry.kind = arrivalEntry
	case agenda.heap.Len() > 0:
		agenda.now = agenda.heap.PopInto(entry)
	default:
		return false
	}
	return true
}
