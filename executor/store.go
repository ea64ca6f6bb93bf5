package executor

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
	list     []flowTask
	services []*turn.Model
	out      policy.Reveals
	steps    flowSteps
	late     []int32 // tasks that their batch held longer than anybody wanted them
	limit    int64   // bytes of outputs; 0: none
	used     int64
	own      map[int32]ownInputs // of tasks that programs asked for, by slot
}

// ownInputs are values that a program gave its task, by input; nil: it reads them.
type ownInputs struct {
	tensors [][]byte
	bytes   int
}

// bring keeps the values that a program gave a task.
func (u *taskTable) bring(t int32, tensors [][]byte, bytes int) {
	if u.own == nil {
		u.own = map[int32]ownInputs{}
	}
	u.own[t] = ownInputs{tensors, bytes}
	u.used += int64(bytes)
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
	req, service int32
	item         int64 // of a fan-out
	state        taskState
	freed        bool    // nothing reads it; its slot is free once no batch runs it
	inputs       []int32 // tasks that it reads; -1: the client's input
	device       int32   // that it is to be brought to; -1: none
	ticket       int32   // counts places and uses; the answer to an older one is void
	made         []byte  // its outputs, one after the other
	since        time.Duration
	way          int32  // on that the step behind its model tells
	ask          int32  // its module's number among those that ask language models, plus one; 0: none
	failures     int8   // servers that broke off its answer
	tokens       int    // of the answer that a language model has made so far
	partial      []byte // that answer
}

// add notes a task that is known since a time.
func (u *taskTable) add(t *policy.Reveal, since time.Duration) {
	for int(t.Task) >= len(u.list) {
		u.list = append(u.list, flowTask{})
	}
	ta := &u.list[t.Task]
	*ta = flowTask{req: t.Req, service: t.Service, item: t.Item, state: taskWaits, inputs: append(ta.inputs[:0], u.out.InputsOf(t)...), device: -1, ticket: ta.ticket + 1, since: since, ask: t.Ask}
}

// waits tells whether a slot holds a task that waits.
func (u *taskTable) waits(t int32) bool {
	return t >= 0 && int(t) < len(u.list) && u.list[t].state == taskWaits
}

// ready tells whether all that a task reads is there.
func (u *taskTable) ready(t int32) bool {
	for _, in := range u.list[t].inputs {
		if in >= 0 && u.list[in].state != taskEnded {
			return false
		}
	}
	return true
}

// free takes back the slot of a task that no task reads, now or with its batch.
func (u *taskTable) free(t int32) {
	if int(t) < len(u.list) && u.list[t].state == taskInBatch {
		u.list[t].freed = true
		return
	}
	u.giveBack(t)
}

// left gives back the slot of a task that a batch held longer than anybody
// wanted it.
func (u *taskTable) left(t int32) {
	if ta := &u.list[t]; ta.freed {
		ta.freed = false
		u.giveBack(t)
	}
}

// giveBack frees a slot and what its task made.
func (u *taskTable) giveBack(t int32) {
	if int(t) < len(u.list) {
		ta := &u.list[t]
		u.used -= int64(len(ta.made))
		ta.made, ta.state = nil, taskUnused
	}
	if own, ok := u.own[t]; ok {
		u.used -= int64(own.bytes)
		delete(u.own, t)
	}
	u.out.Give(t)
}

// keep copies what a task has made, the k-th of its batch, or what the step behind
// its model makes of that; false: there is no room for it.
func (u *taskTable) keep(t int32, k int, out turn.Outputs) bool {
	ta := &u.list[t]
	outs, need := u.services[ta.service].Outputs, 0
	for i := range outs {
		need += outs[i].Bytes
	}
	if u.limit > 0 && u.used+int64(need) > u.limit {
		return false
	}
	u.used += int64(need)
	ta.made = make([]byte, need)
	if u.steps.then(ta, k, out, outs) {
		return true
	}
	to := ta.made
	for i := range outs {
		n := outs[i].Bytes
		copy(to, out.Output(i)[k*n:][:n])
		to = to[n:]
	}
	return true
}

// output is the i-th output of a task that has ended; nil: it is not there.
func (u *taskTable) output(t int32, i int) []byte {
	ta, from := &u.list[t], 0
	outs := u.services[ta.service].Outputs
	if i >= len(outs) {
		return nil
	}
	for k := range i {
		from += outs[k].Bytes
	}
	if from+outs[i].Bytes > len(ta.made) {
		return nil
	}
	return ta.made[from:][:outs[i].Bytes]
}
