package reserve

import (
	"fmt"
	"slices"
	"time"
)

// CheckTimelines tells the first way in which the timelines are not what
// first-in first-out execution of all that is reserved would give.
func (p *Policy) CheckTimelines() error {
	t := p.timelines
	listed := 0
	for res := range t.lists.summaries {
		summary := &t.lists.summaries[res]
		prev, free := int32(-1), t.lists.freeFrom[res]
		for n := summary.first; n >= 0; n = t.lists.reservations[n].next {
			listed++
			entry := &t.lists.reservations[n]
			switch {
			case entry.resource != int32(res) || entry.prev != prev:
				return fmt.Errorf("resource %d: node %d is of resource %d behind %d, expected behind %d", res, n, entry.resource, entry.prev, prev)
			case !p.batches.BatchAt(n / t.lists.reservationsPerBatch).IsLive:
				return fmt.Errorf("resource %d: node %d is of a batch that is over", res, n)
			case entry.start < free:
				return fmt.Errorf("resource %d: node %d starts at %v before the work in front ends at %v", res, n, entry.start, free)
			}
			if in := n % t.lists.reservationsPerBatch % reservationsPerHop; !entry.startIsActual {
				want := max(entry.readyAt, free)
				if in != onDevice {
					want = max(want, t.lists.predecessorEnd(n-in+onUplink), t.lists.predecessorEnd(n-in+onDownlink))
				}
				if entry.start != want {
					return fmt.Errorf("resource %d: node %d starts at %v, first-in first-out gives %v", res, n, entry.start, want)
				}
			}
			prev, free = n, entry.end()
		}
		if summary.last != prev {
			return fmt.Errorf("resource %d: last is %d, expected %d", res, summary.last, prev)
		}
		want := free
		if t.lists.isLost[res] {
			want = farFuture
		}
		if summary.lastEnd != want {
			return fmt.Errorf("resource %d: tail %v, expected %v", res, summary.lastEnd, want)
		}
		if prev >= 0 && !t.lists.isLost[res] && summary.lastReady != t.lists.reservations[prev].readyAt {
			return fmt.Errorf("resource %d: last ready %v, expected %v", res, summary.lastReady, t.lists.reservations[prev].readyAt)
		}
	}
	held := 0
	for n := range t.lists.reservations {
		if t.lists.reservations[n].resource >= 0 && p.batches.BatchAt(int32(n)/t.lists.reservationsPerBatch).IsLive {
			held++
		}
	}
	if held != listed {
		return fmt.Errorf("%d reservations are held, %d listed", held, listed)
	}
	return nil
}

// WaitingRequests is the number of requests that wait.
func (p *Policy) WaitingRequests() int {
	n := 0
	for i := range p.models {
		n += p.models[i].queue.Len
	}
	return n
}

// Work is one reservation of a Timeline.
type Work struct{ Ready, Dur, Start time.Duration }

// Timeline is a pair of resources under test: one, or an uplink and a downlink.
type Timeline struct {
	tl    timelines
	batch int32
}

// NewTimeline makes room for n reservations on three resources.
func NewTimeline(n int32) *Timeline {
	t := &Timeline{}
	t.tl.initialize(3, n, 1)
	return t
}

// Slot asks for a place on one resource (b < 0) or two.
func (t *Timeline) Slot(a, b int32, readyAt, dur time.Duration) (start, requiredDelay time.Duration) {
	if b < 0 {
		return t.tl.lists.findGap(a, readyAt, dur, false)
	}
	return t.tl.lists.findTransferGap(a, b, readyAt, dur)
}

// Insert enters a reservation.
func (t *Timeline) Insert(a, b int32, w Work) {
	for i, res := range []int32{a, b} {
		if res < 0 {
			continue
		}
		n := t.tl.lists.reservationOf(t.batch, 0, int32(i))
		t.tl.lists.reservations[n] = reservation{readyAt: w.Ready, start: w.Start, duration: w.Dur, prev: -1, next: -1, resource: res}
		t.tl.lists.insertReservation(n)
	}
	t.batch++
}

// ForgetWaits makes the next decisions probe, and tells of how many models it
// knew the path that their heads wait for.
func (p *Policy) ForgetWaits() (known int) {
	for i := range p.models {
		if model := &p.models[i]; len(model.awaitedDevices) > 0 {
			model.awaitedDevices = model.awaitedDevices[:0]
			known++
		}
	}
	return known
}

// MaxDepth is the bound.
const MaxDepth = maxDepth

// SetMaxDepth changes how many reservations a device may have.
func (p *Policy) SetMaxDepth(n int32) { p.finder.maxDepth = n }

// Depth is the largest number of reservations on a device now.
func (p *Policy) Depth() int32 {
	return slices.Max(p.lists.reservationCounts[:p.finder.numDevices])
}

// ReservedTimes is when a batch is to come to the device of a hop, to start and to end there.
func (p *Policy) ReservedTimes(batch int32, hop int16) (readyAt, start, end time.Duration) {
	n := &p.lists.reservations[p.lists.reservationOf(batch, hop, onDevice)]
	return n.readyAt, n.start, n.end()
}
