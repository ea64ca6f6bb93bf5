package main

import (
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/sim"
)

// spans notes how long requests take behind each module, and how long before their deadlines
// they end.
type spans struct {
	policy.Policy
	pipe    *pipeline
	arrived []time.Duration                   // by request slot
	reveals map[time.Duration][]time.Duration // of open requests, by arrival: by module
	seconds []span                            // by arrival
}

// span is the sum over the requests of a second.
type span struct {
	count int64
	after []time.Duration // by module
	slack time.Duration   // left before their deadlines
}

func newSpans(p *pipeline, seconds int) *spans {
	s := &spans{pipe: p, reveals: map[time.Duration][]time.Duration{}, seconds: make([]span, seconds)}
	for i := range s.seconds {
		s.seconds[i].after = make([]time.Duration, len(p.stages))
	}
	return s
}

// Unwrap implements policy.Wrapper.
func (s *spans) Unwrap() policy.Policy { return s.Policy }

// Handle implements policy.Policy.
func (s *spans) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		for int(ev.Req) >= len(s.arrived) {
			s.arrived = append(s.arrived, 0)
		}
		s.arrived[ev.Req] = ev.ArrivedAt
		s.reveals[ev.ArrivedAt] = make([]time.Duration, len(s.pipe.stages))
	case policy.TaskRevealed:
		if reveals := s.reveals[s.arrived[ev.Req]]; reveals != nil {
			reveals[ev.Service] = now
		}
	}
	s.Policy.Handle(now, ev, out)
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.Drop {
			delete(s.reveals, s.arrived[a.Req])
		}
	}
}

// completed takes in an answer. Of requests that came at the same instant only one counts.
func (s *spans) completed(arrived, answered time.Duration) {
	x, reveals := &s.seconds[arrived/time.Second], s.reveals[arrived]
	if reveals == nil {
		return
	}
	x.count++
	x.slack += s.pipe.slo - (answered - arrived)
	for k := range s.pipe.stages {
		first := answered
		for i := range s.pipe.stages {
			if slices.Contains(s.pipe.stages[i].after, s.pipe.stages[k].name) {
				first = min(first, reveals[i])
			}
		}
		x.after[k] += answered - first
	}
	delete(s.reveals, arrived)
}

// means returns the mean time behind each module, and the mean time left before deadlines, over the
// requests of the seconds in which not all were answered in time.
func (s *spans) means(f *sim.FlowResult) (after []time.Duration, slack time.Duration) {
	after = make([]time.Duration, len(s.pipe.stages))
	count := int64(0)
	for i := range s.seconds {
		if i >= len(f.Seconds) || f.Seconds[i].Good == f.Seconds[i].Arrived {
			continue
		}
		x := &s.seconds[i]
		count, slack = count+x.count, slack+x.slack
		for k := range after {
			after[k] += x.after[k]
		}
	}
	for k := range after {
		after[k] /= time.Duration(max(1, count))
	}
	return after, slack / time.Duration(max(1, count))
}
