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

// loop is a run of the simulator: arrivals, the policy and its timers, requests and tasks, and the order of all
// events. Hosts execute the batches.
type loop struct {
	agenda   agenda
	ledger   ledger
	batches  batchTable
	ctx      context.Context
	cfg      *Config
	tables   *policy.Tables
	trace    *chromeTrace
	events   int64 // number of agenda entries handled so far
	fatalErr error

	nextArrival    arrivals.Request // taken from the source, not yet arrived
	frontEnd       frontEnd
	pulledArrivals int64         // number of arrivals so far
	firstArrivalAt time.Duration // arrival time of the first request
	cutAt          time.Duration // when cfg.Cut ended the arrivals, or 0

	hosts        []host
	baseHost     *deviceHost // the first of the hosts
	hostByDevice []uint8     // index into hosts, by device
	flow         *flowEnding // nil if a request has one task
	ending       endingRule
	truth        Truth // nil if the run has none
	searcher     policy.Searcher
	searches     []policySearch
	timers       []kernel.Handle // by tag of the policy: its timer on the agenda, or kernel.NoEvent

	currentEntry agendaEntry // the agenda entry that is being handled

	// bits of the kinds of events that the policy does not handle, and is not told
	ignoredKinds uint32
	event        policy.Event
	actions      policy.Actions
}

// Run simulates one run to its end: after the last arrival everything that is under way is served or dropped. It
// returns an error if the configuration, the policy or the arrivals are wrong, or ctx is cancelled. If cfg.Cut ends
// before anything was counted, it returns the error of that context.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	newRun := newLoop(ctx, &cfg)
	if err := newRun.run(); err != nil {
		return nil, fmt.Errorf("simulating: at %v: %w", newRun.agenda.now, err)
	}
	if err := arrivals.Err(cfg.Source); err != nil {
		return nil, fmt.Errorf("simulating: reading arrivals: %w", err)
	}
	if err := newRun.closeRun(); err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return newRun.buildResult(), nil
}

// newLoop prepares a run: its hosts (which simulate devices and instances), the rule by which requests end, and the
// faults on its agenda. The run gets the shares that clients have of the models' capacity, and the truth (what only
// reality knows of a request) if it is configured. Some policies leave searches to the run; searcher is such a policy,
// or nil. Events of kinds that the policy does not handle are left out.
func newLoop(ctx context.Context, cfg *Config) *loop {
	tables := cfg.Tables
	run := &loop{ctx: ctx, cfg: cfg, tables: tables, truth: cfg.Truth}
	run.frontEnd = newFrontEnd(cfg)
	run.ledger.reportCounts = report.New(reportConfig(cfg))
	run.ledger.shares = fair.New(tables)
	run.batches.init(tables)
	run.ledger.init()
	if cfg.ChromeTrace != nil {
		run.trace = newChromeTrace(cfg.ChromeTrace, tables)
	}
	if cfg.ChromeTrace != nil || cfg.OnEnded != nil {
		run.ledger.ended = run.noteEnd
	}
	if tables.HandledEvents != 0 {
		// HandledEvents has a bit for each kind of event that the policy handles; 0 means all.
		run.ignoredKinds = ^tables.HandledEvents
	}
	run.searcher, _ = policy.FindExtension[policy.Searcher](cfg.Policy)

	// The hosts, and the ending of requests.
	run.addHosts()
	run.ending = endingOf(run)

	// Schedule the faults.
	for faultIndex, fault := range cfg.Faults {
		kind, entryKind := policy.WorkerLost, deviceLostEntry
		if fault.ComesBack {
			kind, entryKind = policy.WorkerBack, deviceBackEntry
		}
		run.agenda.schedule(fault.At, kind, int64(faultIndex), agendaEntry{kind: entryKind, device: fault.Device})
	}
	return run
}

// addHosts adds the hosts (the parts that simulate the execution of batches): number 0 for devices that run stages
// and, if the plan has instances (servers of language models), number 1 for those. hostByDevice says which host a
// device belongs to.
func (l *loop) addHosts() {
	l.hostByDevice = make([]uint8, len(l.tables.Devices))
	l.baseHost = newDeviceHost(l)
	l.hosts = append(l.hosts, l.baseHost)

	// Add the host of instances, if there are any.
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

	// Devices with an instance belong to it.
	for deviceIndex := range l.hostByDevice {
		if l.tables.InstanceOf(int32(deviceIndex)) >= 0 {
			l.hostByDevice[deviceIndex] = instanceHost
		}
	}
}

