package sim

import (
	"time"

	"inferplan/policy"
)

// host executes the batches that are dispatched to its devices. The loop calls it for a
// device and does not know how it works. What a host puts on the agenda comes back to it
// through handleEntry. What it has to tell the policy it tells through the loop.
type host interface {
	// dispatch accepts a batch. All of its hops are on devices of this host.
	dispatch(slot int32)
	// abort ends a batch. A device that works on it goes on to the end.
	abort(slot int32)
	// evict takes a batch off its instance. With keepKV its KV memory goes to the host's memory.
	evict(slot int32, keepKV bool)
	// handleOrder loads a network onto a device, or unloads it. The same holds for session states.
	handleOrder(order networkOrder)
	// bringInputs brings the inputs of a task, all of which are ready, to a device.
	bringInputs(task, device int32)
	// setDeviceUp makes a device fail, or come back.
	setDeviceUp(device int32, up bool)
	// handleEntry handles an entry of the agenda. The pointer is valid only during the call.
	handleEntry(entry *agendaEntry)
	// checkIdle returns an error if something is still under way.
	checkIdle() error
	// busyTime returns how long a device was at work in the counted time.
	busyTime(device int32) time.Duration
}

// Indexes in loop.hosts.
const (
	stageHost    = 0 // devices that run batches of stages
	instanceHost = 1 // instances, if the plan has some
)

// newTestInstanceHost returns a host for the instances of plans of a test kind. It is nil
// unless a build tag sets it.
var newTestInstanceHost func(l *loop) host

// networkOrder is an order of the policy to load or unload a network on a device, or to move or drop a session state.
type networkOrder struct {
	network, device int32
	key             int64 // the task whose session state is meant, if network is -1
	isLoad          bool  // load or move; otherwise unload or drop
}

// Kinds of agenda entries. Their order within an instant is another number. Those from
// firstHostKind on belong to hosts, which number them.
const (
	arrivalEntry    uint8 = iota // a request arrives
	timerEntry                   // a timer of the policy is due
	deviceLostEntry              // a device fails
	deviceBackEntry              // a device comes back
	searchDoneEntry              // a search of the policy has ended
	firstHostKind
)

// agendaEntry is the content of an entry of the agenda: what happens when it is due. Its order among the events of an
// instant is another number: what happens within a host is no event of the policy and still has its place. subject,
// serial and detail mean different things for different kinds. They are written by name where an entry is made, and
// read by the methods below.
type agendaEntry struct {
	start    time.Duration // when the work began whose end or news the entry is
	serial   int64         // serial number of the batch: an entry with another one belongs to an earlier batch in the slot; else see orderKey and reason
	subject  int32         // batch slot, task, network or tag, by the kind
	device   int32
	epoch    int32 // fault epoch of the device, or ticket of the task; an entry of an earlier one is void
	hopIndex int16 // hop of the batch (a stage on a device), from 0
	kind     uint8
	host     uint8 // index in loop.hosts
	detail   int32 // uplink, return reason or change of network, by the kind
	downlink int32 // downlink of a transfer, an index in Tables.Links; -1 if it holds none
}

// batchSlot returns the slot (number of a batch, used again later) that the entry is about.
func (e *agendaEntry) batchSlot() int32 { return e.subject }

// task returns the slot of the task whose inputs have arrived (inputsArrivedEntry).
func (e *agendaEntry) task() int32 { return e.subject }

// network returns the network that was loaded or unloaded, an index in Tables.Networks; -1 for a session state.
func (e *agendaEntry) network() int32 { return e.subject }

// tag returns the tag that the policy gave to its timer (timerEntry) or its search (searchDoneEntry).
func (e *agendaEntry) tag() int32 { return e.subject }

// orderKey returns the key of the policy's order to load or unload: the task whose session state is meant, if network is -1.
func (e *agendaEntry) orderKey() int64 { return e.serial }

// reason returns why an order that changes no network failed, 0 if it did not (networkChangeEntry from firstAnswer on).
func (e *agendaEntry) reason() policy.ReturnReason { return policy.ReturnReason(e.serial) }

// uplink returns the uplink of a transfer, an index in Tables.Links; -1 if it holds none (transferEndEntry).
func (e *agendaEntry) uplink() int32 { return e.detail }

// returnReason returns why a batch comes back to the policy (sequenceReturnedEntry).
func (e *agendaEntry) returnReason() policy.ReturnReason { return policy.ReturnReason(e.detail) }

// change returns what a networkChangeEntry ends: unloadChange, loadChange, or from firstAnswer on an answer to an order.
func (e *agendaEntry) change() int32 { return e.detail }

