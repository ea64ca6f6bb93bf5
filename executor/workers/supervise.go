package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/modelfile"
)

// Pauses before a worker is started again: none the first time, then growing.
const (
	minPause    = 100 * time.Millisecond
	maxPause    = 5 * time.Second
	stableAfter = 10 * time.Second // a worker that lived this long starts again without a pause
)

// supervisor runs the worker processes: it starts them, gives them memory, posts their results, and starts them again
// when they end.
type supervisor struct {
	core          *turn.Core
	options       *Options
	stages        []stageLoad
	workerDevices []worker.Device             // by device
	devices       []*Device                   // by device; nil if another backend executes there
	ownDevices    []*Device                   // the devices that workers execute
	configs       []worker.Config             // by own device
	operators     []modelfile.OperatorLibrary // libraries that the models need
	cache         *worker.Cache               // of models that devices swap
	ctx           context.Context             // ends supervision, and starts of workers
	cancel        context.CancelFunc
	wg            sync.WaitGroup
}

// workerConfig returns the configuration with which the worker process of device d is started: the engine and how it
// executes, the stages that it loads, and, if only some networks (models) are loaded at a time, the device's memory and
// a cache of weights on the host. place has the device's kind, number and CPUs on this machine.
func (k *supervisor) workerConfig(d *Device, place worker.Device) worker.Config {
	// The engine and its device.
	hello := worker.Hello{Engine: k.core.Options.Engine, Device: place, Library: k.options.Library, Execution: PlannedExecution(k.core.Plan, place.Kind)}
	if k.options.OverrideExecution != nil {
		hello.Execution = k.options.OverrideExecution(place.Kind, hello.Execution)
	}
	hello.Operators = k.operators
	cfg := worker.Config{Hello: hello, Command: k.options.Command, Env: slices.Concat(k.options.Env, hello.Env())}

	// Its stages.
	for i := range k.stages {
		for _, dev := range k.core.Tables.DevicesOf(int32(i)) {
			if dev == d.Index {
				spec := k.stages[i].spec
				if !formats.IsCPU(place.Kind) {
					spec.Sizes = measuredSizes(&k.core.Tables.Stages[i], spec.MaxBatch)
				}
				if d.Networks != nil {
					k.setLoadTimes(&spec, int32(i), d)
				}
				cfg.Stages = append(cfg.Stages, spec)
			}
		}
	}

	// Memory and cache, if networks come and go.
	if d.Networks != nil {
		cfg.Hello.Memory = k.core.Tables.Memory[d.Index]
		if cfg.Cache = k.cache; d.isRemote { // the other host has a cache of its own
			cfg.Cache = worker.NewCache(0)
		}
	}
	return cfg
}

// startProcess starts the worker process of device d, or waits for a worker of another host to join as that device. It
// returns when the worker has loaded its stages, or with an error after StartTimeout. With Options.InProcess the worker
// runs inside this process.
func (k *supervisor) startProcess(ctx context.Context, d *Device, cfg worker.Config) (*worker.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	if d.isRemote {
		k.core.Options.Log.Info("waiting for a worker of another host", "device", d.Index, "kind", d.Kind)
		return k.options.Lobby.Start(ctx, k.core, cfg)
	}
	if k.options.InProcess {
		return worker.StartInside(ctx, cfg, worker.Engines())
	}
	return worker.Start(ctx, cfg)
}

