package policy

// Control says which tasks a request has next. That is application, not policy:
// simulator and executor use the same one, so that they agree on it. It is a
// state machine without I/O, like a policy. Kinds whose requests have one task
// each have none.
//
// Slots of tasks come from out.Take. Control lists in out.Freed those that no
// task will read any more; the interpreter gives a slot back once no batch runs
// the task either.
type Control interface {
	// Begin reveals the first tasks of a request of a model.
	Begin(req, model int32, out *Reveals)
	// Ended follows the end of a task of a request that is not over. What it
	// reveals is of the same request.
	Ended(task int32, o Outcome, out *Reveals)
	// Forget ends a request that was dropped: all of its tasks are freed, and no
	// end of them is told any more.
	Forget(req int32, out *Reveals)
}

// Outcome is what became of a task. Conditions are evaluated by whoever has the
// values: the executor computes them, the simulator draws or replays them.
type Outcome struct {
	Branch int32 // taken, from 0
	Items  int32 // over which the next tasks fan out
}

// Reveal is a task that has become known.
type Reveal struct {
	Req, Task, Service int32
	Item               int64 // of a fan-out
	Work               int64 // millionths of a task's usual work; 0: as usual
	FirstInput         int32 // of Reveals.Inputs
	NumInputs          int32
	// Of a task of a language model: the tokens of its prompt and its answer, 0 the usual
	// ones, and the number of its step, plus one (flow.Workflows.Asks).
	Prompt, Output, Ask int32
}

// Reveals is what a call of a Control appends to. The interpreter owns it.
type Reveals struct {
	Tasks  []Reveal
	Inputs []int32 // of all of them: tasks that a task reads, -1 the client's input
	Over   []int32 // requests that have ended
	Freed  []int32 // task slots that no task will read any more

	free []int32
	next int32
}

// Take gives a slot for a new task.
func (r *Reveals) Take() int32 {
	if n := len(r.free); n > 0 {
		slot := r.free[n-1]
		r.free = r.free[:n-1]
		return slot
	}
	r.next++
	return r.next - 1
}

// Give takes a slot back. It is the interpreter's to call, once the slot is in
// Freed and no batch runs it.
func (r *Reveals) Give(task int32) { r.free = append(r.free, task) }

// Taken is the number of slots in use.
func (r *Reveals) Taken() int { return int(r.next) - len(r.free) }

// InputsOf are the tasks that a revealed task reads.
func (r *Reveals) InputsOf(t *Reveal) []int32 {
	return r.Inputs[t.FirstInput : t.FirstInput+t.NumInputs]
}

// Reset empties the lists and keeps slots and memory.
func (r *Reveals) Reset() {
	r.Tasks, r.Inputs, r.Over, r.Freed = r.Tasks[:0], r.Inputs[:0], r.Over[:0], r.Freed[:0]
}
