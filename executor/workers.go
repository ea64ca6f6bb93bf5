package executor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"inferplan/engine/worker"
	"inferplan/policy"
)

// workers is the backend of worker processes: one per device, with a queue in
// front of each. It belongs to the core's turn.
type workers struct {
	c        *core
	devices  []*device // nil where another backend executes
	own      []*device // the rest of them
	crew     *crew
	copiers  *copiers
	freeRuns []*run
	nextRun  uint64
	cmd      [1]worker.Run
}

// Kinds of news of workers.
const (
	resultCame uint8 = iota
	workerLost
	workerBack
	swapCame
)

// newWorkers makes the backend of the devices that no other backend has.
func newWorkers(c *core) (backend, error) {
	w := &workers{c: c, devices: make([]*device, len(c.tables.Devices))}
	w.crew = &crew{cache: worker.NewCache(c.opt.CacheBytes), c: c, devices: w.devices}
	if !slices.Contains(c.of, 0) {
		return w, nil
	}
	var err error
	if w.crew.stages, err = planStages(c.plan, c.tables, c.opt, c.of); err != nil {
		return nil, err
	}
	if w.crew.operators, err = findOperators(c.plan, c.opt); err != nil {
		return nil, err
	}
	if w.crew.places, err = placeDevices(c.tables, c.opt, c.of); err != nil {
		return nil, err
	}
	for i := range c.tables.Devices {
		if c.of[i] != 0 {
			continue
		}
		kind := c.tables.Kinds[c.tables.Devices[i].Kind]
		w.devices[i] = &device{index: int32(i), kind: kind, remote: isRemote(c.tables, i, c.opt), stats: c.metrics.device(int32(i), kind)}
		if swaps(c.tables, int32(i)) {
			w.devices[i].home = &home{there: make([]bool, len(c.tables.Networks))}
		}
		w.own = append(w.own, w.devices[i])
	}
	w.crew.own = w.own
	return w, nil
}

// start starts the processes, which load their models and share memory.
func (w *workers) start(ctx context.Context) error { return w.crew.startWorkers(ctx) }

// begin takes up work.
func (w *workers) begin() {
	w.copiers = newCopiers(helpers())
	for _, d := range w.own {
		w.setUp(d, true)
	}
	w.crew.watchOver()
}

func (w *workers) setUp(d *device, up bool) {
	d.up.Store(up)
	w.c.metrics.up(d.index, up)
}

func (w *workers) up(device int32) bool { return w.devices[device].up.Load() }

// took handles news of a worker.
func (w *workers) took(n *news) {
	d := w.devices[n.device]
	switch n.what {
	case resultCame:
		if n.gen == d.gen && d.proc != nil {
			w.result(d, n)
		}
	case workerLost:
		if n.gen == d.gen && d.proc != nil {
			w.lost(d)
		}
	case swapCame:
		if n.gen == d.gen && d.proc != nil {
			loadsOf(w).swapped(d, n)
		}
	case workerBack:
		proc := n.back.(*worker.Process)
		d.proc, d.gen, d.total, d.pinned, d.pulse = proc, n.gen, 0, proc.Pinned(), pulse{}
		if d.home != nil {
			homesOf(w.crew).settled(d)
		}
		w.setUp(d, true)
		w.c.handle(policy.Event{Kind: policy.WorkerBack, Device: d.index})
		w.c.Flush()
		w.pump(d)
	}
}

// result takes a finished run.
func (w *workers) result(d *device, n *news) {
	c := w.c
	if len(d.flight) == 0 || d.flight[0].id != n.id {
		// Not what was asked: the worker cannot be trusted.
		c.opt.Log.Error("worker answered out of order", "device", d.index, "run", n.id)
		d.proc.Kill()
		return
	}
	r := d.flight[0]
	d.flight = d.flight[:copy(d.flight, d.flight[1:])]
	d.count(c, r, n)
	if len(d.flight) > 0 {
		defer w.markStarted(d.flight[0])
	}
	if d.home != nil {
		d.home.ranBeside(c.since(n.start), c.since(n.end))
		defer loadsOf(w).nextOrder(d)
	}
	defer w.pump(d)
	b := r.batch
	if b == nil {
		w.freeRun(r)
		return
	}
	held := carriedOf(b)
	held.run = nil
	start, end := c.since(n.start), c.since(n.end)
	if b.hop == 0 {
		b.started = start
	}
	b.infer += end - start
	b.ready = n.end
	if worker.Code(n.code) != worker.OK {
		c.opt.Log.Error("run failed", "model", b.service.label, "stage", r.stage, "batch", r.size, "error", n.text)
		c.failBatch(b, policy.ReasonFailed, errors.New(n.text))
		w.freeRun(r)
		return
	}
	r.in.give()
	if b.hop == len(b.hops)-1 {
		c.answers.ran(b, r)
	} else {
		held.in, held.by, r.out = r.out, r.to, slotRef{}
	}
	w.freeRun(r)
	c.finishHop(b, d.index, start, end)
}