// startWorkers starts all workers in parallel, divides their shared memory, and makes every stage ready to run.
// After an error the caller ends what is left with killAll and unmapMemory.
func (k *supervisor) startWorkers(ctx context.Context) error {
	// Start the processes, which load their models.
	n := len(k.ownDevices)
	k.configs = make([]worker.Config, n)
	err := runAll(n, func(i int) (err error) {
		d := k.ownDevices[i]
		k.configs[i] = k.workerConfig(d, k.workerDevices[d.Index])
		d.Process, err = k.startProcess(ctx, d, k.configs[i])
		return err
	})
	if err != nil {
		return err
	}

	// Divide the memory.
	for _, d := range k.ownDevices {
		if err := k.createSegment(d, d.Process); err != nil {
			return err
		}
	}
	if err := k.setModelTensors(); err != nil {
		return err
	}
	first, err := k.cutAllResidentSlots()
	if err != nil {
		return err
	}

	// Share the memory, and prepare every stage.
	if err := runAll(n, func(i int) error { return k.prepare(ctx, k.ownDevices[i], k.ownDevices[i].Process, first[i]) }); err != nil {
		return err
	}
	for _, d := range k.ownDevices {
		if d.Networks != nil {
			k.markResidentsLoaded(d)
		}
		d.Generation, d.pinned = 1, d.Process.AllPinned()
	}
	k.shareMemory(ctx)
	return nil
}

