package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/conform"
)

// seen holds the figures of a run from its event log.
type seen struct {
	order    []int // requests, by their number in the trace, as they ended
	swaps    int   // models that took another's place
	inTime   int
	services []service
	loads    []time.Duration
	unloads  []time.Duration
}

// service is the run of a request that was not disturbed.
type service struct {
	request int
	took    time.Duration
}

// attained is the share in time, in percent.
func (s *seen) attained() float64 { return 100 * float64(s.inTime) / float64(len(s.order)) }

// request is one that has come. What is stored side by side may reach the policy in
// another order than it came, so requests are told apart by when they came.
type request struct{ arrived, deadline time.Duration }

// reader reads a log.
type reader struct {
	seen
	came     []time.Duration
	ended    []time.Duration   // when the requests came, as they ended
	requests map[int32]request // by slot
	batches  map[int32]int32   // the request's slot
	started  map[int32]time.Duration
	loaded   int32
}

// readLog reads an event log of a plan with one instance that begins with network 0.
func readLog(path string) (*seen, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := conform.OpenLog(f)
	if err != nil {
		return nil, err
	}
	r := &reader{requests: map[int32]request{}, batches: map[int32]int32{}, started: map[int32]time.Duration{}}
	var acts policy.Actions
	for {
		c, err := l.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(r.came)
			for i, at := range r.ended {
				n, _ := slices.BinarySearch(r.came, at)
				r.order, r.services[i].request = append(r.order, n), n
			}
			return &r.seen, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.event(&c.Event)
		acts.List, acts.Hops, acts.Tasks = acts.List[:0], acts.Hops[:0], acts.Tasks[:0]
		if err := policy.DecodeActions(c.Actions, &acts); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i := range acts.List {
			if a := &acts.List[i]; a.Kind == policy.Dispatch {
				r.batches[a.Batch] = acts.Tasks[a.TaskFirst]
			}
		}
	}
}

func (r *reader) event(ev *policy.Event) {
	switch ev.Kind {
	case policy.Arrival:
		r.requests[ev.Req] = request{ev.ArrivedAt, ev.Deadline}
		r.came = append(r.came, ev.ArrivedAt)
	case policy.BatchStarted:
		r.started[ev.Batch] = ev.Start
	case policy.BatchFinished:
		q := r.requests[r.batches[ev.Batch]]
		r.ended = append(r.ended, q.arrived)
		if ev.End <= q.deadline {
			r.inTime++
		}
		r.services = append(r.services, service{took: ev.End - r.started[ev.Batch]})
	case policy.NetworkUnloaded:
		if ev.Value == 0 {
			r.unloads = append(r.unloads, ev.End-ev.Start)
		}
	case policy.NetworkLoaded:
		if ev.Value == 0 {
			r.loads = append(r.loads, ev.End-ev.Start)
			if ev.Network != r.loaded {
				r.swaps++
			}
			r.loaded = ev.Network
		}
	}
}
