package drop

import (
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// workerFleet holds the workers of all modules: which of them take tasks, and which load or unload networks.
type fleet struct {
	t       *policy.Tables
	own     *flow.Tables
	jsq     bool     // a task goes to the worker that can start it first
	modules []module // by service
	devices []device
	workers []worker // device after device
	paces   []pace   // by service; nil if the plan's times count
}

// device has a worker for each module that runs on it. The workers take turns.
type device struct {
	first, workers int32 // its range in the fleet's workers
	running        int32 // worker whose batch runs; -1 if none
}

// moduleWorkers holds the workers of a service.
type module struct {
	workers  []int32 // in the order in which scaling uses them
	live     []int32 // those that take tasks
	next     int     // index in liveWorkers of the next one in round robin
	start    starts  // by worker: the earliest start of a further task
	capacity float64 // tasks per second of the live workers
	decided  int     // number of workers that scaling has decided on
	sizes    []size  // decisions that are not in force yet
}

// sizeChange is a number of workers that takes effect at a time.
type size struct {
	at time.Duration
	n  int
}

// newWorkerFleet returns the workers of a plan's tables. With jsq, tasks join the shortest queue.
func newFleet(t *policy.Tables, own *flow.Tables, jsq bool) *fleet {
	f := &fleet{t: t, own: own, jsq: jsq, modules: make([]module, len(t.Services)), devices: make([]device, len(t.Devices))}
	f.addWorkers()
	for m := range f.modules {
		f.begin(int32(m))
	}
	return f
}

// addWorkers creates the workers of all devices.
func (f *fleet) addWorkers() {
	// Collect the workers of each device.
	on := make([][]worker, len(f.devices))
	for m := range f.modules {
		s, i := &f.t.Services[m], 0
		f.modules[m].workers = make([]int32, len(f.own.Modules[m].Workers))
		for pl := s.FirstPipeline; pl < s.FirstPipeline+s.NumPipelines; pl++ {
			pipe := &f.t.Pipelines[pl]
			stage := &f.t.Stages[pipe.FirstStage]
			for _, d := range f.t.DevicesOf(pipe.FirstStage) {
				w := worker{device: d, module: int32(m), place: int32(i), pipeline: pl, stage: pipe.FirstStage, batch: pipe.Batch, limit: pipe.Batch,
					planned: stage.Infer, infer: stage.Infer, full: stage.Infer[pipe.Batch-1], part: f.own.Modules[m].Parts[i]}
				w.every = between(w.full, w.part)
				on[d] = append(on[d], w)
				i++
			}
		}
	}

	// Number them device after device.
	for d := range on {
		f.devices[d] = device{first: int32(len(f.workers)), workers: int32(len(on[d])), running: -1}
		for i := range on[d] {
			on[d][i].id = int32(len(f.workers) + i)
			f.modules[on[d][i].module].workers[on[d][i].place] = on[d][i].id
		}
		f.workers = append(f.workers, on[d]...)
	}
}

// batchInterval returns the time from one batch to the next on a device that has only a share of its time for them.
func between(took time.Duration, part float64) time.Duration {
	if part == 1 {
		return took
	}
	return time.Duration(float64(took) / part)
}

// initModule sets which workers of a module serve at the start.
func (f *fleet) begin(m int32) {
	mod := &f.modules[m]
	mod.start = newStarts(len(mod.workers))
	mod.decided = len(mod.workers)
	if f.own.Scaling != nil {
		mod.decided = f.own.Scaling.Start[m]
	}
	for i, id := range mod.workers {
		w := &f.workers[id]
		w.wanted = i < mod.decided
		w.up = w.wanted
	}
	f.enlist(m)
}

// workersOn returns the workers of a device.
func (f *fleet) on(d int32) []worker {
	return f.workers[f.devices[d].first:][:f.devices[d].workers]
}

// runningWorker returns the worker whose batch runs on a device. If none runs, it returns nil.
func (f *fleet) runs(d int32) *worker {
	if id := f.devices[d].running; id >= 0 {
		return &f.workers[id]
	}
	return nil
}

// takesTurns returns true if other modules run on a worker's device, too.
func (f *fleet) takesTurns(w *worker) bool { return f.devices[w.device].workers > 1 }

// startTime returns when a worker could start a further task: at once if its device is idle, otherwise behind the full
// batches of all tasks that wait on the device.
func (f *fleet) starts(w *worker) time.Duration {
	running := f.runs(w.device)
	switch {
	case running == nil:
		return 0
	case !f.takesTurns(w):
		return w.end + w.ahead()
	}
	at, list := running.end, f.on(w.device)
	for i := range list {
		at += list[i].ahead()
	}
	return at
}

// learnSpeeds makes estimates follow the measured times of batches.
func (f *fleet) learn() {
	for range f.modules {
		f.paces = append(f.paces, pace{factor: 1})
	}
}

// skewClocks shifts the clock of every worker by a random time of at most maxSkew in either direction.
func (f *fleet) skew(most time.Duration, rng *rand.Rand) {
	for i := range f.workers {
		if most > 0 {
			f.workers[i].off = time.Duration(rng.Int64N(int64(2*most)+1)) - most
		}
	}
}

// refreshLive computes anew which workers of a module take tasks, their capacity and their earliest starts.
func (f *fleet) enlist(m int32) {
	mod := &f.modules[m]
	mod.live, mod.capacity = mod.live[:0], 0
	for i, id := range mod.workers {
		if w := &f.workers[id]; w.serves() {
			mod.live = append(mod.live, id)
			mod.capacity += float64(w.batch) / w.every.Seconds()
			mod.start.set(i, f.starts(w))
		} else {
			mod.start.set(i, never)
		}
	}
	if mod.next >= len(mod.live) {
		mod.next = 0
	}
}

// nextWorker returns the worker of a module that takes the next task: that with the earliest start, or the next in round
// robin. If no worker takes tasks, it returns nil.
func (f *fleet) takes(m int32) *worker {
	mod := &f.modules[m]
	switch {
	case len(mod.live) == 0:
		return nil
	case f.jsq:
		return &f.workers[mod.workers[mod.start.first()]]
	}
	id := mod.live[mod.next]
	if mod.next++; mod.next == len(mod.live) {
		mod.next = 0
	}
	return &f.workers[id]
}

// batchWait returns how long a further task would wait for its batch in a module.
func (f *fleet) wait(now time.Duration, m int32) time.Duration {
	mod := &f.modules[m]
	switch {
	case len(mod.live) == 0:
		return 0
	case f.jsq:
		return max(0, mod.start.at[mod.start.first()]-now)
	}
	return max(0, f.starts(&f.workers[mod.live[mod.next]])-now)
}

// updateStarts updates the earliest starts on a worker's device after its work has changed.
func (f *fleet) moved(w *worker) {
	if !f.jsq {
		return
	}
	list := f.on(w.device)
	for i := range list {
		if x := &list[i]; x.serves() {
			f.modules[x.module].start.set(int(x.place), f.starts(x))
		}
	}
}

// networkOf returns the network of a worker.
func (f *fleet) network(w *worker) int32 { return f.t.Pipelines[w.pipeline].Network }

// startLoad loads the network of a worker.
func (f *fleet) load(w *worker, out *policy.Actions) {
	w.loading = true
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: f.network(w), Device: w.device})
}

