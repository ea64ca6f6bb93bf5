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
	firstPause  = 100 * time.Millisecond
	longestWait = 5 * time.Second
	stableAfter = 10 * time.Second // a worker that lived this long starts again without a pause
)

// supervisor runs the worker processes: it starts them, gives them memory, posts their results, and starts them again
// when they end.
type crew struct {
	c         *turn.Core
	opt       *Options
	stages    []stagePlan
	places    []worker.Device             // by device
	devices   []*Device                   // by device; nil if another backend executes there
	own       []*Device                   // the devices that workers execute
	cfgs      []worker.Config             // by own device
	operators []modelfile.OperatorLibrary // libraries that the models need
	cache     *worker.Cache               // of models that devices swap
	ctx       context.Context             // ends supervision, and starts of workers
	cancel    context.CancelFunc
	wg        sync.WaitGroup
}

// workerConfig returns the configuration of a device's worker, with the stages that it loads.
func (k *crew) workerConfig(d *Device, place worker.Device) worker.Config {
	// The engine and its device.
	hello := worker.Hello{Engine: k.c.Options.Engine, Device: place, Library: k.opt.Library, Execution: PlannedExecution(k.c.Plan, place.Kind)}
	if k.opt.Execute != nil {
		hello.Execution = k.opt.Execute(place.Kind, hello.Execution)
	}
	hello.Operators = k.operators
	cfg := worker.Config{Hello: hello, Command: k.opt.Command, Env: slices.Concat(k.opt.Env, hello.Env())}

	// Its stages.
	for i := range k.stages {
		for _, dev := range k.c.Tables.DevicesOf(int32(i)) {
			if dev == d.Index {
				spec := k.stages[i].spec
				if !formats.IsCPU(place.Kind) {
					spec.Sizes = sizesOf(&k.c.Tables.Stages[i], spec.MaxBatch)
				}
				if d.Home != nil {
					k.loadTimes(&spec, int32(i), d)
				}
				cfg.Stages = append(cfg.Stages, spec)
			}
		}
	}

	// Memory and cache, if networks come and go.
	if d.Home != nil {
		cfg.Hello.Memory = k.c.Tables.Memory[d.Index]
		if cfg.Cache = k.cache; d.remote { // the other host has a cache of its own
			cfg.Cache = worker.NewCache(0)
		}
	}
	return cfg
}

// startProcess starts the worker of a device, or waits for one of another host.
func (k *crew) startProcess(ctx context.Context, d *Device, cfg worker.Config) (*worker.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, k.opt.StartTimeout)
	defer cancel()
	if d.remote {
		k.c.Options.Log.Info("waiting for a worker of another host", "device", d.Index, "kind", d.Kind)
		return k.opt.Lobby.Start(ctx, k.c, cfg)
	}
	if k.opt.Inside {
		return worker.StartInside(ctx, cfg, worker.Engines())
	}
	return worker.Start(ctx, cfg)
}

// startWorkers starts all workers in parallel, divides their shared memory and prepares every stage. If it fails,
// killAll and unmapMemory end what is left.
func (k *crew) startWorkers(ctx context.Context) error {
	// Start the processes, which load their models.
	n := len(k.own)
	k.cfgs = make([]worker.Config, n)
	err := each(n, func(i int) (err error) {
		d := k.own[i]
		k.cfgs[i] = k.workerConfig(d, k.places[d.Index])
		d.Proc, err = k.startProcess(ctx, d, k.cfgs[i])
		return err
	})
	if err != nil {
		return err
	}

	// Divide the memory.
	for _, d := range k.own {
		if err := k.layOut(d, d.Proc); err != nil {
			return err
		}
	}
	if err := k.readModels(); err != nil {
		return err
	}
	first, err := k.settleAll()
	if err != nil {
		return err
	}

	// Share the memory, and prepare every stage.
	if err := each(n, func(i int) error { return k.prepare(ctx, k.own[i], k.own[i].Proc, first[i]) }); err != nil {
		return err
	}
	for _, d := range k.own {
		if d.Home != nil {
			homesOf(k).settled(d)
		}
		d.Gen, d.pinned = 1, d.Proc.Pinned()
	}
	k.shareMemory(ctx)
	return nil
}

