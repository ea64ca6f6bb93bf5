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
	workers []worker // by device
	paces   []pace   // by service; nil: the plan's times count
}

// module is the workers of a service.
type module struct {
	workers  []int32 // its devices, in the order in which they are taken
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
	f := &fleet{t: t, own: own, jsq: jsq, modules: make([]module, len(t.Services)), workers: make([]worker, len(t.Devices))}
	for m := range f.modules {
		f.addWorkers(int32(m))
	}
	return f
}

func (f *fleet) addWorkers(m int32) {
	mod := &f.modules[m]
	mod.workers = f.own.Modules[m].Workers
	s := &f.t.Services[m]
	for pl := s.FirstPipeline; pl < s.FirstPipeline+s.NumPipelines; pl++ {
		pipe := &f.t.Pipelines[pl]
		stage := &f.t.Stages[pipe.FirstStage]
		for _, d := range f.t.DevicesOf(pipe.FirstStage) {
			f.workers[d] = worker{device: d, module: m, pipeline: pl, stage: pipe.FirstStage, batch: pipe.Batch, limit: pipe.Batch, planned: stage.Infer, infer: stage.Infer, full: stage.Infer[pipe.Batch-1]}
		}
	}
	mod.start = newStarts(len(mod.workers))
	mod.decided = len(mod.workers)
	if f.own.Scaling != nil {
		mod.decided = f.own.Scaling.Start[m]
	}
	for i, d := range mod.workers {
		w := &f.workers[d]
		w.place = int32(i)
		w.wanted = i < mod.decided
		w.up = w.wanted
	}
	f.enlist(m)
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
	for i, d := range mod.workers {
		if w := &f.workers[d]; w.serves() {
			mod.live = append(mod.live, d)
			mod.capacity += float64(w.batch) / w.full.Seconds()
			mod.start.set(i, w.starts())
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
	d := mod.live[mod.next]
	if mod.next++; mod.next == len(mod.live) {
		mod.next = 0
	}
	return &f.workers[d]
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
	return max(0, f.workers[mod.live[mod.next]].starts()-now)
}

// moved notes that a worker has more or less to do.
func (f *fleet) moved(w *worker) {
	if f.jsq && w.serves() {
		f.modules[w.module].start.set(int(w.place), w.starts())
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
	for _, d := range mod.workers[min(mod.decided, n):n] {
		if w := &f.workers[d]; !w.lost && !w.loading {
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
	for i, d := range mod.workers {
		w := &f.workers[d]
		w.wanted = i < n
		if !w.wanted && w.up && !w.running {
			f.retire(w, out)
		}
	}
	f.enlist(m)
}
