package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// deviceNetworks holds the networks of a device on which networks come and go (Tables.Memory). The worker carries out
// orders one after the other, beside its batches. It belongs to the core's turn.
type deviceNetworks struct {
	Loaded         []bool           // by network
	waitingOrders  []turn.LoadOrder // waiting, first in first out
	IsLoading      bool
	CurrentOrder   turn.LoadOrder // while IsLoading
	orderStartedAt time.Duration
	lastLoadEnd    time.Duration // when the policy was told of its last load
	lastID         uint64
	Arena          *arena
	newSlots       []*stageSlots // slots of the networks that are being loaded or unloaded

	Loads                 int64
	loadTime              time.Duration
	loadTimeBesideBatches time.Duration // the part of loadTime beside batches
	endedLoads            []extent      // loads that ended during a run whose result has not arrived, on the core's clock
}

// swapsNetworks returns true if networks come and go on a device.
func swapsNetworks(t *policy.Tables, device int32) bool {
	return int(device) < len(t.Memory) && t.Memory[device] > 0
}

// stagesOf returns the stages of a network that are placed on a device, as indexes into the plan's stages.
func (k *supervisor) stagesOf(d *Device, network int32) []int32 {
	var out []int32
	for s := range k.stages {
		if d.loadedStages[s] != nil && k.core.Tables.Pipelines[k.core.Tables.Stages[s].Pipeline].Network == network {
			out = append(out, int32(s))
		}
	}
	return out
}

// setLoadTimes sets in spec, for the engine replay, which loads nothing, how many bytes a stage's network (a model with
// its weights) has and how long the plan takes to load it on device d: in ns, from the host's memory and from its disk.
// The first stage stands for the whole network; later ones get nothing. Other engines measure their loads.
func (k *supervisor) setLoadTimes(spec *worker.StageSpec, stage int32, d *Device) {
	t := k.core.Tables
	n := &t.Networks[t.Pipelines[t.Stages[stage].Pipeline].Network]
	if k.core.Options.Engine != "replay" || t.Stages[stage].Hop > 0 {
		return
	}
	spec.WeightBytes = n.Bytes
	if n.LoadTimes != nil {
		l := n.LoadTimes[t.Devices[d.Index].Kind]
		spec.LoadNS = [2]int64{int64(l[0]), int64(l[1])}
	}
}

// slotsFor returns the layout of a stage's slots on a device: how many bytes of shared memory the tensors of one batch
// take, in whole pages. A first stage needs space for input and output; others read their input from the slot of the
// stage before. Where the slots lie, and how many they are, is set later.
func (k *supervisor) slotsFor(d *Device, l *worker.LoadedStage) *stageSlots {
	st := &k.stages[l.ID]
	s := &stageSlots{device: d.Index, loaded: l}
	s.Layout = worker.Layout{ID: l.ID, WarmSlots: 2} // prepared for every batch size before the first request; the others at first use
	if k.core.Options.Engine == "replay" {           // which has nothing to prepare
		s.Layout.WarmSlots = 0
	}
	if st.isFirst {
		s.Layout.InBytes = worker.Span(l.Inputs, st.maxBatch)
	}
	s.Layout.Stride = (s.Layout.InBytes + worker.Span(l.Outputs, st.maxBatch) + page - 1) &^ (page - 1)
	return s
}

// loadResidents has the starting worker p of device d load the networks (models with their weights) that the plan keeps
// on the device from the start, one after the other, by the commands `first`. It returns the first error.
func (k *supervisor) loadResidents(ctx context.Context, d *Device, p *worker.Process, first []worker.Swap) error {
	for i := range first {
		a, err := p.Swap(ctx, first[i])
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return fmt.Errorf("device %d (%s): %w", d.Index, d.Kind, err)
		}
	}
	return nil
}

