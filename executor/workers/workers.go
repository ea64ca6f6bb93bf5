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
type WorkerBackend struct {
	core       *turn.Core
	Devices    []*Device // nil if another backend executes there
	OwnDevices []*Device // the devices that workers execute
	Supervisor *supervisor
	copiers    *copiers
	freeRuns   []*stageRun
	nextRunID  uint64
	command    [1]worker.RunCommand // scratch
}

// Kinds of events of workers.
const (
	eventResult uint8 = iota
	eventLost
	eventBack
	eventSwapped
)

// Backend returns the backend that runs worker processes (each executes models on one device) for the devices for which
// isOurs, by device, is true, when a core is made. No process starts yet. It returns an error if the plan's models,
// operators or devices are not on this machine.
func (o *Options) Backend(c *turn.Core, isOurs []bool) (turn.Backend, error) {
	w := &WorkerBackend{core: c, Devices: make([]*Device, len(c.Tables.Devices))}
	w.Supervisor = &supervisor{cache: worker.NewCache(o.CacheBytes), core: c, options: o, devices: w.Devices}
	if !slices.Contains(isOurs, true) {
		return w, nil
	}
	var err error
	if w.Supervisor.stages, err = planStages(c.Plan, c.Tables, c.Options, isOurs); err != nil {
		return nil, err
	}
	if w.Supervisor.operators, err = findOperators(c.Plan, c.Options); err != nil {
		return nil, err
	}
	if w.Supervisor.workerDevices, err = placeDevices(c.Tables, o, c.Options.Engine == "replay", isOurs); err != nil {
		return nil, err
	}

	// Create the devices.
	for i := range c.Tables.Devices {
		if !isOurs[i] {
			continue
		}
		kind := c.Tables.Kinds[c.Tables.Devices[i].Kind]
		w.Devices[i] = &Device{Index: int32(i), Kind: kind, isRemote: isRemote(c.Tables, i, o), stats: c.Metrics.AddDevice(int32(i), kind)}
		if swapsNetworks(c.Tables, int32(i)) {
			w.Devices[i].Networks = &deviceNetworks{Loaded: make([]bool, len(c.Tables.Networks))}
		}
		w.OwnDevices = append(w.OwnDevices, w.Devices[i])
	}
	w.Supervisor.ownDevices = w.OwnDevices
	return w, nil
}

// Start starts the processes, which load their models and share memory.
func (w *WorkerBackend) Start(ctx context.Context) error { return w.Supervisor.startWorkers(ctx) }

// LoopStarted starts the copy helpers and the supervision of the workers, when the core's loop begins.
func (w *WorkerBackend) LoopStarted() {
	w.copiers = newCopiers(helperCount())
	for _, d := range w.OwnDevices {
		w.setUp(d, true)
	}
	w.Supervisor.superviseAll()
}

// setUp records whether a device's worker runs.
func (w *WorkerBackend) setUp(d *Device, isUp bool) {
	d.IsUp.Store(isUp)
	w.core.Metrics.SetUp(d.Index, isUp)
}

func (w *WorkerBackend) IsUp(device int32) bool { return w.Devices[device].IsUp.Load() }

// BusyTime implements turn.Backend: the runs that have ended, and the one under way until now. It is called in a round of the core.
func (w *WorkerBackend) BusyTime(device int32) time.Duration {
	d := w.Devices[device]
	busyTime := d.BusyTime
	if len(d.InFlight) > 0 {
		busyTime += max(w.core.Loop.Now()-d.InFlight[0].StartedAt, 0)
	}
	return busyTime
}

// HandleEvent handles an event of a worker process in a round of the core: a run has ended, the process was lost, a load
// has ended, or a new process is back. Events of an earlier process of the device (another Generation) are ignored.
func (w *WorkerBackend) HandleEvent(n *turn.BackendEvent) {
	d := w.Devices[n.Device]
	switch n.Kind {
	case eventResult:
		if n.Generation == d.Generation && d.Process != nil {
			w.handleResult(d, n)
		}
	case eventLost:
		if n.Generation == d.Generation && d.Process != nil {
			w.handleLost(d)
		}
	case eventSwapped:
		if n.Generation == d.Generation && d.Process != nil {
			w.handleSwapResult(d, n)
		}
	case eventBack:
		proc := n.Result.(*worker.Process)
		d.Process, d.Generation, d.cpuTotal, d.pinned, d.pulse = proc, n.Generation, 0, proc.AllPinned(), cpuPulse{}
		if d.Networks != nil {
			w.Supervisor.markResidentsLoaded(d)
		}
		w.setUp(d, true)
		w.core.Loop.TellPolicy(policy.Event{Kind: policy.WorkerBack, Device: d.Index})
		w.core.Flush()
		w.sendRuns(d)
	}
}

