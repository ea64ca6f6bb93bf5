package workers

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

// WorkerBackend is the backend of worker processes: one per device, with a queue in front of each. It belongs to the
// core's turn.
type Workers struct {
	c        *turn.Core
	Devices  []*Device // nil if another backend executes there
	Own      []*Device // the devices that workers execute
	Crew     *crew
	copiers  *copiers
	freeRuns []*run
	nextRun  uint64
	cmd      [1]worker.Run // scratch
}

// Kinds of events of workers.
const (
	resultCame uint8 = iota
	workerLost
	workerBack
	swapCame
)

// Backend returns the backend of the devices for which `ours` is true.
func (o *Options) Backend(c *turn.Core, ours []bool) (turn.Backend, error) {
	w := &Workers{c: c, Devices: make([]*Device, len(c.Tables.Devices))}
	w.Crew = &crew{cache: worker.NewCache(o.CacheBytes), c: c, opt: o, devices: w.Devices}
	if !slices.Contains(ours, true) {
		return w, nil
	}
	var err error
	if w.Crew.stages, err = planStages(c.Plan, c.Tables, c.Options, ours); err != nil {
		return nil, err
	}
	if w.Crew.operators, err = findOperators(c.Plan, c.Options); err != nil {
		return nil, err
	}
	if w.Crew.places, err = placeDevices(c.Tables, o, c.Options.Engine == "replay", ours); err != nil {
		return nil, err
	}

	// Create the devices.
	for i := range c.Tables.Devices {
		if !ours[i] {
			continue
		}
		kind := c.Tables.Kinds[c.Tables.Devices[i].Kind]
		w.Devices[i] = &Device{Index: int32(i), Kind: kind, remote: isRemote(c.Tables, i, o), stats: c.Metrics.Device(int32(i), kind)}
		if swaps(c.Tables, int32(i)) {
			w.Devices[i].Home = &home{Loaded: make([]bool, len(c.Tables.Networks))}
		}
		w.Own = append(w.Own, w.Devices[i])
	}
	w.Crew.own = w.Own
	return w, nil
}

// Start starts the processes, which load their models and share memory.
func (w *Workers) Start(ctx context.Context) error { return w.Crew.startWorkers(ctx) }

// LoopStarted starts the helpers and the supervision.
func (w *Workers) Begin() {
	w.copiers = newCopiers(helpers())
	for _, d := range w.Own {
		w.setUp(d, true)
	}
	w.Crew.watchOver()
}

// setUp records whether a device's worker runs.
func (w *Workers) setUp(d *Device, up bool) {
	d.Up.Store(up)
	w.c.Metrics.Up(d.Index, up)
}

func (w *Workers) Up(device int32) bool { return w.Devices[device].Up.Load() }

// HandleEvent handles an event of a worker. Events of an earlier process of the device are ignored.
func (w *Workers) Took(n *turn.News) {
	d := w.Devices[n.Device]
	switch n.Kind {
	case resultCame:
		if n.Gen == d.Gen && d.Proc != nil {
			w.result(d, n)
		}
	case workerLost:
		if n.Gen == d.Gen && d.Proc != nil {
			w.lost(d)
		}
	case swapCame:
		if n.Gen == d.Gen && d.Proc != nil {
			loadsOf(w).swapped(d, n)
		}
	case workerBack:
		proc := n.Back.(*worker.Process)
		d.Proc, d.Gen, d.total, d.pinned, d.pulse = proc, n.Gen, 0, proc.Pinned(), pulse{}
		if d.Home != nil {
			homesOf(w.Crew).settled(d)
		}
		w.setUp(d, true)
		w.c.Tell(policy.Event{Kind: policy.WorkerBack, Device: d.Index})
		w.c.Flush()
		w.pump(d)
	}
}

// handleResult handles a finished run: it sends the next runs, takes the outputs, and ends the batch's hop.
func (w *Workers) result(d *Device, n *turn.News) {
	c := w.c
	if len(d.Flight) == 0 || d.Flight[0].id != n.Id {
		// The worker answers a run that is not at its head: it cannot be trusted.
		c.Options.Log.Error("worker answered out of order", "device", d.Index, "run", n.Id)
		d.Proc.Kill()
		return
	}

	// Count it; on return, mark the next run as started and send further ones.
	r := d.Flight[0]
	d.Flight = d.Flight[:copy(d.Flight, d.Flight[1:])]
	start, end := c.Since(n.Start), c.Since(n.End)
	d.count(c, r, n, start, end)
	if len(d.Flight) > 0 {
		defer w.markStarted(d.Flight[0])
	}
	if d.Home != nil {
		d.Home.ranBeside(start, end)
		defer loadsOf(w).nextOrder(d)
	}
	defer w.pump(d)
	b := r.Batch
	if b == nil {
		w.freeRun(r)
		return
	}

	// Add its times to the batch.
	held := batchRunOf(b)
	held.run = nil
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

	// The outputs go to the requests, or to the next stage.
	r.in.give()
	if b.Hop == len(b.Hops)-1 {
		c.Answers.Ran(b, r)
	} else {
		held.in, held.by, r.out = r.out, r.to, slotRef{}
	}
	w.freeRun(r)
	c.FinishHop(b, d.Index, start, end)
}