// runAll runs f for 0..n-1 in parallel and returns the first error by index.
func each(n int, f func(i int) error) error {
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
func (k *crew) layOut(d *Device, p *worker.Process) (err error) {
	d.Segment, err = worker.NewSegment(uint32(d.Index), k.divide(d, p.Loaded))
	return err
}

// divideSegment divides a device's segment among the stages that it has loaded, and returns the segment's size.
func (k *crew) divide(d *Device, loaded []worker.Loaded) int64 {
	d.Slots, d.known = make([]*stageSlots, len(k.stages)), make([]*worker.Loaded, len(k.stages))
	var stride, widest int64
	for i := range loaded {
		l := &loaded[i]
		s := k.slotsFor(d, l)
		stride, widest = stride+s.Layout.Stride, max(widest, s.Layout.Stride)
		d.Slots[l.ID], d.known[l.ID] = s, l
	}

	// If networks come and go, slots are cut later, from an arena.
	slots := k.slotsOf(d, stride)
	if d.Home != nil {
		clear(d.Slots)
		size := max(stride*int64(slots), widest*gpuSlotsLeast, page)
		d.Home.Arena = newArena(size)
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

// setModelTensors sets the models' tensors from what the workers have loaded, and checks that stages fit together.
func (k *crew) readModels() error {
	for i := range k.stages {
		st := &k.stages[i]
		m := k.c.Services[k.c.Tables.Pipelines[k.c.Tables.Stages[i].Pipeline].Service]
		for _, dev := range k.c.Tables.DevicesOf(int32(i)) {
			if k.devices[dev] == nil {
				continue
			}
			own := k.devices[dev].known[i]
			if own == nil {
				return fmt.Errorf("%w: stage %d was not loaded on device %d", turn.ErrPlan, i, dev)
			}

			// The inputs are the model's, or the outputs of the stage before.
			if st.first {
				if err := m.SetTensors(&m.Inputs, own.Inputs, "input"); err != nil {
					return err
				}
			} else {
				for _, from := range k.c.Tables.DevicesOf(int32(i - 1)) {
					made := k.devices[from].known[i-1].Outputs
					if err := sameSpecs(made, own.Inputs); err != nil {
						return fmt.Errorf("%w: model %s: stage %d does not fit the one before: %w", turn.ErrPlan, m.Name, k.c.Tables.Stages[i].Hop, err)
					}
				}
			}

			// The outputs of the last stage are the model's.
			if st.last {
				if err := m.SetTensors(&m.Outputs, own.Outputs, "output"); err != nil {
					return err
				}
				if err := k.c.Answers.Check(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sameSpecs returns an error if the outputs of a stage are not the inputs of the next.
func sameSpecs(made, wanted []engine.Spec) error {
	if len(made) != len(wanted) {
		return fmt.Errorf("%d tensors leave, %d are expected", len(made), len(wanted))
	}
	for i := range made {
		if made[i].Type != wanted[i].Type || made[i].BytesAt(1) != wanted[i].BytesAt(1) || made[i].BytesAt(2) != wanted[i].BytesAt(2) {
			return fmt.Errorf("%s leaves, %s is expected", made[i], wanted[i])
		}
	}
	return nil
}

// prepare gives a worker the memory that it writes and reads, and warms it up. `first` has the networks that it holds at
// the start, if networks come and go.
func (k *crew) prepare(ctx context.Context, d *Device, p *worker.Process, first []worker.Swap) error {
	ctx, cancel := context.WithTimeout(ctx, k.opt.StartTimeout)
	defer cancel()
	if err := p.Attach(ctx, d.Segment, true); err != nil {
		return fmt.Errorf("device %d (%s): share its memory: %w", d.Index, d.Kind, err)
	}
	for _, from := range k.sources(d.Index) {
		if err := p.Attach(ctx, k.devices[from].Segment, false); err != nil {
			return fmt.Errorf("device %d (%s): share the memory of device %d: %w", d.Index, d.Kind, from, err)
		}
	}
	if d.Home != nil {
		return k.moveIn(ctx, d, p, first)
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

// sourceDevices returns the other devices whose outputs a device reads.
func (k *crew) sources(dev int32) []int32 {
	var out []int32
	seen := map[int32]bool{dev: true}
	for i := range k.stages {
		if k.stages[i].first || k.devices[dev].known[i] == nil {
			continue
		}
		for _, from := range k.c.Tables.DevicesOf(int32(i - 1)) {
			if !seen[from] {
				seen[from] = true
				out = append(out, from)
			}
		}
	}
	return out
}

// superviseAll supervises all workers.
func (k *crew) watchOver() {
	k.ctx, k.cancel = context.WithCancel(context.Background())
	for i, d := range k.own {
		k.wg.Add(1)
		go k.supervise(d, k.cfgs[i], d.Proc, d.Gen)
	}
}

// killAll ends all workers at once.
func (k *crew) kill() {
	for _, d := range k.own {
		if d.Proc != nil {
			d.Proc.Kill()
			d.Proc.Wait()
		}
	}
}

// unmapMemory unmaps what the workers shared. They must have ended.
func (k *crew) freeMemory() {
	for _, d := range k.own {
		if d.Segment != nil {
			d.Segment.Close()
		}
	}
	k.cache.Close()
}

// supervise posts a worker's results, and starts the worker again when it ends, until the supervisor's context ends.
func (k *crew) supervise(d *Device, cfg worker.Config, p *worker.Process, gen int32) {
	defer k.wg.Done()
	pause := time.Duration(0)
	for {
		born := time.Now()
		k.listen(d.Index, gen, p)
		if k.ctx.Err() != nil {
			return
		}

		// The worker has ended.
		k.c.Post(turn.News{Kind: workerLost, Device: d.Index, Gen: gen})
		p.Kill()
		k.c.Options.Log.Warn("worker lost", "device", d.Index, "kind", d.Kind, "pid", p.PID(), "ended", fmt.Sprint(p.Wait()))
		if time.Since(born) > stableAfter {
			pause = 0
		}

		// Start it again, after growing pauses.
		gen++
		for {
			if !wait(k.ctx, pause) {
				return
			}
			if pause = min(max(2*pause, firstPause), longestWait); k.ctx.Err() != nil {
				return
			}
			begin := time.Now()
			next, err := k.startAgain(d, cfg)
			if err == nil {
				p = next
				k.c.Metrics.Restarted(d.Index)
				k.c.Options.Log.Info("worker back", "device", d.Index, "kind", d.Kind, "pid", p.PID(), "after", time.Since(begin))
				break
			}
			if k.ctx.Err() != nil {
				return
			}
			k.c.Options.Log.Error("worker does not start", "device", d.Index, "kind", d.Kind, "error", err, "again_in", pause)
		}
		k.c.Post(turn.News{Kind: workerBack, Device: d.Index, Gen: gen, Back: p})
	}
}

// restartWorker starts a worker in place of a lost one.
func (k *crew) startAgain(d *Device, cfg worker.Config) (*worker.Process, error) {
	p, err := k.startProcess(k.ctx, d, cfg)
	if err != nil {
		return nil, err
	}
	var first []worker.Swap
	if d.Home != nil && !k.c.Call(func() { first, err = homesOf(k).settle(d) }) {
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

// postResults posts a worker's results until the worker is gone.
func (k *crew) listen(dev int32, gen int32, p *worker.Process) {
	var results []worker.Result
	var events []turn.News
	for {
		var err error
		results, err = p.Receive(results[:0])
		events = events[:0]
		for i := range results {
			events = append(events, newsOf(&results[i], dev, gen))
		}
		for _, a := range p.Swapped() {
			events = append(events, turn.News{Kind: swapCame, Device: dev, Gen: gen, Id: a.ID, Start: a.Start, End: a.End, Code: uint32(a.Code), Text: a.Text})
		}
		if len(events) > 0 {
			k.c.Post(events...)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				k.c.Options.Log.Error("worker's control socket", "device", dev, "error", err)
			}
			return
		}
	}
}

// resultEvent returns a worker's result as an event.
func newsOf(r *worker.Result, dev, gen int32) turn.News {
	return turn.News{Kind: resultCame, Device: dev, Gen: gen, Id: r.ID, Start: r.Start, End: r.End, Cpu: r.CPU, Total: r.Total, Code: uint32(r.Code), Text: r.Text}
}

// sleep sleeps. It returns false if the context has ended.
func wait(ctx context.Context, d time.Duration) bool {
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
