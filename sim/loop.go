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
	agenda   agenda
	ledger   ledger
	batches  batchTable
	ctx      context.Context
	cfg      *Config
	tables   *policy.Tables
	trace    *chromeTrace
	events   int64
	fatalErr error

	nextArrival    arrivals.Request // taken from the source, not yet arrived
	frontEndFreeAt time.Duration    // when the front end has taken in all pulled requests
	savedRunTime   time.Duration    // how long runs may still occupy the front end, at runTimeSavedAt
	runTimeSavedAt time.Duration
	pulledArrivals int64         // number of arrivals so far
	firstArrivalAt time.Duration // arrival time of the first request

	hosts        []host
	baseHost     *deviceHost // the first of the hosts
	hostByDevice []uint8     // index into hosts, by device
	flow         *flowEnding // nil if a request has one task
	ending       endingRule
	truth        Truth // nil if the run has none
	searcher     policy.Searcher
	searches     []policySearch
	timers       []kernel.Handle

	current agendaEntry // the agenda entry that is being handled

	// Bits of event kinds that the policy does not hear.
	ignoredKinds uint32
	event        policy.Event
	actions      policy.Actions
}

// Run simulates one run to its end: after the last arrival everything that is under way is served or dropped. It
// returns an error if the configuration, the policy or the arrivals are wrong, or ctx is cancelled.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := newLoop(ctx, &cfg)
	if err := l.run(); err != nil {
		return nil, fmt.Errorf("simulating: at %v: %w", l.agenda.now, err)
	}
	if err := arrivals.Err(cfg.Source); err != nil {
		return nil, fmt.Errorf("simulating: reading arrivals: %w", err)
	}
	if err := l.closeRun(); err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return l.buildResult(), nil
}

// newLoop prepares a run: its hosts (which simulate devices and instances), the rule by which requests end, and the
// faults on its agenda. Events of kinds that the policy does not handle are left out.
func newLoop(ctx context.Context, cfg *Config) *loop {
	t := cfg.Tables
	l := &loop{ctx: ctx, cfg: cfg, tables: t, truth: cfg.Truth}
	l.savedRunTime = time.Duration(cfg.FrontEndRunShare * float64(maxSavedRunTime))
	l.ledger.acc = report.New(reportConfig(cfg))
	l.ledger.shares = fair.New(t)
	l.batches.init(t)
	l.ledger.init()
	if cfg.ChromeTrace != nil {
		l.trace = newChromeTrace(cfg.ChromeTrace, t)
	}
	if t.HandledEvents != 0 {
		l.ignoredKinds = ^t.HandledEvents
	}
	l.searcher, _ = policy.FindExtension[policy.Searcher](cfg.Policy)

	// The hosts, and the ending of requests.
	l.addHosts()
	l.ending = endingOf(l)

	// Schedule the faults.
	for i, f := range cfg.Faults {
		kind, entryKind := policy.WorkerLost, isDeviceLost
		if f.ComesBack {
			kind, entryKind = policy.WorkerBack, isDeviceBack
		}
		l.agenda.schedule(f.At, kind, int64(i), agendaEntry{kind: entryKind, device: f.Device})
	}
	return l
}

// addHosts adds the hosts (the parts that simulate the execution of batches): number 0 for devices that run stages
// and, if the plan has instances (servers of language models), number 1 for those. hostByDevice says which host a
// device belongs to.
func (l *loop) addHosts() {
	l.hostByDevice = make([]uint8, len(l.tables.Devices))
	l.baseHost = newDeviceHost(l)
	l.hosts = append(l.hosts, l.baseHost)
	switch {
	case l.cfg.instances != nil:
		l.hosts = append(l.hosts, l.cfg.instances(l))
	case hasLLMInstances(l.tables):
		if l.truth == nil {
			l.truth = &requestTokens{}
		}
		l.hosts = append(l.hosts, newLLMHost(l))
	case newTestInstanceHost != nil && len(l.tables.Instances) > 0:
		l.hosts = append(l.hosts, newTestInstanceHost(l))
	default:
		return
	}
	for d := range l.hostByDevice {
		if l.tables.InstanceOf(int32(d)) >= 0 {
			l.hostByDevice[d] = 1
		}
	}
}

