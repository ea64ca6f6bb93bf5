package policy

// TaskState is the state of a task, from when it is revealed until its slot is free.
type TaskState uint8

const (
	TaskUnused  TaskState = iota // its slot is free
	TaskWaiting                  // it waits for a batch
	TaskBatched                  // a batch holds it
	TaskEnded                    // it has ended, but others still read its output
)

// Task is a task of a request, by its slot.
type Task struct {
	Req, Service int32
	Ticket       int32   // counts placements and uses of the slot; answers to an older one are void
	Inputs       []int32 // tasks whose outputs it reads; -1 is the client's input
	inputDevice  int32   // device to which its inputs are to be brought, or -1
	State        TaskState
	isUnread     bool // no task reads it; its slot is free once no batch runs it
}

// TaskLedger records the tasks of requests, and reports to the policy the tasks that a Control reveals. Simulator and
// executor use the same one. The host keeps the requests, and everything else about tasks.
type TaskLedger struct {
	List            []Task
	Reveals         RevealedTasks
	Host            TaskHost
	OutsideBatchEnd bool // set by the host while it reveals tasks that do not follow from the end of a batch

	awaitingInputs []int32 // tasks whose inputs are to be brought to a device once they exist
	heldByBatch    []int32 // tasks that their batch held longer than their request lasted
	isRevealing    bool
}

// TaskHost is the interpreter that uses a TaskLedger.
type TaskHost interface {
	// RequestModel returns the model of a request, and whether the policy still has the request.
	RequestModel(req int32) (model int32, open bool)
	// NoteTask notes a task that has become known.
	NoteTask(r *RevealedTask)
	// HandleEvent lets the policy handle an event, and carries out its actions.
	HandleEvent(ev Event)
	// AnswerRequest answers a request whose last task has ended.
	AnswerRequest(req int32)
	// LeaveBatch removes a task from its batch and sets its state. If the policy has dropped its request,
	// LeaveBatch returns false, and the task is unused.
	LeaveBatch(task int32, then TaskState) bool
	// FollowTask asks the Control which tasks follow from the end of a task.
	FollowTask(task int32)
	// ForgetTask forgets the outputs of a task, whose slot is free from now on.
	ForgetTask(task int32)
	// BringInputs brings the inputs of a task to a device. All of them exist.
	BringInputs(task, device int32)
}

// IsWaiting reports whether a number is the slot of a task that waits for a batch.
func (l *TaskLedger) IsWaiting(task int32) bool {
	return task >= 0 && int(task) < len(l.List) && l.List[task].State == TaskWaiting
}

// InputsReady reports whether all tasks whose outputs a task reads have ended.
func (l *TaskLedger) InputsReady(task int32) bool {
	for _, input := range l.List[task].Inputs {
		if input >= 0 && l.List[input].State != TaskEnded {
			return false
		}
	}
	return true
}

// FinishTasks is called when a batch has ended: it ends its tasks, asks the Control (which knows what a request
// does next) for the tasks that follow, and reveals these.
func (l *TaskLedger) FinishTasks(tasks []int32) {
	// End the tasks, and ask the Control for the next ones.
	for _, task := range tasks {
		if l.Host.LeaveBatch(task, TaskEnded) {
			l.Host.FollowTask(task)
		} else { // its request was dropped while the batch ran
			l.heldByBatch = append(l.heldByBatch, task)
		}
	}
	l.RevealTasks()

	// Release slots only after the revealed tasks have theirs, so that no new task gets the slot of one whose
	// batch the policy does not yet know to have ended.
	for _, task := range l.heldByBatch {
		l.ReleaseIfUnread(task)
	}
	l.heldByBatch = l.heldByBatch[:0]
	l.BringReadyInputs()
}

// ForgetRequest is called when a request was dropped: its tasks end and their slots are freed. During a reveal that
// is done by the reveal itself.
func (l *TaskLedger) ForgetRequest(control Control, req int32) {
	control.ForgetRequest(req, &l.Reveals)
	if !l.isRevealing {
		l.RevealTasks()
	}
}

// RevealTasks tells the policy of the tasks that have become known, request by request, answers the requests that
// are over, and frees the slots of tasks that nothing reads any more. If the policy drops a request meanwhile, its
// other tasks are skipped.
func (l *TaskLedger) RevealTasks() {
	reveals := &l.Reveals
	l.isRevealing = true

	// Tasks, request by request.
	for first := 0; first < len(reveals.Tasks); {
		end := first + 1
		for end < len(reveals.Tasks) && reveals.Tasks[end].Req == reveals.Tasks[first].Req {
			end++
		}
		l.revealRange(first, end)
		first = end
	}

	// Requests that are over.
	for _, req := range reveals.EndedRequests {
		if model, open := l.Host.RequestModel(req); open {
			l.Host.AnswerRequest(req)
			l.Host.HandleEvent(Event{Kind: ControlRevealed, Model: model, Req: req, Task: -1})
		}
	}

	// Slots that are free.
	for i := 0; i < len(reveals.UnreadTasks); i++ {
		l.freeTask(reveals.UnreadTasks[i])
	}
	reveals.Reset()
	l.isRevealing = false
}

