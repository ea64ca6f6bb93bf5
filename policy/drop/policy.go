package drop

import (
	"fmt"
	"math/rand/v2"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
)

// Policy drops requests that would be late (package comment). One goroutine
// calls it.
type Policy struct {
	reading
	opt     Options
	t       *policy.Tables
	own     *flow.Tables
	book    flow.Book
	modules []module // by service
	workers []worker // by device
	plan    planner
	seen    *Seen
	rng     *rand.Rand
	busy    int // workers with a batch
	ticking bool
	sized   scaler
	again   []flow.Entry // tasks of a worker that is gone
}

// module is what the policy has of a service.
type module struct {
	workers []int32       // its devices, in the order in which they are taken
	live    []int32       // of them, those that take tasks
	next    int           // of live, where tasks go in turn
	start   starts        // of workers, for the shortest wait
	high    bool          // HBF is in force
	fluid   time.Duration // when all admitted work would be done (token)
	decided int           // workers that are to serve
	sizes   []size        // of which not all are in force
}

// worker is a device that serves one module. Its batch slot is its number.
type worker struct {
	device, module int32
	place          int32 // among the module's workers
	pipeline       int32
	stage          int32
	batch          int32           // planned
	infer          []time.Duration // [n-1]: of a batch of n
	full           time.Duration   // of a planned batch
	end            time.Duration   // of the running batch, by the profile
	running        bool
	up             bool // it holds its network
	wanted         bool // it is to take tasks
	loading        bool
	lost           bool
	current        []flow.Entry // the running batch
	forming        []flow.Entry // the next one
	queue          depq
	proof          proof
	line           line // in place of the queue, first come first served
}

// New makes the policy of a name over a plan's tables.
func New(name string, t *policy.Tables, params map[string]float64) (*Policy, error) {
	how, ok := readings[name]
	own := flow.Of(t)
	if !ok || own == nil {
		return nil, fmt.Errorf("policy %q: expected one of %v, over the tables of a plan of applications", name, Names())
	}
	opt, err := how.parse(own, params)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	p := &Policy{reading: how, opt: opt, t: t, own: own, workers: make([]worker, len(t.Devices)), rng: seeded.New(opt.Seed, "policy/"+name)}
	p.modules = make([]module, len(t.Services))
	p.plan.load = make([]loads, len(p.modules))
	for m := range p.modules {
		p.addWorkers(int32(m))
	}
	p.plan.init(p)
	p.seen = NewSeen(len(p.modules))
	p.sized.init(own.Scaling)
	return p, nil
}

func (p *Policy) addWorkers(m int32) {
	mod := &p.modules[m]
	mod.workers = p.own.Modules[m].Workers
	s := &p.t.Services[m]
	for pl := s.FirstPipeline; pl < s.FirstPipeline+s.NumPipelines; pl++ {
		pipe := &p.t.Pipelines[pl]
		stage := &p.t.Stages[pipe.FirstStage]
		for _, d := range p.t.DevicesOf(pipe.FirstStage) {
			p.workers[d] = worker{device: d, module: m, pipeline: pl, stage: pipe.FirstStage, batch: pipe.Batch, infer: stage.Infer, full: stage.Infer[pipe.Batch-1]}
		}
	}
	mod.start = newStarts(len(mod.workers))
	mod.decided = len(mod.workers)
	if p.own.Scaling != nil {
		mod.decided = p.own.Scaling.Start[m]
	}
	for i, d := range mod.workers {
		w := &p.workers[d]
		w.place = int32(i)
		w.wanted = i < mod.decided
		w.up = w.wanted
	}
	p.enlist(m)
}

// enlist lists the workers of a module that take tasks.
func (p *Policy) enlist(m int32) {
	mod := &p.modules[m]
	mod.live = mod.live[:0]
	for i, d := range mod.workers {
		if w := &p.workers[d]; w.up && w.wanted && !w.lost {
			mod.live = append(mod.live, d)
			mod.start.set(i, w.starts())
		} else {
			mod.start.set(i, never)
		}
	}
	if mod.next >= len(mod.live) {
		mod.next = 0
	}
	p.plan.capacity(p, m)
}

// Handle implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.TaskRevealed:
		p.plan.came[ev.Service]++
		e := p.book.Reveal(now, ev)
		if p.order == arrival {
			e.Key = 0 // its place in line says it all
		}
		p.send(now, ev.Service, e, out)
	case policy.BatchFinished:
		w := &p.workers[ev.Device]
		w.running = false
		p.busy--
		p.serve(now, w, out)
	case policy.Arrival:
		p.arrive(now, ev, out)
	case policy.Timer:
		p.tick(now, out)
	case policy.Cancel:
		if p.book.IsOpen(ev.Req) {
			p.drop(ev.Req, -1, policy.ReasonCancelled, out)
		}
	default:
		p.change(now, ev, out)
	}
}

// arrive takes a request in, unless the entry refuses it.
func (p *Policy) arrive(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.book.Arrive(ev)
	if !p.ticking {
		p.wake(now, out)
	}
	p.sized.came++
	if ev.Deadline <= now || p.entry && p.plan.crowded && p.rng.Float64() >= p.opt.Admit || p.opt.Token > 0 && !p.token(now, ev.Model, ev.Deadline) {
		p.drop(ev.Req, -1, policy.ReasonDeadline, out)
	}
}

// drop refuses a request because of a task; -1: at the entry.
func (p *Policy) drop(req, task int32, why policy.Reason, out *policy.Actions) {
	p.book.Close(req)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: req, Task: task, Reason: why})
}

// tick is the second's work of the state planner, and of scaling.
func (p *Policy) tick(now time.Duration, out *policy.Actions) {
	p.plan.tick(p, now)
	p.scale(now, out)
	p.ticking = p.busy > 0
	if p.ticking {
		p.wake(now, out)
	}
}

// wake asks for the next whole second.
func (p *Policy) wake(now time.Duration, out *policy.Actions) {
	if !p.ticking {
		p.plan.catchUp(now)
		p.sized.pass(now)
		p.ticking = true
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now.Truncate(time.Second) + time.Second})
}
