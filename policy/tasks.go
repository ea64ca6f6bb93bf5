package policy

// TaskState is the state of a task, from when it is revealed until its slot is free.
type TaskState uint8

const (
	TaskUnused  TaskState = iota // its slot is free
	TaskWaiting                  // for a batch
	TaskBatched
	TaskEnded // its slot is still in use by readers
)

// Task is a task of a request, by its slot.
type Task struct {
	Req, Service int32
	Ticket       int32   // counts places and uses; the answer to an older one is void
	Inputs       []int32 // tasks that it reads; -1: the client's input
	device       int32   // that its inputs are to be brought to; -1: none
	State        TaskState
	freed        bool // nothing reads it; its slot is free once no batch runs it
}

// TaskLedger keeps account of the tasks of requests, and hands the policy what a Control
// reveals. Simulator and executor use the same one. Requests, and what a task has beside
// its place here, are the host's.
type TaskLedger struct {
	List    []Task
	Reveals Reveals
	Host    TaskHost
	Between bool // set by the host while it reveals tasks outside the end of a batch

	placing   []int32 // tasks that are to be brought somewhere once their inputs are there
	late      []int32 // tasks that their batch held longer than anybody wanted them
	revealing bool
}

// TaskHost is the interpreter that a TaskLedger is of.
type TaskHost interface {
	// Open returns the model of a request, and whether the policy still has the request.
	Open(req int32) (model int32, open bool)
	// Revealed notes a task that has become known.
	Revealed(r *Reveal)
	// Tell has the policy handle an event, and carries out what it answers.
	Tell(ev Event)
	// Answer answers a request whose last task has ended.
	Answer(req int32)
	// Leave takes a task out of its batch. If the policy has given its request up, it
	// returns false, and the task is unused.
	Leave(task int32, then TaskState) bool
	// Follow asks the Control what follows from the end of a task.
	Follow(task int32)
	// Freed forgets what a task made: its slot is free from now on.
	Freed(task int32)
	// Bring has what a task reads brought to a device. All of it is there.
	Bring(task, device int32)
}

// Waits returns true if a slot holds a task that waits.
func (l *TaskLedger) Waits(task int32) bool {
	return task >= 0 && int(task) < len(l.List) && l.List[task].State == TaskWaiting
}

// Ready returns true if all that a task reads is there.
func (l *TaskLedger) Ready(task int32) bool {
	for _, in := range l.List[task].Inputs {
		if in >= 0 && l.List[in].State != TaskEnded {
			return false
		}
	}
	return true
}

// Finish ends the tasks of a batch and reveals what follows from them.
func (l *TaskLedger) Finish(tasks []int32) {
	for _, t := range tasks {
		if l.Host.Leave(t, TaskEnded) {
			l.Host.Follow(t)
		} else {
			l.late = append(l.late, t)
		}
	}
	l.Reveal()
	// Slots come free behind what is revealed, so that nothing new has the slot of
	// a task whose batch is still to be told of.
	for _, t := range l.late {
		l.Left(t)
	}
	l.late = l.late[:0]
	l.SendReady()
}

// Forget ends the tasks of a request that was dropped.
func (l *TaskLedger) Forget(c Control, req int32) {
	c.Forget(req, &l.Reveals)
	if !l.revealing {
		l.Reveal()
	}
}

// Reveal tells the policy of tasks that have become known and of requests that are over.
// Requests that it drops meanwhile are passed over.
func (l *TaskLedger) Reveal() {
	r := &l.Reveals
	l.revealing = true
	for i := 0; i < len(r.Tasks); {
		n := i + 1
		for n < len(r.Tasks) && r.Tasks[n].Req == r.Tasks[i].Req {
			n++
		}
		l.tell(i, n)
		i = n
	}
	for _, req := range r.Over {
		if model, open := l.Host.Open(req); open {
			l.Host.Answer(req)
			l.Host.Tell(Event{Kind: ControlRevealed, Model: model, Req: req, Task: -1})
		}
	}
	for i := 0; i < len(r.Freed); i++ {
		l.free(r.Freed[i])
	}
	r.Reset()
	l.revealing = false
}

// tell tells of the tasks [from, to) of the list, all of one request.
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

// add notes a task.
func (l *TaskLedger) add(r *Reveal) {
	for int(r.Task) >= len(l.List) {
		l.List = append(l.List, Task{})
	}
	t := &l.List[r.Task]
	*t = Task{Req: r.Req, Service: r.Service, State: TaskWaiting, Ticket: t.Ticket + 1, device: -1, Inputs: append(t.Inputs[:0], l.Reveals.InputsOf(r)...)}
	l.Host.Revealed(r)
}

// free takes back the slot of a task that no task reads, now or with its batch.
func (l *TaskLedger) free(task int32) {
	if int(task) < len(l.List) && l.List[task].State == TaskBatched {
		l.List[task].freed = true
		return
	}
	l.giveBack(task)
}

// Left gives back the slot of a task that a batch held longer than anybody wanted it.
func (l *TaskLedger) Left(task int32) {
	if t := &l.List[task]; t.freed {
		t.freed = false
		l.giveBack(task)
	}
}

func (l *TaskLedger) giveBack(task int32) {
	l.Host.Freed(task)
	if int(task) < len(l.List) {
		l.List[task].State = TaskUnused
	}
	l.Reveals.Give(task)
}

// Place has the inputs of a task that waits brought to a device as soon as they are
// there; an earlier place of the same task is forgotten.
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

// SendReady has the inputs brought that have become ready.
func (l *TaskLedger) SendReady() {
	rest := l.placing[:0]
	for _, t := range l.placing {
		switch {
		case !l.Waits(t) || l.List[t].device < 0: // it is gone
		case l.Ready(t):
			l.send(t)
		default:
			rest = append(rest, t)
		}
	}
	l.placing = rest
}

func (l *TaskLedger) send(task int32) {
	device := l.List[task].device
	l.List[task].device = -1
	l.Host.Bring(task, device)
}

// Awaits returns true if the answer to a place is still wanted: the task is not gone and
// was not sent elsewhere.
func (l *TaskLedger) Awaits(task, ticket int32) bool {
	return l.Waits(task) && l.List[task].Ticket == ticket
}
