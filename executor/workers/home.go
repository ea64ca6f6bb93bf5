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
type home struct {
	Loaded []bool       // by network
	orders []turn.Order // waiting, first in first out
	Busy   bool
	Doing  turn.Order // while IsLoading
	began  time.Duration
	free   time.Duration // when the policy was told of its last load
	lastID uint64
	Arena  *arena
	cut    []*stageSlots // slots of the networks that are being loaded or unloaded

	Loads   int64
	refused int64 // loads that failed
	loading time.Duration
	both    time.Duration // the part of loadTime beside batches
	ended   []extent      // loads that ended during a run whose result has not arrived, on the core's clock
}

// slotCutter is the view of a supervisor that cuts slots for the networks of devices.
type homes struct{ *crew }

// slotCutterOf returns that view.
func homesOf(k *crew) homes { return homes{k} }

// orderRunner is the view of the backend that carries out load orders.
type loads struct{ *Workers }

// orderRunnerOf returns that view.
func loadsOf(w *Workers) loads { return loads{w} }

// swapsNetworks returns true if networks come and go on a device.
func swaps(t *policy.Tables, device int32) bool {
	return int(device) < len(t.Memory) && t.Memory[device] > 0
}

// stagesOf returns a network's stages on a device.
func (k homes) stagesOf(d *Device, network int32) []int32 {
	var out []int32
	for s := range k.stages {
		if d.known[s] != nil && k.c.Tables.Pipelines[k.c.Tables.Stages[s].Pipeline].Network == network {
			out = append(out, int32(s))
		}
	}
	return out
}

// setLoadTimes sets how long loads take, for an engine that loads nothing.
func (k *crew) loadTimes(spec *worker.StageSpec, stage int32, d *Device) {
	t := k.c.Tables
	n := &t.Networks[t.Pipelines[t.Stages[stage].Pipeline].Network]
	if k.c.Options.Engine != "replay" || t.Stages[stage].Hop > 0 {
		return
	}
	spec.WeightBytes = n.Bytes
	if n.Load != nil {
		l := n.Load[t.Devices[d.Index].Kind]
		spec.LoadNS = [2]int64{int64(l[0]), int64(l[1])}
	}
}

// slotsFor returns the layout of a stage's slots, which are yet to be cut.
func (k *crew) slotsFor(d *Device, l *worker.Loaded) *stageSlots {
	st := &k.stages[l.ID]
	s := &stageSlots{device: d.Index, loaded: l}
	s.Layout = worker.Layout{ID: l.ID, Warm: 2}
	if k.c.Options.Engine == "replay" {
		s.Layout.Warm = 0
	}
	if st.first {
		s.Layout.InBytes = worker.Span(l.Inputs, st.batches)
	}
	s.Layout.Stride = (s.Layout.InBytes + worker.Span(l.Outputs, st.batches) + page - 1) &^ (page - 1)
	return s
}

