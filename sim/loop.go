package sim

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/fair"
	"inferplan/sim/kernel"
)

// loop is a run: arrivals, the policy and its timers, requests and tasks, and the order of
// all events. Hosts execute batches.
type loop struct {
	agenda
	ledger
	batchTable
	ctx    context.Context
	cfg    *Config
	t      *policy.Tables
	trace  *chromeTrace
	events int64
	fatal  error

	upcoming  arrivals.Request // taken from the source, not yet arrived
	frontFree time.Duration    // when the front end has taken in all pulled requests
	pulled    int64            // number of arrivals so far
	firstAt   time.Duration    // arrival time of the first request

	hosts    []host
	base     *devices // the first of the hosts
	of       []uint8  // index into hosts, by device
	flow     *flow    // nil if a request has one task
	ending   ending
	truth    Truth // nil if the run has none
	searcher policy.Searcher
	searches []search
	timers   []kernel.Handle

	item item // the agenda entry that is being handled

	// Bits of event kinds that the policy does not hear.
	deaf    uint32
	event   policy.Event
	actions policy.Actions
}

// Run simulates one run to its end: after the last arrival everything that is under way
// is served or dropped.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := newLoop(ctx, &cfg)
	if err := l.run(); err != nil {
		return nil, fmt.Errorf("simulating: at %v: %w", l.now, err)
	}
	if err := arrivals.Err(cfg.Source); err != nil {
		return nil, fmt.Errorf("simulating: reading arrivals: %w", err)
	}
	if err := l.finish(); err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return l.result(), nil
}

// newLoop prepares a run: its hosts, its ending, and the faults on its agenda.
func newLoop(ctx context.Context, cfg *Config) *loop {
	t := cfg.Tables
	l := &loop{ctx: ctx, cfg: cfg, t: t, truth: cfg.Truth}
	l.acc = report.New(reportConfig(cfg))
	l.shares = fair.New(t)
	l.batchTable.init(t)
	l.ledger.init()
	if cfg.ChromeTrace != nil {
		l.trace = newChromeTrace(cfg.ChromeTrace, t)
	}
	if t.Hears != 0 {
		l.deaf = ^t.Hears
	}
	l.searcher, _ = policy.As[policy.Searcher](cfg.Policy)

	// The hosts, and the ending of requests.
	l.addHosts()
	l.ending = endingOf(l)

	// Schedule the faults.
	for i, f := range cfg.Faults {
		kind, what := policy.WorkerLost, isLoss
		if f.Up {
			kind, what = policy.WorkerBack, isBack
		}
		l.at(f.At, kind, int64(i), item{what: what, device: f.Device})
	}
	return l
}

// addHosts adds the host of devices that run batches of stages and, if the plan has
// instances, the host of those.
func (l *loop) addHosts() {
	l.of = make([]uint8, len(l.t.Devices))
	l.base = newDevices(l)
	l.hosts = append(l.hosts, l.base)
	switch {
	case l.cfg.instances != nil:
		l.hosts = append(l.hosts, l.cfg.instances(l))
	case serves(l.t):
		if l.truth == nil {
			l.truth = &requestTokens{}
		}
		l.hosts = append(l.hosts, newServers(l))
	case instanceHost != nil && len(l.t.Instances) > 0:
		l.hosts = append(l.hosts, instanceHost(l))
	default:
		return
	}
	for d := range l.of {
		if l.t.InstanceOf(int32(d)) >= 0 {
			l.of[d] = 1
		}
	}
}

// run handles the entries of the agenda in order until none is left.
func (l *loop) run() error {
	l.pull()
	for l.fatal == nil {
		if l.events&0xff == 0 { // an event of thousands of devices takes a millisecond
			if err := l.ctx.Err(); err != nil {
				return err
			}
		}
		before := l.now
		if !l.next(&l.item) {
			return nil
		}
		if l.now < before && l.cfg.Verify {
			return fmt.Errorf("the clock goes back to %v", l.now)
		}
		l.events++
		l.handle(&l.item)
	}
	return l.fatal
}

// processEntry handles an entry of the agenda.
func (l *loop) handle(it *item) {
	if it.what >= ofHost {
		if it.host == 0 {
			l.base.due(it) // the usual case without a call through the table
		} else {
			l.hosts[it.host].due(it)
		}
		return
	}

	// The loop's own kinds.
	switch it.what {
	case isArrival:
		l.letIn()
	case isTimer:
		l.timers[it.batch] = kernel.None
		ev := l.begin(policy.Timer)
		ev.Value = int64(it.batch)
		l.tell()
	case isLoss:
		l.hosts[l.of[it.device]].fault(it.device, false)
	case isBack:
		l.hosts[l.of[it.device]].fault(it.device, true)
	case isSearched:
		l.searched(it)
	}
}

