package tasks

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// Options bound what tasks have made and others will read.
type Options struct {
	// StoreBytes bounds its size in bytes; 0 stands for 1 GiB. A request whose outputs have no
	// room is refused.
	StoreBytes int64
	// Keeps is called with StoreBytes when a plan with tasks is started; nil: nobody asks.
	Keeps func(bytes int64)
	// Judge computes what becomes of a task from its outputs, and with it which tasks come
	// next; nil: always the same.
	Judge func(service int32, outputs [][]byte) policy.Outcome
}

// SetDefaults gives options that are zero their defaults.
func (o *Options) SetDefaults() { turn.SetDefault(&o.StoreBytes, 1<<30) }

// Tasks holds the tasks of a core by their slots, and what they have made
// until nobody reads it any more. Outputs are copied out of the memory where they
// were made, whose slot is then free: a slot that waited for a merge would have
// devices wait for each other for ever.
type Tasks struct {
	policy.TaskLedger
	facts    []facts // by task
	services []*turn.Model
	Apps     applications
	limit    int64 // bytes of outputs; 0: none
	Used     int64
	given    map[int32]ownInputs // of tasks that programs asked for, by slot
}

// facts are what a task has beside its place in the ledger.
type facts struct {
	item  int64  // of a fan-out
	made  []byte // its outputs, one after the other
	since time.Duration
	way   int32 // on that the step behind its model tells
	ask   int32 // its module's number among those that ask language models, plus one; 0: none
	draft turn.Draft
}

// ownInputs are values that a program gave its task, by input; nil: it reads them.
type ownInputs struct {
	tensors [][]byte
	bytes   int
}

// Ledger returns the tasks of the requests.
func (u *Tasks) Ledger() *policy.TaskLedger { return &u.TaskLedger }

// Book takes bytes of the store for what a program brings, or gives them back. If there is no
// room, it takes none and returns false.
func (u *Tasks) Book(bytes int64) bool {
	if bytes > 0 && u.limit > 0 && u.Used+bytes > u.limit {
		return false
	}
	u.Used += bytes
	return true
}

// Give keeps the values that a program gave a task, whose bytes are booked.
func (u *Tasks) Give(t int32, tensors [][]byte, bytes int) {
	if u.given == nil {
		u.given = map[int32]ownInputs{}
	}
	u.given[t] = ownInputs{tensors, bytes}
}

// Ask is the number of a task's module among those that ask language models, plus one; 0: it
// asks none.
func (u *Tasks) Ask(task int32) int32 { return u.facts[task].ask }

// Draft holds the text that language models have made so far of a task's answer.
func (u *Tasks) Draft(task int32) *turn.Draft { return &u.facts[task].draft }

// Made holds the outputs of a task, one after the other; it is nil if the task has none.
func (u *Tasks) Made(task int32) []byte { return u.facts[task].made }

// discard forgets what a task made and was given.
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

// keep copies what a task has made, the k-th of its batch, or what the step behind
// its model makes of that; false: there is no room for it.
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

// output is the i-th output of a task that has ended; nil: it is not there.
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
