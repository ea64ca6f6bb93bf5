package reserve

import "time"

// never is later than anything; sums of a few of it do not overflow.
const never = time.Duration(1) << 60

// Kinds of reservation of a hop: on its device, and on both ends of the
// transfer into it.
const (
	run = iota
	up
	down
	perHop
)

// span is what a probe reads of a resource: kept small and dense.
type span struct {
	tail      time.Duration // end of the last reservation; never when the device is lost
	lastReady time.Duration // when the last reservation's work gets here
	head      int32         // first and last reservation; -1: none
	last      int32
}

// node is one reservation. Nodes belong to batch slots: the nodes of batch b
// are [b*stride, (b+1)*stride), perHop of them for every hop.
type node struct {
	ready      time.Duration // when the work gets to the resource
	start      time.Duration
	dur        time.Duration
	prev, next int32
	res        int32 // resource; -1 where the hop holds none
	arrived    bool  // ready is a fact
	started    bool  // start is a fact
}

func (n *node) end() time.Duration { return n.start + n.dur }

// timelines keeps lanes true. Between events every start is the latest of the
// work's readiness and the ends of what runs before it on the same resources,
// which is what first-in first-out gives.
type timelines struct {
	lanes
	work []int32 // what is to be settled
	// What got another start or readiness since it was emptied, while watched.
	moved   []int32
	watched bool
	rebuilt bool // orders were made anew
}

func (t *timelines) init(resources, batches, hops int32) {
	t.hops, t.stride = hops, hops*perHop
	t.spans = make([]span, resources)
	t.floors = make([]time.Duration, resources)
	t.lost = make([]bool, resources)
	t.depths = make([]int32, resources)
	for i := range t.spans {
		t.spans[i] = span{head: -1, last: -1}
	}
	t.grow(batches)
	t.work, t.moved = make([]int32, 0, 64), make([]int32, 0, 64)
}

// note keeps what moved.
func (t *timelines) note(n int32) {
	if t.watched {
		t.moved = append(t.moved, n)
	}
}

// settle brings n's start up to date and, where it moved, queues all that
// follows from it: later work on the same resources and the later hops of its
// batch.
func (t *timelines) settle(n int32) {
	if kind := n % perHop; kind != run {
		t.settleTransfer(n - kind)
		return
	}
	nd := &t.nodes[n]
	if nd.started || nd.res < 0 {
		return
	}
	start := max(nd.ready, t.freeBefore(n))
	if start == nd.start {
		return
	}
	nd.start = start
	t.note(n)
	t.follow(n)
}

// settleTransfer moves both ends of the transfer into the hop whose device
// reservation is n.
func (t *timelines) settleTransfer(n int32) {
	u, d := &t.nodes[n+up], &t.nodes[n+down]
	if u.res < 0 && d.res < 0 {
		return
	}
	start := max(u.ready, t.freeBefore(n+up), t.freeBefore(n+down))
	if start == u.start {
		return
	}
	u.start, d.start = start, start
	t.successor(n + up)
	t.successor(n + down)
	t.arrive(n, u.end())
}

// follow passes a moved device reservation on.
func (t *timelines) follow(n int32) {
	t.successor(n)
	if !t.final[n/perHop] {
		t.sendNext(n, t.nodes[n].end())
	}
}

// successor queues what runs after n on its resource.
func (t *timelines) successor(n int32) {
	nd := &t.nodes[n]
	if nd.res < 0 {
		return
	}
	if nd.next < 0 {
		t.setTail(nd.res)
		return
	}
	t.work = append(t.work, nd.next)
}

// sendNext says that the hop of device reservation n ends at end, for the hop
// behind it where the batch has one.
func (t *timelines) sendNext(n int32, end time.Duration) {
	next := n + perHop
	if t.nodes[next].res < 0 {
		return
	}
	if t.nodes[next+up].res < 0 && t.nodes[next+down].res < 0 {
		t.arrive(next, end+t.delays[next/perHop])
		return
	}
	t.nodes[next+up].ready, t.nodes[next+down].ready = end, end
	t.note(next + up)
	t.note(next + down)
	t.touch(next + up)
	t.touch(next + down)
	t.work = append(t.work, next+up)
}

// recheck queues a reservation that came into its list, and what is now behind
// it.
func (t *timelines) recheck(n int32) {
	t.work = append(t.work, n)
	if next := t.nodes[n].next; next >= 0 {
		t.work = append(t.work, next)
	}
}

