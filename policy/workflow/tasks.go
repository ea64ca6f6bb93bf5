package workflow

import (
	"inferplan/policy/predict"
	"inferplan/policy/slots"
)

// taskProgress says how far a task has come.
type taskProgress uint8

const (
	taskFree     taskProgress = iota // its entry in the registry is free
	taskUnplaced                     // revealed or expected, without a device
	taskQueued                       // in the queue of its device
	taskRunning                      // in a batch
	taskEnded
)

// task is a task of a request. It has been revealed, or the policy only expects it by prediction.
// A task ID is the index of a task in registry.tasks.
type task struct {
	requestNumber  int32        // its request, an index in registry.requests; -1 if it is only expected, or the request has ended while it runs
	taskNumber     int32        // number by which events and actions name it; -1 if it is only expected
	service        int32        // service that it asks for
	kindNumber     int32        // number of its kind of task (service, work, inputs) in the prediction table
	workFactor     int64        // its time divided by that of a usual task of its service, in fixed point (fixedOne is 1)
	inputs         []int32      // IDs of the tasks whose outputs it reads; -1 stands for the client's input
	pendingInputs  int32        // number of inputs that have not ended
	progress       taskProgress // how far it has come
	deviceIndex    int32        // device on which it waits, runs or has ended; -1 if none
	inputsTarget   int32        // device to which its inputs were requested; -1 if none
	inputsDevice   int32        // device at which all its inputs have arrived; -1 if none
	orderKey       int64        // its order in the queue of its device, lowest first
	endsAt         int64        // expected end in ns; the actual one once it has ended
	earliestEnd    int64        // scratch: earliest possible end in ns, or the length of a chain of tasks
	stateSource    int32        // ID of the task whose session state it continues; -1 if none
	sessionState   sessionState // session state that it leaves behind
	stateInTransit bool         // the state that it continues is being moved to its device
	stateArrivesAt int64        // expected end in ns of that move
	sequence       sequence     // its sequence, if it runs on a language model
}

// isRevealed returns true if a task has been made known by an event. Otherwise the policy only expects it by prediction.
func (t *task) isRevealed() bool { return t.taskNumber >= 0 }

// request is a request of a client. Its tasks become known in segments: sets of tasks that are revealed together.
type request struct {
	isOpen            bool           // it has not been answered or dropped
	app               int32          // its application, an index of the plan's models
	feature           int32          // feature by which the prediction tells requests of an application apart
	arrivedAt         int64          // in ns
	deadline          int64          // in ns
	unrevealedTasks   int32          // number of tasks of the present segment that are still to be revealed
	segmentTasks      int32          // number of tasks of the latest segment that have been revealed
	betweenBatches    bool           // the segment was not revealed by the end of a batch
	firstSegmentTasks int32          // number of tasks of the first segment; 0 until it is revealed
	revealedTasks     []int32        // IDs of the revealed tasks, in order
	expectedTasks     []int32        // IDs of the tasks that are predicted to follow, in order
	taskKinds         []int32        // kinds of the revealed tasks, as numbers of the prediction table
	cursor            predict.Cursor // position in the prediction table
	admitted          bool           // it is in the list of admitted requests
	neededTime        []int64        // by resource: device time in ns that its tasks still need
}

// registry holds the requests and their tasks. Entries of released tasks are used again.
type registry struct {
	requests     []request // by request number, by which events and actions name it
	tasks        []task    // by task ID
	freeTasks    []int32   // IDs of released tasks
	taskByNumber []int32   // by task number, by which events name it: the task ID
}

// newTask adds a task that has no device yet, and returns its task ID (its index in tasks).
// requestNumber and taskNumber are the numbers of the request and the task in events; an expected task has -1 for both.
// workFactor is its time divided by that of a usual task of its service, in fixed point. The caller adds the inputs.
func (r *registry) newTask(requestNumber, taskNumber, service int32, workFactor int64) int32 {
	taskID := slots.Take(&r.tasks, &r.freeTasks)
	// The entry may be that of an earlier task, whose memory for inputs is used again. -1 stands for no device and no task.
	entry := &r.tasks[taskID]
	*entry = task{requestNumber: requestNumber, taskNumber: taskNumber, service: service, workFactor: workFactor, inputs: entry.inputs[:0], progress: taskUnplaced, deviceIndex: -1, inputsTarget: -1, inputsDevice: -1, stateSource: -1, sessionState: sessionState{deviceIndex: -1, moveTarget: -1, nextTask: -1}}
	return taskID
}

// releaseTask frees the entry of a task for another one, when its request is closed or the task is no longer expected.
// A running task is only detached from its request, because its batch still names it: endTask releases it when the batch ends.
func (r *registry) releaseTask(taskID int32) {
	task := &r.tasks[taskID]
	if task.progress == taskRunning {
		task.requestNumber, task.stateSource = -1, -1
		return
	}
	task.progress = taskFree
	r.freeTasks = append(r.freeTasks, taskID)
}

// openRequest makes the entry of a request that arrives, and returns it.
// It has no tasks, but uses the memory of the previous request with this number.
func (r *registry) openRequest(requestNumber int32) *request {
	for int(requestNumber) >= len(r.requests) {
		r.requests = append(r.requests, request{})
	}
	entry := &r.requests[requestNumber]
	*entry = request{isOpen: true, feature: predict.NoFeature, neededTime: entry.neededTime[:0], revealedTasks: entry.revealedTasks[:0], expectedTasks: entry.expectedTasks[:0], taskKinds: entry.taskKinds[:0]}
	return entry
}

// assignNumber records which task a task number, by which events name it, stands for from now on.
func (r *registry) assignNumber(taskNumber, taskID int32) {
	for int(taskNumber) >= len(r.taskByNumber) {
		r.taskByNumber = append(r.taskByNumber, -1)
	}
	r.taskByNumber[taskNumber] = taskID
}
