package sim

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/sim/kernel"
)

// Run simulates one run to its end: after the last arrival everything that is
// under way is served or dropped.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := newMachine(&cfg)
	if err := s.loop(ctx); err != nil {
		return nil, fmt.Errorf("simulating: at %v: %w", s.now, err)
	}
	if err := arrivals.Err(cfg.Source); err != nil {
		return nil, fmt.Errorf("simulating: reading arrivals: %w", err)
	}
	if err := s.finish(); err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	res := &Result{Events: s.events, Dispatched: s.serial, Transfers: s.crossed.summary(), crossed: s.crossed, acc: s.acc}
	if c, ok := policy.As[policy.Prober](cfg.Policy); ok {
		res.Probes = c.Probes()
	}
	if !cfg.NoReport {
		res.Report = s.acc.Build()
		res.dispatching()
	}
	if s.family != nil {
		res.setGears(s.gears)
	}
	return res, nil
}

// item is what an event of the heap carries.
type item struct {
	start  time.Duration
	serial int64 // of the batch; tells an event of an earlier user of its slot
	batch  int32 // slot; request slot, device or tag, by kind
	device int32
	epoch  int32 // of the device
	hop    int16
	up     int32
	down   int32
}

// loop handles events in order until none is left. The events of this instant
// that follow at once from others (a batch starts, a transfer within a node
// ends) wait in two short queues instead of the heap, and so does the one arrival
// that is ahead.
func (s *machine) loop(ctx context.Context) error {
	s.pull()
	for s.fatal == nil {
		if s.events&0xfff == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		var kind policy.EventKind
		var it item
		switch at, k := s.peek(); {
		case s.moved.n > 0 && (at > s.now || k > uint8(policy.TransferFinished) ||
			k == uint8(policy.TransferFinished) && s.moved.front().serial < s.heap.NextSequence()):
			kind, it = policy.TransferFinished, s.moved.pop()
		case s.begun.n > 0 && (at > s.now || k > uint8(policy.BatchStarted)):
			kind, it = policy.BatchStarted, s.begun.pop()
		case s.ahead && k == uint8(policy.Arrival):
			s.now, kind, s.ahead = at, policy.Arrival, false
		case s.heap.Len() > 0:
			at, k, it = s.heap.Pop()
			if s.cfg.Verify && at < s.now {
				return fmt.Errorf("the clock goes back to %v", at)
			}
			s.now, kind = at, policy.EventKind(k)
		default:
			return nil
		}
		s.events++
		s.handle(kind, it)
	}
	return s.fatal
}

// peek is the time and kind of the next event of the heap or of the next arrival,
// or past all others.
func (s *machine) peek() (time.Duration, uint8) {
	at, kind := time.Duration(1<<63-1), uint8(255)
	if s.heap.Len() > 0 {
		at, kind = s.heap.Next()
	}
	if s.ahead && (s.due < at || s.due == at && uint8(policy.Arrival) < kind) {
		return s.due, uint8(policy.Arrival)
	}
	return at, kind
}

// handle brings devices and links up to date with an event, and tells the
// policy.
func (s *machine) handle(kind policy.EventKind, it item) {
	switch kind {
	case policy.BatchFinished:
		s.runFinished(it)
	case policy.TransferFinished:
		s.transferFinished(it)
	case policy.BatchStarted:
		if b := &s.batches[it.batch]; b.live && b.serial == it.serial {
			s.tell(policy.Event{Kind: policy.BatchStarted, Model: b.model, Batch: it.batch, Hop: b.first + it.hop, Device: it.device, Start: it.start})
		}
	case policy.Arrival:
		s.arrive()
	case policy.Timer:
		s.timers[it.batch] = kernel.None
		s.tell(policy.Event{Kind: policy.Timer, Value: int64(it.batch)})
	case policy.WorkerLost:
		s.lose(it.device)
	case policy.WorkerBack:
		s.regain(it.device)
	case policy.NetworkLoaded, policy.NetworkUnloaded:
		s.tell(policy.Event{Kind: kind, Network: it.batch, Device: it.device})
	}
}

// tell gives the policy an event and does what it answers.
func (s *machine) tell(ev policy.Event) {
	s.event = ev
	s.hear()
}

// hear has the policy handle the event that is set; no action sets another.
func (s *machine) hear() {
	s.actions.Reset()
	s.cfg.Policy.Handle(s.now, &s.event, &s.actions)
	for i := range s.actions.List {
		s.act(&s.actions.List[i])
	}
}

// pull takes the next request of the source.
func (s *machine) pull() {
	if !s.cfg.Source.Next(&s.next) {
		return
	}
	if s.cfg.Duration > 0 && s.next.At >= s.cfg.Duration {
		return
	}
	if s.next.Model < 0 || int(s.next.Model) >= len(s.t.Models) {
		s.fail(fmt.Errorf("an arrival at %v names model %d, the plan has %d", s.next.At, s.next.Model, len(s.t.Models)))
		return
	}
	at := s.next.At + s.cfg.Ingress
	if at < s.now {
		s.fail(fmt.Errorf("arrivals are not in order: %v after %v", s.next.At, s.now-s.cfg.Ingress))
		return
	}
	if s.arrivals == 0 {
		s.first = s.next.At
	}
	s.arrivals++
	s.due, s.ahead = at, true
}

// arrive lets the pulled request in.
func (s *machine) arrive() {
	r := &s.next
	slo := r.SLO
	if slo <= 0 {
		slo = s.t.Models[r.Model].SLO
	}
	slot := s.takeRequest()
	s.requests[slot] = request{model: r.Model, state: waiting, arrived: r.At, deadline: r.At + slo, sample: s.sampleOf(), answer: -1, stage: -1}
	s.sampled++
	s.acc.Arrive(r.Model, r.At)
	ev := policy.Event{Kind: policy.Arrival, Model: r.Model, Service: r.Model, Req: slot, Task: slot, Arrived: r.At, Deadline: r.At + slo}
	s.pull()
	s.tell(ev)
}

func (s *machine) reportConfig() report.Config {
	c := report.Config{
		Source: "simulate", Policy: s.cfg.PolicyName, Seed: s.cfg.Seed, Load: s.cfg.Load,
		Warmup: s.cfg.Warmup, Duration: s.cfg.Duration, Window: s.cfg.Window,
		Reasons: make([]string, 0, len(policy.Reasons())+1),
	}
	c.Reasons = append(c.Reasons, policy.ReasonNone.String())
	for _, r := range policy.Reasons() {
		c.Reasons = append(c.Reasons, r.String())
	}
	rps := 0.0
	for i := range s.t.Models {
		c.Models = append(c.Models, report.Model{Name: s.t.Models[i].Name, Class: s.t.Models[i].Class, SLO: s.t.Models[i].SLO})
		rps = max(rps, s.t.Models[i].RPS)
	}
	if counted := c.Duration - c.Warmup; counted > 0 {
		c.Expect = int(min(1.2*rps*counted.Seconds(), 1<<22))
	}
	return c
}