// beginEvent clears the event for the policy and sets its kind. No other event may be
// begun before tellPolicy.
func (l *loop) begin(kind policy.EventKind) *policy.Event {
	l.event = policy.Event{}
	l.event.Kind = kind
	return &l.event
}

// beginBatchEvent begins an event about a batch on a device.
func (l *loop) beginBatch(kind policy.EventKind, slot, device int32) *policy.Event {
	ev, b := l.begin(kind), &l.batches[slot]
	ev.Model, ev.Service, ev.Batch, ev.Device = b.model, b.service, slot, device
	return ev
}

// tellPolicy passes the event that was begun to the policy and applies the actions that
// it returns. No action tells another event, so one buffer is enough.
func (l *loop) tell() {
	if l.deaf != 0 && l.deaf>>l.event.Kind&1 != 0 {
		return
	}
	l.actions.Reset()
	l.cfg.Policy.Handle(l.now, &l.event, &l.actions)
	for i := range l.actions.List {
		l.act(&l.actions.List[i])
	}
}

// fail stops the run with an error. Only the first one is kept.
func (l *loop) fail(err error) {
	if l.fatal == nil {
		l.fatal = err
	}
}

// pullArrival takes the next request from the source and puts its arrival on the agenda.
func (l *loop) pull() {
	r := &l.upcoming
	if !l.cfg.Source.Next(r) {
		return
	}
	if l.cfg.Duration > 0 && r.At >= l.cfg.Duration {
		return
	}
	if r.Model < 0 || int(r.Model) >= len(l.t.Models) {
		l.fail(fmt.Errorf("an arrival at %v names model %d, the plan has %d", r.At, r.Model, len(l.t.Models)))
		return
	}

	// The request passes the front end, one after another.
	at := r.At + l.cfg.Ingress
	if l.cfg.FrontEnd > 0 {
		at = max(at, l.frontFree)
		l.frontFree = at + l.cfg.FrontEnd
	}
	if at < l.now {
		l.fail(fmt.Errorf("arrivals are not in order: %v after %v", r.At, l.now-l.cfg.Ingress))
		return
	}
	if l.pulled == 0 {
		l.firstAt = r.At
	}
	l.pulled++
	l.arrive, l.ahead = at, true
}

// admitArrival admits the pulled request, or drops it if its client has used up its share.
func (l *loop) letIn() {
	r := &l.upcoming

	// A request without an SLO of its own has that of its model.
	slo := r.SLO
	if slo <= 0 {
		slo = l.t.Models[r.Model].SLO
	}
	model, arrived, client := r.Model, r.At, policy.ClientNumber(r.Client)
	l.acc.Arrive(model, arrived)
	if client != 0 && !l.shares.Admit(l.now, model, client, 1) {
		l.acc.Drop(model, arrived, int(policy.ReasonQueueFull))
		l.pull()
		return
	}

	// Enter the request into the ledger, with its task if it has only one.
	slot := l.take()
	prompt, session := r.PromptTokens, r.Session
	l.requests[slot] = request{model: model, client: client, state: waiting, arrived: arrived, deadline: arrived + slo, wholeSLO: slo >= l.t.Models[model].SLO}
	if l.truth != nil {
		l.truth.Arrive(slot, r)
	}
	if l.flow == nil {
		l.tasks.List[slot], l.spots[slot] = policy.Task{Req: slot, Service: model, State: policy.TaskWaiting}, spot{stage: -1}
	} else if l.flow.stats != nil {
		l.flow.stats.arrive(slot)
	}
	l.pull()

	// Pull the next arrival before the policy handles this one.
	ev := l.begin(policy.Arrival)
	ev.Model, ev.Service, ev.Req, ev.Task, ev.Arrived, ev.Deadline = model, model, slot, slot, arrived, arrived+slo
	ev.Tokens, ev.Key, ev.Client = prompt, session, client
	l.tell()
	if l.flow != nil {
		l.flow.begin(slot, model)
	}
}

// reportConfig returns the configuration of the run's report.
func reportConfig(cfg *Config) report.Config {
	c := report.Config{
		Source: "simulate", Policy: cfg.PolicyName, Seed: cfg.Seed, Load: cfg.Load,
		Warmup: cfg.Warmup, Duration: cfg.Duration, Window: cfg.Window,
		Reasons: make([]string, 0, len(policy.Reasons())+1),
	}
	c.Reasons = append(c.Reasons, policy.ReasonNone.String())
	for _, r := range policy.Reasons() {
		c.Reasons = append(c.Reasons, r.String())
	}
	rps := 0.0
	for i := range cfg.Tables.Models {
		m := &cfg.Tables.Models[i]
		c.Models = append(c.Models, report.Model{Name: m.Name, Class: m.Class, SLO: m.SLO, Share: m.Percentile})
		rps = max(rps, m.RPS)
	}
	if counted := c.Duration - c.Warmup; counted > 0 {
		c.Expect = int(min(1.2*rps*counted.Seconds(), 1<<22))
	}
	return c
}
