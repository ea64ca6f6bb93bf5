package workflow

import (
	"inferplan/policy/predict"
	"inferplan/policy/slots"
)

// taskState is the state of a task.
type state uint8

const (
	unused  state = iota
	known         // revealed or expected, without a place
	queued        // in the queue of its place
	running       // in a batch
	ended
)

// task is a task of a request. It has been revealed, or the policy only expects it.
type task struct {
	req        int32 // request; -1 if the request is closed and only the batch still runs
	slot       int32 // slot of the interpreter; -1 if the task is only expected
	service    int32
	token      int32   // token of the prediction table
	work       int64   // in parts of usualWork
	inputs     []int32 // tasks that it reads; -1 stands for the client's input
	pending    int32   // number of inputs that have not ended
	state      state
	place      int32 // place where it waits, runs or ended
	asked      int32 // place to which its inputs were requested; -1 if none
	arrived    int32 // place at which its inputs are; -1 if none
	key        int64 // order in the queue of its device, lowest first
	end        int64 // expected end in ns; the actual one once it has ended
	soonest    int64 // scratch: earliest possible end
	from       int32 // task whose session state it continues; -1 if none
	memo       memo  // the session state that it leaves behind
	coming     bool  // the state that it continues is being moved to its place
	there      int64 // when that state arrives, as expected
	generation       // its sequence, if it runs on a language model
}

// request is an open request.
type request struct {
	open     bool
	model    int32 // index of the application
	feature  int32 // feature for the prediction
	arrived  int64
	deadline int64
	expect   int32          // tasks that were announced and not yet revealed
	segment  int32          // tasks of the latest segment that were revealed so far
	between  bool           // the segment was not revealed by the end of a batch
	first    int32          // tasks of the first segment; 0 until it is revealed
	tasks    []int32        // revealed tasks, in order
	ahead    []int32        // expected tasks, in order
	path     []int32        // tokens of the revealed tasks
	cursor   predict.Cursor // position in the prediction table
	admitted bool           // it is in the list of admitted requests
	owes     []int64        // by resource: device time in ns that its tasks still need
}

// taskTable holds requests and tasks. Slots of released tasks are used again.
type book struct {
	requests []request // by slot of the interpreter
	tasks    []task
	free     []int32 // slots of released tasks
	bySlot   []int32 // task by slot of the interpreter
}

// newTask returns a new task without a place.
func (b *book) take(req, slot, service int32, work int64) int32 {
	id := slots.Take(&b.tasks, &b.free)
	k := &b.tasks[id]
	*k = task{req: req, slot: slot, service: service, work: work, inputs: k.inputs[:0], state: known, place: -1, asked: -1, arrived: -1, from: -1, memo: memo{place: -1, to: -1, next: -1}}
	return id
}

// releaseTask frees the slot of a task. A task that runs is only detached from its request; its slot is freed when its
// batch ends.
func (b *book) release(id int32) {
	k := &b.tasks[id]
	if k.state == running {
		k.req, k.from = -1, -1
		return
	}
	k.state = unused
	b.free = append(b.free, id)
}

// openRequest opens a request in a slot of the interpreter, and returns it.
func (b *book) open(req int32) *request {
	for int(req) >= len(b.requests) {
		b.requests = append(b.requests, request{})
	}
	q := &b.requests[req]
	*q = request{open: true, feature: predict.NoFeature, owes: q.owes[:0], tasks: q.tasks[:0], ahead: q.ahead[:0], path: q.path[:0]}
	return q
}

// assignSlot records which task a slot of the interpreter stands for.
func (b *book) assign(slot, id int32) {
	for int(slot) >= len(b.bySlot) {
		b.bySlot = append(b.bySlot, -1)
	}
	b.bySlot[slot] = id
}
