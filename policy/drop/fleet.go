package drop

import (
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// fleet is the workers of all modules: which of them take tasks, and the networks
// that come and go.
type fleet struct {
	t       *policy.Tables
	own     *flow.Tables
	jsq     bool     // tasks go to the worker that can start first
	modules []module // by service
	devices []device
	workers []worker // device after device
	paces   []pace   // by service; nil: the plan's times count
}

// device has a worker for each module that runs on it. They take turns.
type device struct {
	first, workers int32 // of the fleet's workers
	running        int32 // the worker whose batch runs; -1: none
}

// module is the workers of a service.
type module struct {
	workers  []int32 // in the order in which they are taken
	live     []int32 // of them, those that take tasks
	next     int     // of live, where tasks go in turn
	start    starts  // of workers, for the shortest wait
	capacity float64 // of live: tasks per second
	decided  int     // workers that are to serve
	sizes    []size  // of which not all are in force
}

// size is a number of workers that is in force from a time on.
type size struct {
	at time.Duration
	n  int
}

func newFleet(t *policy.Tables, own *flow.Tables, jsq bool) *fleet {
	f := &fleet{t: t, own: own, jsq: jsq, modules: make([]module, len(t.Services)), devices: make([]device, len(t.Devices))}
	f.addWorkers()
	for m := range f.modules {
		f.begin(int32(m))
	}
	return f
}

// addWorkers makes the workers of all devices.
func (f *fleet) addWorkers() {
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
	for d := range on {
		f.devices[d] = device{first: int32(len(f.workers)), workers: int32(len(on[d])), running: -1}
		for i := range on[d] {
			on[d][i].id = int32(len(f.workers) + i)
			f.modules[on[d][i].module].workers[on[d][i].place] = on[d][i].id
		}
		f.workers = append(f.workers, on[d]...)
	}
}

// between is the time from one batch to the next, where a device has only a part of its time for them.
func between(took time.Duration, part float64) time.Duration {
	if part == 1 {
		return took
	}
	return time.Duration(float64(took) / part)
}

// begin says which workers of a module serve at the start.
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

// on lists the workers of a device.
func (f *fleet) on(d int32) []worker {
	return f.workers[f.devices[d].first:][:f.devices[d].workers]
}

// runs is the worker whose batch runs on a device; nil: none does.
func (f *fleet) runs(d int32) *worker {
	if id := f.devices[d].running; id >= 0 {
		return &f.workers[id]
	}
	return nil
}

// takesTurns returns whether other modules run on a worker's device, too.
func (f *fleet) takesTurns(w *worker) bool { return f.devices[w.device].workers > 1 }

// starts is when a worker could start a further task: at once where its device is idle,
// else behind the full batches of all that wait there.
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

// learn has estimates follow how long batches take.
func (f *fleet) learn() {
	for range f.modules {
		f.paces = append(f.paces, pace{factor: 1})
	}
}

// skew has every worker's clock be off by up to a time.
func (f *fleet) skew(most time.Duration, rng *rand.Rand) {
	for i := range f.workers {
		if most > 0 {
			f.workers[i].off = time.Duration(rng.Int64N(int64(2*most)+1)) - most
		}
	}
}

// enlist lists the workers of a module that take tasks.
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

// takes is the worker of a module that takes the next task; nil: none does.
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

// wait is how long a further task waits for its batch in a module.
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

// moved notes that a worker has more or less to do, which those beside it wait for.
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

func (f *fleet) network(w *worker) int32 { return f.t.Pipelines[w.pipeline].Network }

func (f *fleet) load(w *worker, out *policy.Actions) {
	w.loading = true
	out.List = append(out.List, policy.Action{Kind: policy.Load, Network: f.network(w), Device: w.device})
}

// retire takes the network off a worker that has nothing left to do.
func (f *fleet) retire(w *worker, out *policy.Actions) {
	w.up = false
	out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: f.network(w), Device: w.device})
}

func (f *fleet) loaded(w *worker, ok bool, out *policy.Actions) {
	switch {
	case !w.loading || w.lost:
		return
	case !ok:
		f.load(w, out) // again
		return
	}
	w.loading, w.up = false, true
	f.enlist(w.module)
}

// back takes a worker that is empty: what the plan put on it is there.
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

// decide has a module served by its first n workers once those that are missing
// are loaded; the others then serve what they have and go.
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

// resize carries out what was decided in time.
func (f *fleet) resize(now time.Duration, m int32, out *policy.Actions) {
	mod := &f.modules[m]
	due := 0
	for due < len(mod.sizes) && mod.sizes[due].at <= now {
		due++
	}
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