// runAll runs f for 0..n-1 in parallel, waits for all, and returns the first error by index, so that the same error
// is reported each time.
func runAll(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// page is the size of a memory page.
const page = 4096

// createSegment divides a device's segment among its stages and creates it.
func (k *supervisor) createSegment(d *Device, p *worker.Process) (err error) {
	d.Segment, err = worker.NewSegment(uint32(d.Index), k.divideSegment(d, p.Stages))
	return err
}

// divideSegment divides the shared memory of device d into slots (each has the tensors of one batch) for the stages that
// its worker has loaded, and returns how many bytes of memory that needs. It sets d.Slots and d.loadedStages, by stage.
// The memory is created after it.
func (k *supervisor) divideSegment(d *Device, loaded []worker.LoadedStage) int64 {
	d.Slots, d.loadedStages = make([]*stageSlots, len(k.stages)), make([]*worker.LoadedStage, len(k.stages))
	var stride, widest int64
	for i := range loaded {
		l := &loaded[i]
		s := k.slotsFor(d, l)
		stride, widest = stride+s.Layout.Stride, max(widest, s.Layout.Stride)
		d.Slots[l.ID], d.loadedStages[l.ID] = s, l
	}

	// If networks come and go, slots are cut later, from an arena.
	slots := k.slotCount(d, stride)
	if d.Networks != nil {
		clear(d.Slots)
		size := max(stride*int64(slots), widest*minGPUSlots, page)
		d.Networks.Arena = newArena(size)
		return size
	}

	// Otherwise every stage has its slots for good.
	var base int64
	for i := range loaded {
		s := d.Slots[loaded[i].ID]
		s.Pool, s.Layout.Base, s.Layout.Slots = worker.NewSlotPool(slots), base, slots
		base += s.Layout.Stride * int64(slots)
	}
	return max(base, page)
}

// setModelTensors sets the inputs and outputs of models to those of the first and last stages that the workers have
// loaded. It returns an error if a stage was not loaded, or does not take what the one before gives. Stages of a
// pipeline have consecutive numbers.
func (k *supervisor) setModelTensors() error {
	for i := range k.stages {
		st := &k.stages[i]
		m := k.core.Services[k.core.Tables.Pipelines[k.core.Tables.Stages[i].Pipeline].Service]
		for _, dev := range k.core.Tables.DevicesOf(int32(i)) {
			if k.devices[dev] == nil {
				continue
			}
			loaded := k.devices[dev].loadedStages[i]
			if loaded == nil {
				return fmt.Errorf("%w: stage %d was not loaded on device %d", turn.ErrPlan, i, dev)
			}

			// The inputs are the model's, or the outputs of the stage before.
			if st.isFirst {
				if err := m.SetTensors(&m.Inputs, loaded.Inputs, "input"); err != nil {
					return err
				}
			} else {
				for _, source := range k.core.Tables.DevicesOf(int32(i - 1)) {
					outputs := k.devices[source].loadedStages[i-1].Outputs
					if err := sameSpecs(outputs, loaded.Inputs); err != nil {
						return fmt.Errorf("%w: model %s: stage %d does not fit the one before: %w", turn.ErrPlan, m.Name, k.core.Tables.Stages[i].Hop, err)
					}
				}
			}

			// The outputs of the last stage are the model's.
			if st.isLast {
				if err := m.SetTensors(&m.Outputs, loaded.Outputs, "output"); err != nil {
					return err
				}
				if err := k.core.Answerer.CheckOutputs(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sameSpecs returns an error if the outputs of a stage are not the inputs of the next, by number, type and size.
// Sizes are compared at batches of one and of two, because one alone does not show the batch dimension.
func sameSpecs(outputs, inputs []engine.Spec) error {
	if len(outputs) != len(inputs) {
		return fmt.Errorf("%d tensors leave, %d are expected", len(outputs), len(inputs))
	}
	for i := range outputs {
		if outputs[i].Type != inputs[i].Type || outputs[i].BytesAt(1) != inputs[i].BytesAt(1) || outputs[i].BytesAt(2) != inputs[i].BytesAt(2) {
			return fmt.Errorf("%s leaves, %s is expected", outputs[i], inputs[i])
		}
	}
	return nil
}

// prepare makes a started worker ready: it gives it the shared memory that it writes and that of the stages before
// it, and warms up its stages. If networks come and go on its device, it makes it load those of `first` instead.
func (k *supervisor) prepare(ctx context.Context, d *Device, p *worker.Process, first []worker.Swap) error {
	ctx, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	if err := p.Attach(ctx, d.Segment, true); err != nil {
		return fmt.Errorf("device %d (%s): share its memory: %w", d.Index, d.Kind, err)
	}
	for _, source := range k.sourceDevices(d.Index) {
		if err := p.Attach(ctx, k.devices[source].Segment, false); err != nil {
			return fmt.Errorf("device %d (%s): share the memory of device %d: %w", d.Index, d.Kind, source, err)
		}
	}
	if d.Networks != nil {
		return k.loadResidents(ctx, d, p, first)
	}
	for _, s := range d.Slots {
		if s == nil {
			continue
		}
		if _, err := p.Prepare(ctx, s.Layout); err != nil {
			return fmt.Errorf("device %d (%s): %w", d.Index, d.Kind, err)
		}
	}
	return nil
}

// sourceDevices returns the other devices whose outputs the stages of device dev read: those of the stage before each
// stage that dev runs. Its worker has to map their memory. Stages are numbered through all pipelines, so that the stage
// before i is i - 1 unless i is the first.
func (k *supervisor) sourceDevices(dev int32) []int32 {
	var out []int32
	isListed := map[int32]bool{dev: true}
	for i := range k.stages {
		if k.stages[i].isFirst || k.devices[dev].loadedStages[i] == nil {
			continue
		}
		for _, source := range k.core.Tables.DevicesOf(int32(i - 1)) {
			if !isListed[source] {
				isListed[source] = true
				out = append(out, source)
			}
		}
	}
	return out
}

// superviseAll starts a goroutine for each worker that supervises it, once all workers run.
func (k *supervisor) superviseAll() {
	k.ctx, k.cancel = context.WithCancel(context.Background())
	for i, d := range k.ownDevices {
		k.wg.Add(1)
		go k.supervise(d, k.configs[i], d.Process, d.Generation)
	}
}

// killAll kills all workers and waits for their end, if the start has failed.
func (k *supervisor) killAll() {
	for _, d := range k.ownDevices {
		if d.Process != nil {
			d.Process.Kill()
			d.Process.Wait()
		}
	}
}

// unmapMemory unmaps what the workers shared. They must have ended.
func (k *supervisor) unmapMemory() {
	for _, d := range k.ownDevices {
		if d.Segment != nil {
			d.Segment.Close()
		}
	}
	k.cache.Close()
}

// supervise runs on a goroutine for each device until the supervisor's context ends: it posts the results of the
// device's worker p to the core, and starts another worker when it ends. The pause before a restart doubles from failure
// to failure. generation counts the device's workers, so that the core can ignore events of earlier ones.
func (k *supervisor) supervise(d *Device, cfg worker.Config, p *worker.Process, generation int32) {
	defer k.wg.Done()
	pause := time.Duration(0)
	for {
		startedAt := time.Now()
		k.postResults(d.Index, generation, p)
		if k.ctx.Err() != nil {
			return
		}

		// The worker has ended.
		k.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventLost, Device: d.Index, Generation: generation})
		p.Kill()
		k.core.Options.Log.Warn("worker lost", "device", d.Index, "kind", d.Kind, "pid", p.PID(), "ended", fmt.Sprint(p.Wait()))
		if time.Since(startedAt) > stableAfter {
			pause = 0
		}

		// Start it again, after growing pauses.
		generation++
		for {
			if !sleep(k.ctx, pause) {
				return
			}
			if pause = min(max(2*pause, minPause), maxPause); k.ctx.Err() != nil {
				return
			}
			begin := time.Now()
			next, err := k.restartWorker(d, cfg)
			if err == nil {
				p = next
				k.core.Metrics.CountRestart(d.Index)
				k.core.Options.Log.Info("worker back", "device", d.Index, "kind", d.Kind, "pid", p.PID(), "after", time.Since(begin))
				break
			}
			if k.ctx.Err() != nil {
				return
			}
			k.core.Options.Log.Error("worker does not start", "device", d.Index, "kind", d.Kind, "error", err, "again_in", pause)
		}
		k.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventBack, Device: d.Index, Generation: generation, Result: p})
	}
}

// restartWorker starts a new worker process in place of a lost one, with the same networks that the device had at
// the first start. If it cannot be made ready, it is killed, and the supervisor tries again later.
func (k *supervisor) restartWorker(d *Device, cfg worker.Config) (*worker.Process, error) {
	p, err := k.startProcess(k.ctx, d, cfg)
	if err != nil {
		return nil, err
	}
	var first []worker.Swap
	if d.Networks != nil && !k.core.Loop.CallInRound(func() { first, err = k.cutResidentSlots(d) }) {
		err = turn.ErrClosed
	}
	if err == nil {
		err = k.prepare(k.ctx, d, p, first)
	}
	if err != nil {
		p.Kill()
		p.Wait()
		return nil, err
	}
	return p, nil
}

// postResults reads the results of runs and loads from a worker and posts them to the core as events, until the
// worker is gone. gen is the number of this process of the device, by which the core ignores events of earlier
// ones.
func (k *supervisor) postResults(dev int32, gen int32, p *worker.Process) {
	var results []worker.Result
	var events []turn.BackendEvent
	for {
		var err error
		results, err = p.Receive(results[:0])
		events = events[:0]
		for i := range results {
			events = append(events, resultEvent(&results[i], dev, gen))
		}
		for _, a := range p.SwapResults() {
			events = append(events, turn.BackendEvent{Kind: eventSwapped, Device: dev, Generation: gen, Id: a.ID, Start: a.Start, End: a.End, Code: uint32(a.Code), Text: a.Text})
		}
		if len(events) > 0 {
			k.core.Inbox.PostEvents(events...)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				k.core.Options.Log.Error("worker's control socket", "device", dev, "error", err)
			}
			return
		}
	}
}

// resultEvent returns a worker's result as an event.
func resultEvent(r *worker.Result, dev, gen int32) turn.BackendEvent {
	return turn.BackendEvent{Kind: eventResult, Device: dev, Generation: gen, Id: r.ID, Start: r.Start, End: r.End, Cpu: r.CPU, Total: r.Total, Code: uint32(r.Code), Text: r.Text}
}

// sleep waits for d. It returns false as soon as the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
