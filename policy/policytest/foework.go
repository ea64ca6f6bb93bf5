package policytest

import (
	"slices"
	"time"

	"inferplan/policy"
)

type foeBatch struct {
	slot, model, service, pipeline int32
	tasks                          []int32
	hops                           []policy.Hop
	hop                            int
	live, failed, started          bool
	since                          time.Duration
	tokens                         int32
}

type foeDevice struct {
	down  bool
	queue []*foeBatch // the first runs; on an instance as many as it has sequences
}

// width is how many batches run at once on a device.
func (a *Adversary) width(d int32) int {
	if i := a.Tables.InstanceOf(d); i >= 0 {
		return int(a.Tables.Instances[i].Sequences)
	}
	return 1
}

func (a *Adversary) batchEvent(kind policy.EventKind, b *foeBatch, d int32) policy.Event {
	return policy.Event{Kind: kind, Hop: int16(b.hop), Model: b.model, Service: b.service, Batch: b.slot, Device: d}
}

// start starts what is first on devices that have nothing to do: work is never
// held back.
func (a *Adversary) start() {
	for d := 0; d < len(a.devices) && a.err == nil; d++ {
		dev := &a.devices[d]
		dev.queue = slices.DeleteFunc(dev.queue, func(b *foeBatch) bool { return !b.live && !b.started }) // aborted before its turn
		for i := 0; i < len(dev.queue) && i < a.width(int32(d)); i++ {
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
	dev := &a.devices[d]
	i := 0
	if n := min(len(dev.queue), a.width(d)); n > 1 {
		i = a.draw(0, n-1)
	}
	if i >= len(dev.queue) || !dev.queue[i].started {
		return
	}
	b := dev.queue[i]
	dev.queue = slices.Delete(dev.queue, i, i+1)
	b.started = false
	end := a.now
	if late := int(min(end-b.since, 5*time.Millisecond) / time.Microsecond); late > 0 {
		end -= time.Duration(a.draw(0, late)) * time.Microsecond
	}
	if b.live {
		a.finish(b, d, b.since, end)
	}
}

// finish tells that a batch has left a device.
func (a *Adversary) finish(b *foeBatch, d int32, start, end time.Duration) {
	ev := a.batchEvent(policy.BatchFinished, b, d)
	ev.Start, ev.End = start, end
	if b.hop+1 < len(b.hops) {
		b.hop++
		a.crossing = append(a.crossing, b)
		a.tell(ev)
		return
	}
	a.batches[b.slot], b.live = nil, false
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
		a.queue(b)
	}
}

func (a *Adversary) queue(b *foeBatch) {
	d := b.hops[b.hop].Device
	a.devices[d].queue = append(a.devices[d].queue, b)
}

// lose takes a device and what it holds.
func (a *Adversary) lose(d int32) {
	dev := &a.devices[d]
	held := dev.queue
	*dev = foeDevice{down: true}
	a.loads = slices.DeleteFunc(a.loads, func(l foeLoad) bool { return l.device == d })
	a.tell(policy.Event{Kind: policy.WorkerLost, Device: d})
	for _, b := range held {
		if b.live {
			a.fail("batch slot %d was on device %d, which is lost, and was not aborted", b.slot, d)
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
	a.unqueue(b)
	a.finish(b, d, a.now, a.now)
}

// unqueue takes a batch off its device.
func (a *Adversary) unqueue(b *foeBatch) {
	dev := &a.devices[b.hops[b.hop].Device]
	b.started = false
	dev.queue = slices.DeleteFunc(dev.queue, func(o *foeBatch) bool { return o == b })
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
		if b := a.batchAt(act.Batch); b != nil {
			a.giveBack(b)
		} else {
			a.fail("on %+v the policy aborts batch slot %d, which is free", *ev, act.Batch)
		}
	case policy.SwitchMode:
		if act.Tag < 0 || act.Tag >= a.Modes {
			a.fail("on %+v the policy takes mode %d", *ev, act.Tag)
		}
	default:
		a.actNews(ev, act)
	}
}

func (a *Adversary) batchAt(slot int32) *foeBatch {
	if slot < 0 || int(slot) >= len(a.batches) {
		return nil
	}
	return a.batches[slot]
}

func (a *Adversary) dispatch(act *policy.Action) {
	tasks, hops := a.out.Dispatched(act)
	pl := &a.Tables.Pipelines[act.Pipeline]
	for int(act.Batch) >= len(a.batches) {
		a.batches = append(a.batches, nil)
	}
	switch {
	case a.batches[act.Batch] != nil:
		a.fail("the policy dispatches batch slot %d, which is under way", act.Batch)
	case a.reveals != nil && a.reveals.slot == act.Batch:
		a.fail("the policy dispatches batch slot %d, whose answers are being revealed", act.Batch)
	case act.Size < 1 || act.Size > pl.Batch || len(tasks) != int(act.Size):
		a.fail("the policy dispatches a batch of %d, expected 1 to %d", act.Size, pl.Batch)
	case act.Model >= 0 && pl.Model != act.Model || len(hops) != int(pl.NumStages):
		a.fail("the policy dispatches a batch of model %d along %d hops of pipeline %d", act.Model, len(hops), act.Pipeline)
	}
	a.checkHops(act, pl, hops)
	for _, t := range tasks {
		if a.err == nil && !a.mayRun(t, pl, act.Model) {
			a.fail("the policy dispatches task slot %d of model %d, which is not a waiting task of it", t, act.Model)
		}
		if a.err != nil {
			return
		}
		a.enter(t, act.Batch)
	}
	b := &foeBatch{slot: act.Batch, model: act.Model, service: pl.Service, pipeline: act.Pipeline, tasks: slices.Clone(tasks), hops: slices.Clone(hops), live: true}
	a.batches[act.Batch] = b
	a.queue(b)
}

// checkHops holds the hops of a batch against the tables.
func (a *Adversary) checkHops(act *policy.Action, pl *policy.Pipeline, hops []policy.Hop) {
	for h := range hops {
		switch hop := &hops[h]; {
		case a.err != nil:
		case hop.Stage != pl.FirstStage+int32(h) || !slices.Contains(a.Tables.DevicesOf(hop.Stage), hop.Device):
			a.fail("hop %d of pipeline %d goes to device %d of stage %d, which is not on it", h, act.Pipeline, hop.Device, hop.Stage)
		case a.devices[hop.Device].down:
			a.fail("the policy sends a batch to device %d, which is lost", hop.Device)
		}
	}
}

// mayRun tells whether a task waits for a pipeline and all that it reads is
// there. In a cascade all pipelines serve the one model of the plan.
func (a *Adversary) mayRun(t int32, pl *policy.Pipeline, model int32) bool {
	if t < 0 || int(t) >= len(a.tasks) || a.tasks[t].state != foeWaits {
		return false
	}
	ta := &a.tasks[t]
	if q := &a.requests[ta.req]; !q.open || model >= 0 && q.model != model {
		return false
	}
	return ta.service == pl.Service && a.readable(t)
}

// readable tells whether all that a task reads is there.
func (a *Adversary) readable(t int32) bool {
	return !slices.ContainsFunc(a.tasks[t].inputs, func(in int32) bool { return in >= 0 && a.tasks[in].state != foeOver })
}
