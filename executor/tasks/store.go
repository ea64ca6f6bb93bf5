package tasks

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// taskTable holds the tasks of a core by their slots, and what they have made
// until nobody reads it any more. Outputs are copied out of the memory where they
// were made, whose slot is then free: a slot that waited for a merge would have
// devices wait for each other for ever.
type taskTable struct {
	List     []flowTask
	services []*turn.Model
	Reveals  policy.Reveals
	Steps    flowSteps
	late     []int32 // tasks that their batch held longer than anybody wanted them
	Limit    int64   // bytes of outputs; 0: none
	Used     int64
	Given    map[int32]ownInputs // of tasks that programs asked for, by slot
}

// ownInputs are values that a program gave its task, by input; nil: it reads them.
type ownInputs struct {
	tensors [][]byte
	bytes   int
}

// Bring keeps the values that a program gave a task.
func (u *taskTable) Bring(t int32, tensors [][]byte, bytes int) {
	if u.Given == nil {
		u.Given = map[int32]ownInputs{}
	}
	u.Given[t] = ownInputs{tensors, bytes}
	u.Used += int64(bytes)
}

type taskState uint8

const (
	taskUnused taskState = iota
	taskWaits
	taskInBatch
	taskEnded // its slot is still in use by readers
)

// flowTask is a task, by its slot.
type flowTask struct {
	Request, Service int32
	item             int64 // of a fan-out
	state            taskState
	freed            bool    // nothing reads it; its slot is free once no batch runs it
	Inputs           []int32 // tasks that it reads; -1: the client's input
	device           int32   // that it is to be brought to; -1: none
	ticket           int32   // counts places and uses; the answer to an older one is void
	Made             []byte  // its outputs, one after the other
	since            time.Duration
	way              int32  // on that the step behind its model tells
	Ask              int32  // its module's number among those that ask language models, plus one; 0: none
	Failures         int8   // servers that broke off its answer
	Tokens           int    // of the answer that a language model has made so far
	Partial          []byte // that answer
}

// add notes a task that is known since a time.
func (u *taskTable) add(t *policy.Reveal, since time.Duration) {
	for int(t.Task) >= len(u.List) {
		u.List = append(u.List, flowTask{})
	}
	ta := &u.List[t.Task]
	*ta = flowTask{Request: t.Req, Service: t.Service, item: t.Item, state: taskWaits, Inputs: append(ta.Inputs[:0], u.Reveals.InputsOf(t)...), device: -1, ticket: ta.ticket + 1, since: since, Ask: t.Ask}
}

// waits tells whether a slot holds a task that waits.
func (u *taskTable) waits(t int32) bool {
	return t >= 0 && int(t) < len(u.List) && u.List[t].state == taskWaits
}

// ready tells whether all that a task reads is there.
func (u *taskTable) ready(t int32) bool {
	for _, in := range u.List[t].Inputs {
		if in >= 0 && u.List[in].state != taskEnded {
			return false
		}
	}
	return true
}

// free takes back the slot of a task that no task reads, now or with its batch.
func (u *taskTable) free(t int32) {
	if int(t) < len(u.List) && u.List[t].state == taskInBatch {
		u.List[t].freed = true
		return
	}
	u.giveBack(t)
}

// left gives back the slot of a task that a batch held longer than anybody
// wanted it.
func (u *taskTable) left(t int32) {
	if ta := &u.List[t]; ta.freed {
		ta.freed = false
		u.giveBack(t)
	}
}

// giveBack frees a slot and what its task made.
func (u *taskTable) giveBack(t int32) {
	if int(t) < len(u.List) {
		ta := &u.List[t]
		u.Used -= int64(len(ta.Made))
		ta.Made, ta.state = nil, taskUnused
	}
	if own, ok := u.Given[t]; ok {
		u.Used -= int64(own.bytes)
		delete(u.Given, t)
	}
	u.Reveals.Give(t)
}

// keep copies what a task has made, the k-th of its batch, or what the step behind
// its model makes of that; false: there is no room for it.
func (u *taskTable) keep(t int32, k int, out turn.Outputs) bool {
	ta := &u.List[t]
	outs, need := u.services[ta.Service].Outputs, 0
	for i := range outs {
		need += outs[i].Bytes
	}
	if u.Limit > 0 && u.Used+int64(need) > u.Limit {
		return false
	}
	u.Used += int64(need)
	ta.Made = make([]byte, need)
	if u.Steps.then(ta, k, out, outs) {
		return true
	}
	to := ta.Made
	for i := range outs {
		n := outs[i].Bytes
		copy(to, out.Output(i)[k*n:][:n])
		to = to[n:]
	}
	return true
}

// output is the i-th output of a task that has ended; nil: it is not there.
func (u *taskTable) output(t int32, i int) []byte {
	ta, from := &u.List[t], 0
	outs := u.services[ta.Service].Outputs
	if i >= len(outs) {
		return nil
	}
	for k := range i {
		from += outs[k].Bytes
	}
	if from+outs[i].Bytes > len(ta.Made) {
		return nil
	}
	return ta.Made[from:][:outs[i].Bytes]
}
