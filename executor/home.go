package executor

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

// home is what a device holds whose networks come and go (Tables.Memory). Orders
// are carried out one after the other by the worker, beside its batches. It belongs
// to the core's turn.
type home struct {
	there  []bool       // by network
	orders []turn.Order // that wait, first come, first served
	busy   bool
	doing  turn.Order // while busy
	began  time.Duration
	free   time.Duration // when its last load was told of
	lastID uint64
	arena  *arena
	cut    []*stageSlots // by stage: of what is being loaded

	loads   int64
	refused int64
	loading time.Duration
	both    time.Duration // of it, beside batches
	ended   []extent      // loads that ended during a run whose result has not come, on the core's clock
}

// homes are the part of a crew that cuts slots for what devices hold.
type homes struct{ *crew }

func homesOf(k *crew) homes { return homes{k} }

// loads are the part of workers that carries out orders.
type loads struct{ *workers }

func loadsOf(w *workers) loads { return loads{w} }

// swaps tells whether networks come and go on a device.
func swaps(t *policy.Tables, device int32) bool {
	return int(device) < len(t.Memory) && t.Memory[device] > 0
}

// stagesOf lists a network's stages on a device.
func (k homes) stagesOf(d *device, network int32) []int32 {
	var out []int32
	for s := range k.stages {
		if d.known[s] != nil && k.c.Tables.Pipelines[k.c.Tables.Stages[s].Pipeline].Network == network {
			out = append(out, int32(s))
		}
	}
	return out
}

// loadTimes tells an engine that loads nothing how long loading takes.
func (k *crew) loadTimes(spec *worker.StageSpec, stage int32, d *device) {
	t := k.c.Tables
	n := &t.Networks[t.Pipelines[t.Stages[stage].Pipeline].Network]
	if k.c.Options.Engine != "replay" || t.Stages[stage].Hop > 0 {
		return
	}
	spec.WeightBytes = n.Bytes
	if n.Load != nil {
		l := n.Load[t.Devices[d.index].Kind]
		spec.LoadNS = [2]int64{int64(l[0]), int64(l[1])}
	}
}

// slotsFor describes the slots of a stage that are to be cut.
func (k *crew) slotsFor(d *device, l *worker.Loaded) *stageSlots {
	st := &k.stages[l.ID]
	s := &stageSlots{device: d.index, loaded: l}
	s.layout = worker.Layout{ID: l.ID, Warm: 2}
	if k.c.Options.Engine == "replay" {
		s.layout.Warm = 0
	}
	if st.first {
		s.layout.InBytes = worker.Span(l.Inputs, st.batches)
	}
	s.layout.Stride = (s.layout.InBytes + worker.Span(l.Outputs, st.batches) + page - 1) &^ (page - 1)
	return s
}

// moveIn has a worker load what its device holds from its start.
func (k *crew) moveIn(ctx context.Context, d *device, p *worker.Process, first []worker.Swap) error {
	for i := range first {
		a, err := p.Swap(ctx, first[i])
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return fmt.Errorf("device %d (%s): %w", d.index, d.kind, err)
		}
	}
	return nil
}

