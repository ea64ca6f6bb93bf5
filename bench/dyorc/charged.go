package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/policy"
)

// charged is a policy around another whose own time passes: it decides about one
// event at a time, and what it decides happens when it has done so. Events that
// come meanwhile wait. Its time is the CPU time of the thread that it runs on.
type charged struct {
	inner policy.Policy
	queue []heldEvent
	first int
	out   policy.Actions // of the event that it decides about
	busy  bool
	began time.Duration // its decision
	spent time.Duration
}

type heldEvent struct {
	ev   policy.Event
	list []int32
}

// thinkTag is that of the wake at which a decision is made.
const thinkTag = 3

// threadTime is the CPU time of this thread so far.
func threadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Unwrap implements policy.Wrapper.
func (c *charged) Unwrap() policy.Policy { return c.inner }

// Handle implements policy.Policy.
func (c *charged) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.Timer && ev.Value == thinkTag {
		appendActions(out, &c.out, now-c.began)
		c.busy = false
	} else {
		c.queue = append(c.queue, heldEvent{*ev, append([]int32(nil), ev.List...)})
	}
	if c.busy || c.first == len(c.queue) {
		return
	}
	next := &c.queue[c.first]
	next.ev.List = next.list
	if c.first++; c.first == len(c.queue) {
		c.queue, c.first = c.queue[:0], 0
	}
	c.out.Reset()
	runtime.LockOSThread() // or the two times are of different threads
	before := threadTime()
	c.inner.Handle(now, &next.ev, &c.out)
	took := threadTime() - before
	runtime.UnlockOSThread()
	c.spent += took
	c.busy, c.began = true, now
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: thinkTag, At: now + took})
}

// appendActions adds the actions of a buffer to another, so much later.
func appendActions(to, from *policy.Actions, later time.Duration) {
	tasks, hops := int32(len(to.Tasks)), int32(len(to.Hops))
	for i := range from.List {
		a := from.List[i]
		a.TaskFirst, a.HopFirst = a.TaskFirst+tasks, a.HopFirst+hops
		to.List = append(to.List, a)
	}
	to.Tasks, to.Hops = append(to.Tasks, from.Tasks...), append(to.Hops, from.Hops...)
	for i := hops; int(i) < len(to.Hops); i++ {
		h := &to.Hops[i]
		h.XferStart, h.XferEnd, h.Start, h.End = h.XferStart+later, h.XferEnd+later, h.Start+later, h.End+later
	}
}

// balanced gives requests to groups of devices, each with a policy of its own: to
// the one that has fewest open.
type balanced struct {
	groups []policy.Policy
	size   int32   // devices of a group
	of     []int32 // group by request
	open   []int
}

// tags is how many tags a group's wakes have.
const tags = 4

// Handle implements policy.Policy.
func (b *balanced) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	g, inner := int32(0), *ev
	switch ev.Kind {
	case policy.Arrival:
		for i := range b.open {
			if b.open[i] < b.open[g] {
				g = int32(i)
			}
		}
		for int(ev.Req) >= len(b.of) {
			b.of = append(b.of, 0)
		}
		b.of[ev.Req] = g
		b.open[g]++
	case policy.ControlRevealed:
		if g = b.of[ev.Req]; ev.Value == 0 {
			b.open[g]--
		}
	case policy.TaskRevealed, policy.Cancel:
		g = b.of[ev.Req]
	case policy.Timer:
		g, inner.Value = int32(ev.Value/tags), ev.Value%tags
	default:
		g = ev.Device / b.size
		inner.Device -= g * b.size
		if inner.Batch >= 0 {
			inner.Batch -= g * b.size
		}
	}
	first, hops := len(out.List), len(out.Hops)
	b.groups[g].Handle(now, &inner, out)
	for i := first; i < len(out.List); i++ {
		a := &out.List[i]
		a.Device, a.Batch, a.Tag = a.Device+g*b.size, a.Batch+g*b.size, a.Tag+g*tags
	}
	for i := hops; i < len(out.Hops); i++ {
		out.Hops[i].Device += g * b.size
	}
}