// batchState is a batch that the policy has dispatched, in its slot. A hop is a stage on a device. The fields after
// isLive belong to the host that executes it.
type batchState struct {
	serial       int64 // number of the batch among all of the run, which tells it from earlier ones of its slot
	model        int32
	service      int32
	pipeline     int32
	size         int32
	stages       int32 // number of stages of its pipeline
	numHops      int16
	hopIndex     int16 // index of the current hop
	firstStage   int16 // stage of its first hop within the pipeline; earlier stages ran in another batch
	isLive       bool
	activity     batchActivity // what it does now
	sourceDevice int32         // device that holds its tensors, if firstStage > 0
	readyAt      time.Duration // when its tensors were ready to cross to its hop
	reportDelay  time.Duration // time from the end of its run until the policy hears of it
	nextInLine   [3]int32      // next batches in the lines of its links and of its device, by kind of line
	tag          int32         // tag of the dispatch; for an instance it is the priority
}

// batchLine is the queue of a device or a link: the slots of the first and the last batch that wait there, or -1. It is
// linked through the batches (nextInLine), which may be in a line of each kind at once.
type batchLine struct{ first, last int32 }

// Kinds of lines.
const (
	uplinkLine = iota
	downlinkLine
	deviceLine
)

// joinLine puts a batch at the end of a line of a kind.
func (table *batchTable) joinLine(line *batchLine, kind int, batchSlot int32) {
	table.at(batchSlot).nextInLine[kind] = -1
	if line.last < 0 {
		line.first = batchSlot
	} else {
		table.at(line.last).nextInLine[kind] = batchSlot
	}
	line.last = batchSlot
}

// leaveLine takes a batch out of the line of a kind that it is in.
func (table *batchTable) leaveLine(line *batchLine, kind int, batchSlot int32) {
	// Find the batch in front.
	previousSlot := int32(-1)
	for queuedSlot := line.first; queuedSlot != batchSlot; queuedSlot = table.at(queuedSlot).nextInLine[kind] {
		previousSlot = queuedSlot
	}

	// Link it with the batch behind.
	nextSlot := table.at(batchSlot).nextInLine[kind]
	if previousSlot < 0 {
		line.first = nextSlot
	} else {
		table.at(previousSlot).nextInLine[kind] = nextSlot
	}
	if nextSlot < 0 {
		line.last = previousSlot
	}
}

// batchTable holds the batches that are under way, with their hops (stages on devices) and tasks, by slot: the number
// that the policy gives a batch, and uses again later.
type batchTable struct {
	list              []batchState // by slot
	hops              []policy.Hop // [slot * maxStages + hop]
	memberTasks       []int32      // tasks of all batches; each slot has maxBatch of them
	maxStages         int32        // stages of the longest pipeline
	maxBatch          int32        // size of the largest batch
	dispatchedBatches int64        // number so far
}

// init allocates slots for about four batches per device of the tables.
func (table *batchTable) init(tables *policy.Tables) {
	table.maxStages, table.maxBatch = tables.MaxStages(), tables.MaxBatch()
	table.grow(64 + 4*int32(len(tables.Devices)))
}

// grow makes the table as large as this many slots. Each slot has space for maxStages hops and maxBatch tasks. Existing
// batches stay in their slots. A hop is a stage of a batch on a device.
func (table *batchTable) grow(batchSlots int32) {
	batches := make([]batchState, batchSlots)
	copy(batches, table.list)
	hops := make([]policy.Hop, batchSlots*table.maxStages)
	copy(hops, table.hops)
	members := make([]int32, batchSlots*table.maxBatch)
	copy(members, table.memberTasks)
	table.list, table.hops, table.memberTasks = batches, hops, members
}

// at returns the batch in a slot, the number that the policy gave it. The pointer is valid until the table grows.
func (table *batchTable) at(batchSlot int32) *batchState { return &table.list[batchSlot] }

// hopAt returns hop number hopIndex of the batch in a slot: the stage, its device, and the reserved times.
func (table *batchTable) hopAt(batchSlot int32, hopIndex int16) *policy.Hop {
	return &table.hops[batchSlot*table.maxStages+int32(hopIndex)]
}

// members returns the task slots of the batch in a slot.
func (table *batchTable) members(batchSlot int32) []int32 {
	return table.memberTasks[batchSlot*table.maxBatch : batchSlot*table.maxBatch+table.list[batchSlot].size]
}

// addBatch enters a batch that the policy dispatches by an action into its slot, with its hops (a device for each
// stage). The serial number tells it from earlier batches of the slot.
func (table *batchTable) addBatch(action *policy.Action, pipeline *policy.Pipeline, hops []policy.Hop) {
	table.dispatchedBatches++
	entry := &table.list[action.Batch]
	*entry = batchState{}
	entry.serial, entry.model, entry.service, entry.pipeline, entry.stages = table.dispatchedBatches, action.Model, pipeline.Service, action.Pipeline, pipeline.NumStages
	entry.size, entry.numHops, entry.isLive = action.Size, action.HopCount, true
	entry.tag = action.Tag
	copy(table.hops[action.Batch*table.maxStages:], hops)
}
