package executor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// workers is the backend of worker processes: one per device, with a queue in
// front of each. It belongs to the core's turn.
type workers struct {
	c        *turn.Core
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
func newWorkers(c *turn.Core) (turn.Backend, error) {
	w := &workers{c: c, devices: make([]*device, len(c.Tables.Devices))}
	w.crew = &crew{cache: worker.NewCache(c.Options.CacheBytes), c: c, devices: w.devices}
	if !slices.Contains(c.ByDevice, 0) {
		return w, nil
	}
	var err error
	if w.crew.stages, err = planStages(c.Plan, c.Tables, c.Options, c.ByDevice); err != nil {
		return nil, err
	}
	if w.crew.operators, err = findOperators(c.Plan, c.Options); err != nil {
		return nil, err
	}
	if w.crew.places, err = placeDevices(c.Tables, c.Options, c.ByDevice); err != nil {
		return nil, err
	}
	for i := range c.Tables.Devices {
		if c.ByDevice[i] != 0 {
			continue
		}
		kind := c.Tables.Kinds[c.Tables.Devices[i].Kind]
		w.devices[i] = &device{index: int32(i), kind: kind, remote: isRemote(c.Tables, i, c.Options), stats: c.Metrics.Device(int32(i), kind)}
		if swaps(c.Tables, int32(i)) {
			w.devices[i].home = &home{there: make([]bool, len(c.Tables.Networks))}
		}
		w.own = append(w.own, w.devices[i])
	}
	w.crew.own = w.own
	return w, nil
}

// Start starts the processes, which load their models and share memory.
func (w *workers) Start(ctx context.Context) error { return w.crew.startWorkers(ctx) }

// Begin takes up work.
func (w *workers) Begin() {
	w.copiers = newCopiers(helpers())
	for _, d := range w.own {
		w.setUp(d, true)
	}
	w.crew.watchOver()
}

func (w *workers) setUp(d *device, up bool) {
	d.up.Store(up)
	w.c.Metrics.Up(d.index, up)
}

func (w *workers) Up(device int32) bool { return w.devices[device].up.Load() }

// Took handles news of a worker.
func (w *workers) Took(n *turn.News) {
	d := w.devices[n.Device]
	switch n.Kind {
	case resultCame:
		if n.Gen == d.gen && d.proc != nil {
			w.result(d, n)
		}
	case workerLost:
		if n.Gen == d.gen && d.proc != nil {
			w.lost(d)
		}
	case swapCame:
		if n.Gen == d.gen && d.proc != nil {
			loadsOf(w).swapped(d, n)
		}
	case workerBack:
		proc := n.Back.(*worker.Process)
		d.proc, d.gen, d.total, d.pinned, d.pulse = proc, n.Gen, 0, proc.Pinned(), pulse{}
		if d.home != nil {
			homesOf(w.crew).settled(d)
		}
		w.setUp(d, true)
		w.c.Handle(policy.Event{Kind: policy.WorkerBack, Device: d.index})
		w.c.Flush()
		w.pump(d)
	}
}

// result takes a finished run.
func (w *workers) result(d *device, n *turn.News) {
	c := w.c
	if len(d.flight) == 0 || d.flight[0].id != n.Id {
		// Not what was asked: the worker cannot be trusted.
		c.Options.Log.Error("worker answered out of order", "device", d.index, "run", n.Id)
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
		d.home.ranBeside(c.Since(n.Start), c.Since(n.End))
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
	start, end := c.Since(n.Start), c.Since(n.End)
	if b.Hop == 0 {
		b.Started = start
	}
	b.Infer += end - start
	b.Ready = n.End
	if worker.Code(n.Code) != worker.OK {
		c.Options.Log.Error("run failed", "model", b.Service.Label, "stage", r.stage, "batch", r.size, "error", n.Text)
		c.FailBatch(b, policy.ReasonFailed, errors.New(n.Text))
		w.freeRun(r)
		return
	}
	r.in.give()
	if b.Hop == len(b.Hops)-1 {
		c.Answers.Ran(b, r)
	} else {
		held.in, held.by, r.out = r.out, r.to, slotRef{}
	}
	w.freeRun(r)
	c.FinishHop(b, d.index, start, end)
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
	w.c.Handle(policy.Event{Kind: policy.WorkerLost, Device: d.index})
	for _, r := range flight {
		if r.batch != nil { // the policy did not abort it
			w.c.FailBatch(r.batch, policy.ReasonWorkerLost, nil)
		}
		w.freeRun(r)
	}
}

// Abort forgets a batch: its result, or its turn in the queue, is ignored.
func (w *workers) Abort(b *turn.Batch) {
	held := carriedOf(b)
	if held.run != nil {
		held.run.batch = nil
		held.run = nil
	}
	held.in.give()
}

// Evict does nothing: workers have no instances that a batch could leave.
func (w *workers) Evict(*turn.Batch, bool) { w.c.Stats.Ignored++ }

// Load answers a load or unload. Where the plan gives a device no memory to
// account for, its worker holds what is placed there from its start to its end,
// also what the policy counts as not loaded at first: what is there is loaded at
// once, and the rest is refused.
func (w *workers) Load(o turn.Order) {
	if d := w.devices[o.Device]; d.home != nil {
		loadsOf(w).swap(d, o)
		return
	}
	why := policy.Return(0)
	if w.devices[o.Device].holds(w.c.Tables, o.Network) != o.Load {
		why = policy.ReturnRefused
	}
	now := w.c.Now()
	w.c.Emit(turn.Queued{Ev: o.Event(now, now, why)})
}

// Place answers at once: what tasks read is in the server's memory, from where it
// is copied with the batch.
func (w *workers) Place(task, device, ticket int32) {
	now := w.c.Now()
	w.c.Placed(task, device, ticket, now, now)
}

// Close ends the processes.
func (w *workers) Close(ctx context.Context) {
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
	for _, n := range w.c.Inbox.Left() { // a worker that came back after the last round
		if proc, ok := n.Back.(*worker.Process); ok {
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
	if now < p.looked+turn.WatchEvery {
		return
	}
	used := proc.CPU()
	if used-p.used >= (now-p.looked)/beats {
		p.moved = now
	}
	p.looked, p.used = now, used
}

// Look kills workers that hang. Who has waited for one for another SLO past the
// deadline is answered before that.
func (w *workers) Look(now, paused time.Duration) {
	for _, d := range w.own {
		if d.proc == nil {
			continue
		}
		if d.home != nil {
			if d.home.began += paused; loadsOf(w).overdue(d, now) {
				w.c.Options.Log.Error("worker hangs in a load and is killed", "device", d.index, "kind", d.kind, "network", w.c.Tables.Networks[d.home.doing.Network].Name, "for", now-d.home.began)
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
		if infer := w.c.Tables.Stages[r.stage].Infer; r.size <= len(infer) {
			planned = infer[r.size-1]
		}
		took := now - r.started
		w.giveUp(d.flight, now, took)
		w.giveUp(d.queue, now, took)
		patience := w.c.Options.HangTimeout
		if d.remote { // its host may be silent for a while
			patience += worker.DefaultSilence
		} else {
			d.pulse.look(now, d.proc)
		}
		patience = max(patience, hangsAfter*planned)
		if took > patience && (now > d.pulse.moved+patience || took > slowFor*patience) {
			w.c.Options.Log.Error("worker hangs and is killed", "device", d.index, "kind", d.kind, "stage", r.stage, "for", took)
			d.proc.Kill()
		}
	}
}

// giveUp answers the requests of runs that have waited too long for a worker, whose
// run has taken so long. One that lasts no longer than an SLO may be about to end.
func (w *workers) giveUp(runs []*run, now, took time.Duration) {
	book := &w.c.Ledger
	for _, r := range runs {
		if r.batch == nil {
			continue
		}
		for _, t := range r.batch.Tasks {
			q := book.At(w.c.Answers.RequestOf(t))
			if q == nil || q.Job.Answered {
				continue
			}
			if slo := q.Job.Model.Slo; took > slo && now > q.Job.Deadline+slo {
				book.Refuse(q.Job, policy.ReasonWorkerLost)
			}
		}
	}
}
