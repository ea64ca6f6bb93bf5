package policytest

import (
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// Entry is a policy under steady arrivals at the entry of a pipeline, of which nothing
// else is run. Its queue holds about as many tasks as it began with.
type Entry struct {
	Pol policy.Policy
	// Every is how often a request comes; 2 ms is as often as the worker serves one.
	Every time.Duration
	out   policy.Actions
	ev    policy.Event
	free  []int32
	slo   time.Duration
	now   time.Duration
	ends  time.Duration
	busy  bool
	runs  []int32
	n     int
	slots int
}

// Waiting is how many requests are in the queue.
func (e *Entry) Waiting() int {
	n := e.slots - len(e.free)
	if e.busy {
		n -= len(e.runs)
	}
	return n
}

// EntryPlan is the plan of the policy of an Entry.
func EntryPlan(name string, queue int) *formats.Plan {
	const ms = time.Millisecond
	return FlowPlan(time.Duration(queue)*2*ms+100*ms, name,
		FlowStage{Name: "a", Infer: []time.Duration{10 * ms, 11 * ms, 12 * ms, 13 * ms, 14 * ms, 15 * ms, 16 * ms, 16 * ms}, Workers: 1},
		FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{2 * ms}, Workers: 1})
}

// NewEntry has queue tasks wait at one worker, with an SLO of a third more than that takes.
func NewEntry(pol policy.Policy, queue int) *Entry {
	took := time.Duration(queue) * 2 * time.Millisecond
	e := &Entry{Pol: pol, Every: 2 * time.Millisecond, slo: took + took/3, slots: 4*queue + 64}
	for i := range int32(e.slots) {
		e.free = append(e.free, i)
	}
	for range queue {
		e.arrive()
	}
	return e
}

func (e *Entry) handle() {
	e.out.Reset()
	e.Pol.Handle(e.now, &e.ev, &e.out)
	for i := range e.out.List {
		switch a := &e.out.List[i]; a.Kind {
		case policy.Drop:
			e.free = append(e.free, a.Req)
		case policy.Dispatch:
			tasks, hops := e.out.BatchOf(a)
			e.runs, e.busy, e.ends = append(e.runs[:0], tasks...), true, hops[0].End
		}
	}
}

func (e *Entry) arrive() {
	if len(e.free) == 0 {
		return
	}
	req := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.ev = policy.Event{Kind: policy.Arrival, Req: req, Task: req, ArrivedAt: e.now, Deadline: e.now + e.slo}
	e.handle()
	if len(e.out.List) > 0 && e.out.List[len(e.out.List)-1].Kind == policy.Drop {
		return
	}
	e.ev = policy.Event{Kind: policy.TaskRevealed, Req: req, Task: req}
	e.handle()
}

// Step lets a request come, and ends the batch that is due.
func (e *Entry) Step() {
	e.now += e.Every
	e.arrive()
	if e.busy && e.ends <= e.now {
		e.free, e.busy = append(e.free, e.runs...), false
		e.ev = policy.Event{Kind: policy.BatchFinished}
		e.handle()
	}
	if e.n++; e.n%500 == 0 {
		e.ev = policy.Event{Kind: policy.Timer}
		e.handle()
	}
}
