package drop

import (
	"fmt"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
)

// Policy drops requests that would be late (package comment). Calls must not be concurrent.
type Policy struct {
	fleet   *fleet
	plan    *planner
	broker  broker
	gate    gate
	scaler  scaler
	ticking bool // a timer for the next second is set
}

// New returns the named policy, feas or pard, over a plan's tables.
func New(name string, t *policy.Tables, params map[string]float64) (*Policy, error) {
	if name != Default && name != "pard" {
		return nil, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	if x := params["paths"]; name == "pard" && x > 0 {
		return nil, fmt.Errorf("policy pard: the parameter paths is %v, expected 0: pard drops more where rare ways are left out; feas takes it", x)
	}
	return NewVariant(t, params, Variant{Name: name, Feas: name == Default})
}

// NewVariant returns a variant over a plan's tables.
func NewVariant(t *policy.Tables, params map[string]float64, v Variant) (*Policy, error) {
	own := flow.Of(t)
	if own == nil {
		return nil, fmt.Errorf("policy %s: expected the tables of a plan of applications", v.Name)
	}
	opt, err := parse(v.Feas, own, params)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", v.Name, err)
	}
	how := &v
	book, fleet := new(flow.Book), newFleet(t, own, v.Feas)
	fleet.skew(opt.Skew, seeded.New(opt.Seed, "policy/"+v.Name))
	if opt.Learn {
		fleet.learn()
	}
	plan := newPlanner(how, opt, fleet)
	p := &Policy{fleet: fleet, plan: plan}
	p.broker = broker{Variant: how, book: book, fleet: fleet, plan: plan}
	p.broker.watch = newWatch(opt.Prompt, plan)
	p.broker.again = newAgain(fleet, plan)
	p.broker.judge = judge{Variant: how, book: book, plan: plan, apps: len(own.Apps), counts: make([]int32, 64)}
	p.gate = gate{Variant: how, times: opt.Token, fleet: fleet, plan: plan, fluid: make([]time.Duration, len(t.Services))}
	p.scaler.init(own.Scaling)
	return p, nil
}

// Handle implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.TaskRevealed:
		p.broker.reveal(now, ev, out)
	case policy.BatchFinished:
		if w := p.fleet.runs(ev.Device); w != nil {
			p.broker.finished(now, w, out)
		}
	case policy.Arrival:
		p.arrive(now, ev, out)
	case policy.Timer:
		if ev.Value == watchTag {
			p.broker.watch.due(now, &p.broker, out)
		} else {
			p.tick(now, out)
		}
	case policy.Cancel:
		if p.broker.book.IsOpen(ev.Req) {
			p.broker.drop(now, ev.Req, -1, policy.ReasonCancelled, out)
		}
	default:
		p.change(now, ev, out)
	}
}

// handleChange handles rare events: workers that are lost or come back, loads, and batches without a result.
func (p *Policy) change(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Device < 0 || int(ev.Device) >= len(p.fleet.devices) {
		return
	}
	list := p.fleet.on(ev.Device)
	switch ev.Kind {
	case policy.NetworkLoaded:
		for i := range list {
			if len(list) == 1 || p.fleet.network(&list[i]) == ev.Network {
				p.fleet.loaded(&list[i], ev.Value == 0, out)
			}
		}
	case policy.WorkerLost:
		for i := range list {
			p.broker.lose(now, &list[i], out)
		}
	case policy.WorkerBack:
		for i := range list {
			p.fleet.back(&list[i], out)
		}
	case policy.BatchReturned:
		if w := p.fleet.runs(ev.Device); w != nil {
			p.broker.returned(now, w, policy.Return(ev.Value), out)
		}
	}
}

// admitRequest opens a request, and drops it if the entry gate refuses it.
func (p *Policy) arrive(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.broker.book.Arrive(ev)
	if !p.ticking {
		p.wake(now, out)
	}
	p.scaler.arrive()
	if ev.Deadline <= now || !p.gate.admits(now, ev) {
		p.broker.drop(now, ev.Req, -1, policy.ReasonDeadline, out)
	}
}

// tickSecond runs the planner and the scaling once per second, as long as batches run.
func (p *Policy) tick(now time.Duration, out *policy.Actions) {
	p.plan.tick(now)
	p.scaler.scale(now, p.fleet, out)
	p.ticking = p.broker.busy > 0
	if p.ticking {
		p.wake(now, out)
	}
}

// wakeAtNextSecond sets a timer for the next whole second.
func (p *Policy) wake(now time.Duration, out *policy.Actions) {
	if !p.ticking {
		p.plan.catchUp(now)
		p.scaler.pass(now)
		p.ticking = true
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now.Truncate(time.Second) + time.Second})
}
