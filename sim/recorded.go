package sim

import (
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// RecordedArrivals holds the arrivals of a trace, to be played at any load. Each model's
// requests are stretched to its rate. They keep their order and relative gaps, and repeat
// from the start when the trace ends.
type Recorded struct {
	at   [][]time.Duration // by model, in nanoseconds from the start of the trace
	span time.Duration     // length of a round
}

// maxRecorded bounds the requests that Record holds.
const maxRecorded = 50_000_000

// RecordArrivals reads the arrivals of a number of models to their end.
func Record(src arrivals.Source, models int) (*Recorded, error) {
	r := &Recorded{at: make([][]time.Duration, models)}
	total := 0
	var q arrivals.Request
	for src.Next(&q) {
		if q.Model < 0 || int(q.Model) >= models {
			return nil, fmt.Errorf("reading arrivals: a request at %v names model %d of %d", q.At, q.Model, models)
		}
		if total++; total > maxRecorded {
			return nil, fmt.Errorf("reading arrivals: more than %d requests", maxRecorded)
		}
		r.at[q.Model] = append(r.at[q.Model], q.At)
		r.span = max(r.span, q.At)
	}
	if err := arrivals.Err(src); err != nil {
		return nil, fmt.Errorf("reading arrivals: %w", err)
	}
	// Between the last request and the first of the next round lies one mean gap.
	if total > 0 {
		r.span += max(r.span/time.Duration(total), 1)
	}
	return r, nil
}

// Requests returns how many requests of a model were recorded.
func (r *Recorded) Requests(model int) int { return len(r.at[model]) }

// source plays a model's requests at a rate. Run 0 begins where the trace does, other runs at
// a random place in it.
func (r *Recorded) source(model int32, rps float64, until time.Duration, run int, seed uint64, name string) arrivals.Source {
	at := r.at[model]
	if len(at) == 0 || !(rps > 0) {
		return &played{}
	}
	p := &played{at: at, model: model, until: until, round: float64(r.span)}
	p.stretch = float64(len(at)) / rps / r.span.Seconds()
	if run > 0 {
		p.next = seeded.New(seed, "recorded/"+name).IntN(len(at))
		p.base = -float64(at[p.next])
	}
	return p
}

// tracePlayer plays the recorded requests of a model.
type played struct {
	at      []time.Duration
	next    int
	base    float64 // nanoseconds of the recording at which this round began
	round   float64 // nanoseconds of a round
	stretch float64 // factor on the recorded times
	until   time.Duration
	model   int32
}

func (p *played) Next(r *arrivals.Request) bool {
	if len(p.at) == 0 {
		return false
	}
	at := (p.base + float64(p.at[p.next])) * p.stretch
	if at >= float64(p.until) {
		return false
	}
	*r = arrivals.Request{At: time.Duration(at), Model: p.model}
	if p.next++; p.next == len(p.at) {
		p.next = 0
		p.base += p.round
	}
	return true
}
