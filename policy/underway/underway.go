package underway

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// Batch is a dispatched batch of a model's requests. A hop is a stage of its pipeline on a device.
type Batch struct {
	Model        int32
	Pipeline     int32
	Size         int32
	FirstStage   int16         // stage of the first hop
	Hops         int16         // number of hops
	FinishedHops int16         // hops whose device has finished
	ReachedHops  int16         // index of the latest hop that the batch has reached, 0 at first
	IsLive       bool          // it is under way
	Devices      []int32       // by hop
	LatestEnd    time.Duration // latest end, if a policy sets one
}

// BatchTable holds the batches under way, by slot: the number of a batch, which is used again later.
type BatchTable struct {
	batches   []Batch
	members   []waiting.Request // [slot*maxBatch + i]
	freeSlots []int32
	maxBatch  int32 // largest batch
	maxHops   int32 // stages of the longest pipeline
}

// New returns an empty table for the batches of a plan, with slots for about four batches per device.
func New(tables *policy.Tables) *BatchTable {
	table := &BatchTable{maxBatch: tables.MaxBatch(), maxHops: tables.MaxStages()}
	table.grow(64 + 4*int32(len(tables.Devices)))
	return table
}

// grow enlarges the table to a number of slots (numbers of batches under way). Contents keep their numbers. Free
// slots are used from the lowest on.
func (table *BatchTable) grow(slots int32) {
	slotsBefore := int32(len(table.batches))
	batches, devices := make([]Batch, slots), make([]int32, slots*table.maxHops)
	copy(batches, table.batches)

	// Give each batch its part of the devices by hop.
	for slot := range batches {
		hopDevices := devices[int32(slot)*table.maxHops : (int32(slot)+1)*table.maxHops]
		copy(hopDevices, batches[slot].Devices)
		batches[slot].Devices = hopDevices
	}

	// Copy the requests, and add the new slots to the free ones.
	members := make([]waiting.Request, slots*table.maxBatch)
	copy(members, table.members)
	freeSlots := make([]int32, 0, slots)
	freeSlots = append(freeSlots, table.freeSlots...)
	for slot := slots - 1; slot >= slotsBefore; slot-- {
		freeSlots = append(freeSlots, slot)
	}
	table.batches, table.members, table.freeSlots = batches, members, freeSlots
}

// Len returns the number of slots, used or free.
func (table *BatchTable) Len() int32 { return int32(len(table.batches)) }

// BatchAt returns the batch in a slot.
func (table *BatchTable) BatchAt(slot int32) *Batch { return &table.batches[slot] }

// Members returns the requests of the batch in a slot.
func (table *BatchTable) Members(slot int32) []waiting.Request {
	return table.members[slot*table.maxBatch : slot*table.maxBatch+table.batches[slot].Size]
}

// NextSlot returns the slot (number of a batch) that the next Dispatch takes. If none is free, the table grows to
// twice its size.
func (table *BatchTable) NextSlot() int32 {
	if len(table.freeSlots) == 0 {
		table.grow(2 * int32(len(table.batches)))
	}
	return table.freeSlots[len(table.freeSlots)-1]
}

// Dispatch sends the first `size` requests of a queue as a batch along the last `hops` hops of out.Hops, which the
// caller has just added: one hop is a device for a stage. firstStage is the stage of the pipeline at which it
// begins. The batch takes the next free slot, see NextSlot.
func (table *BatchTable) Dispatch(queue *waiting.Queue, model, pipeline, size int32, firstStage int16, hops int, out *policy.Actions) {
	slot := table.NextSlot()
	table.freeSlots = table.freeSlots[:len(table.freeSlots)-1]
	batch := &table.batches[slot]
	batch.Model, batch.Pipeline, batch.Size = model, pipeline, size
	batch.FirstStage, batch.Hops = firstStage, int16(hops)
	batch.FinishedHops, batch.ReachedHops, batch.IsLive = 0, 0, true

	// Order the dispatch, with the requests as its tasks.
	action := policy.Action{
		Kind: policy.Dispatch, Pipeline: pipeline, Model: model, Batch: slot, Size: size,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops) - hops), HopCount: batch.Hops,
	}
	for i := range table.Members(slot) {
		request := *queue.Pop()
		table.members[slot*table.maxBatch+int32(i)] = request
		out.Tasks = append(out.Tasks, request.Req)
	}
	for hop := range hops {
		batch.Devices[hop] = out.Hops[int(action.HopFirst)+hop].Device
	}
	out.List = append(out.List, action)
}

// RecordArrival records, by the event TransferFinished, that a batch has reached a stage.
func (table *BatchTable) RecordArrival(ev *policy.Event) {
	if batch := &table.batches[ev.Batch]; batch.IsLive {
		batch.ReachedHops = max(batch.ReachedHops, ev.Hop-batch.FirstStage)
	}
}

// RecordFinish records, by the event BatchFinished, that a batch has left a stage, and returns true if that was the
// last of its hops (stages on devices). Its slot is then free; its members stay readable until the next Dispatch.
// Events that come twice are ignored.
func (table *BatchTable) RecordFinish(ev *policy.Event) bool {
	batch := &table.batches[ev.Batch]
	if !batch.IsLive || ev.Hop-batch.FirstStage < batch.FinishedHops {
		return false
	}
	batch.FinishedHops = ev.Hop - batch.FirstStage + 1
	if batch.FinishedHops < batch.Hops {
		return false
	}
	table.FreeSlot(ev.Batch)
	return true
}

// Abort ends the batch in a slot that cannot go on, because a device was lost, and appends the action that aborts it.
// Its requests wait again in their queue, as ones that have passed their first look.
func (table *BatchTable) Abort(slot int32, queue *waiting.Queue, out *policy.Actions) {
	batch := table.BatchAt(slot)
	for _, request := range table.Members(slot) {
		request.PassedFirstLook, request.WasLost = true, true
		queue.Insert(request)
	}
	table.FreeSlot(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Abort, Model: batch.Model, Pipeline: batch.Pipeline, Batch: slot})
}

// FreeSlot makes a slot available to another batch.
func (table *BatchTable) FreeSlot(slot int32) {
	table.batches[slot].IsLive = false
	table.freeSlots = append(table.freeSlots, slot)
}

// NeedsDevice reports whether the batch in a slot is under way and cannot end without a device: it has yet to run
// there, or its tensors have not left it.
func (table *BatchTable) NeedsDevice(slot, device int32) bool {
	batch := &table.batches[slot]
	if !batch.IsLive {
		return false
	}
	for hop := int16(0); hop < batch.Hops; hop++ {
		// FinishedHops is a number of hops, so it is the index of the first one that has not run. ReachedHops is the index of
		// the latest hop reached: up to that of a later hop, the tensors of this one have not left it.
		runsLater := hop >= batch.FinishedHops
		sendsLater := hop+1 < batch.Hops && hop >= batch.ReachedHops
		if batch.Devices[hop] == device && (runsLater || sendsLater) {
			return true
		}
	}
	return false
}
