package tasks

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// Options bound the store of outputs that other tasks will read.
type Options struct {
	// StoreBytes bounds its size in bytes. 0 stands for 1 GiB. A request whose outputs have no space is refused.
	StoreBytes int64
	// OnStart is called with StoreBytes when a plan with tasks is started. It may be nil.
	Keeps func(bytes int64)
	// OutcomeOf computes the outcome of a task from its outputs, and so decides which tasks follow. If it is nil, outcomes
	// do not depend on outputs.
	Judge func(service int32, outputs [][]byte) policy.Outcome
}

// SetDefaults sets options that are zero to their defaults.
func (o *Options) SetDefaults() { turn.SetDefault(&o.StoreBytes, 1<<30) }

// TaskStore holds the tasks of a core by their slots, and their outputs until no task will read them. Outputs are copied
// out of the memory of the device, whose slot is then free: if a slot waited for a merge, devices could wait for each
// other for ever.
type Tasks struct {
	policy.TaskLedger
	facts    []facts // by task
	services []*turn.Model
	Apps     applications
	limit    int64 // bytes of outputs; 0 for no limit
	Used     int64
	given    map[int32]ownInputs // by slot: values of tasks that programs asked for
}

// taskFacts holds what the ledger does not know of a task.
type facts struct {
	item  int64  // of a fan-out
	made  []byte // its outputs, one after the other
	since time.Duration
	way   int32      // returned by the step behind its model
	ask   int32      // number of its module's generation step, plus one; 0 if none
	draft turn.Draft // text that a language model has produced so far
}

// programValues are the values that a program gave its task, by input; nil for inputs that it reads.
type ownInputs struct {
	tensors [][]byte
	bytes   int
}

// Ledger returns the tasks of the requests.
func (u *Tasks) Ledger() *policy.TaskLedger { return &u.TaskLedger }

// ReserveBytes reserves bytes of the store for a program's values, or releases them if negative. If there is no space,
// it reserves none and returns false.
func (u *Tasks) Book(bytes int64) bool {
	if bytes > 0 && u.limit > 0 && u.Used+bytes > u.limit {
		return false
	}
	u.Used += bytes
	return true
}

// SetTaskValues keeps the values that a program gave a task. Their bytes are reserved.
func (u *Tasks) Give(t int32, tensors [][]byte, bytes int) {
	if u.given == nil {
		u.given = map[int32]ownInputs{}
	}
	u.given[t] = ownInputs{tensors, bytes}
}

// Ask returns the number of a task's generation step, plus one. If it asks no language model, it returns 0.
func (u *Tasks) Ask(task int32) int32 { return u.facts[task].ask }

// Draft returns the text that language models have produced so far for a task's answer.
func (u *Tasks) Draft(task int32) *turn.Draft { return &u.facts[task].draft }

// TaskOutputs returns the outputs of a task, one after the other; nil if it has none.
func (u *Tasks) Made(task int32) []byte { return u.facts[task].made }

// discardTask removes the outputs of a task and the values that it was given.
func (u *Tasks) discard(t int32) {
	if int(t) < len(u.facts) {
		u.Used -= int64(len(u.facts[t].made))
		u.facts[t].made = nil
	}
	if own, ok := u.given[t]; ok {
		u.Used -= int64(own.bytes)
		delete(u.given, t)
	}
}

// storeOutputs copies the outputs of a task, the k-th of its batch, into the store, or what the step behind its model
// makes of them. If there is no space, it returns false.
func (u *Tasks) keep(t int32, k int, out turn.Outputs) bool {
	service := u.List[t].Service
	outs, need := u.services[service].Outputs, 0
	for i := range outs {
		need += outs[i].Bytes
	}
	if !u.Book(int64(need)) {
		return false
	}
	fa := &u.facts[t]
	fa.made = make([]byte, need)
	if u.Apps.then(service, fa, k, out, outs) {
		return true
	}
	to := fa.made
	for i := range outs {
		n := outs[i].Bytes
		copy(to, out.Output(i)[k*n:][:n])
		to = to[n:]
	}
	return true
}

// outputOf returns the i-th output of a task that has ended. If it does not exist, it returns nil.
func (u *Tasks) output(t int32, i int) []byte {
	made, from := u.facts[t].made, 0
	outs := u.services[u.List[t].Service].Outputs
	if i >= len(outs) {
		return nil
	}
	for k := range i {
		from += outs[k].Bytes
	}
	if from+outs[i].Bytes > len(made) {
		return nil
	}
	return made[from:][:outs[i].Bytes]
}