// handleResult handles a run (a batch at one stage) that the worker of device d has finished: it counts the run, sends
// the next ones, takes the outputs, and ends the batch's hop (its stage on this device), which the policy is told.
// Workers answer in order; one that does not is killed.
func (w *WorkerBackend) handleResult(d *Device, n *turn.BackendEvent) {
	c := w.core
	if len(d.InFlight) == 0 || d.InFlight[0].id != n.Id {
		// The worker answers a run that is not at its head: it cannot be trusted.
		c.Options.Log.Error("worker answered out of order", "device", d.Index, "run", n.Id)
		d.Process.Kill()
		return
	}

	// Count it; on return, mark the next run as started and send further ones.
	r := d.InFlight[0]
	d.InFlight = d.InFlight[:copy(d.InFlight, d.InFlight[1:])]
	start, end := c.Loop.OnLoopClock(n.Start), c.Loop.OnLoopClock(n.End)
	d.countRun(c, r, n, start, end)
	if len(d.InFlight) > 0 {
		defer w.markStarted(d.InFlight[0])
	}
	if d.Networks != nil {
		d.Networks.addOverlap(start, end)
		defer w.sendNextOrder(d)
	}
	defer w.sendRuns(d)
	b := r.Batch
	if b == nil {
		w.freeRun(r)
		return
	}

	// Add its times to the batch.
	state := batchRunOf(b)
	state.run = nil
	if b.CurrentHop == 0 {
		b.StartedAt = start
	}
	b.InferTime += end - start
	b.TraceHop(start, end)
	b.ReadyAt = n.End
	if worker.Code(n.Code) != worker.OK {
		c.Options.Log.Error("run failed", "model", b.Service.Label, "stage", r.stage, "batch", r.size, "error", n.Text)
		c.Batches.FailBatch(b, policy.ReasonFailed, errors.New(n.Text))
		w.freeRun(r)
		return
	}

	// The outputs go to the requests, or to the next stage.
	r.input.release()
	if b.CurrentHop == len(b.Hops)-1 {
		c.Answerer.TakeOutputs(b, r)
	} else {
		state.input, state.inputTier, r.output = r.output, r.outputTier, slotRef{}
	}
	w.freeRun(r)
	c.Batches.FinishHop(b, d.Index, start, end)
}

// handleLost is called when a device's worker process has ended. It tells the policy, forgets the worker's memory,
// and fails the batches of its runs, which the policy gets back. The supervisor starts the worker again.
func (w *WorkerBackend) handleLost(d *Device) {
	d.Process = nil
	w.setUp(d, false)
	w.forgetMemory(d)
	if d.Networks != nil {
		d.forgetNetworks()
	}
	flight := d.InFlight
	d.InFlight = nil
	w.core.Loop.TellPolicy(policy.Event{Kind: policy.WorkerLost, Device: d.Index})
	for _, r := range flight {
		if r.Batch != nil { // the policy has not aborted it
			w.core.Batches.FailBatch(r.Batch, policy.ReasonWorkerLost, nil)
		}
		w.freeRun(r)
	}
}

// AbortBatch forgets a batch that the policy has given up: its result, or its run in the queue, will be ignored.
func (w *WorkerBackend) AbortBatch(b *turn.Batch) {
	state := batchRunOf(b)
	if state.run != nil {
		state.run.Batch = nil
		state.run = nil
	}
	state.input.release()
}

// EvictBatch does nothing: workers have no instances that a batch could leave.
func (w *WorkerBackend) EvictBatch(*turn.Batch, bool) { w.core.Stats.IgnoredActions++ }

// LoadNetwork carries out the policy's order to load or unload a network (a model with its weights) on a device. A
// device without a memory size in the plan has everything loaded that is placed there, for good, including networks that
// the policy counts as not loaded at first. There, an order is answered at once: it is refused unless it asks for the
// present state.
func (w *WorkerBackend) LoadNetwork(o turn.LoadOrder) {
	if d := w.Devices[o.Device]; d.Networks != nil {
		w.takeOrder(d, o)
		return
	}
	reason := policy.ReturnReason(0)
	if w.Devices[o.Device].hasNetwork(w.core.Tables, o.Network) != o.Load {
		reason = policy.ReturnRefused
	}
	now := w.core.Loop.Now()
	w.core.TellLoaded(&o, now, now, reason)
}

// PlaceInputs answers at once: the inputs of tasks are in the server's memory, from where they are copied with the
// batch.
func (w *WorkerBackend) PlaceInputs(task, device, ticket int32) {
	now := w.core.Loop.Now()
	w.core.TellPlaced(task, device, ticket, now, now)
}