// cutSlots cuts the slots of a network's stages out of a device's segment: as many
// as are usual, or fewer where there is no room.
func (k homes) cutSlots(d *device, network int32) ([]*stageSlots, error) {
	h, list := d.home, k.stagesOf(d, network)
	if len(list) == 0 {
		return nil, fmt.Errorf("device %d: network %s has no stage there", d.index, k.c.Tables.Networks[network].Name)
	}
	var out []*stageSlots
	for _, st := range list {
		s := k.slotsFor(d, d.known[st])
		for n := k.slotsOf(d, s.layout.Stride); ; n /= 2 {
			if n == 0 {
				giveBack(out)
				return nil, fmt.Errorf("device %d: its shared memory has no room for slots of %d bytes", d.index, s.layout.Stride)
			}
			if base, ok := h.arena.take(s.layout.Stride * int64(n)); ok {
				s.layout.Base, s.layout.Slots, s.pool, s.arena = base, n, worker.NewSlotPool(n), h.arena
				break
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// giveBack returns slots to where they were cut from, once nobody reads them.
func giveBack(list []*stageSlots) {
	for _, s := range list {
		s.over = true
		s.leave()
	}
}

// swapOf is the worker's part of an order.
func (k homes) swapOf(o *turn.Order, id uint64, cut []*stageSlots) worker.Swap {
	q := worker.Swap{ID: id, In: o.Load, Bytes: k.c.Tables.Networks[o.Network].Bytes}
	for _, s := range cut {
		q.Stages = append(q.Stages, s.layout)
	}
	return q
}

// settle cuts the slots of what a device holds from its start.
func (k homes) settle(d *device) ([]worker.Swap, error) {
	h := d.home
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

func (k homes) residents(d *device) []int32 {
	if int(d.index) < len(k.c.Tables.Resident) {
		return k.c.Tables.Resident[d.index]
	}
	return nil
}

// settled notes that they are there.
func (k homes) settled(d *device) {
	h := d.home
	for _, s := range h.cut {
		d.slots[s.layout.ID] = s
	}
	h.cut = nil
	for _, n := range k.residents(d) {
		h.there[n] = true
	}
}

// leaveHome forgets what a lost device held.
func (d *device) leaveHome() {
	h := d.home
	for i, s := range d.slots {
		if s != nil {
			giveBack([]*stageSlots{s})
			d.slots[i] = nil
		}
	}
	giveBack(h.cut)
	clear(h.there)
	h.orders, h.busy, h.cut, h.ended = h.orders[:0], false, nil, h.ended[:0]
}

// swap takes an order for a device whose networks come and go. A load takes back an
// unload that waits, an unload a load that waits.
func (w loads) swap(d *device, o turn.Order) {
	h := d.home
	if d.proc == nil { // what it is to hold follows from its start
		return
	}
	if o.Network < 0 {
		w.answerOrder(&o, policy.ReturnRefused)
		return
	}
	if i := slices.IndexFunc(h.orders, o.Same); i >= 0 {
		was := h.orders[i]
		if was.Load == o.Load { // it is on its way
			return
		}
		h.orders = slices.Delete(h.orders, i, i+1)
		w.answerOrder(&o, 0)
		return
	}
	will := h.there[o.Network]
	if h.busy && o.Same(h.doing) {
		if will = h.doing.Load; will == o.Load {
			return
		}
	} else if will == o.Load {
		w.answerOrder(&o, 0)
		return
	}
	o.Given = w.c.Loop.Last()
	h.orders = append(h.orders, o)
	w.nextOrder(d)
}

// answerOrder answers an order that nothing had to be done for.
func (w loads) answerOrder(o *turn.Order, why policy.Return) {
	now := w.c.Now()
	w.c.Emit(turn.Queued{Ev: o.Event(now, now, why)})
}

// nextOrder hands the worker the first order that waits, unless it is at another
// or batches still run what is to go.
func (w loads) nextOrder(d *device) {
	h := d.home
	for d.proc != nil && !h.busy && len(h.orders) > 0 {
		o := h.orders[0]
		if !o.Load && (w.uses(d.flight, o.Network) || w.uses(d.queue, o.Network)) {
			return
		}
		h.orders = h.orders[:copy(h.orders, h.orders[1:])]
		if o.Load {
			cut, err := homesOf(w.crew).cutSlots(d, o.Network)
			if err != nil {
				h.refused++
				w.c.Options.Log.Warn("network not loaded", "device", d.index, "network", w.c.Tables.Networks[o.Network].Name, "error", err)
				w.answerOrder(&o, policy.ReturnFull)
				continue
			}
			h.cut = cut
		} else {
			h.there[o.Network] = false
			for _, st := range homesOf(w.crew).stagesOf(d, o.Network) {
				if s := d.slots[st]; s != nil {
					h.cut, d.slots[st] = append(h.cut, s), nil
				}
			}
		}
		h.lastID++
		h.busy, h.doing, h.began = true, o, w.c.Now()
		// A send that fails means that the worker is gone, which its reader tells.
		_ = d.proc.SendSwap(homesOf(w.crew).swapOf(&o, h.lastID, h.cut))
	}
}

// uses tells whether one of some runs is of a network.
func (w loads) uses(runs []*run, network int32) bool {
	return slices.ContainsFunc(runs, func(r *run) bool { return w.networkOf(r.stage) == network })
}

func (w loads) networkOf(stage int32) int32 {
	return w.c.Tables.Pipelines[w.c.Tables.Stages[stage].Pipeline].Network
}

// lacks tells whether a batch's network is not on the device of its hop.
func (w loads) lacks(d *device, stage int32) bool {
	return d.home != nil && d.proc != nil && !d.home.there[w.networkOf(stage)]
}

// swapped takes a worker's answer to an order.
func (w loads) swapped(d *device, n *turn.News) {
	h := d.home
	if h == nil || !h.busy || n.Id != h.lastID {
		w.c.Options.Log.Error("worker answered an order that it was not given", "device", d.index, "order", n.Id)
		d.proc.Kill()
		return
	}
	o, cut, start, end := h.doing, h.cut, w.c.Since(n.Start), w.c.Since(n.End)
	h.busy, h.cut = false, nil
	why := policy.Return(0)
	name := w.c.Tables.Networks[o.Network].Name
	switch code := worker.Code(n.Code); {
	case !o.Load:
		giveBack(cut)
		if code != worker.OK {
			w.c.Options.Log.Error("network not unloaded cleanly", "device", d.index, "network", name, "error", n.Text)
		}
	case code == worker.OK:
		for _, s := range cut {
			d.slots[s.layout.ID] = s
		}
		h.there[o.Network] = true
		h.loads++
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
		w.c.Options.Log.Warn("network not loaded", "device", d.index, "network", name, "error", errors.New(n.Text))
	}
	w.c.Emit(turn.Queued{Ev: o.Event(start, end, why)})
	w.nextOrder(d)
}

// ranBeside counts the time of a run in which the device also loaded.
func (h *home) ranBeside(start, end time.Duration) {
	overlap := func(from, to int64) {
		h.both += time.Duration(max(0, min(int64(end), to)-max(int64(start), from)))
	}
	kept := h.ended[:0]
	for _, e := range h.ended {
		overlap(e.from, e.to)
		if e.to > int64(end) {
			kept = append(kept, e)
		}
	}
	h.ended = kept
	if h.busy && h.doing.Load {
		overlap(int64(h.began), int64(end))
	}
}

// overdue tells whether a load takes so long that the worker is taken to hang.
func (w loads) overdue(d *device, now time.Duration) bool {
	h := d.home
	if h == nil || !h.busy {
		return false
	}
	planned := time.Duration(0)
	if l := w.c.Tables.Networks[h.doing.Network].Load; l != nil {
		planned = l[w.c.Tables.Devices[d.index].Kind][1]
	}
	return now-h.began > max(hangsAfter*planned, w.c.Options.LoadTimeout)
}