// loadResidents makes a worker load the networks that its device holds at the start.
func (k *crew) moveIn(ctx context.Context, d *Device, p *worker.Process, first []worker.Swap) error {
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

// cutSlots cuts the slots of a network's stages out of a device's segment: the usual number, or fewer if there is less
// space.
func (k homes) cutSlots(d *Device, network int32) ([]*stageSlots, error) {
	h, list := d.Home, k.stagesOf(d, network)
	if len(list) == 0 {
		return nil, fmt.Errorf("device %d: network %s has no stage there", d.Index, k.c.Tables.Networks[network].Name)
	}
	var out []*stageSlots
	for _, st := range list {
		s := k.slotsFor(d, d.known[st])
		for n := k.slotsOf(d, s.Layout.Stride); ; n /= 2 {
			if n == 0 {
				giveBack(out)
				return nil, fmt.Errorf("device %d: its shared memory has no room for slots of %d bytes", d.Index, s.Layout.Stride)
			}
			if base, ok := h.Arena.take(s.Layout.Stride * int64(n)); ok {
				s.Layout.Base, s.Layout.Slots, s.Pool, s.arena = base, n, worker.NewSlotPool(n), h.Arena
				break
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// returnSlots returns slots to the arena that they were cut from, once nobody reads them.
func giveBack(list []*stageSlots) {
	for _, s := range list {
		s.over = true
		s.leave()
	}
}

// swapCommand returns the worker's command for an order.
func (k homes) swapOf(o *turn.Order, id uint64, cut []*stageSlots) worker.Swap {
	q := worker.Swap{ID: id, In: o.Load, Bytes: k.c.Tables.Networks[o.Network].Bytes}
	for _, s := range cut {
		q.Stages = append(q.Stages, s.Layout)
	}
	return q
}

// cutResidentSlots cuts the slots of the networks that a device holds at the start, and returns the commands that load
// them.
func (k homes) settle(d *Device) ([]worker.Swap, error) {
	h := d.Home
	giveBack(h.cut)
	h.cut = nil
	var list []worker.Swap
	for _, n := range k.residents(d) {
		cut, err := k.cutSlots(d, n)
		if err != nil {
			return nil, err
		}
		h.cut = append(h.cut, cut...)
		list = append(list, k.swapOf(&turn.Order{Network: n, Load: true}, 0, cut))
	}
	return list, nil
}

// residentNetworks returns the networks that a device holds at the start.
func (k homes) residents(d *Device) []int32 {
	if int(d.Index) < len(k.c.Tables.Resident) {
		return k.c.Tables.Resident[d.Index]
	}
	return nil
}

// markResidentsLoaded records that these networks are loaded.
func (k homes) settled(d *Device) {
	h := d.Home
	for _, s := range h.cut {
		d.Slots[s.Layout.ID] = s
	}
	h.cut = nil
	for _, n := range k.residents(d) {
		h.Loaded[n] = true
	}
}

// forgetNetworks forgets what a lost device held.
func (d *Device) leaveHome() {
	h := d.Home
	for i, s := range d.Slots {
		if s != nil {
			giveBack([]*stageSlots{s})
			d.Slots[i] = nil
		}
	}
	giveBack(h.cut)
	clear(h.Loaded)
	h.orders, h.Busy, h.cut, h.ended = h.orders[:0], false, nil, h.ended[:0]
}

// takeOrder takes an order for a device on which networks come and go. A load cancels a waiting unload of the same
// network, and an unload a waiting load.
func (w loads) swap(d *Device, o turn.Order) {
	h := d.Home
	if d.Proc == nil { // what it then holds follows from its start
		return
	}
	if o.Network < 0 {
		w.answerOrder(&o, policy.ReturnRefused)
		return
	}

	// An order for the same network waits.
	if i := slices.IndexFunc(h.orders, o.Same); i >= 0 {
		was := h.orders[i]
		if was.Load == o.Load { // it is under way already
			return
		}
		h.orders = slices.Delete(h.orders, i, i+1)
		w.answerOrder(&o, 0)
		return
	}

	// Nothing has to be done if the network is, or will be, as ordered.
	will := h.Loaded[o.Network]
	if h.Busy && o.Same(h.Doing) {
		if will = h.Doing.Load; will == o.Load {
			return
		}
	} else if will == o.Load {
		w.answerOrder(&o, 0)
		return
	}
	o.Given = w.c.Last()
	h.orders = append(h.orders, o)
	w.nextOrder(d)
}

// answerOrder answers an order for which nothing had to be done.
func (w loads) answerOrder(o *turn.Order, why policy.Return) {
	now := w.c.Now()
	w.c.Loaded(o, now, now, why)
}

// sendNextOrder sends the worker the first waiting order, unless it carries out another one, or batches still run the
// network that is to be unloaded.
func (w loads) nextOrder(d *Device) {
	h := d.Home
	for d.Proc != nil && !h.Busy && len(h.orders) > 0 {
		o := h.orders[0]
		if !o.Load && (w.uses(d.Flight, o.Network) || w.uses(d.queue, o.Network)) {
			return
		}
		h.orders = h.orders[:copy(h.orders, h.orders[1:])]
		if o.Load {
			cut, err := homesOf(w.Crew).cutSlots(d, o.Network)
			if err != nil {
				h.refused++
				w.c.Options.Log.Warn("network not loaded", "device", d.Index, "network", w.c.Tables.Networks[o.Network].Name, "error", err)
				w.answerOrder(&o, policy.ReturnFull)
				continue
			}
			h.cut = cut
		} else {
			h.Loaded[o.Network] = false
			for _, st := range homesOf(w.Crew).stagesOf(d, o.Network) {
				if s := d.Slots[st]; s != nil {
					h.cut, d.Slots[st] = append(h.cut, s), nil
				}
			}
		}
		h.lastID++
		h.Busy, h.Doing, h.began = true, o, w.c.Now()
		// If the send fails, the worker is gone, which postResults reports.
		_ = d.Proc.SendSwap(homesOf(w.Crew).swapOf(&o, h.lastID, h.cut))
	}
}

// useNetwork returns true if one of some runs uses a network.
func (w loads) uses(runs []*run, network int32) bool {
	return slices.ContainsFunc(runs, func(r *run) bool { return w.networkOf(r.stage) == network })
}

// networkOf returns the network of a stage.
func (w loads) networkOf(stage int32) int32 {
	return w.c.Tables.Pipelines[w.c.Tables.Stages[stage].Pipeline].Network
}

// lacksNetwork returns true if the network of a stage is not loaded on a device.
func (w loads) lacks(d *Device, stage int32) bool {
	return d.Home != nil && d.Proc != nil && !d.Home.Loaded[w.networkOf(stage)]
}

// handleSwapResult handles a worker's answer to an order.
func (w loads) swapped(d *Device, n *turn.News) {
	h := d.Home
	if h == nil || !h.Busy || n.Id != h.lastID {
		w.c.Options.Log.Error("worker answered an order that it was not given", "device", d.Index, "order", n.Id)
		d.Proc.Kill()
		return
	}
	o, cut, start, end := h.Doing, h.cut, w.c.Since(n.Start), w.c.Since(n.End)
	h.Busy, h.cut = false, nil

	// Take the slots into use, or return them.
	why := policy.Return(0)
	name := w.c.Tables.Networks[o.Network].Name
	switch code := worker.Code(n.Code); {
	case !o.Load:
		giveBack(cut)
		if code != worker.OK {
			w.c.Options.Log.Error("network not unloaded cleanly", "device", d.Index, "network", name, "error", n.Text)
		}
	case code == worker.OK:
		for _, s := range cut {
			d.Slots[s.Layout.ID] = s
		}
		h.Loaded[o.Network] = true
		h.Loads++
		h.loading += end - start
		h.ended = append(h.ended, extent{int64(start), int64(end)})
		d.stats.Loads.Inc()
		h.loaded(w.c, &o)
	default:
		giveBack(cut)
		h.refused++
		if why = policy.ReturnFailed; code == worker.NoMemory {
			why = policy.ReturnFull
		}
		w.c.Options.Log.Warn("network not loaded", "device", d.Index, "network", name, "error", errors.New(n.Text))
	}

	// Tell the policy.
	w.c.Loaded(&o, start, end, why)
	w.nextOrder(d)
}

// addOverlap counts the time of a run during which the device also loaded.
func (h *home) ranBeside(start, end time.Duration) {
	overlap := func(from, to int64) {
		h.both += time.Duration(max(0, min(int64(end), to)-max(int64(start), from)))
	}
	kept := h.ended[:0]
	for _, e := range h.ended {
		overlap(e.From, e.To)
		if e.To > int64(end) {
			kept = append(kept, e)
		}
	}
	h.ended = kept
	if h.Busy && h.Doing.Load {
		overlap(int64(h.began), int64(end))
	}
}

// isLoadOverdue returns true if a load takes so long that the worker is assumed to hang.
func (w loads) overdue(d *Device, now time.Duration) bool {
	h := d.Home
	if h == nil || !h.Busy {
		return false
	}
	planned := time.Duration(0)
	if l := w.c.Tables.Networks[h.Doing.Network].Load; l != nil {
		planned = l[w.c.Tables.Devices[d.Index].Kind][1]
	}
	return now-h.began > max(turn.HangsAfter*planned, w.c.Options.LoadTimeout)
}
