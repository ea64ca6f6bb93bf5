package policytest

import (
	"slices"
	"time"

	"inferplan/policy"
)

// foeBook keeps the books of an Adversary: which requests are open, where their
// tasks are, which batches are on which device. It decides nothing.
type foeBook struct {
	tables   *policy.Tables
	flows    bool // a Control says which tasks requests have
	requests []foeRequest
	free     []int32 // slots of requests
	gone     []int32 // requests whose clients went
	tasks    []foeTask
	told     policy.RevealedTasks
	batches  []*foeBatch // by the policy's slot
	devices  []foeDevice
}

type foeRequest struct {
	open     bool // the policy has it
	left     bool // nobody waits for it
	revealed bool // of a cascade: it has an answer
	model    int32
	running  int // of its tasks, in batches
}

type foeTask struct {
	state   foeState
	freed   bool // nothing reads it any more
	req     int32
	service int32
	batch   int32 // -1: it waits
	inputs  []int32
	epoch   int // counts places
}

type foeState uint8

const (
	foeUnused foeState = iota
	foeWaits
	foeBatched
	foeOver
)

type foeBatch struct {
	slot, model, service, pipeline int32
	tasks                          []int32
	hops                           []policy.Hop
	hop                            int
	live, failed, started          bool
	since                          time.Duration
	tokens                         int32
}

type foeDevice struct {
	down  bool
	queue []*foeBatch // the first runs; on an instance as many as it has sequences
}

// takeRequest gives a slot for a request, the latest that came free.
func (k *foeBook) takeRequest() int32 {
	if n := len(k.free); n > 0 {
		slot := k.free[n-1]
		k.free = k.free[:n-1]
		return slot
	}
	k.requests = append(k.requests, foeRequest{})
	return int32(len(k.requests) - 1)
}

func (k *foeBook) growTasks(t int32) {
	for int(t) >= len(k.tasks) {
		k.tasks = append(k.tasks, foeTask{batch: -1})
	}
}

// close ends a request; its slot is free once no batch holds a task of it.
func (k *foeBook) close(slot int32) {
	q := &k.requests[slot]
	if q.open = false; q.running == 0 {
		k.release(slot)
	}
}

func (k *foeBook) release(slot int32) {
	if !k.flows {
		k.tasks[slot].state = foeUnused
	}
	k.requests[slot] = foeRequest{}
	k.free = append(k.free, slot)
}

// enter puts a task into a batch.
func (k *foeBook) enter(t, batch int32) {
	k.tasks[t].state, k.tasks[t].batch = foeBatched, batch
	k.requests[k.tasks[t].req].running++
}

// leaveBatch takes a task out of its batch and returns whether it is still wanted.
func (k *foeBook) leaveBatch(t int32, then foeState) bool {
	ta := &k.tasks[t]
	ta.state, ta.batch = then, -1
	q := &k.requests[ta.req]
	q.running--
	if q.open {
		return true
	}
	ta.state = foeUnused
	if q.running == 0 {
		k.release(ta.req)
	}
	return false
}

// unwanted gives back the slot of a task that a batch held longer than anybody
// wanted it.
func (k *foeBook) unwanted(t int32) {
	if k.flows && k.tasks[t].freed {
		k.tasks[t].freed = false
		k.told.ReleaseSlot(t)
	}
}

// giveBack ends a batch without a result: its tasks wait again.
func (k *foeBook) giveBack(b *foeBatch) {
	b.live, k.batches[b.slot] = false, nil
	for _, t := range b.tasks {
		if !k.leaveBatch(t, foeWaits) {
			k.unwanted(t)
		} else if req := k.tasks[t].req; k.requests[req].left {
			k.gone = append(k.gone, req)
		}
	}
}

// addTask notes a task that was revealed. False: its slot is another's, which is
// in a batch.
func (k *foeBook) addTask(t *policy.RevealedTask) bool {
	k.growTasks(t.Task)
	if k.tasks[t.Task].state == foeBatched {
		return false
	}
	k.tasks[t.Task] = foeTask{state: foeWaits, req: t.Req, service: t.Service, batch: -1, inputs: slices.Clone(k.told.InputsOf(t)), epoch: k.tasks[t.Task].epoch + 1}
	return true
}

// freeTasks takes back the slots that no task reads, now or with their batches.
func (k *foeBook) freeTasks() {
	for _, t := range k.told.UnreadTasks {
		k.growTasks(t)
		if k.tasks[t].state == foeBatched {
			k.tasks[t].freed = true
			continue
		}
		k.tasks[t].state = foeUnused
		k.told.ReleaseSlot(t)
	}
	k.told.Reset()
}

// width is how many batches run at once on a device.
func (k *foeBook) width(d int32) int {
	if i := k.tables.InstanceOf(d); i >= 0 {
		return int(k.tables.Instances[i].MaxSequences)
	}
	return 1
}

// queue puts a batch behind those of its device.
func (k *foeBook) queue(b *foeBatch) {
	d := b.hops[b.hop].Device
	k.devices[d].queue = append(k.devices[d].queue, b)
}

// unqueue takes a batch off its device.
func (k *foeBook) unqueue(b *foeBatch) {
	dev := &k.devices[b.hops[b.hop].Device]
	b.started = false
	dev.queue = slices.DeleteFunc(dev.queue, func(o *foeBatch) bool { return o == b })
}

// batchAt returns the batch under way in a slot. If there is none, it returns nil.
func (k *foeBook) batchAt(slot int32) *foeBatch {
	if slot < 0 || int(slot) >= len(k.batches) {
		return nil
	}
	return k.batches[slot]
}

// readable returns true if all inputs of a task are there.
func (k *foeBook) readable(t int32) bool {
	return !slices.ContainsFunc(k.tasks[t].inputs, func(in int32) bool { return in >= 0 && k.tasks[in].state != foeOver })
}
