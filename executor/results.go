package executor

import (
	"errors"
	"time"

	"inferplan/engine/worker"
	"inferplan/policy"
)

func (c *core) deviceEvent(e *deviceEvent) {
	d := c.devices[e.device]
	switch e.kind {
	case resultCame:
		if e.gen == d.gen && d.proc != nil {
			c.result(d, &e.result)
		}
	case workerLost:
		if e.gen == d.gen && d.proc != nil {
			c.lost(d)
		}
	case workerBack:
		d.proc, d.gen, d.total, d.pinned = e.proc, e.gen, 0, e.proc.Pinned()
		c.setUp(d, true)
		c.handle(policy.Event{Kind: policy.WorkerBack, Device: d.index})
		c.Flush()
		c.pump(d)
	}
}

// result takes a finished run.
func (c *core) result(d *device, res *worker.Result) {
	if len(d.flight) == 0 || d.flight[0].id != res.ID {
		// Not what was asked: the worker cannot be trusted.
		c.opt.Log.Error("worker answered out of order", "device", d.index, "run", res.ID)
		d.proc.Kill()
		return
	}
	r := d.flight[0]
	d.flight = d.flight[:copy(d.flight, d.flight[1:])]
	c.stats.ran(d, r, res)
	if len(d.flight) > 0 {
		defer c.markStarted(d.flight[0])
	}
	defer c.pump(d)
	b := r.batch
	if b == nil {
		c.freeRun(r)
		return
	}
	b.run = nil
	start, end := c.since(res.Start), c.since(res.End)
	if b.hop == 0 {
		b.started = start
	}
	b.infer += end - start
	b.ready = res.End
	if res.Code != worker.OK {
		c.opt.Log.Error("run failed", "model", b.model.label, "stage", r.stage, "batch", r.size, "error", res.Text)
		c.failBatch(b, policy.ReasonFailed, errors.New(res.Text))
		c.freeRun(r)
		return
	}
	r.in.give()
	if b.hop == len(b.hops)-1 {
		c.complete(b, r)
	} else {
		b.in, b.inDevice, r.out = r.out, r.outDevice, slotRef{}
	}
	c.freeRun(r)
	c.finishHop(b, d.index, start, end)
}

// complete takes the outputs of a batch that has run its last stage.
func (c *core) complete(b *batch, r *run) {
	begin := c.now()
	c.scatterOutputs(b, r)
	taken := c.now() - begin
	c.stats.batchDone(b, taken)
	c.answers.ran(b, r, taken)
}

// finishHop tells the policy that a stage is done and sends the batch on.
func (c *core) finishHop(b *batch, dev int32, start, end time.Duration) {
	serial := b.serial
	ev := policy.Event{Kind: policy.BatchFinished, Hop: int16(b.hop), Model: b.model.index, Service: b.model.index, Batch: b.slot, Device: dev, Start: start, End: end}
	if b.hop == len(b.hops)-1 {
		// The policy may use the batch's slot again in its very answer.
		c.batches[b.slot], b.live = nil, false
		c.answers.ended(b, dev)
		c.handle(ev)
		c.answers.told(b)
		c.spare = append(c.spare, b)
		return
	}
	c.handle(ev)
	if !b.live || b.serial != serial {
		return
	}
	b.hop++
	h := &b.hops[b.hop]
	now := c.now()
	if !b.failed {
		c.stats.moved(c.tables.Stages[h.Stage].CutBytes*int64(len(b.reqs)), c.devices[dev], c.devices[h.Device], b.inDevice, now-end)
	}
	c.handle(policy.Event{Kind: policy.TransferFinished, Hop: int16(b.hop), Model: b.model.index, Service: b.model.index, Batch: b.slot, Device: h.Device, Start: end, End: now})
	if !b.live || b.serial != serial {
		return
	}
	if b.failed {
		c.skips = append(c.skips, queued{batch: b, serial: b.serial})
		return
	}
	c.enqueue(b)
}

// forget gives the batch's record back before its end.
func (c *core) forget(b *batch) {
	if b.run != nil {
		b.run.batch = nil // its result, or its turn in the queue, is ignored
		b.run = nil
	}
	b.in.give()
	c.batches[b.slot] = nil
	b.live = false
	c.spare = append(c.spare, b)
}

// failBatch answers the requests of a batch that cannot run. The policy knows
// no failed batches: it hears that the remaining stages took no time.
func (c *core) failBatch(b *batch, reason policy.Reason, err error) {
	b.failed = true
	if b.run != nil {
		b.run.batch = nil
		b.run = nil
	}
	b.in.give()
	for _, req := range b.reqs {
		j := c.reqs[req].job
		if j == nil || j.answered {
			continue
		}
		if err != nil {
			j.outcome, j.reason, j.failure = failed, reason, err
			c.answer(j)
			c.forsake(j)
		} else {
			c.refuse(j, reason)
		}
	}
	c.skips = append(c.skips, queued{batch: b, serial: b.serial})
}

// lost: the worker of a device is gone, and what it ran.
func (c *core) lost(d *device) {
	d.proc = nil
	c.setUp(d, false)
	c.forgetMemory(d)
	flight := d.flight
	d.flight = nil
	c.handle(policy.Event{Kind: policy.WorkerLost, Device: d.index})
	for _, r := range flight {
		if r.batch != nil { // the policy did not abort it
			b := r.batch
			c.failBatch(b, policy.ReasonWorkerLost, nil)
		}
		c.freeRun(r)
	}
}