// Close ends all worker processes and unmaps their memory, when a core stops. It waits until no goroutine of the
// supervision runs, also for workers that were just being restarted.
func (w *WorkerBackend) Close(ctx context.Context) {
	if w.Supervisor.cancel == nil { // supervision has not begun
		w.Supervisor.killAll()
		w.Supervisor.unmapMemory()
		return
	}
	w.Supervisor.cancel()
	w.copiers.close()
	var wg sync.WaitGroup
	for _, d := range w.OwnDevices {
		if d.Process != nil {
			wg.Go(func() { d.Process.Shutdown(ctx) })
		}
	}
	wg.Wait()
	w.Supervisor.wg.Wait()
	for _, n := range w.core.Inbox.UnhandledEvents() { // workers that came back after the last round
		if proc, ok := n.Result.(*worker.Process); ok {
			proc.Kill()
			proc.Wait()
		}
	}
	w.Supervisor.unmapMemory()
}

// slowFactor is by how much longer a worker may take that gets CPU time: it is slow, as on an overloaded machine.
const slowFactor = 10

// cpuPulse records when a worker's process last got CPU time or waited for it.
type cpuPulse struct {
	checkedAt, activeAt time.Duration
	cpuTime             time.Duration
	wasRunnable         bool // at the last look
}

// minActivePart is the reciprocal of the share of CPU time from which on a process counts as active.
const minActivePart = 50

// check notes, at most once every turn.WatchInterval, whether a worker has used CPU time since the last look, at least
// one part in minActivePart of the time, or waits for a CPU at two looks in a row because the machine is overloaded. Both
// show that it does not hang. It sets activeAt.
func (p *cpuPulse) check(now time.Duration, proc *worker.Process) {
	if now < p.checkedAt+turn.WatchInterval {
		return
	}
	cpuTime, isRunnable := proc.CPU(), proc.IsRunnable()
	if cpuTime-p.cpuTime >= (now-p.checkedAt)/minActivePart || isRunnable && p.wasRunnable {
		p.activeAt = now
	}
	p.checkedAt, p.cpuTime, p.wasRunnable = now, cpuTime, isRunnable
}

// Watch kills workers that hang in a run or a load, and refuses requests that have waited for one until an SLO past
// their deadline. It is called in regular intervals in a round of the core; `paused` is the time for which the core's
// loop stood still since the last call, which does not count.
func (w *WorkerBackend) Watch(now, paused time.Duration) {
	for _, d := range w.OwnDevices {
		if d.Process == nil {
			continue
		}

		// Does a load hang? Time in which no round ran does not count.
		if d.Networks != nil {
			if d.Networks.orderStartedAt += paused; w.isLoadOverdue(d, now) {
				w.core.Options.Log.Error("worker hangs in a load and is killed", "device", d.Index, "kind", d.Kind, "network", w.core.Tables.Networks[d.Networks.CurrentOrder.Network].Name, "for", now-d.Networks.orderStartedAt)
				d.Process.Kill()
				continue
			}
		}
		if len(d.InFlight) == 0 {
			continue
		}

		// Does a run hang? How long should it take?
		r := d.InFlight[0]
		r.StartedAt += paused
		planned := time.Duration(0)
		if infer := w.core.Tables.Stages[r.stage].Infer; r.size <= len(infer) {
			planned = infer[r.size-1]
		}

		// Answer requests that have waited too long.
		elapsed := now - r.StartedAt
		w.answerOverdue(d.InFlight, now, elapsed)
		w.answerOverdue(d.queue, now, elapsed)

		// Kill the worker after its patience, unless it still gets CPU time.
		patience := w.Supervisor.options.HangTimeout
		if d.isRemote { // its host may be silent for a while
			patience += worker.DefaultSilence
		} else {
			d.pulse.check(now, d.Process)
		}
		patience = max(patience, turn.HangFactor*planned)
		if elapsed > patience && (now > d.pulse.activeAt+patience || elapsed > slowFactor*patience) {
			w.core.Options.Log.Error("worker hangs and is killed", "device", d.Index, "kind", d.Kind, "stage", r.stage, "for", elapsed)
			d.Process.Kill()
		}
	}
}

// answerOverdue refuses the requests of runs that have waited too long for a worker whose current run has lasted for
// `elapsed`: longer than the request's SLO, while the request is more than an SLO past its deadline. A run that has
// lasted no longer than that may be about to end.
func (w *WorkerBackend) answerOverdue(runs []*stageRun, now, elapsed time.Duration) {
	for _, r := range runs {
		if r.Batch == nil {
			continue
		}
		for _, t := range r.Batch.Tasks {
			q := w.core.Ledger.RequestIn(w.core.Answerer.RequestOf(t))
			if q == nil || q.Job.Answered {
				continue
			}
			if slo := q.Job.Model.Slo; elapsed > slo && now > q.Job.Deadline+slo {
				w.core.Ledger.RefuseJob(q.Job, policy.ReasonWorkerLost)
			}
		}
	}
}
