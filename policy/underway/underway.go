package underway

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// Batch is a dispatched batch.
type Batch struct {
	Model        int32
	Pipeline     int32
	Size         int32
	FirstStage   int16 // stage of the first hop
	Hops         int16
	FinishedHops int16         // hops whose device has finished
	ReachedHops  int16         // hops that the batch has reached
	IsLive       bool          // it is under way
	Devices      []int32       // by hop
	LatestEnd    time.Duration // latest end, if a policy sets one
}

// BatchTable holds the batches under way, by slot.
type BatchTable struct {
	batches   []Batch
	members   []waiting.Request // [slot*maxBatch + i]
	freeSlots []int32
	maxBatch  int32 // largest batch
	maxHops   int32 // stages of the longest pipeline
}

// New returns a table for a plan.
func New(t *policy.Tables) *BatchTable {
	u := &BatchTable{maxBatch: t.MaxBatch(), maxHops: t.MaxStages()}
	u.grow(64 + 4*int32(len(t.Devices)))
	return u
}

// grow enlarges the table to a number of slots (numbers of batches under way). Contents keep their numbers. Free
// slots are used from the lowest on.
func (u *BatchTable) grow(slots int32) {
	oldSlots := int32(len(u.batches))
	batches, devices := make([]Batch, slots), make([]int32, slots*u.maxHops)
	copy(batches, u.batches)
	for b := range batches {
		hopDevices := devices[int32(b)*u.maxHops : (int32(b)+1)*u.maxHops]
		copy(hopDevices, batches[b].Devices)
		batches[b].Devices = hopDevices
	}
	members := make([]waiting.Request, slots*u.maxBatch)
	copy(members, u.members)
	freeSlots := make([]int32, 0, slots)
	freeSlots = append(freeSlots, u.freeSlots...)
	for b := slots - 1; b >= oldSlots; b-- {
		freeSlots = append(freeSlots, b)
	}
	u.batches, u.members, u.freeSlots = batches, members, freeSlots
}

// Len returns the number of slots.
func (u *BatchTable) Len() int32 { return int32(len(u.batches)) }

// BatchAt returns the batch of a slot.
func (u *BatchTable) BatchAt(slot int32) *Batch { return &u.batches[slot] }

// Members returns the requests of a batch.
func (u *BatchTable) Members(slot int32) []waiting.Request {
	return u.members[slot*u.maxBatch : slot*u.maxBatch+u.batches[slot].Size]
}

// NextSlot returns the slot (number of a batch) that the next Dispatch takes. If none is free, the table grows to
// twice its size.
func (u *BatchTable) NextSlot() int32 {
	if len(u.freeSlots) == 0 {
		u.grow(2 * int32(len(u.batches)))
	}
	return u.freeSlots[len(u.freeSlots)-1]
}

// Dispatch sends the first `size` requests of a queue as a batch along the last `hops` hops of out.Hops, which the
// caller has just added: one hop is a device for a stage. firstStage is the stage of the pipeline at which it
// begins. The batch takes the next free slot, see NextSlot.
func (u *BatchTable) Dispatch(q *waiting.Queue, model, pipeline, size int32, firstStage int16, hops int, out *policy.Actions) {
	slot := u.NextSlot()
	u.freeSlots = u.freeSlots[:len(u.freeSlots)-1]
	b := &u.batches[slot]
	b.Model, b.Pipeline, b.Size, b.FirstStage, b.Hops, b.FinishedHops, b.ReachedHops, b.IsLive = model, pipeline, size, firstStage, int16(hops), 0, 0, true

	// Order the dispatch, with the requests as its tasks.
	action := policy.Action{
		Kind: policy.Dispatch, Pipeline: pipeline, Model: model, Batch: slot, Size: size,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops) - hops), HopCount: b.Hops,
	}
	for i := range u.Members(slot) {
		r := q.Pop()
		u.members[slot*u.maxBatch+int32(i)] = r
		out.Tasks = append(out.Tasks, r.Req)
	}
	for h := range hops {
		b.Devices[h] = out.Hops[int(action.HopFirst)+h].Device
	}
	out.List = append(out.List, action)
}

// RecordArrival records that a batch has reached a stage.
func (u *BatchTable) RecordArrival(ev *policy.Event) {
	if b := &u.batches[ev.Batch]; b.IsLive {
		b.ReachedHops = max(b.ReachedHops, ev.Hop-b.FirstStage)
	}
}

// RecordFinish records that a batch has left a stage, and returns true if that was the last of its hops (stages on
// devices). Its slot is then free; its members stay readable until the next Dispatch. Events that come twice are
// ignored.
func (u *BatchTable) RecordFinish(ev *policy.Event) bool {
	b := &u.batches[ev.Batch]
	if !b.IsLive || ev.Hop-b.FirstStage < b.FinishedHops {
		return false
	}
	b.FinishedHops = ev.Hop - b.FirstStage + 1
	if b.FinishedHops < b.Hops {
		return false
	}
	u.FreeSlot(ev.Batch)
	return true
}

// Abort ends a batch that cannot go on, because a device was lost, and orders the abort. Its requests wait again in
// their queue, as ones that have passed their first look.
func (u *BatchTable) Abort(slot int32, q *waiting.Queue, out *policy.Actions) {
	b := u.BatchAt(slot)
	for _, r := range u.Members(slot) {
		r.PassedFirstLook, r.WasLost = true, true
		q.Insert(r)
	}
	u.FreeSlot(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Model: b.Model, Pipeline: b.Pipeline, Batch: slot})
}

// FreeSlot frees a slot.
func (u *BatchTable) FreeSlot(slot int32) {
	u.batches[slot].IsLive = false
	u.freeSlots = append(u.freeSlots, slot)
}

// NeedsDevice returns true if a batch under way cannot end without a device: it has yet to run there, or its tensors
// have not left it.
func (u *BatchTable) NeedsDevice(slot, device int32) bool {
	b := &u.batches[slot]
	if !b.IsLive {
		return false
	}
	for h := int16(0); h < b.Hops; h++ {
		if b.Devices[h] == device && (h >= b.FinishedHops || h+1 < b.Hops && h >= b.ReachedHops) {
			return true
		}
	}
	return false
}
