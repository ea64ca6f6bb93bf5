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
	workers   *workerFleet
	planner   *planner
	broker    broker
	entryGate entryGate
	scaler    scaler
	timerSet  bool // a timer for the next second is set
}

// New returns the named policy, feas or pard, over a plan's tables.
func New(name string, t *policy.Tables, params map[string]float64) (*Policy, error) {
	if name != Default && name != "pard" {
		return nil, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	if x := params["paths"]; name == "pard" && x > 0 {
		return nil, fmt.Errorf("policy pard: the parameter paths is %v, expected 0: pard drops more where rare ways are left out; feas takes it", x)
	}
	return NewVariant(t, params, Variant{Name: name, IsFeas: name == Default})
}

// NewVariant returns a variant of the policy (a baseline or an ablation) over a plan's tables. It returns an error
// for a plan of another kind or a wrong parameter.
func NewVariant(t *policy.Tables, params map[string]float64, v Variant) (*Policy, error) {
	graphTables := flow.GraphTablesOf(t)
	if graphTables == nil {
		return nil, fmt.Errorf("policy %s: expected the tables of a plan of applications", v.Name)
	}
	options, err := parseOptions(v.IsFeas, graphTables, params)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", v.Name, err)
	}
	variant := &v
	tasks, workers := new(flow.TaskTable), newWorkerFleet(t, graphTables, v.IsFeas)
	workers.skewClocks(options.MaxClockSkew, seeded.New(options.Seed, "policy/"+v.Name))
	if options.LearnSpeeds {
		workers.learnSpeeds()
	}
	planner := newPlanner(variant, options, workers)
	p := &Policy{workers: workers, planner: planner}
	p.broker = broker{variant: variant, tasks: tasks, workers: workers, planner: planner}
	p.broker.hopelessWatch = newHopelessWatch(options.PromptRefusal, planner)
	p.broker.retry = newRetryEstimate(workers, planner)
	p.broker.dropTest = dropTest{variant: variant, tasks: tasks, planner: planner, appCount: len(graphTables.Apps), taskCounts: make([]int32, 64)}
	p.entryGate = entryGate{variant: variant, backlogFactor: options.BacklogFactor, workers: workers, planner: planner, backlogEnd: make([]time.Duration, len(t.Services))}
	p.scaler.init(graphTables.Scaling)
	return p, nil
}

// Handle handles an event of the run and appends the actions that follow: it admits requests, assigns tasks, and
// starts batches. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.TaskRevealed:
		p.broker.enqueueTask(now, ev, out)
	case policy.BatchFinished:
		if w := p.workers.runningWorker(ev.Device); w != nil {
			p.broker.finishBatch(now, w, out)
		}
	case policy.Arrival:
		p.admitRequest(now, ev, out)
	case policy.Timer:
		if ev.Value == watchTag {
			p.broker.hopelessWatch.handleTimer(now, &p.broker, out)
		} else {
			p.tickSecond(now, out)
		}
	case policy.Cancel:
		if p.broker.tasks.IsOpen(ev.Req) {
			p.broker.dropRequest(now, ev.Req, -1, policy.ReasonCancelled, out)
		}
	default:
		p.handleChange(now, ev, out)
	}
}

// handleChange handles the rare events: workers (modules on a device) that are lost or come back, loads that have
// ended, and batches without a result. An event concerns all workers of its device.
func (p *Policy) handleChange(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Device < 0 || int(ev.Device) >= len(p.workers.devices) {
		return
	}
	list := p.workers.workersOn(ev.Device)
	switch ev.Kind {
	case policy.NetworkLoaded:
		for i := range list {
			if len(list) == 1 || p.workers.networkOf(&list[i]) == ev.Network {
				p.workers.handleLoaded(&list[i], ev.Value == 0, out)
			}
		}
	case policy.WorkerLost:
		for i := range list {
			p.broker.loseWorker(now, &list[i], out)
		}
	case policy.WorkerBack:
		for i := range list {
			p.workers.handleWorkerBack(&list[i], out)
		}
	case policy.BatchReturned:
		if w := p.workers.runningWorker(ev.Device); w != nil {
			p.broker.handleReturned(now, w, policy.ReturnReason(ev.Value), out)
		}
	}
}

// admitRequest opens a request, and drops it if the entry gate refuses it.
func (p *Policy) admitRequest(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.broker.tasks.OpenRequest(ev)
	if !p.timerSet {
		p.wakeAtNextSecond(now, out)
	}
	p.scaler.countArrival()
	if ev.Deadline <= now || !p.entryGate.admits(now, ev) {
		p.broker.dropRequest(now, ev.Req, -1, policy.ReasonDeadline, out)
	}
}

// tickSecond runs the planner and the scaling once per second, as long as batches run.
func (p *Policy) tickSecond(now time.Duration, out *policy.Actions) {
	p.planner.tickSecond(now)
	p.scaler.scale(now, p.workers, out)
	p.timerSet = p.broker.busyWorkers > 0
	if p.timerSet {
		p.wakeAtNextSecond(now, out)
	}
}

// wakeAtNextSecond sets a timer for the next whole second.
func (p *Policy) wakeAtNextSecond(now time.Duration, out *policy.Actions) {
	if !p.timerSet {
		p.planner.skipSeconds(now)
		p.scaler.passTime(now)
		p.timerSet = true
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now.Truncate(time.Second) + time.Second})
}
