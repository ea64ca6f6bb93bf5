package policy

// Control says which tasks a request has next. This belongs to the application, not to the policy: simulator and
// executor use the same Control, so that they agree. It is a state machine without I/O, like a policy. Kinds whose
// requests have one task each have none.
//
// Slots of tasks come from out.TakeSlot. Control lists in out.UnreadTasks the tasks that no task will read any
// more; the interpreter releases a slot once no batch runs its task either.
type Control interface {
	// BeginRequest reveals the first tasks of a request of a model.
	BeginRequest(req, model int32, out *RevealedTasks)
	// TaskEnded reveals the tasks that follow from the end of a task. Its request is not over, and all of them
	// belong to it.
	TaskEnded(task int32, o Outcome, out *RevealedTasks)
	// ForgetRequest ends a request that was dropped: all of its tasks are unread, and TaskEnded is not called for
	// them any more.
	ForgetRequest(req int32, out *RevealedTasks)
}

// Outcome is the result of a task, as far as the next tasks depend on it. Conditions are evaluated where the
// values are: the executor computes them, the simulator draws or replays them.
type Outcome struct {
	Branch int32 // branch that is taken, counted from 0
	Items  int32 // number of items over which the next tasks fan out
}

// RevealedTask is a task that has become known.
type RevealedTask struct {
	Req, Task, Service int32
	Item               int64 // item of a fan-out
	Work               int64 // millionths of a task's usual work; 0 means the usual
	FirstInput         int32 // index into RevealedTasks.Inputs
	NumInputs          int32
	// For a task of a language model: the tokens of its prompt and its answer, 0 for the usual ones, and the
	// number of its step, plus one (flow.WorkflowTables.GenerationSteps).
	Prompt, Output, Ask int32
}

// RevealedTasks is the buffer to which calls of a Control append. It belongs to the interpreter.
type RevealedTasks struct {
	Tasks         []RevealedTask
	Inputs        []int32 // inputs of all tasks: tasks whose outputs they read, -1 for the client's input
	EndedRequests []int32 // requests that have ended
	UnreadTasks   []int32 // tasks that no task will read any more

	freeSlots []int32 // task slots that are free
	nextSlot  int32   // first slot that was never used
}

// TakeSlot returns a slot (the number by which events name a task) for a new task: one that was released, or the
// next number.
func (r *RevealedTasks) TakeSlot() int32 {
	if freeCount := len(r.freeSlots); freeCount > 0 {
		slot := r.freeSlots[freeCount-1]
		r.freeSlots = r.freeSlots[:freeCount-1]
		return slot
	}
	r.nextSlot++
	return r.nextSlot - 1
}

// ReleaseSlot makes the slot of a task free for another one. The interpreter calls it, once the task is in
// UnreadTasks and no batch runs it.
func (r *RevealedTasks) ReleaseSlot(task int32) { r.freeSlots = append(r.freeSlots, task) }

// SlotsInUse returns the number of task slots in use. After the end of all requests it is 0.
func (r *RevealedTasks) SlotsInUse() int { return int(r.nextSlot) - len(r.freeSlots) }

// InputsOf returns the tasks whose outputs a revealed task reads; -1 is the client's input.
func (r *RevealedTasks) InputsOf(task *RevealedTask) []int32 {
	return r.Inputs[task.FirstInput : task.FirstInput+task.NumInputs]
}

// Reset empties the lists once the interpreter has told the policy. It keeps slots and memory.
func (r *RevealedTasks) Reset() {
	r.Tasks, r.Inputs, r.EndedRequests, r.UnreadTasks = r.Tasks[:0], r.Inputs[:0], r.EndedRequests[:0], r.UnreadTasks[:0]
}