// cutArrivals ends the arrivals before the one that would come next, as a Duration up to it does. If no arrival is
// left, it changes nothing. If no request was counted until then, it returns the error of the context that ended.
func (l *loop) cutArrivals() error {
	if !l.agenda.arrivalPending {
		return nil
	}
	cutAt := l.nextArrival.ArrivedAt
	if l.pulledArrivals < 2 || cutAt <= l.cfg.Warmup {
		return l.cfg.Cut.Err()
	}
	l.agenda.arrivalPending = false
	l.cutAt, l.cfg.Duration = cutAt, cutAt
	l.ledger.reportCounts.EndAt(cutAt)
	return nil
}

// run handles the entries of the agenda in order until none is left or an error ends the run. Every 256 entries it
// looks whether ctx was cancelled.
func (l *loop) run() error {
	l.pullArrival()
	for l.fatalErr == nil {
		if l.events&0xff == 0 { // an event of thousands of devices takes a millisecond
			if err := l.ctx.Err(); err != nil {
				return err
			}
			if l.cfg.Cut != nil && l.cutAt == 0 && l.cfg.Cut.Err() != nil {
				if err := l.cutArrivals(); err != nil {
					return err
				}
			}
		}
		previous := l.agenda.now
		if !l.agenda.popNext(&l.currentEntry) {
			return nil
		}
		if l.agenda.now < previous && l.cfg.Verify {
			return fmt.Errorf("the clock goes back to %v", l.agenda.now)
		}
		l.events++
		l.processEntry(&l.currentEntry)
	}
	return l.fatalErr
}

// processEntry handles an entry of the agenda that is due: kinds from firstHostKind on go to the host that made the
// entry, the others (arrivals, timers, faults, ends of searches) are handled here.
func (l *loop) processEntry(entry *agendaEntry) {
	if entry.kind >= firstHostKind {
		if entry.host == stageHost {
			l.baseHost.handleEntry(entry) // the usual case without a call through the table
		} else {
			l.hosts[entry.host].handleEntry(entry)
		}
		return
	}

	// The loop's own kinds.
	switch entry.kind {
	case arrivalEntry:
		l.admitArrival()
	case timerEntry:
		l.timers[entry.tag()] = kernel.NoEvent
		ev := l.beginEvent(policy.Timer)
		ev.Value = int64(entry.tag())
		l.tellPolicy()
	case deviceLostEntry:
		l.hosts[l.hostByDevice[entry.device]].setDeviceUp(entry.device, false)
	case deviceBackEntry:
		l.hosts[l.hostByDevice[entry.device]].setDeviceUp(entry.device, true)
	case searchDoneEntry:
		l.tellSearchResult(entry)
	}
}

// beginEvent clears the event that tellPolicy will pass to the policy, and sets its kind. The caller fills in the
// rest. No other event may be begun before tellPolicy.
func (l *loop) beginEvent(kind policy.EventKind) *policy.Event {
	l.event = policy.Event{}
	l.event.Kind = kind
	return &l.event
}