// lost: the worker of a device is gone, and what it ran.
func (w *workers) lost(d *device) {
	d.proc = nil
	w.setUp(d, false)
	w.forgetMemory(d)
	if d.home != nil {
		d.leaveHome()
	}
	flight := d.flight
	d.flight = nil
	w.c.handle(policy.Event{Kind: policy.WorkerLost, Device: d.index})
	for _, r := range flight {
		if r.batch != nil { // the policy did not abort it
			w.c.failBatch(r.batch, policy.ReasonWorkerLost, nil)
		}
		w.freeRun(r)
	}
}

// abort forgets a batch: its result, or its turn in the queue, is ignored.
func (w *workers) abort(b *batch) {
	held := carriedOf(b)
	if held.run != nil {
		held.run.batch = nil
		held.run = nil
	}
	held.in.give()
}

// evict does nothing: workers have no instances that a batch could leave.
func (w *workers) evict(*batch, bool) { w.c.stats.ignored++ }

// load answers a load or unload. Where the plan gives a device no memory to
// account for, its worker holds what is placed there from its start to its end,
// also what the policy counts as not loaded at first: what is there is loaded at
// once, and the rest is refused.
func (w *workers) load(o order) {
	if d := w.devices[o.device]; d.home != nil {
		loadsOf(w).swap(d, o)
		return
	}
	why := policy.Return(0)
	if w.devices[o.device].holds(w.c.tables, o.network) != o.up {
		why = policy.ReturnRefused
	}
	now := w.c.now()
	w.c.emit(queued{ev: o.event(now, now, why)})
}

// place answers at once: what tasks read is in the server's memory, from where it
// is copied with the batch.
func (w *workers) place(task, device, ticket int32) {
	now := w.c.now()
	w.c.placed(task, device, ticket, now, now)
}

// close ends the processes.
func (w *workers) close(ctx context.Context) {
	if w.crew.cancel == nil { // they have not begun
		w.crew.kill()
		w.crew.freeMemory()
		return
	}
	w.crew.cancel()
	w.copiers.close()
	var wg sync.WaitGroup
	for _, d := range w.own {
		if d.proc != nil {
			wg.Go(func() { d.proc.Shutdown(ctx) })
		}
	}
	wg.Wait()
	w.crew.wg.Wait()
	for _, n := range w.c.in.left() { // a worker that came back after the last round
		if proc, ok := n.back.(*worker.Process); ok {
			proc.Kill()
			proc.Wait()
		}
	}
	w.crew.freeMemory()
}

// A worker is taken to hang no earlier than after hangsAfter times what its run
// was planned to take. One that gets CPU time is slow, as on a machine that is short of
// it, and has slowFor times as long.
const (
	hangsAfter = 10
	slowFor    = 10
)

// pulse says when a worker's process was last seen to get CPU time.
type pulse struct {
	looked, moved time.Duration
	used          time.Duration
}

// beats are the least parts of a time that a process gets as CPU time where it works.
const beats = 50

// look measures, at most once every watchEvery.
func (p *pulse) look(now time.Duration, proc *worker.Process) {
	if now < p.looked+watchEvery {
		return
	}
	used := proc.CPU()
	if used-p.used >= (now-p.looked)/beats {
		p.moved = now
	}
	p.looked, p.used = now, used
}

// look kills workers that hang. Who has waited for one for another SLO past the
// deadline is answered before that.
func (w *workers) look(now, paused time.Duration) {
	for _, d := range w.own {
		if d.proc == nil {
			continue
		}
		if d.home != nil {
			if d.home.began += paused; loadsOf(w).overdue(d, now) {
				w.c.opt.Log.Error("worker hangs in a load and is killed", "device", d.index, "kind", d.kind, "network", w.c.tables.Networks[d.home.doing.network].Name, "for", now-d.home.began)
				d.proc.Kill()
				continue
			}
		}
		if len(d.flight) == 0 {
			continue
		}
		r := d.flight[0]
		r.started += paused
		planned := time.Duration(0)
		if infer := w.c.tables.Stages[r.stage].Infer; r.size <= len(infer) {
			planned = infer[r.size-1]
		}
		took := now - r.started
		w.giveUp(d.flight, now, took)
		w.giveUp(d.queue, now, took)
		patience := w.c.opt.HangTimeout
		if d.remote { // its host may be silent for a while
			patience += worker.DefaultSilence
		} else {
			d.pulse.look(now, d.proc)
		}
		patience = max(patience, hangsAfter*planned)
		if took > patience && (now > d.pulse.moved+patience || took > slowFor*patience) {
			w.c.opt.Log.Error("worker hangs and is killed", "device", d.index, "kind", d.kind, "stage", r.stage, "for", took)
			d.proc.Kill()
		}
	}
}

// giveUp answers the requests of runs that have waited too long for a worker, whose
// run has taken so long. One that lasts no longer than an SLO may be about to end.
func (w *workers) giveUp(runs []*run, now, took time.Duration) {
	book := &w.c.book
	for _, r := range runs {
		if r.batch == nil {
			continue
		}
		for _, t := range r.batch.tasks {
			q := book.at(w.c.answers.requestOf(t))
			if q == nil || q.job.answered {
				continue
			}
			if slo := q.job.model.slo; took > slo && now > q.job.deadline+slo {
				book.refuse(q.job, policy.ReasonWorkerLost)
			}
		}
	}
}
