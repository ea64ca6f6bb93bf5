package reserve

import (
	"fmt"
	"slices"
	"time"
)

// CheckTimelines tells the first way in which the timelines are not what
// first-in first-out execution of all that is reserved would give.
func (p *Policy) CheckTimelines() error {
	t := &p.tl
	listed := 0
	for res := range t.spans {
		sp := &t.spans[res]
		prev, free := int32(-1), t.floors[res]
		for n := sp.head; n >= 0; n = t.nodes[n].next {
			listed++
			nd := &t.nodes[n]
			switch {
			case nd.res != int32(res) || nd.prev != prev:
				return fmt.Errorf("resource %d: node %d is of resource %d behind %d, expected behind %d", res, n, nd.res, nd.prev, prev)
			case !p.batches.At(n / t.stride).Live:
				return fmt.Errorf("resource %d: node %d is of a batch that is over", res, n)
			case nd.start < free:
				return fmt.Errorf("resource %d: node %d starts at %v before the work in front ends at %v", res, n, nd.start, free)
			}
			if in := n % t.stride % perHop; !nd.started {
				want := max(nd.ready, free)
				if in != run {
					want = max(want, t.freeBefore(n-in+up), t.freeBefore(n-in+down))
				}
				if nd.start != want {
					return fmt.Errorf("resource %d: node %d starts at %v, first-in first-out gives %v", res, n, nd.start, want)
				}
			}
			prev, free = n, nd.end()
		}
		if sp.last != prev {
			return fmt.Errorf("resource %d: last is %d, expected %d", res, sp.last, prev)
		}
		want := free
		if t.lost[res] {
			want = never
		}
		if sp.tail != want {
			return fmt.Errorf("resource %d: tail %v, expected %v", res, sp.tail, want)
		}
		if prev >= 0 && !t.lost[res] && sp.lastReady != t.nodes[prev].ready {
			return fmt.Errorf("resource %d: last ready %v, expected %v", res, sp.lastReady, t.nodes[prev].ready)
		}
	}
	held := 0
	for n := range t.nodes {
		if t.nodes[n].res >= 0 && p.batches.At(int32(n)/t.stride).Live {
			held++
		}
	}
	if held != listed {
		return fmt.Errorf("%d reservations are held, %d listed", held, listed)
	}
	return nil
}

// Waiting is the number of requests that wait.
func (p *Policy) Waiting() int {
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
	t.tl.init(3, n, 1)
	return t
}

// Slot asks for a place on one resource (b < 0) or two.
func (t *Timeline) Slot(a, b int32, ready, dur time.Duration) (start, hold time.Duration) {
	if b < 0 {
		return t.tl.slot(a, ready, dur, false)
	}
	return t.tl.slotPair(a, b, ready, dur)
}

// Insert enters a reservation.
func (t *Timeline) Insert(a, b int32, w Work) {
	for i, res := range []int32{a, b} {
		if res < 0 {
			continue
		}
		n := t.tl.node(t.batch, 0, int32(i))
		t.tl.nodes[n] = node{ready: w.Ready, start: w.Start, dur: w.Dur, prev: -1, next: -1, res: res}
		t.tl.insert(n)
	}
	t.batch++
}

// ForgetWaits makes the next decisions probe, and tells of how many models it
// knew the path that their heads wait for.
func (p *Policy) ForgetWaits() (known int) {
	for i := range p.models {
		if mo := &p.models[i]; len(mo.waits) > 0 {
			mo.waits = mo.waits[:0]
			known++
		}
	}
	return known
}

// MaxDepth is the bound.
const MaxDepth = maxDepth

// SetMaxDepth changes how many reservations a device may have.
func (p *Policy) SetMaxDepth(n int32) { p.maxDepth = n }

// Depth is the largest number of reservations on a device now.
func (p *Policy) Depth() int32 { return slices.Max(p.tl.depths[:p.numDevices]) }

// Reserved is when a batch is to come to the device of a hop, to start and to end there.
func (p *Policy) Reserved(batch int32, hop int16) (ready, start, end time.Duration) {
	n := &p.tl.nodes[p.tl.node(batch, hop, run)]
	return n.ready, n.start, n.end()
}
