package underway

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// Batch is a dispatched batch.
type Batch struct {
	Model    int32
	Pipeline int32
	Size     int32
	First    int16 // stage of the first hop
	Hops     int16
	Done     int16         // hops whose device has finished
	Arrived  int16         // hops that the batch has reached
	Live     bool          // it is under way
	Device   []int32       // by hop
	Limit    time.Duration // latest end, if a policy sets one
}

// BatchTable holds the batches under way, by slot.
type Table struct {
	batches []Batch
	members []waiting.Request // [slot*maxBatch + i]
	free    []int32
	most    int32 // largest batch
	hops    int32 // stages of the longest pipeline
}

// New returns a table for a plan.
func New(t *policy.Tables) *Table {
	u := &Table{most: t.MaxBatch(), hops: t.MaxStages()}
	u.grow(64 + 4*int32(len(t.Devices)))
	return u
}

// grow enlarges the table to a number of slots.
func (u *Table) grow(slots int32) {
	had := int32(len(u.batches))
	batches, devices := make([]Batch, slots), make([]int32, slots*u.hops)
	copy(batches, u.batches)
	for b := range batches {
		own := devices[int32(b)*u.hops : (int32(b)+1)*u.hops]
		copy(own, batches[b].Device)
		batches[b].Device = own
	}
	members := make([]waiting.Request, slots*u.most)
	copy(members, u.members)
	free := make([]int32, 0, slots)
	free = append(free, u.free...)
	for b := slots - 1; b >= had; b-- {
		free = append(free, b)
	}
	u.batches, u.members, u.free = batches, members, free
}

// Len returns the number of slots.
func (u *Table) Len() int32 { return int32(len(u.batches)) }

// BatchAt returns the batch of a slot.
func (u *Table) At(slot int32) *Batch { return &u.batches[slot] }

// Members returns the requests of a batch.
func (u *Table) Members(slot int32) []waiting.Request {
	return u.members[slot*u.most : slot*u.most+u.batches[slot].Size]
}

// NextSlot returns the slot that the next Dispatch takes. If none is free, the table grows.
func (u *Table) Next() int32 {
	if len(u.free) == 0 {
		u.grow(2 * int32(len(u.batches)))
	}
	return u.free[len(u.free)-1]
}

// Dispatch sends the first `size` requests of a queue along the last `hops` hops of out.Hops, from stage `first` of the
// pipeline on.
func (u *Table) Dispatch(q *waiting.Queue, model, pipeline, size int32, first int16, hops int, out *policy.Actions) {
	slot := u.Next()
	u.free = u.free[:len(u.free)-1]
	b := &u.batches[slot]
	b.Model, b.Pipeline, b.Size, b.First, b.Hops, b.Done, b.Arrived, b.Live = model, pipeline, size, first, int16(hops), 0, 0, true

	// Order the dispatch, with the requests as its tasks.
	act := policy.Action{
		Kind: policy.Dispatch, Pipeline: pipeline, Model: model, Batch: slot, Size: size,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops) - hops), HopCount: b.Hops,
	}
	for i := range u.Members(slot) {
		r := q.Pop()
		u.members[slot*u.most+int32(i)] = r
		out.Tasks = append(out.Tasks, r.Req)
	}
	for h := range hops {
		b.Device[h] = out.Hops[int(act.HopFirst)+h].Device
	}
	out.List = append(out.List, act)
}

// RecordArrival records that a batch has reached a stage.
func (u *Table) Transferred(ev *policy.Event) {
	if b := &u.batches[ev.Batch]; b.Live {
		b.Arrived = max(b.Arrived, ev.Hop-b.First)
	}
}

// RecordFinish records that a batch has left a stage, and returns true if that was the last of its hops. Its slot is
// then free; its members stay readable until the next Dispatch.
func (u *Table) Finished(ev *policy.Event) bool {
	b := &u.batches[ev.Batch]
	if !b.Live || ev.Hop-b.First < b.Done {
		return false
	}
	b.Done = ev.Hop - b.First + 1
	if b.Done < b.Hops {
		return false
	}
	u.Free(ev.Batch)
	return true
}

// Abort ends a batch that cannot go on. Its requests wait again in a queue.
func (u *Table) Abort(slot int32, q *waiting.Queue, out *policy.Actions) {
	b := u.At(slot)
	for _, r := range u.Members(slot) {
		r.Looked, r.Lost = true, true
		q.Insert(r)
	}
	u.Free(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Model: b.Model, Pipeline: b.Pipeline, Batch: slot})
}

// FreeSlot frees a slot.
func (u *Table) Free(slot int32) {
	u.batches[slot].Live = false
	u.free = append(u.free, slot)
}

// NeedsDevice returns true if a batch under way cannot end without a device: it has yet to run there, or its tensors
// have not left it.
func (u *Table) Needs(slot, device int32) bool {
	b := &u.batches[slot]
	if !b.Live {
		return false
	}
	for h := int16(0); h < b.Hops; h++ {
		if b.Device[h] == device && (h >= b.Done || h+1 < b.Hops && h >= b.Arrived) {
			return true
		}
	}
	return false
}
