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
	demand    *flow.WorkerDemand // nil without a scaling rule
	timerSet  bool               // a timer for the next second is set
}

// New returns the policy with a name, feas (ours) or pard (PARD, EuroSys '26), for a plan's tables and parameters. It
// returns an error for another name or a wrong parameter.
func New(name string, tables *policy.Tables, params map[string]float64) (*Policy, error) {
	if name != Default && name != "pard" {
		return nil, fmt.Errorf("policy %q: expected one of %v", name, Names())
	}
	if minShare := params["paths"]; name == "pard" && minShare > 0 {
		return nil, fmt.Errorf("policy pard: the parameter paths is %v, expected 0: pard drops more where rare ways are left out; feas takes it", minShare)
	}
	return NewVariant(tables, params, Variant{Name: name, IsFeas: name == Default})
}

// NewVariant returns a variant of the policy (a baseline or an ablation) over a plan's tables: the workers of all
// devices, the planner of estimates, the broker that forms batches and drops requests, the gate at the entry, and the
// demand for workers. It returns an error for a plan of another kind or a wrong parameter.
func NewVariant(tables *policy.Tables, params map[string]float64, variant Variant) (*Policy, error) {
	graphTables := flow.GraphTablesOf(tables)
	if graphTables == nil {
		return nil, fmt.Errorf("policy %s: expected the tables of a plan of applications", variant.Name)
	}
	options, err := parseOptions(variant.IsFeas, graphTables, params)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", variant.Name, err)
	}
	variantCopy := &variant

	// Make the workers of all devices.
	tasks, workers := new(flow.TaskTable), newWorkerFleet(tables, graphTables, variant.IsFeas)
	workers.skewClocks(options.MaxClockSkew, seeded.New(options.Seed, "policy/"+variant.Name))
	if options.LearnSpeeds {
		workers.learnSpeeds()
	}
	planner := newPlanner(variantCopy, options, workers)
	dropPolicy := &Policy{workers: workers, planner: planner}
	dropPolicy.broker = broker{variant: variantCopy, tasks: tasks, workers: workers, planner: planner}
	dropPolicy.broker.hopelessWatch = newHopelessWatch(options.PromptRefusal, planner)
	dropPolicy.broker.retry = newRetryEstimate(workers, planner)
	dropPolicy.broker.dropTest = dropTest{variant: variantCopy, tasks: tasks, planner: planner, apps: len(graphTables.Apps), taskCounts: make([]int32, 64)}
	dropPolicy.entryGate = entryGate{variant: variantCopy, backlogFactor: options.BacklogFactor, workers: workers, planner: planner, backlogEnd: make([]time.Duration, len(tables.Services))}
	dropPolicy.demand = flow.NewWorkerDemand(graphTables.Scaling)
	return dropPolicy, nil
}

// Handle handles an event of the run and appends the actions that follow: it admits requests, assigns tasks, and
// starts batches. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.TaskRevealed:
		p.broker.enqueueTask(now, ev, out)
	case policy.BatchFinished:
		if runningWorker := p.workers.runningWorker(ev.Device); runningWorker != nil {
			p.broker.finishBatch(now, runningWorker, out)
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

// handleChange handles the rare events: workers (modules on a device) that are lost or come back, loads that have ended
// (Value 0 means success), and batches without a result (Value is the reason). An event concerns all workers of its
// device, but a load only that with its network.
func (p *Policy) handleChange(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Device < 0 || int(ev.Device) >= len(p.workers.devices) {
		return
	}
	workers := p.workers.workersOn(ev.Device)

	// Handle the event for each worker of the device.
	switch ev.Kind {
	case policy.NetworkLoaded:
		for i := range workers {
			if len(workers) == 1 || p.workers.networkOf(&workers[i]) == ev.Network { // a single worker orders all loads there
				p.workers.handleLoaded(&workers[i], ev.Value == 0, out)
			}
		}
	case policy.WorkerLost:
		for i := range workers {
			p.broker.loseWorker(now, &workers[i], out)
		}
	case policy.WorkerBack:
		for i := range workers {
			p.workers.handleWorkerBack(&workers[i], out)
		}
	case policy.BatchReturned:
		if runningWorker := p.workers.runningWorker(ev.Device); runningWorker != nil {
			p.broker.handleReturned(now, runningWorker, policy.ReturnReason(ev.Value), out)
		}
	}
}

// admitRequest opens a request that arrives, and drops it if its deadline has passed or the entry gate refuses it.
func (p *Policy) admitRequest(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.broker.tasks.OpenRequest(ev)
	if !p.timerSet {
		p.wakeAtNextSecond(now, out)
	}
	p.demand.CountArrival()
	p.planner.entryLoad.countArrival(ev.Model)
	if ev.Deadline <= now || !p.entryGate.admits(now, ev) {
		p.broker.dropRequest(now, ev.Req, -1, policy.ReasonDeadline, out)
	}
}

// tickSecond is called by the timer of each second: it updates the estimates and the number of workers. The timer
// goes on as long as batches run.
func (p *Policy) tickSecond(now time.Duration, out *policy.Actions) {
	p.planner.tickSecond(now)
	p.scaleWorkers(now, out)
	p.timerSet = p.broker.runningBatches > 0
	if p.timerSet {
		p.wakeAtNextSecond(now, out)
	}
}

// wakeAtNextSecond sets a timer for the next whole second, when estimates are updated. If none was running, the
// seconds in between count as idle.
func (p *Policy) wakeAtNextSecond(now time.Duration, out *policy.Actions) {
	if !p.timerSet {
		p.planner.skipSeconds(now)
		p.demand.PassTime(now)
		p.timerSet = true
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now.Truncate(time.Second) + time.Second})
}
