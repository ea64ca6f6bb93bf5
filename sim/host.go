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

// newTestInstanceHost returns a host for the instances of plans of a test kind. It is nil
// unless a build tag sets it.
var newTestInstanceHost func(l *loop) host

// networkOrder is an order of the policy to load or unload a network or a session state.
type networkOrder struct {
	network, device int32
	key             int64 // the task whose session state is meant, if network is -1
	load            bool
}

// Kinds of agenda entries. Their order within an instant is another number. Those from
// firstHostKind on belong to hosts, which number them.
const (
	isArrival    uint8 = iota // a request arrives
	isTimer                   // a timer of the policy is due
	isDeviceLost              // a device fails
	isDeviceBack              // a device comes back
	isSearchDone              // a search of the policy has ended
	firstHostKind
)

// agendaEntry is the content of an entry of the agenda. Its order among the events of an
// instant is another number: what happens within a host is no event of the policy and
// still has its place.
type agendaEntry struct {
	start    time.Duration
	serial   int64 // serial number of the batch: an entry with another one belongs to an earlier use of the slot
	batch    int32 // slot of the batch, or a task, network or tag, depending on the kind
	device   int32
	epoch    int32 // of the device or task; an entry of an earlier epoch is void
	hopIndex int16
	kind     uint8
	host     uint8 // index into loop.hosts
	arg      int32 // uplink of a transfer, or -1; a code whose meaning depends on the kind
	downlink int32 // downlink of a transfer, or -1
}

// batch is a batch of the policy, by its slot. The fields after live belong to the host.
type batch struct {
	serial         int64
	model          int32
	service        int32
	pipeline       int32
	size           int32
	stages         int32 // number of stages of its pipeline
	numHops        int16
	hopIndex       int16 // index of the current hop
	firstStage     int16 // stage of its first hop within the pipeline; earlier stages ran in another batch
	live           bool
	place          batchPlace
	sourceDevice   int32         // device that holds its tensors, if firstStage > 0
	readyAt        time.Duration // when its tensors were ready to cross to its hop
	reportDelay    time.Duration // time from the end of its run until the policy hears of it
	nextInDevice   int32         // next batch in the device's queue
	nextInUplink   int32         // next batches in the links' queues
	nextInDownlink int32
	tag            int32 // tag of the dispatch; for an instance it is the priority
}

// batchTable holds the batches that are under way, with their hops and tasks.
type batchTable struct {
	list              []batch // by slot
	hops              []policy.Hop
	memberTasks       []int32 // tasks of all batches; each slot has maxBatch of them
	maxStages         int32   // stages of the longest pipeline
	maxBatch          int32   // size of the largest batch
	dispatchedBatches int64   // number so far
}

// init allocates slots for about four batches per device.
func (u *batchTable) init(t *policy.Tables) {
	u.maxStages, u.maxBatch = t.MaxStages(), t.MaxBatch()
	u.grow(64 + 4*int32(len(t.Devices)))
}

// grow makes the table of batches as large as n slots. Each slot has space for maxStages hops and maxBatch tasks.
func (u *batchTable) grow(n int32) {
	batches := make([]batch, n)
	copy(batches, u.list)
	hops := make([]policy.Hop, n*u.maxStages)
	copy(hops, u.hops)
	inside := make([]int32, n*u.maxBatch)
	copy(inside, u.memberTasks)
	u.list, u.hops, u.memberTasks = batches, hops, inside
}

// at returns the batch of a slot.
func (u *batchTable) at(slot int32) *batch { return &u.list[slot] }

// hopAt returns a hop of a batch.
func (u *batchTable) hopAt(b int32, h int16) *policy.Hop { return &u.hops[b*u.maxStages+int32(h)] }

// members returns the tasks of a batch.
func (u *batchTable) members(b int32) []int32 {
	return u.memberTasks[b*u.maxBatch : b*u.maxBatch+u.list[b].size]
}

// addBatch enters a batch that the policy dispatches into its slot, with its hops (a device for each stage). The
// serial number tells it from earlier batches of the slot.
func (u *batchTable) addBatch(a *policy.Action, pl *policy.Pipeline, hops []policy.Hop) {
	u.dispatchedBatches++
	b := &u.list[a.Batch]
	*b = batch{}
	b.serial, b.model, b.service, b.pipeline, b.stages = u.dispatchedBatches, a.Model, pl.Service, a.Pipeline, pl.NumStages
	b.size, b.numHops, b.live = a.Size, a.HopCount, true
	b.tag = a.Tag
	copy(u.hops[a.Batch*u.maxStages:], hops)
}
