package drop

import (
	"fmt"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
)

// Policy drops requests that would be late (package comment). One goroutine
// calls it.
type Policy struct {
	reading
	book    flow.Book
	judge   judge
	fleet   *fleet
	plan    *planner
	gate    gate
	busy    int // workers with a batch
	ticking bool
	scaler  scaler
	again   []flow.Entry // tasks of a worker that is gone
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
	rng := seeded.New(opt.Seed, "policy/"+name)
	p := &Policy{reading: how, fleet: newFleet(t, own, how.jsq)}
	p.plan = newPlanner(how, opt, p.fleet, rng)
	p.gate = gate{opt: opt, entry: how.entry, fleet: p.fleet, plan: p.plan, rng: rng, fluid: make([]time.Duration, len(t.Services))}
	p.judge = judge{reading: how, book: &p.book, plan: p.plan, apps: len(own.Apps), counts: make([]int32, 64)}
	p.scaler.init(own.Scaling)
	return p, nil
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
		w := &p.fleet.workers[ev.Device]
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
	p.scaler.came++
	if ev.Deadline <= now || !p.gate.admits(now, ev) {
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
	p.plan.tick(now)
	p.scaler.scale(now, p.fleet, out)
	p.ticking = p.busy > 0
	if p.ticking {
		p.wake(now, out)
	}
}

// wake asks for the next whole second.
func (p *Policy) wake(now time.Duration, out *policy.Actions) {
	if !p.ticking {
		p.plan.catchUp(now)
		p.scaler.pass(now)
		p.ticking = true
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now.Truncate(time.Second) + time.Second})
}
