package tasks

import (
	"cmp"
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// Options bound the store of outputs that other tasks will read.
type Options struct {
	// StoreBytes bounds its size in bytes. 0 stands for 1 GiB. A request whose outputs have no space is refused.
	StoreBytes int64
	// OnStart is called with StoreBytes when a plan with tasks is started. It may be nil.
	OnStart func(bytes int64)
	// OutcomeOf computes the outcome of a task from its outputs, and so decides which tasks follow. If it is nil, outcomes
	// do not depend on outputs.
	OutcomeOf func(service int32, outputs [][]byte) policy.Outcome
}

// SetDefaults sets options that are zero to their defaults.
func (o *Options) SetDefaults() { o.StoreBytes = cmp.Or(o.StoreBytes, 1<<30) }

// TaskStore holds the tasks of a core by their slots, and their outputs until no task will read them. Outputs are copied
// out of the memory of the device, whose slot is then free: if a slot waited for a merge, devices could wait for each
// other for ever.
type TaskStore struct {
	Tasks         policy.TaskLedger
	facts         []taskFacts // by task
	services      []*turn.Model
	Apps          applications
	maxBytes      int64 // bytes of outputs; 0 for no limit
	UsedBytes     int64
	programInputs map[int32]programValues // by slot: values of tasks that programs asked for
}

// taskFacts holds what the ledger does not know of a task.
type taskFacts struct {
	item           int64  // of a fan-out
	outputs        []byte // its outputs, one after the other
	revealedAt     time.Duration
	outcome        int32            // returned by the step behind its model
	generationStep int32            // number of its module's generation step, plus one; 0 if none
	draft          turn.AnswerDraft // text that a language model has produced so far
}

// programValues are the values that a program gave its task, by input; nil for inputs that it reads.
type programValues struct {
	tensors [][]byte
	bytes   int
}

// Ledger returns the tasks of the requests.
func (u *TaskStore) Ledger() *policy.TaskLedger { return &u.Tasks }

// ReserveBytes reserves bytes of the store for a program's values or the outputs of a task; a negative number releases
// them. If that would exceed the store's limit (0 for none), it reserves nothing and returns false.
func (u *TaskStore) ReserveBytes(bytes int64) bool {
	if bytes > 0 && u.maxBytes > 0 && u.UsedBytes+bytes > u.maxBytes {
		return false
	}
	u.UsedBytes += bytes
	return true
}

// SetTaskValues stores the values that a program gave a task as its inputs: tensors has one entry per input of the
// task's model, nil where the program gave none. The caller has reserved their bytes.
func (u *TaskStore) SetTaskValues(t int32, tensors [][]byte, bytes int) {
	if u.programInputs == nil {
		u.programInputs = map[int32]programValues{}
	}
	u.programInputs[t] = programValues{tensors, bytes}
}

// Ask returns the number of a task's generation step, plus one. If it asks no language model, it returns 0.
func (u *TaskStore) Ask(task int32) int32 { return u.facts[task].generationStep }

// Draft returns the text that language models have produced so far for a task's answer.
func (u *TaskStore) Draft(task int32) *turn.AnswerDraft { return &u.facts[task].draft }

// TaskOutputs returns the outputs of a task, one after the other; nil if it has none.
func (u *TaskStore) TaskOutputs(task int32) []byte { return u.facts[task].outputs }

// discardTask frees the memory of a task (by its slot): its outputs, and the inputs that a program gave for it.
// UsedBytes falls by both.
func (u *TaskStore) discardTask(t int32) {
	if int(t) < len(u.facts) {
		u.UsedBytes -= int64(len(u.facts[t].outputs))
		u.facts[t].outputs = nil
	}
	if values, ok := u.programInputs[t]; ok {
		u.UsedBytes -= int64(values.bytes)
		delete(u.programInputs, t)
	}
}

// storeOutputs copies the outputs of task t, the k-th of its batch, into new memory of the store, or what the step
// behind its model makes of them, and counts their bytes. If the store has no space, it returns false.
func (u *TaskStore) storeOutputs(t int32, k int, out turn.BatchOutputs) bool {
	service := u.Tasks.List[t].Service
	outputs, neededBytes := u.services[service].Outputs, 0
	for i := range outputs {
		neededBytes += outputs[i].Bytes
	}
	if !u.ReserveBytes(int64(neededBytes)) {
		return false
	}
	facts := &u.facts[t]
	facts.outputs = make([]byte, neededBytes)
	if u.Apps.runPostStep(service, facts, k, out, outputs) {
		return true
	}
	rest := facts.outputs
	for i := range outputs {
		n := outputs[i].Bytes
		copy(rest, out.Output(i)[k*n:][:n])
		rest = rest[n:]
	}
	return true
}

// outputOf returns the bytes of the i-th output of a task (by its slot) that has ended; outputs lie one after the other
// in one piece of memory. If the task has no such output, or none yet, it returns nil.
func (u *TaskStore) outputOf(t int32, i int) []byte {
	outputs, offset := u.facts[t].outputs, 0
	tensors := u.services[u.Tasks.List[t].Service].Outputs
	if i >= len(tensors) {
		return nil
	}
	for k := range i {
		offset += tensors[k].Bytes
	}
	if offset+tensors[i].Bytes > len(outputs) {
		return nil
	}
	return outputs[offset:][:tensors[i].Bytes]
}