// arrive says that the work of device reservation n gets there at ready.
func (t *timelines) arrive(n int32, ready time.Duration) {
	t.nodes[n].ready = ready
	t.note(n)
	t.touch(n)
	t.work = append(t.work, n)
}

// touch keeps the span's copy of a last reservation's readiness.
func (t *lanes) touch(n int32) {
	nd := &t.nodes[n]
	if nd.res >= 0 && nd.next < 0 {
		t.setTail(nd.res)
	}
}

// queued says that n's work has come to its resource: in the interpreter's
// first-in first-out order it now stands before all that has not come yet.
func (t *timelines) queued(n int32) {
	nd := &t.nodes[n]
	if nd.res < 0 || nd.arrived {
		return
	}
	nd.arrived = true
	after := nd.prev
	for after >= 0 && !t.nodes[after].arrived {
		after = t.nodes[after].prev
	}
	t.moveAfter(n, after)
}

// moveAfter moves n forward in its list; the work that it passes moves back.
func (t *timelines) moveAfter(n, after int32) {
	if t.nodes[n].prev == after {
		return
	}
	behind := t.nodes[n].next
	t.unlink(n)
	t.linkAfter(n, after)
	t.work = append(t.work, t.nodes[n].next, n)
	if behind >= 0 {
		t.work = append(t.work, behind)
	}
}

// drain settles all queued work, first in, first out: what is reached in several
// ways is then mostly reached at once, and settled once. (Last in, first out,
// every step of a long queue ran through all that follows it, again and again.)
//
// Where it does not end, the orders of the lists contradict each other: what was
// planned comes so much later than what it was put in front of that each waits for
// the other. That takes devices that paths cross in both directions.
func (t *timelines) drain() {
	most := t.mostSteps()
	for i := 0; i < len(t.work); i++ {
		if i > most {
			t.rebuild()
			t.rebuilt = true
			break
		}
		t.settle(t.work[i])
	}
	t.work = t.work[:0]
}

// mostSteps is more than what settles takes where orders do not contradict.
func (t *timelines) mostSteps() int { return 64 + 4*len(t.nodes) }

// overrun corrects a resource whose work should all have ended by now. What
// runs there runs past its time; it is given a sixteenth of it more, so that an
// idle device is preferred to one that is about to be.
func (t *timelines) overrun(res int32, now time.Duration) {
	n := t.spans[res].head
	nd := &t.nodes[n]
	t.work = t.work[:0]
	if nd.started {
		nd.dur = now - nd.start + nd.dur/16 + 1
		t.follow(n)
		t.touch(n)
	} else {
		t.floors[res] = now
		t.work = append(t.work, n)
	}
	t.drain()
}

// startedAt records the actual start of a run.
func (t *timelines) startedAt(n int32, at time.Duration) {
	nd := &t.nodes[n]
	if nd.res < 0 || nd.started {
		return
	}
	t.work = t.work[:0]
	nd.arrived = true
	t.moveAfter(n, -1)
	nd.started = true
	t.floors[nd.res] = min(t.floors[nd.res], at) // it was free by then
	if nd.start != at {
		nd.start = at
		t.follow(n)
		t.touch(n)
	}
	t.drain()
}

// finishedAt records the actual end of a run and hands its batch on.
func (t *timelines) finishedAt(n int32, at time.Duration, last bool) {
	t.work = t.work[:0]
	t.ended(n, at)
	if !last {
		next := n + perHop
		t.queued(next + up)
		t.queued(next + down)
		t.sendNext(n, at)
	}
	t.drain()
}

// transferredAt records the actual end of the transfer into the hop whose
// device reservation is n.
func (t *timelines) transferredAt(n int32, at time.Duration) {
	t.work = t.work[:0]
	t.ended(n+up, at)
	t.ended(n+down, at)
	t.queued(n)
	t.arrive(n, at)
	t.drain()
}

// ended takes a reservation away whose work left the resource at at.
func (t *timelines) ended(n int32, at time.Duration) {
	if res := t.nodes[n].res; res >= 0 {
		if n%t.stride%perHop != run || t.nodes[n].started { // what failed before its turn held nothing up
			t.floors[res] = at
		}
		t.release(n)
	}
}

// release takes a reservation away and lets what follows move up.
func (t *timelines) release(n int32) {
	nd := &t.nodes[n]
	next := nd.next
	t.unlink(n)
	if next >= 0 {
		t.work = append(t.work, next)
	}
	nd.res = -1
}