// run handles the entries of the agenda in order until none is left or an error ends the run. Every 256 events it
// looks whether ctx was cancelled.
func (l *loop) run() error {
	l.pullArrival()
	for l.fatalErr == nil {
		if l.events&0xff == 0 { // an event of thousands of devices takes a millisecond
			if err := l.ctx.Err(); err != nil {
				return err
			}
		}
		previous := l.agenda.now
		if !l.agenda.popNext(&l.current) {
			return nil
		}
		if l.agenda.now < previous && l.cfg.Verify {
			return fmt.Errorf("the clock goes back to %v", l.agenda.now)
		}
		l.events++
		l.processEntry(&l.current)
	}
	return l.fatalErr
}

// processEntry handles an entry of the agenda: kinds from firstHostKind on go to the host that made the entry, the
// others (arrivals, timers, faults, ends of searches) are the loop's own.
func (l *loop) processEntry(entry *agendaEntry) {
	if entry.kind >= firstHostKind {
		if entry.host == 0 {
			l.baseHost.handleEntry(entry) // the usual case without a call through the table
		} else {
			l.hosts[entry.host].handleEntry(entry)
		}
		return
	}

	// The loop's own kinds.
	switch entry.kind {
	case isArrival:
		l.admitArrival()
	case isTimer:
		l.timers[entry.batch] = kernel.NoEvent
		ev := l.beginEvent(policy.Timer)
		ev.Value = int64(entry.batch)
		l.tellPolicy()
	case isDeviceLost:
		l.hosts[l.hostByDevice[entry.device]].setDeviceUp(entry.device, false)
	case isDeviceBack:
		l.hosts[l.hostByDevice[entry.device]].setDeviceUp(entry.device, true)
	case isSearchDone:
		l.tellSearchResult(entry)
	}
}

// beginEvent clears the event for the policy and sets its kind. No other event may be
// begun before tellPolicy.
func (l *loop) beginEvent(kind policy.EventKind) *policy.Event {
	l.event = policy.Event{}
	l.event.Kind = kind
	return &l.event
}

// beginBatchEvent begins an event about a batch on a device.
func (l *loop) beginBatchEvent(kind policy.EventKind, slot, device int32) *policy.Event {
	ev, b := l.beginEvent(kind), l.batches.at(slot)
	ev.Model, ev.Service, ev.Batch, ev.Device = b.model, b.service, slot, device
	return ev
}

// tellPolicy passes the event that was begun to the policy and applies the actions that
// it returns. No action tells another event, so one buffer is enough.
func (l *loop) tellPolicy() {
	if l.ignoredKinds != 0 && l.ignoredKinds>>l.event.Kind&1 != 0 {
		return
	}
	l.actions.Reset()
	l.cfg.Policy.Handle(l.agenda.now, &l.event, &l.actions)
	for i := range l.actions.List {
		l.applyAction(&l.actions.List[i])
	}
}

// failRun stops the run with an error. Only the first one is kept.
func (l *loop) failRun(err error) {
	if l.fatalErr == nil {
		l.fatalErr = err
	}
}

// maxSavedRunTime is for how long the front end saves up the time that runs may occupy it: bursts of a second are
// charged as long as the devices catch up.
const maxSavedRunTime = time.Second

// takeRunTime returns how long the runs of a request that arrives now occupy the front end. All runs together take no
// more than their share of the time: the devices have no more, and a request beyond it waits there or is refused.
func (l *loop) takeRunTime(now time.Duration) time.Duration {
	if l.cfg.FrontEndRuns == 0 {
		return 0
	}
	saved := l.savedRunTime + time.Duration(l.cfg.FrontEndRunShare*float64(now-l.runTimeSavedAt))
	saved = min(saved, time.Duration(l.cfg.FrontEndRunShare*float64(maxSavedRunTime)))
	taken := min(l.cfg.FrontEndRuns, saved)
	l.savedRunTime, l.runTimeSavedAt = saved-taken, now
	return taken
}