// handleLost handles the loss of a device's worker, and of its runs.
func (w *Workers) lost(d *Device) {
	d.Proc = nil
	w.setUp(d, false)
	w.forgetMemory(d)
	if d.Home != nil {
		d.leaveHome()
	}
	flight := d.Flight
	d.Flight = nil
	w.c.Tell(policy.Event{Kind: policy.WorkerLost, Device: d.Index})
	for _, r := range flight {
		if r.Batch != nil { // the policy has not aborted it
			w.c.FailBatch(r.Batch, policy.ReasonWorkerLost, nil)
		}
		w.freeRun(r)
	}
}

// AbortBatch forgets a batch: its result, or its run in the queue, is ignored.
func (w *Workers) Abort(b *turn.Batch) {
	held := batchRunOf(b)
	if held.run != nil {
		held.run.Batch = nil
		held.run = nil
	}
	held.in.give()
}

// EvictBatch does nothing: workers have no instances that a batch could leave.
func (w *Workers) Evict(*turn.Batch, bool) { w.c.Stats.Ignored++ }

// LoadNetwork carries out a load or unload. If the plan gives a device no memory size, its worker holds what is placed
// there from its start to its end, including networks that the policy counts as not loaded at first. Then orders are
// answered at once: they are refused unless they ask for what is the case.
func (w *Workers) Load(o turn.Order) {
	if d := w.Devices[o.Device]; d.Home != nil {
		loadsOf(w).swap(d, o)
		return
	}
	why := policy.Return(0)
	if w.Devices[o.Device].holds(w.c.Tables, o.Network) != o.Load {
		why = policy.ReturnRefused
	}
	now := w.c.Now()
	w.c.Loaded(&o, now, now, why)
}

// PlaceInputs answers at once: the inputs of tasks are in the server's memory, from where they are copied with the
// batch.
func (w *Workers) Place(task, device, ticket int32) {
	now := w.c.Now()
	w.c.Placed(task, device, ticket, now, now)
}

// Close ends the processes.
func (w *Workers) Close(ctx context.Context) {
	if w.Crew.cancel == nil { // supervision has not begun
		w.Crew.kill()
		w.Crew.freeMemory()
		return
	}
	w.Crew.cancel()
	w.copiers.close()
	var wg sync.WaitGroup
	for _, d := range w.Own {
		if d.Proc != nil {
			wg.Go(func() { d.Proc.Shutdown(ctx) })
		}
	}
	wg.Wait()
	w.Crew.wg.Wait()
	for _, n := range w.c.LeftNews() { // workers that came back after the last round
		if proc, ok := n.Back.(*worker.Process); ok {
			proc.Kill()
			proc.Wait()
		}
	}
	w.Crew.freeMemory()
}

// slowFactor is by how much longer a worker may take that gets CPU time: it is slow, as on an overloaded machine.
const slowFor = 10

// cpuPulse records when a worker's process last got CPU time.
type pulse struct {
	looked, moved time.Duration
	used          time.Duration
}

// minActivePart is the reciprocal of the share of CPU time from which on a process counts as active.
const beats = 50

// check measures the CPU time, at most once every turn.WatchInterval.
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

// Watch kills workers that hang. Requests that have waited for one until an SLO past their deadline are answered
// earlier.
func (w *Workers) Look(now, paused time.Duration) {
	for _, d := range w.Own {
		if d.Proc == nil {
			continue
		}

		// Does a load hang? Time in which no round ran does not count.
		if d.Home != nil {
			if d.Home.began += paused; loadsOf(w).overdue(d, now) {
				w.c.Options.Log.Error("worker hangs in a load and is killed", "device", d.Index, "kind", d.Kind, "network", w.c.Tables.Networks[d.Home.Doing.Network].Name, "for", now-d.Home.began)
				d.Proc.Kill()
				continue
			}
		}
		if len(d.Flight) == 0 {
			continue
		}

		// Does a run hang? How long should it take?
		r := d.Flight[0]
		r.Started += paused
		planned := time.Duration(0)
		if infer := w.c.Tables.Stages[r.stage].Infer; r.size <= len(infer) {
			planned = infer[r.size-1]
		}

		// Answer requests that have waited too long.
		took := now - r.Started
		w.giveUp(d.Flight, now, took)
		w.giveUp(d.queue, now, took)

		// Kill the worker after its patience, unless it still gets CPU time.
		patience := w.Crew.opt.HangTimeout
		if d.remote { // its host may be silent for a while
			patience += worker.DefaultSilence
		} else {
			d.pulse.look(now, d.Proc)
		}
		patience = max(patience, turn.HangsAfter*planned)
		if took > patience && (now > d.pulse.moved+patience || took > slowFor*patience) {
			w.c.Options.Log.Error("worker hangs and is killed", "device", d.Index, "kind", d.Kind, "stage", r.stage, "for", took)
			d.Proc.Kill()
		}
	}
}

// answerOverdue answers the requests of runs that have waited too long for a worker whose run has taken `took`. A run
// that lasts no longer than an SLO may be about to end.
func (w *Workers) giveUp(runs []*run, now, took time.Duration) {
	for _, r := range runs {
		if r.Batch == nil {
			continue
		}
		for _, t := range r.Batch.Tasks {
			q := w.c.Request(w.c.Answers.RequestOf(t))
			if q == nil || q.Job.Answered {
				continue
			}
			if slo := q.Job.Model.Slo; took > slo && now > q.Job.Deadline+slo {
				w.c.Refuse(q.Job, policy.ReasonWorkerLost)
			}
		}
	}
}