// cutSlots takes memory for the slots of a network's stages from the arena of device d, its shared memory, and returns
// them. A slot has the tensors of one batch. It takes the usual number of slots for each stage, halved until they fit.
// If not even one fits, it takes none and returns an error.
func (k *supervisor) cutSlots(d *Device, network int32) ([]*stageSlots, error) {
	networks, list := d.Networks, k.stagesOf(d, network)
	if len(list) == 0 {
		return nil, fmt.Errorf("device %d: network %s has no stage there", d.Index, k.core.Tables.Networks[network].Name)
	}
	var out []*stageSlots
	for _, st := range list {
		s := k.slotsFor(d, d.loadedStages[st])
		for n := k.slotCount(d, s.Layout.Stride); ; n /= 2 {
			if n == 0 {
				returnSlots(out)
				return nil, fmt.Errorf("device %d: its shared memory has no room for slots of %d bytes", d.Index, s.Layout.Stride)
			}
			if base, ok := networks.Arena.takeExtent(s.Layout.Stride * int64(n)); ok {
				s.Layout.Base, s.Layout.Slots, s.Pool, s.arena = base, n, worker.NewSlotPool(n), networks.Arena
				break
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// returnSlots gives slots (memory for batches' tensors) back to the arena that they were cut from, each once nobody
// reads it any more.
func returnSlots(list []*stageSlots) {
	for _, s := range list {
		s.isRetired = true
		s.returnIfUnused()
	}
}

// swapCommand returns the command to a worker that carries out an order to load or unload a network, with the
// slots of its stages.
func (k *supervisor) swapCommand(o *turn.LoadOrder, id uint64, slots []*stageSlots) worker.Swap {
	q := worker.Swap{ID: id, ToDevice: o.Load, Bytes: k.core.Tables.Networks[o.Network].Bytes}
	for _, s := range slots {
		q.Stages = append(q.Stages, s.Layout)
	}
	return q
}

// cutResidentSlots takes slots (memory for batches' tensors) for the networks that a device holds at the start, and
// returns the commands that make its worker load them. Slots from an earlier start that failed are returned first.
func (k *supervisor) cutResidentSlots(d *Device) ([]worker.Swap, error) {
	networks := d.Networks
	returnSlots(networks.newSlots)
	networks.newSlots = nil
	var list []worker.Swap
	for _, n := range k.residentNetworks(d) {
		slots, err := k.cutSlots(d, n)
		if err != nil {
			return nil, err
		}
		networks.newSlots = append(networks.newSlots, slots...)
		list = append(list, k.swapCommand(&turn.LoadOrder{Network: n, Load: true}, 0, slots))
	}
	return list, nil
}

// residentNetworks returns the networks that a device holds at the start.
func (k *supervisor) residentNetworks(d *Device) []int32 {
	if int(d.Index) < len(k.core.Tables.Resident) {
		return k.core.Tables.Resident[d.Index]
	}
	return nil
}

// markResidentsLoaded records, after the worker of device d has started, that the networks which the plan keeps there
// from the start are loaded, and enters their memory slots (places of inputs and outputs) by their ids.
func (k *supervisor) markResidentsLoaded(d *Device) {
	networks := d.Networks
	for _, s := range networks.newSlots {
		d.Slots[s.Layout.ID] = s
	}
	networks.newSlots = nil
	for _, n := range k.residentNetworks(d) {
		networks.Loaded[n] = true
	}
}

// forgetNetworks is called when the worker of the device is lost: it forgets the loaded networks, gives back their
// memory slots, and drops the orders to load others. The next worker starts with the resident networks.
func (d *Device) forgetNetworks() {
	networks := d.Networks
	for i, s := range d.Slots {
		if s != nil {
			returnSlots([]*stageSlots{s})
			d.Slots[i] = nil
		}
	}
	returnSlots(networks.newSlots)
	clear(networks.Loaded)
	networks.waitingOrders, networks.IsLoading, networks.newSlots, networks.endedLoads = networks.waitingOrders[:0], false, nil, networks.endedLoads[:0]
}

// takeOrder takes an order of the policy to load or unload a network (a model with its weights) on a device that has
// only some of its networks loaded. A load cancels a waiting unload of the same network, and an unload a waiting load.
// An order that changes nothing is answered at once, and one that repeats an order under way is ignored. Without a
// worker nothing is done.
func (w *WorkerBackend) takeOrder(d *Device, o turn.LoadOrder) {
	networks := d.Networks
	if d.Process == nil { // what it then holds follows from its start
		return
	}
	if o.Network < 0 {
		w.answerOrder(&o, policy.ReturnRefused)
		return
	}

	// An order for the same network waits.
	if i := slices.IndexFunc(networks.waitingOrders, o.IsSame); i >= 0 {
		waiting := networks.waitingOrders[i]
		if waiting.Load == o.Load { // it is under way already
			return
		}
		networks.waitingOrders = slices.Delete(networks.waitingOrders, i, i+1)
		w.answerOrder(&o, 0)
		return
	}

	// Nothing has to be done if the network is, or will be, as ordered.
	willBeLoaded := networks.Loaded[o.Network]
	if networks.IsLoading && o.IsSame(networks.CurrentOrder) {
		if willBeLoaded = networks.CurrentOrder.Load; willBeLoaded == o.Load {
			return
		}
	} else if willBeLoaded == o.Load {
		w.answerOrder(&o, 0)
		return
	}
	o.OrderedAt = w.core.Loop.LastTime()
	networks.waitingOrders = append(networks.waitingOrders, o)
	w.sendNextOrder(d)
}

// answerOrder answers an order for which nothing had to be done.
func (w *WorkerBackend) answerOrder(o *turn.LoadOrder, reason policy.ReturnReason) {
	now := w.core.Loop.Now()
	w.core.TellLoaded(o, now, now, reason)
}

// sendNextOrder sends the worker the first waiting order to load or unload a network. It waits while the worker
// carries out another order, or while batches still run the network that is to be unloaded. A load for which there
// is no shared memory is refused at once.
func (w *WorkerBackend) sendNextOrder(d *Device) {
	networks := d.Networks
	for d.Process != nil && !networks.IsLoading && len(networks.waitingOrders) > 0 {
		o := networks.waitingOrders[0]
		if !o.Load && (w.useNetwork(d.InFlight, o.Network) || w.useNetwork(d.queue, o.Network)) {
			return
		}
		networks.waitingOrders = networks.waitingOrders[:copy(networks.waitingOrders, networks.waitingOrders[1:])]
		if o.Load {
			slots, err := w.Supervisor.cutSlots(d, o.Network)
			if err != nil {
				w.core.Options.Log.Warn("network not loaded", "device", d.Index, "network", w.core.Tables.Networks[o.Network].Name, "error", err)
				w.answerOrder(&o, policy.ReturnFull)
				continue
			}
			networks.newSlots = slots
		} else {
			networks.Loaded[o.Network] = false
			for _, st := range w.Supervisor.stagesOf(d, o.Network) {
				if s := d.Slots[st]; s != nil {
					networks.newSlots, d.Slots[st] = append(networks.newSlots, s), nil
				}
			}
		}
		networks.lastID++
		networks.IsLoading, networks.CurrentOrder, networks.orderStartedAt = true, o, w.core.Loop.Now()
		// If the send fails, the worker is gone, which postResults reports.
		_ = d.Process.SendSwap(w.Supervisor.swapCommand(&o, networks.lastID, networks.newSlots))
	}
}

// useNetwork returns true if one of some runs uses a network.
func (w *WorkerBackend) useNetwork(runs []*stageRun, network int32) bool {
	return slices.ContainsFunc(runs, func(r *stageRun) bool { return w.networkOf(r.stage) == network })
}

// networkOf returns the network of a stage.
func (w *WorkerBackend) networkOf(stage int32) int32 {
	return w.core.Tables.Pipelines[w.core.Tables.Stages[stage].Pipeline].Network
}

// lacksNetwork returns true if the network of a stage is not loaded on a device.
func (w *WorkerBackend) lacksNetwork(d *Device, stage int32) bool {
	return d.Networks != nil && d.Process != nil && !d.Networks.Loaded[w.networkOf(stage)]
}

// handleSwapResult handles a worker's answer to an order to load or unload a network: it takes the network into use
// or gives its memory back, tells the policy, and sends the next order. A worker that answers an order which it was
// not given cannot be trusted and is killed.
func (w *WorkerBackend) handleSwapResult(d *Device, n *turn.BackendEvent) {
	networks := d.Networks
	if networks == nil || !networks.IsLoading || n.Id != networks.lastID {
		w.core.Options.Log.Error("worker answered an order that it was not given", "device", d.Index, "order", n.Id)
		d.Process.Kill()
		return
	}
	o, slots, start, end := networks.CurrentOrder, networks.newSlots, w.core.Loop.OnLoopClock(n.Start), w.core.Loop.OnLoopClock(n.End)
	networks.IsLoading, networks.newSlots = false, nil

	// Take the slots into use, or return them.
	reason := policy.ReturnReason(0)
	name := w.core.Tables.Networks[o.Network].Name
	switch code := worker.Code(n.Code); {
	case !o.Load:
		returnSlots(slots)
		if code != worker.OK {
			w.core.Options.Log.Error("network not unloaded cleanly", "device", d.Index, "network", name, "error", n.Text)
		}
	case code == worker.OK:
		for _, s := range slots {
			d.Slots[s.Layout.ID] = s
		}
		networks.Loaded[o.Network] = true
		networks.Loads++
		networks.loadTime += end - start
		networks.endedLoads = append(networks.endedLoads, extent{int64(start), int64(end)})
		d.stats.Loads.Inc()
		networks.recordLoad(w.core, &o)
	default:
		returnSlots(slots)
		reason = policy.ReturnFailed
		if code == worker.NoMemory {
			reason = policy.ReturnFull
		}
		w.core.Options.Log.Warn("network not loaded", "device", d.Index, "network", name, "error", errors.New(n.Text))
	}

	// Tell the policy.
	w.core.TellLoaded(&o, start, end, reason)
	w.sendNextOrder(d)
}

// addOverlap adds to the device's statistics for how much of a run's time, from start to end on the core's clock, the
// device also loaded networks. Loads that ended before the run's end cannot overlap later runs and are forgotten.
func (h *deviceNetworks) addOverlap(start, end time.Duration) {
	overlap := func(from, to int64) {
		h.loadTimeBesideBatches += time.Duration(max(0, min(int64(end), to)-max(int64(start), from)))
	}
	laterLoads := h.endedLoads[:0]
	for _, e := range h.endedLoads {
		overlap(e.From, e.To)
		if e.To > int64(end) {
			laterLoads = append(laterLoads, e)
		}
	}
	h.endedLoads = laterLoads
	if h.IsLoading && h.CurrentOrder.Load {
		overlap(int64(h.orderStartedAt), int64(end))
	}
}

// isLoadOverdue returns true if a device's load of a network takes so long that its worker is assumed to hang:
// turn.HangFactor times as long as planned, and at least Options.LoadTimeout. Without a load under way it returns false.
func (w *WorkerBackend) isLoadOverdue(d *Device, now time.Duration) bool {
	networks := d.Networks
	if networks == nil || !networks.IsLoading {
		return false
	}
	planned := time.Duration(0)
	if l := w.core.Tables.Networks[networks.CurrentOrder.Network].LoadTimes; l != nil {
		planned = l[w.core.Tables.Devices[d.Index].Kind][1] // from disk, which takes longer than from the host's memory (index 0)
	}
	return now-networks.orderStartedAt > max(turn.HangFactor*planned, w.core.Options.LoadTimeout)
}