// revealRange tells the policy of the tasks [first, end) of the list, which are all of one request and known at the
// same time. The first event says how many they are, and whether a program asked for them outside the end of a batch (a
// Key of 1). If the policy drops the request meanwhile, the rest is left out.
func (l *TaskLedger) revealRange(first, end int) {
	reveals := &l.Reveals

	// Enter the tasks into their slots, which are taken whether or not the policy still has the request.
	for i := first; i < end; i++ {
		l.addTask(&reveals.Tasks[i])
	}
	req := reveals.Tasks[first].Req
	model, open := l.Host.RequestModel(req)
	if !open {
		return
	}

	// Tell the policy how many they are, then each of them.
	ev := Event{Kind: ControlRevealed, Model: model, Req: req, Task: -1, Value: int64(end - first)}
	if l.OutsideBatchEnd {
		ev.Key = 1
	}
	l.Host.HandleEvent(ev)
	for i := first; i < end; i++ {
		if _, open := l.Host.RequestModel(req); !open {
			return
		}
		task := &reveals.Tasks[i]
		l.Host.HandleEvent(Event{Kind: TaskRevealed, Model: model, Req: req, Task: task.Task, Service: task.Service, Value: task.Work, Key: task.Item, List: reveals.InputsOf(task)})
	}
}

// addTask records a revealed task in its slot, before the policy hears of it. The ticket tells it from earlier tasks
// of the slot.
func (l *TaskLedger) addTask(revealedTask *RevealedTask) {
	for int(revealedTask.Task) >= len(l.List) {
		l.List = append(l.List, Task{})
	}
	task := &l.List[revealedTask.Task]
	inputs := append(task.Inputs[:0], l.Reveals.InputsOf(revealedTask)...) // in the memory of the slot's earlier task
	*task = Task{Req: revealedTask.Req, Service: revealedTask.Service, State: TaskWaiting, Ticket: task.Ticket + 1, inputDevice: -1, Inputs: inputs}
	l.Host.NoteTask(revealedTask)
}

// freeTask releases the slot of a task whose output nothing will read. While the task is in a batch, this waits
// until it leaves that.
func (l *TaskLedger) freeTask(task int32) {
	if int(task) < len(l.List) && l.List[task].State == TaskBatched {
		l.List[task].isUnread = true
		return
	}
	l.releaseTask(task)
}

// ReleaseIfUnread releases the slot of a task that left its batch, if no task reads it any more.
func (l *TaskLedger) ReleaseIfUnread(task int32) {
	if entry := &l.List[task]; entry.isUnread {
		entry.isUnread = false
		l.releaseTask(task)
	}
}

// releaseTask forgets a task's output and releases its slot for another task.
func (l *TaskLedger) releaseTask(task int32) {
	l.Host.ForgetTask(task)
	if int(task) < len(l.List) {
		l.List[task].State = TaskUnused
	}
	l.Reveals.ReleaseSlot(task)
}

// PlaceInputs brings the inputs of a waiting task to a device as soon as they exist. It replaces an earlier
// placement of the task: the new ticket makes answers to that void (IsPlaceCurrent).
func (l *TaskLedger) PlaceInputs(task, device int32) {
	entry := &l.List[task]
	wasPlaced := entry.inputDevice >= 0
	entry.inputDevice = device
	entry.Ticket++
	if l.InputsReady(task) {
		l.bringInputs(task)
	} else if !wasPlaced {
		l.awaitingInputs = append(l.awaitingInputs, task)
	}
}

// BringReadyInputs is called when tasks have ended, so that inputs of other tasks may now exist. It goes through the
// tasks that the policy has placed on a device before all of their inputs existed. If all of a task's inputs exist now,
// it orders the host to bring them to that device.
func (l *TaskLedger) BringReadyInputs() {
	stillWaiting := l.awaitingInputs[:0]
	for _, task := range l.awaitingInputs {
		switch {
		case !l.IsWaiting(task) || l.List[task].inputDevice < 0: // the task is gone, or its inputs are on their way already
		case l.InputsReady(task):
			l.bringInputs(task)
		default:
			stillWaiting = append(stillWaiting, task)
		}
	}
	l.awaitingInputs = stillWaiting
}

// bringInputs has the host bring the inputs of a task, all of which exist, to the device where it was placed.
func (l *TaskLedger) bringInputs(task int32) {
	device := l.List[task].inputDevice
	l.List[task].inputDevice = -1
	l.Host.BringInputs(task, device)
}

// IsPlaceCurrent reports whether the answer to a placement of a task with this ticket is still wanted: the task
// waits, and was not sent elsewhere.
func (l *TaskLedger) IsPlaceCurrent(task, ticket int32) bool {
	return l.IsWaiting(task) && l.List[task].Ticket == ticket
}
