package policytest

import (
	"slices"
	"time"

	"inferplan/policy"
)

func (a *Adversary) batchEvent(kind policy.EventKind, b *foeBatch, d int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.hop), Model: b.model, Service: b.service, Batch: b.slot, Device: d}
}

// start starts what is first on devices that have nothing to do: work is never
// held back.
func (a *Adversary) start() {
	for d := 0; d < len(a.book.devices) && a.judge.err == nil; d++ {
		dev := &a.book.devices[d]
		dev.queue = slices.DeleteFunc(dev.queue, func(b *foeBatch) bool { return !b.live && !b.started }) // aborted before its turn
		for i := 0; i < len(dev.queue) && i < a.book.width(int32(d)); i++ {
			b := dev.queue[i]
			if b.started {
				continue
			}
			b.started, b.since = true, a.now
			ev := a.batchEvent(policy.BatchStarted, b, int32(d))
			ev.Start = a.now
			a.tell(ev)
			d = -1 // the policy may have sent something anywhere
			break
		}
	}
}

// run ends what runs on a device; what was aborted meanwhile ends untold.
func (a *Adversary) run(d int32) {
	dev := &a.book.devices[d]
	i := 0
	if n := min(len(dev.queue), a.book.width(d)); n > 1 {
		i = a.draws.number(0, n-1)
	}
	if i >= len(dev.queue) || !dev.queue[i].started {
		return
	}
	b := dev.queue[i]
	dev.queue = slices.Delete(dev.queue, i, i+1)
	b.started = false
	end := a.now
	if late := int(min(end-b.since, 5*time.Millisecond) / time.Microsecond); late > 0 {
		end -= time.Duration(a.draws.number(0, late)) * time.Microsecond
	}
	if b.live {
		a.finish(b, d, b.since, end)
	}
}

// finish reports that a batch has left a device.
func (a *Adversary) finish(b *foeBatch, d int32, start, end time.Duration) {
	ev := a.batchEvent(policy.BatchFinished, b, d)
	ev.Start, ev.End = start, end
	if b.hop+1 < len(b.hops) {
		b.hop++
		a.crossing = append(a.crossing, b)
		a.tell(ev)
		return
	}
	a.book.batches[b.slot], b.live = nil, false
	a.ended(b, d)
	a.tell(ev)
	a.answerBatch(b)
}

// cross ends the i-th transfer under way, or one that is before it on a link.
func (a *Adversary) cross(i int) {
	if len(a.crossing) == 0 {
		return
	}
	i %= len(a.crossing)
	for k := 0; k < i; k++ {
		p, q := &a.crossing[k].hops[a.crossing[k].hop], &a.crossing[i].hops[a.crossing[i].hop]
		if p.Uplink >= 0 && p.Uplink == q.Uplink || p.Downlink >= 0 && p.Downlink == q.Downlink {
			i, k = k, -1
		}
	}
	b := a.crossing[i]
	a.crossing = slices.Delete(a.crossing, i, i+1)
	if !b.live {
		return
	}
	h := &b.hops[b.hop]
	ev := a.batchEvent(policy.TransferFinished, b, h.Device)
	ev.Start, ev.End = a.now, a.now
	a.tell(ev)
	switch {
	case !b.live:
	case b.failed:
		a.finish(b, h.Device, a.now, a.now)
	default:
		a.book.queue(b)
	}
}

// lose takes a device and what it holds.
func (a *Adversary) lose(d int32) {
	dev := &a.book.devices[d]
	held := dev.queue
	*dev = foeDevice{down: true}
	a.news.loads = slices.DeleteFunc(a.news.loads, func(l foeLoad) bool { return l.device == d })
	a.tell(policy.Event{Kind: policy.WorkerLost, Device: d})
	for _, b := range held {
		if b.live {
			a.judge.fail("batch slot %d was on device %d, which is lost, and was not aborted", b.slot, d)
		}
	}
}

// spoil is a stage that fails: the policy hears that the rest of the batch's way
// took no time.
func (a *Adversary) spoil(b *foeBatch) {
	if !b.live || b.failed {
		return
	}
	b.failed = true
	d := b.hops[b.hop].Device
	a.book.unqueue(b)
	a.finish(b, d, a.now, a.now)
}

func (a *Adversary) act(ev *policy.Event, act *policy.Action) {
	switch act.Kind {
	case policy.Dispatch:
		a.dispatch(act)
	case policy.Drop, policy.Complete:
		a.endRequest(ev, act)
	case policy.Wake:
		if act.At < 0 {
			delete(a.wakes, act.Tag)
		} else {
			a.wakes[act.Tag] = max(act.At, a.now+100*time.Microsecond) // what comes at the very moment comes first
		}
	case policy.Abort:
		if b := a.book.batchAt(act.Batch); b != nil {
			a.book.giveBack(b)
		} else {
			a.judge.fail("on %+v the policy aborts batch slot %d, which is free", *ev, act.Batch)
		}
	case policy.SwitchMode:
		if act.Tag < 0 || act.Tag >= a.Modes {
			a.judge.fail("on %+v the policy takes mode %d", *ev, act.Tag)
		}
	default:
		a.news.act(ev, act)
	}
}

// dispatch takes in a batch that is as it must be.
func (a *Adversary) dispatch(act *policy.Action) {
	tasks, hops := a.out.BatchOf(act)
	for int(act.Batch) >= len(a.book.batches) {
		a.book.batches = append(a.book.batches, nil)
	}
	if a.reveals != nil && a.reveals.slot == act.Batch {
		a.judge.fail("the policy dispatches batch slot %d, whose answers are being revealed", act.Batch)
	}
	if !a.judge.mayDispatch(act, tasks, hops) {
		return
	}
	for _, t := range tasks {
		a.book.enter(t, act.Batch)
	}
	pl := &a.Tables.Pipelines[act.Pipeline]
	b := &foeBatch{slot: act.Batch, model: act.Model, service: pl.Service, pipeline: act.Pipeline, tasks: slices.Clone(tasks), hops: slices.Clone(hops), live: true}
	a.book.batches[act.Batch] = b
	a.book.queue(b)
}