// pullArrival takes the next request from the source and puts its arrival at the policy on the agenda: after
// Ingress and, if the run has a front end, after that has handled the requests before. Only one arrival is on the
// agenda at a time. Requests from Duration on are not taken.
func (l *loop) pullArrival() {
	r := &l.nextArrival
	if !l.cfg.Source.Peek(r) {
		return
	}
	if l.cfg.Duration > 0 && r.ArrivedAt >= l.cfg.Duration {
		return
	}
	if r.Model < 0 || int(r.Model) >= len(l.tables.Models) {
		l.failRun(fmt.Errorf("an arrival at %v names model %d, the plan has %d", r.ArrivedAt, r.Model, len(l.tables.Models)))
		return
	}

	// Requests pass the front end one after another.
	arrivedAt := r.ArrivedAt + l.cfg.Ingress
	if l.cfg.FrontEnd+l.cfg.FrontEndRuns > 0 {
		arrivedAt = max(arrivedAt, l.frontEndFreeAt)
		l.frontEndFreeAt = arrivedAt + l.cfg.FrontEnd + l.takeRunTime(arrivedAt)
	}
	if arrivedAt < l.agenda.now {
		l.failRun(fmt.Errorf("arrivals are not in order: %v after %v", r.ArrivedAt, l.agenda.now-l.cfg.Ingress))
		return
	}
	if l.pulledArrivals == 0 {
		l.firstArrivalAt = r.ArrivedAt
	}
	l.pulledArrivals++
	l.agenda.arrivalAt, l.agenda.arrivalPending = arrivedAt, true
}

// admitArrival is called when the pulled request arrives. It drops the request if its client has used up its share;
// otherwise it enters it into the ledger and tells the policy. It also pulls the next request from the source.
func (l *loop) admitArrival() {
	r := &l.nextArrival

	// A request without an SLO of its own has that of its model.
	slo := r.SLO
	if slo <= 0 {
		slo = l.tables.Models[r.Model].SLO
	}
	model, arrivedAt, client := r.Model, r.ArrivedAt, policy.ClientNumber(r.Client)
	l.ledger.acc.Arrive(model, arrivedAt)
	if client != 0 && !l.ledger.shares.Admit(l.agenda.now, model, client, 1) {
		l.ledger.acc.Drop(model, arrivedAt, int(policy.ReasonQueueFull))
		l.pullArrival()
		return
	}

	// Enter the request into the ledger, with its task if it has only one.
	slot := l.ledger.takeRequestSlot()
	prompt, session := r.PromptTokens, r.Session
	l.ledger.requests[slot] = request{model: model, client: client, state: requestOpen, arrivedAt: arrivedAt, deadline: arrivedAt + slo, wholeSLO: slo >= l.tables.Models[model].SLO}
	if l.truth != nil {
		l.truth.Arrive(slot, r)
	}
	if l.flow == nil {
		l.ledger.tasks.List[slot], l.ledger.locations[slot] = policy.Task{Req: slot, Service: model, State: policy.TaskWaiting}, taskLocation{lastStage: -1}
	} else if l.flow.stats != nil {
		l.flow.stats.addRequest(slot)
	}
	l.pullArrival()

	// Pull the next arrival before the policy handles this one.
	ev := l.beginEvent(policy.Arrival)
	ev.Model, ev.Service, ev.Req, ev.Task, ev.ArrivedAt, ev.Deadline = model, model, slot, slot, arrivedAt, arrivedAt+slo
	ev.Tokens, ev.Key, ev.Client = prompt, session, client
	l.tellPolicy()
	if l.flow != nil {
		l.flow.beginRequest(slot, model)
	}
}

// reportConfig returns the configuration of the run's report. Expect is for how many requests memory is set aside:
// 1.2 times what the highest rate of a model gives, so that a random excess fits, and at most 2^22.
func reportConfig(cfg *Config) report.Config {
	c := report.Config{
		Source: "simulate", Policy: cfg.PolicyName, Seed: cfg.Seed, Load: cfg.Load,
		Warmup: cfg.Warmup, Duration: cfg.Duration, Window: cfg.Window,
		Reasons: make([]string, 0, len(policy.DropReasons())+1),
	}
	c.Reasons = append(c.Reasons, policy.ReasonNone.String())
	for _, r := range policy.DropReasons() {
		c.Reasons = append(c.Reasons, r.String())
	}
	rps := 0.0
	for i := range cfg.Tables.Models {
		m := &cfg.Tables.Models[i]
		c.Models = append(c.Models, report.Model{Name: m.Name, Class: m.Class, SLO: m.SLO, Share: m.Percentile})
		rps = max(rps, m.RPS)
	}
	if countedTime := c.Duration - c.Warmup; countedTime > 0 {
		c.Expect = int(min(1.2*rps*countedTime.Seconds(), 1<<22))
	}
	return c
}