// unloadWorker unloads the network of a worker that has no tasks left.
func (f *fleet) retire(w *worker, out *policy.Actions) {
	w.up = false
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: f.network(w), Device: w.device})
}

// handleLoaded handles the end of a load. A load that has failed is repeated.
func (f *fleet) loaded(w *worker, ok bool, out *policy.Actions) {
	switch {
	case !w.loading || w.lost:
		return
	case !ok:
		f.load(w, out) // try again
		return
	}
	w.loading, w.up = false, true
	f.enlist(w.module)
}

// handleWorkerBack takes a worker back after its device was lost. It is empty and holds the resident networks.
func (f *fleet) back(w *worker, out *policy.Actions) {
	w.lost = false
	w.up = slices.Contains(f.t.Resident[w.device], f.network(w))
	switch {
	case !w.wanted && w.up:
		f.retire(w, out)
	case w.wanted && !w.up:
		f.load(w, out)
	}
	f.enlist(w.module)
}

// setTargetWorkers decides that the first n workers of a module serve. Missing networks are loaded now. The number takes
// effect after the module's cold start; then the other workers finish their tasks and unload.
func (f *fleet) decide(now time.Duration, m int32, n int, out *policy.Actions) {
	mod := &f.modules[m]
	for _, id := range mod.workers[min(mod.decided, n):n] {
		if w := &f.workers[id]; !w.lost && !w.loading {
			f.load(w, out)
		}
	}
	if n != mod.decided {
		mod.decided = n
		mod.sizes = append(mod.sizes, size{now + f.own.Modules[m].ColdStart, n})
	}
}

// applySizes applies the decisions that have taken effect by now.
func (f *fleet) resize(now time.Duration, m int32, out *policy.Actions) {
	mod := &f.modules[m]
	due := 0
	for due < len(mod.sizes) && mod.sizes[due].at <= now {
		due++
	}

	// Only the latest decision counts.
	if due == 0 {
		return
	}
	n := mod.sizes[due-1].n
	mod.sizes = mod.sizes[:copy(mod.sizes, mod.sizes[due:])]
	for i, id := range mod.workers {
		w := &f.workers[id]
		w.wanted = i < n
		if !w.wanted && w.up && !w.running {
			f.retire(w, out)
		}
	}
	f.enlist(m)
}
