package workflow

import (
	"inferplan/policy/predict"
	"inferplan/policy/slots"
)

// taskProgress is the state of a task.
type taskProgress uint8

const (
	taskFree     taskProgress = iota
	taskUnplaced              // revealed or expected, without a place
	taskQueued                // in the queue of its place
	taskRunning               // in a batch
	taskEnded
)

// task is a task of a request. It has been revealed, or the policy only expects it.
type task struct {
	requestNumber  int32 // request; -1 if the request is closed and only the batch still runs
	taskNumber     int32 // slot of the interpreter; -1 if the task is only expected
	service        int32
	kindNumber     int32   // token of the prediction table
	relativeWork   int64   // in parts of usualWork
	inputs         []int32 // tasks that it reads; -1 stands for the client's input
	pendingInputs  int32   // number of inputs that have not ended
	progress       taskProgress
	deviceIndex    int32        // place where it waits, runs or ended
	inputsTarget   int32        // place to which its inputs were requested; -1 if none
	inputsDevice   int32        // place at which its inputs are; -1 if none
	orderKey       int64        // order in the queue of its device, lowest first
	endsAt         int64        // expected end in ns; the actual one once it has ended
	earliestEnd    int64        // scratch: earliest possible end
	stateSource    int32        // task whose session state it continues; -1 if none
	state          sessionState // the session state that it leaves behind
	stateInTransit bool         // the state that it continues is being moved to its place
	stateArrivesAt int64        // when that state arrives, as expected
	sequence       sequence     // its sequence, if it runs on a language model
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
	taskKinds         []int32        // tokens of the revealed tasks
	cursor            predict.Cursor // position in the prediction table
	admitted          bool           // it is in the list of admitted requests
	owedTime          []int64        // by resource: device time in ns that its tasks still need
}

// registry holds requests and tasks. Slots of released tasks are used again.
type registry struct {
	requests     []request // by slot of the interpreter
	tasks        []task
	freeTasks    []int32 // slots of released tasks
	taskByNumber []int32 // task by slot of the interpreter
}

// newTask returns the number of a new task without a place. slot is its number in events, and req its request;
// expected tasks have -1 for both. -1 stands for no place and no session state, too.
func (r *registry) newTask(requestNumber, taskNumber, service int32, relativeWork int64) int32 {
	taskID := slots.Take(&r.tasks, &r.freeTasks)
	k := &r.tasks[taskID]
	*k = task{requestNumber: requestNumber, taskNumber: taskNumber, service: service, relativeWork: relativeWork, inputs: k.inputs[:0], progress: taskUnplaced, deviceIndex: -1, inputsTarget: -1, inputsDevice: -1, stateSource: -1, state: sessionState{deviceIndex: -1, moveTarget: -1, nextTask: -1}}
	return taskID
}

// releaseTask frees the slot of a task. A task that runs is only detached from its request; its slot is freed when its
// batch ends.
func (r *registry) releaseTask(taskID int32) {
	task := &r.tasks[taskID]
	if task.progress == taskRunning {
		task.requestNumber, task.stateSource = -1, -1
		return
	}
	task.progress = taskFree
	r.freeTasks = append(r.freeTasks, taskID)
}

// openRequest enters a request that arrives into its slot, and returns it empty, with the memory of the slot's
// previous request.
func (r *registry) openRequest(requestNumber int32) *request {
	for int(requestNumber) >= len(r.requests) {
		r.requests = append(r.requests, request{})
	}
	q := &r.requests[requestNumber]
	*q = request{isOpen: true, feature: predict.NoFeature, owedTime: q.owedTime[:0], revealedTasks: q.revealedTasks[:0], expectedTasks: q.expectedTasks[:0], taskKinds: q.taskKinds[:0]}
	return q
}

// assignNumber records which task a slot (its number in events) stands for.
func (r *registry) assignNumber(taskNumber, taskID int32) {
	for int(taskNumber) >= len(r.taskByNumber) {
		r.taskByNumber = append(r.taskByNumber, -1)
	}
	r.taskByNumber[taskNumber] = taskID
}
