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
	device       int32   // device to which its inputs are to be brought, or -1
	State        TaskState
	freed        bool // no task reads it; its slot is free once no batch runs it
}

// TaskLedger records the tasks of requests, and reports to the policy the tasks that a Control reveals. Simulator and
// executor use the same one. The host keeps the requests, and everything else about tasks.
type TaskLedger struct {
	List    []Task
	Reveals Reveals
	Host    TaskHost
	Between bool // set by the host while it reveals tasks that do not follow from the end of a batch

	placing   []int32 // tasks whose inputs are to be brought to a device once they exist
	late      []int32 // tasks that their batch held longer than their request lasted
	revealing bool
}

// TaskHost is the interpreter that uses a TaskLedger.
type TaskHost interface {
	// RequestModel returns the model of a request, and whether the policy still has the request.
	Open(req int32) (model int32, open bool)
	// NoteTask notes a task that has become known.
	Revealed(r *Reveal)
	// HandleEvent lets the policy handle an event, and carries out its actions.
	Tell(ev Event)
	// AnswerRequest answers a request whose last task has ended.
	Answer(req int32)
	// LeaveBatch removes a task from its batch and sets its state. If the policy has dropped its request,
	// LeaveBatch returns false, and the task is unused.
	Leave(task int32, then TaskState) bool
	// FollowTask asks the Control which tasks follow from the end of a task.
	Follow(task int32)
	// ForgetTask forgets the outputs of a task, whose slot is free from now on.
	Freed(task int32)
	// BringInputs brings the inputs of a task to a device. All of them exist.
	Bring(task, device int32)
}

// IsWaiting reports whether a slot holds a task that waits.
func (l *TaskLedger) Waits(task int32) bool {
	return task >= 0 && int(task) < len(l.List) && l.List[task].State == TaskWaiting
}

// InputsReady reports whether all inputs of a task exist.
func (l *TaskLedger) Ready(task int32) bool {
	for _, in := range l.List[task].Inputs {
		if in >= 0 && l.List[in].State != TaskEnded {
			return false
		}
	}
	return true
}

// FinishTasks ends the tasks of a batch and reveals the tasks that follow.
func (l *TaskLedger) Finish(tasks []int32) {
	// End the tasks, and ask the Control for the next ones.
	for _, t := range tasks {
		if l.Host.Leave(t, TaskEnded) {
			l.Host.Follow(t)
		} else {
			l.late = append(l.late, t)
		}
	}
	l.Reveal()

	// Release slots only after the revealed tasks have theirs, so that no new task gets the slot of one whose
	// batch the policy does not yet know to have ended.
	for _, t := range l.late {
		l.Left(t)
	}
	l.late = l.late[:0]
	l.SendReady()
}

// ForgetRequest ends the tasks of a request that was dropped.
func (l *TaskLedger) Forget(c Control, req int32) {
	c.Forget(req, &l.Reveals)
	if !l.revealing {
		l.Reveal()
	}
}

// RevealTasks reports to the policy the tasks that have become known and the requests that are over. If the policy
// drops a request meanwhile, its other tasks are skipped.
func (l *TaskLedger) Reveal() {
	r := &l.Reveals
	l.revealing = true

	// Tasks, request by request.
	for i := 0; i < len(r.Tasks); {
		n := i + 1
		for n < len(r.Tasks) && r.Tasks[n].Req == r.Tasks[i].Req {
			n++
		}
		l.tell(i, n)
		i = n
	}

	// Requests that are over.
	for _, req := range r.Over {
		if model, open := l.Host.Open(req); open {
			l.Host.Answer(req)
			l.Host.Tell(Event{Kind: ControlRevealed, Model: model, Req: req, Task: -1})
		}
	}

	// Slots that are free.
	for i := 0; i < len(r.Freed); i++ {
		l.free(r.Freed[i])
	}
	r.Reset()
	l.revealing = false
}

// revealRange reports the tasks [first, end) of the list, all of one request.
func (l *TaskLedger) tell(from, to int) {
	r := &l.Reveals
	for i := from; i < to; i++ {
		l.add(&r.Tasks[i])
	}
	req := r.Tasks[from].Req
	model, open := l.Host.Open(req)
	if !open {
		return
	}
	ev := Event{Kind: ControlRevealed, Model: model, Req: req, Task: -1, Value: int64(to - from)}
	if l.Between {
		ev.Key = 1
	}
	l.Host.Tell(ev)
	for i := from; i < to; i++ {
		if _, open := l.Host.Open(req); !open {
			return
		}
		t := &r.Tasks[i]
		l.Host.Tell(Event{Kind: TaskRevealed, Model: model, Req: req, Task: t.Task, Service: t.Service, Value: t.Work, Key: t.Item, List: r.InputsOf(t)})
	}
}

// addTask records a task.
func (l *TaskLedger) add(r *Reveal) {
	for int(r.Task) >= len(l.List) {
		l.List = append(l.List, Task{})
	}
	t := &l.List[r.Task]
	*t = Task{Req: r.Req, Service: r.Service, State: TaskWaiting, Ticket: t.Ticket + 1, device: -1, Inputs: append(t.Inputs[:0], l.Reveals.InputsOf(r)...)}
	l.Host.Revealed(r)
}

// freeTask releases the slot of a task that no task reads, now or when its batch ends.
func (l *TaskLedger) free(task int32) {
	if int(task) < len(l.List) && l.List[task].State == TaskBatched {
		l.List[task].freed = true
		return
	}
	l.giveBack(task)
}

// ReleaseIfUnread releases the slot of a task that left its batch, if no task reads it any more.
func (l *TaskLedger) Left(task int32) {
	if t := &l.List[task]; t.freed {
		t.freed = false
		l.giveBack(task)
	}
}

// releaseTask releases the slot of a task.
func (l *TaskLedger) giveBack(task int32) {
	l.Host.Freed(task)
	if int(task) < len(l.List) {
		l.List[task].State = TaskUnused
	}
	l.Reveals.Give(task)
}

// PlaceInputs brings the inputs of a waiting task to a device as soon as they exist. It replaces an earlier
// placement of the task.
func (l *TaskLedger) Place(task, device int32) {
	t := &l.List[task]
	placed := t.device >= 0
	t.device = device
	t.Ticket++
	if l.Ready(task) {
		l.send(task)
	} else if !placed {
		l.placing = append(l.placing, task)
	}
}

// BringReadyInputs brings the inputs that have become ready to their devices.
func (l *TaskLedger) SendReady() {
	rest := l.placing[:0]
	for _, t := range l.placing {
		switch {
		case !l.Waits(t) || l.List[t].device < 0: // the task is gone
		case l.Ready(t):
			l.send(t)
		default:
			rest = append(rest, t)
		}
	}
	l.placing = rest
}

// bringInputs brings the inputs of a task to its device.
func (l *TaskLedger) send(task int32) {
	device := l.List[task].device
	l.List[task].device = -1
	l.Host.Bring(task, device)
}

// IsPlaceCurrent reports whether the answer to a placement is still wanted: the task waits, and was not sent
// elsewhere.
func (l *TaskLedger) Awaits(task, ticket int32) bool {
	return l.Waits(task) && l.List[task].Ticket == ticket
}