// beginBatchEvent begins an event for the policy about the batch in a slot on a device. The caller fills in the rest
// and calls tellPolicy.
func (l *loop) beginBatchEvent(kind policy.EventKind, batchSlot, device int32) *policy.Event {
	ev, batch := l.beginEvent(kind), l.batches.at(batchSlot)
	ev.Model, ev.Service, ev.Batch, ev.Device = batch.model, batch.service, batchSlot, device
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

// failRun ends the run with an error, after the present agenda entry. Only the first error is kept.
func (l *loop) failRun(err error) {
	if l.fatalErr == nil {
		l.fatalErr = err
	}
}

// pullArrival takes the next request from the source and puts its arrival at the policy on the agenda: after Ingress
// and, if the run has a front end, after that has handled the requests before. Only one arrival is on the agenda at a
// time. Requests from Duration on are not taken. It writes the request into l.nextArrival. An unknown model, or an
// arrival before the present time, ends the run with an error; arrivals are named in it by their time at the client,
// which is earlier by Ingress.
func (l *loop) pullArrival() {
	arrival := &l.nextArrival
	if !l.cfg.Source.Next(arrival) {
		return
	}
	if l.cfg.Duration > 0 && arrival.ArrivedAt >= l.cfg.Duration {
		return
	}
	if arrival.Model < 0 || int(arrival.Model) >= len(l.tables.Models) {
		l.failRun(fmt.Errorf("an arrival at %v names model %d, the plan has %d", arrival.ArrivedAt, arrival.Model, len(l.tables.Models)))
		return
	}

	arrivedAt := l.frontEnd.passRequest(l.agenda.now, arrival.ArrivedAt+l.cfg.Ingress)
	if arrivedAt < l.agenda.now {
		l.failRun(fmt.Errorf("arrivals are not in order: %v after %v", arrival.ArrivedAt, l.agenda.now-l.cfg.Ingress))
		return
	}
	if l.pulledArrivals == 0 {
		l.firstArrivalAt = arrival.ArrivedAt
	}
	l.pulledArrivals++
	l.agenda.arrivalAt, l.agenda.arrivalPending = arrivedAt, true
}

// admitArrival is called when the pulled request arrives at the policy. It drops the request if its client (0 means
// none) has used up its share of the model's capacity; otherwise it enters it into the ledger, tells the policy and, if
// requests have several tasks (loop.flow), reveals the first ones. It also pulls the next request from the source.
// ledger.reportCounts counts what the report shows, and loop.truth notes what really happens to the request.
func (l *loop) admitArrival() {
	arrival := &l.nextArrival

	// A request without an SLO of its own has that of its model.
	slo := arrival.SLO
	if slo <= 0 {
		slo = l.tables.Models[arrival.Model].SLO
	}
	model, arrivedAt, client := arrival.Model, arrival.ArrivedAt, policy.ClientNumber(arrival.Client)
	l.ledger.reportCounts.Arrive(model, arrivedAt)
	if client != 0 && !l.ledger.shares.Admit(l.agenda.now, model, client, 1) {
		l.ledger.reportCounts.Drop(model, arrivedAt, int(policy.ReasonQueueFull))
		if l.cfg.OnEnded != nil && l.ledger.reportCounts.IsCounted(arrivedAt) {
			l.cfg.OnEnded(RequestEnd{model, arrivedAt, l.agenda.now, arrivedAt + slo, policy.ReasonQueueFull.String()})
		}
		l.pullArrival()
		return
	}

	// Enter the request into the ledger. If requests have only one task, enter that, too: it has the slot of the request.
	// Otherwise the statistics of applications, if the run has them, count the request.
	requestSlot := l.ledger.takeRequestSlot()
	prompt, session := arrival.PromptTokens, arrival.Session
	hasWholeSLO := slo >= l.tables.Models[model].SLO // only then may its lateness lower what clients are allowed
	l.ledger.requests[requestSlot] = request{model: model, client: client, state: requestOpen, arrivedAt: arrivedAt, deadline: arrivedAt + slo, wholeSLO: hasWholeSLO}
	l.trace.countOpen(l.agenda.now, model, 1)
	if l.truth != nil {
		l.truth.Arrive(requestSlot, arrival)
	}
	if l.flow == nil {
		l.ledger.tasks.List[requestSlot], l.ledger.locations[requestSlot] = policy.Task{Req: requestSlot, Service: model, State: policy.TaskWaiting}, taskLocation{lastStage: -1}
	} else if l.flow.stats != nil {
		l.flow.stats.addRequest(requestSlot)
	}

	// Pull the next arrival. That overwrites l.nextArrival, of which the event of this one uses copies.
	l.pullArrival()
	ev := l.beginEvent(policy.Arrival)
	ev.Model, ev.Service, ev.Req, ev.Task, ev.ArrivedAt, ev.Deadline = model, model, requestSlot, requestSlot, arrivedAt, arrivedAt+slo
	ev.Tokens, ev.Key, ev.Client = prompt, session, client
	l.tellPolicy()
	if l.flow != nil {
		l.flow.beginRequest(requestSlot, model)
	}
}

// noteEnd puts the end of a request into the trace, and tells OnEnded of it if the report counts the request. reason is
// empty if the request was answered.
func (l *loop) noteEnd(request *request, endedAt time.Duration, reason string) {
	l.trace.countOpen(endedAt, request.model, -1)
	if l.cfg.OnEnded != nil && l.ledger.reportCounts.IsCounted(request.arrivedAt) {
		l.cfg.OnEnded(RequestEnd{request.model, request.arrivedAt, endedAt, request.deadline, reason})
	}
}

// reportConfig returns the configuration of the run's report. Expect is for how many requests memory is set aside:
// 1.2 times what the highest rate of a model gives, so that a random excess fits, and at most 2^22.
func reportConfig(cfg *Config) report.Config {
	config := report.Config{
		Source: "simulate", Policy: cfg.PolicyName, Seed: cfg.Seed, Load: cfg.Load,
		Warmup: cfg.Warmup, Duration: cfg.Duration, Window: cfg.Window,
		Reasons: make([]string, 0, len(policy.DropReasons())+1),
	}
	config.Reasons = append(config.Reasons, policy.ReasonNone.String())
	for _, r := range policy.DropReasons() {
		config.Reasons = append(config.Reasons, r.String())
	}
	rps := 0.0
	for i := range cfg.Tables.Models {
		model := &cfg.Tables.Models[i]
		config.Models = append(config.Models, report.Model{Name: model.Name, Class: model.Class, SLO: model.SLO, Share: model.Percentile})
		rps = max(rps, model.RPS)
	}
	if countedTime := config.Duration - config.Warmup; countedTime > 0 {
		config.Expect = int(min(1.2*rps*countedTime.Seconds(), 1<<22))
	}
	return config
}
