package workflow

import (
	"inferplan/policy/predict"
	"inferplan/policy/slots"
)

// state of a task.
type state uint8

const (
	unused  state = iota
	known         // not placed yet
	queued        // at a place
	running       // in a batch
	ended
)

// task is a task of a request: one that was revealed, or one that is expected.
type task struct {
	req        int32 // -1: nobody wants it any more, but its batch runs
	slot       int32 // of the interpreter; -1: expected alone
	service    int32
	token      int32
	work       int64
	inputs     []int32 // tasks; -1: the client's input
	pending    int32   // of its inputs, that have not ended
	state      state
	place      int32 // where it waits, runs or ended
	asked      int32 // place that its inputs were asked to; -1: none
	arrived    int32 // place that its inputs are at; -1: none
	key        int64 // of its order in a queue
	end        int64 // expected, of one that has ended the actual
	soonest    int64 // scratch: when it could end
	from       int32 // task whose state it goes on with; -1: none
	memo       memo  // the state that it leaves behind
	coming     bool  // the state that it goes on with is on its way to its place
	there      int64 // when, as expected
	generation       // of a language model, while it runs
}

// request is a request that is open.
type request struct {
	open     bool
	model    int32
	feature  int32
	arrived  int64
	deadline int64
	expect   int32   // tasks that were announced and not yet revealed
	segment  int32   // tasks of the segment that is being revealed, so far
	between  bool    // it does not come from the end of a batch
	first    int32   // tasks of the first segment; 0: not known yet
	tasks    []int32 // revealed, in order
	ahead    []int32 // expected
	path     []int32 // tokens of the revealed
	cursor   predict.Cursor
	admitted bool    // it stands in the line of those that were
	owes     []int64 // by resource: device time that it still asks for
}

// book keeps requests and tasks, with slots that are used again.
type book struct {
	requests []request // by the interpreter's slots
	tasks    []task
	free     []int32
	bySlot   []int32 // task by the interpreter's slot
}

// take gives a task without a place.
func (b *book) take(req, slot, service int32, work int64) int32 {
	id := slots.Take(&b.tasks, &b.free)
	k := &b.tasks[id]
	*k = task{req: req, slot: slot, service: service, work: work, inputs: k.inputs[:0], state: known, place: -1, asked: -1, arrived: -1, from: -1, memo: memo{place: -1, to: -1, next: -1}}
	return id
}

// release gives a task's slot back, now or with its batch.
func (b *book) release(id int32) {
	k := &b.tasks[id]
	if k.state == running {
		k.req, k.from = -1, -1
		return
	}
	k.state = unused
	b.free = append(b.free, id)
}

// open makes a request.
func (b *book) open(req int32) *request {
	for int(req) >= len(b.requests) {
		b.requests = append(b.requests, request{})
	}
	q := &b.requests[req]
	*q = request{open: true, feature: predict.NoFeature, owes: q.owes[:0], tasks: q.tasks[:0], ahead: q.ahead[:0], path: q.path[:0]}
	return q
}

// assign notes which task the interpreter's slot names.
func (b *book) assign(slot, id int32) {
	for int(slot) >= len(b.bySlot) {
		b.bySlot = append(b.bySlot, -1)
	}
	b.bySlot[slot] = id
}
