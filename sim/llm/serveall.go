package llm

import (
	"fmt"
	"math"
	"time"
)

// Request is a request for an instance that serves nothing else.
type Request struct {
	ArrivedAt time.Duration // not earlier than the request before
	Prompt    int32
	Output    int32
	Priority  int32
	Session   int64
}

// Outcome holds when a request was served.
type Outcome struct {
	FirstIteration time.Duration // begin of its first iteration
	FirstToken     time.Duration // first token
	LastToken      time.Duration // last token
}

// TPOT returns the time per token after the first, for an answer of `output` tokens; 0 if it has only one.
func (o Outcome) TPOT(output int32) time.Duration {
	if output < 2 {
		return 0
	}
	return (o.LastToken - o.FirstToken) / time.Duration(output-1)
}

// ServeAll serves requests, which are in order of arrival, on one instance (a simulated server of a language model)
// until it is empty, and returns when each began, had its first token and ended. If all requests arrive at 0, they are a
// queue that is drained: an estimator of waiting and completion times is calibrated on their starts and ends. It returns
// an error for a request that the instance could never serve.
func ServeAll(options Options, model Model, requests []Request) ([]Outcome, Counts, error) {
	instance := NewInstance(options, model)
	outcomes := make([]Outcome, len(requests))
	if len(requests) > math.MaxInt32 {
		return nil, Counts{}, fmt.Errorf("%d requests: expected at most %d", len(requests), math.MaxInt32)
	}
	now, nextRequest := time.Duration(0), 0
	add := func() error {
		request := &requests[nextRequest]
		err := instance.Add(Sequence{ID: int32(nextRequest), Prompt: request.Prompt, Output: request.Output, Priority: request.Priority, Session: request.Session})
		if err != nil {
			return fmt.Errorf("request %d: %w", nextRequest, err)
		}
		nextRequest++
		return nil
	}
	for {
		// Add the requests that have arrived.
		for nextRequest < len(requests) && requests[nextRequest].ArrivedAt <= now {
			if err := add(); err != nil {
				return nil, Counts{}, err
			}
		}

		// Run an iteration. If there is nothing to do, go to the next arrival.
		duration, began, ok := instance.Begin()
		if !ok {
			if nextRequest == len(requests) {
				return outcomes, instance.Counts(), nil
			}
			now = requests[nextRequest].ArrivedAt
			continue
		}

		// Note the times.
		for _, id := range began {
			outcomes[id].FirstIteration = now
		}
		now += duration
		ended := instance.End()
		for _, id := range ended.First {
			outcomes[id].FirstToken = now
		}
		for _, id := range ended.Finished {
			outcomes[id].LastToken = now
		}
	}
}
