package workflow

import (
	"inferplan/policy/predict"
	"inferplan/policy/slots"
)

// taskState is the state of a task.
type taskState uint8

const (
	taskFree     taskState = iota
	taskUnplaced           // revealed or expected, without a place
	taskQueued             // in the queue of its place
	taskRunning            // in a batch
	taskEnded
)

// task is a task of a request. It has been revealed, or the policy only expects it.
type task struct {
	req               int32 // request; -1 if the request is closed and only the batch still runs
	slot              int32 // slot of the interpreter; -1 if the task is only expected
	service           int32
	token             int32   // token of the prediction table
	work              int64   // in parts of usualWork
	inputs            []int32 // tasks that it reads; -1 stands for the client's input
	pendingInputs     int32   // number of inputs that have not ended
	state             taskState
	place             int32        // place where it waits, runs or ended
	inputsRequestedAt int32        // place to which its inputs were requested; -1 if none
	inputsAt          int32        // place at which its inputs are; -1 if none
	orderKey          int64        // order in the queue of its device, lowest first
	endsAt            int64        // expected end in ns; the actual one once it has ended
	earliestEnd       int64        // scratch: earliest possible end
	stateFrom         int32        // task whose session state it continues; -1 if none
	session           sessionState // the session state that it leaves behind
	stateInTransit    bool         // the state that it continues is being moved to its place
	stateArrivesAt    int64        // when that state arrives, as expected
	sequence          sequence     // its sequence, if it runs on a language model
}

// request is an open request.
type request struct {
	isOpen            bool
	app               int32 // index of the application
	feature           int32 // feature for the prediction
	arrivedAt         int64
	deadline          int64
	unrevealedTasks   int32          // tasks that were announced and not yet revealed
	segmentTasks      int32          // tasks of the latest segment that were revealed so far
	betweenBatches    bool           // the segment was not revealed by the end of a batch
	firstSegmentTasks int32          // tasks of the first segment; 0 until it is revealed
	revealedTasks     []int32        // revealed tasks, in order
	expectedTasks     []int32        // expected tasks, in order
	tokens            []int32        // tokens of the revealed tasks
	cursor            predict.Cursor // position in the prediction table
	admitted          bool           // it is in the list of admitted requests
	owedTime          []int64        // by resource: device time in ns that its tasks still need
}

// taskTable holds requests and tasks. Slots of released tasks are used again.
type taskTable struct {
	requests   []request // by slot of the interpreter
	tasks      []task
	freeTasks  []int32 // slots of released tasks
	taskInSlot []int32 // task by slot of the interpreter
}

// newTask returns the number of a new task without a place. slot is its number in events, and req its request;
// expected tasks have -1 for both. -1 stands for no place and no session state, too.
func (b *taskTable) newTask(req, slot, service int32, work int64) int32 {
	id := slots.Take(&b.tasks, &b.freeTasks)
	k := &b.tasks[id]
	*k = task{req: req, slot: slot, service: service, work: work, inputs: k.inputs[:0], state: taskUnplaced, place: -1, inputsRequestedAt: -1, inputsAt: -1, stateFrom: -1, session: sessionState{place: -1, movingTo: -1, nextTask: -1}}
	return id
}

// releaseTask frees the slot of a task. A task that runs is only detached from its request; its slot is freed when its
// batch ends.
func (b *taskTable) releaseTask(id int32) {
	k := &b.tasks[id]
	if k.state == taskRunning {
		k.req, k.stateFrom = -1, -1
		return
	}
	k.state = taskFree
	b.freeTasks = append(b.freeTasks, id)
}

// openRequest enters a request that arrives into its slot, and returns it empty, with the memory of the slot's
// previous request.
func (b *taskTable) openRequest(req int32) *request {
	for int(req) >= len(b.requests) {
		b.requests = append(b.requests, request{})
	}
	q := &b.requests[req]
	*q = request{isOpen: true, feature: predict.NoFeature, owedTime: q.owedTime[:0], revealedTasks: q.revealedTasks[:0], expectedTasks: q.expectedTasks[:0], tokens: q.tokens[:0]}
	return q
}

// assignSlot records which task a slot (its number in events) stands for.
func (b *taskTable) assignSlot(slot, id int32) {
	for int(slot) >= len(b.taskInSlot) {
		b.taskInSlot = append(b.taskInSlot, -1)
	}
	b.taskInSlot[slot] = id
}
