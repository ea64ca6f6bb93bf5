package llm

import (
	"fmt"
	"math"
	"time"
)

// Request is a request for an instance that serves nothing else.
type Request struct {
	At       time.Duration // not earlier than the request before
	Prompt   int32
	Output   int32
	Priority int32
	Session  int64
}

// Outcome holds when a request was served.
type Outcome struct {
	Start time.Duration // begin of its first iteration
	First time.Duration // first token
	End   time.Duration // last token
}

// TPOT returns the time per token after the first.
func (o Outcome) TPOT(output int32) time.Duration {
	if output < 2 {
		return 0
	}
	return (o.End - o.First) / time.Duration(output-1)
}

// ServeAll serves requests on an instance until it is empty. If all requests arrive at 0, they
// are a queue that is drained: an estimator of waiting and completion times is calibrated on
// their starts and ends.
func Serve(o Options, m Model, requests []Request) ([]Outcome, Counts, error) {
	in := New(o, m)
	out := make([]Outcome, len(requests))
	if len(requests) > math.MaxInt32 {
		return nil, Counts{}, fmt.Errorf("%d requests: expected at most %d", len(requests), math.MaxInt32)
	}
	now, next := time.Duration(0), 0
	add := func() error {
		r := &requests[next]
		err := in.Add(Sequence{ID: int32(next), Prompt: r.Prompt, Output: r.Output, Priority: r.Priority, Session: r.Session})
		if err != nil {
			return fmt.Errorf("request %d: %w", next, err)
		}
		next++
		return nil
	}
	for {
		// Add the requests that have arrived.
		for next < len(requests) && requests[next].At <= now {
			if err := add(); err != nil {
				return nil, Counts{}, err
			}
		}

		// Run an iteration. If there is nothing to do, go to the next arrival.
		took, began, ok := in.Begin()
		if !ok {
			if next == len(requests) {
				return out, in.Counts(), nil
			}
			now = requests[next].At
			continue
		}

		// Note the times.
		for _, id := range began {
			out[id].Start = now
		}
		now += took
		e := in.End()
		for _, id := range e.First {
			out[id].First = now
		}
		for _, id := range e.Finished {
			out[id].End = now
		}
	}
}
