package sim

import (
	"time"

	"inferplan/policy"
)

// host executes what is dispatched to its devices. The loop asks it per device
// and knows nothing of how it works. What a host puts on the agenda comes back
// to it through due; what it does for a policy it tells through the loop.
type host interface {
	// dispatch takes a batch over. Its hops are all on this host.
	dispatch(slot int32)
	// abort forgets a batch. What works on it goes on to its end.
	abort(slot int32)
	// evict takes a batch off its instance; keep: its state stays near.
	evict(slot int32, keep bool)
	// load brings a network to a device, or takes it away.
	load(o order)
	// place brings what a task reads, all of which is there, to a device.
	place(task, device int32)
	// fault takes a device away, or gives it back.
	fault(device int32, back bool)
	// due handles an entry of the agenda. The entry holds for the call alone.
	due(it *item)
	// finish checks that nothing is under way when nothing is left to happen.
	finish() error
	// running is how long a device was at work in the counted time.
	running(device int32) time.Duration
}

// instanceHost makes the host of the instances that a plan has; nil: nothing
// simulates them.
var instanceHost func(l *loop) host

// order is a network to be loaded or unloaded.
type order struct {
	network, device int32
	key             int64 // of a session's state, with network -1
	up              bool
}

// Kinds of entries of the agenda, apart from their order. Those of hosts begin
// with ofHost and are theirs to number.
const (
	isArrival uint8 = iota
	isTimer
	isLoss
	isBack
	isSearched
	ofHost
)

// item is what an entry of the agenda carries. Its order among the events of an
// instant is another number: what happens within a host is no event of the
// policy and still has its place.
type item struct {
	start  time.Duration
	serial int64 // of the batch; tells an entry of an earlier user of its slot
	batch  int32 // slot; task, network or tag, by what it is
	device int32
	epoch  int32 // of the device or task; an entry of an older one is void
	hop    int16
	what   uint8
	host   uint8
	up     int32
	down   int32
}

// batch is a batch of the policy, by its slot. What stands behind live belongs
// to the host.
type batch struct {
	serial   int64
	model    int32
	service  int32
	pipeline int32
	size     int32
	stages   int32 // of its pipeline
	numHops  int16
	hop      int16 // of its hops
	first    int16 // stage of its first hop; hops before that were another batch's
	live     bool
	at       place
	from     int32         // device that its tensors come from, where first > 0
	readyAt  time.Duration // when its tensors could first cross to its hop
	late     time.Duration // from the end of its run until the policy hears of it
	nextRun  int32         // next in the device's queue
	nextUp   int32         // next in the links' queues
	nextDown int32
	tag      int32 // of the dispatch: to an instance its priority
}

// batchTable holds the batches under way with their hops and tasks.
type batchTable struct {
	batches []batch // by the policy's slots
	hops    []policy.Hop
	inside  []int32 // tasks
	stride  int32   // longest pipeline
	most    int32   // largest batch
	serial  int64   // batches dispatched so far
}

func (u *batchTable) init(t *policy.Tables) {
	u.stride, u.most = t.MaxStages(), t.MaxBatch()
	u.grow(64 + 4*int32(len(t.Devices)))
}

func (u *batchTable) grow(n int32) {
	batches := make([]batch, n)
	copy(batches, u.batches)
	hops := make([]policy.Hop, n*u.stride)
	copy(hops, u.hops)
	inside := make([]int32, n*u.most)
	copy(inside, u.inside)
	u.batches, u.hops, u.inside = batches, hops, inside
}

func (u *batchTable) hop(b int32, h int16) *policy.Hop { return &u.hops[b*u.stride+int32(h)] }

func (u *batchTable) members(b int32) []int32 {
	return u.inside[b*u.most : b*u.most+u.batches[b].size]
}

// put notes a batch that the policy dispatches. It is filled in place.
func (u *batchTable) put(a *policy.Action, pl *policy.Pipeline, hops []policy.Hop) {
	u.serial++
	b := &u.batches[a.Batch]
	*b = batch{}
	b.serial, b.model, b.service, b.pipeline, b.stages = u.serial, a.Model, pl.Service, a.Pipeline, pl.NumStages
	b.size, b.numHops, b.live = a.Size, a.HopCount, true
	b.tag = a.Tag
	copy(u.hops[a.Batch*u.stride:], hops)
}
