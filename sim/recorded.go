package sim

import (
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// Recorded are the arrivals of a trace, to be played at any load: each model's
// requests stretched to its rate, in the order and with the relative gaps that
// they were recorded with, round and round.
type Recorded struct {
	at   [][]time.Duration // per model
	span time.Duration
}

// maxRecorded bounds the requests that Record holds.
const maxRecorded = 50_000_000

// Record reads arrivals of that many models to their end.
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
	// As long again as the mean gap lies between the last request and the first
	// of the next round.
	if total > 0 {
		r.span += max(r.span/time.Duration(total), 1)
	}
	return r, nil
}

// Requests is how many requests of a model were recorded.
func (r *Recorded) Requests(model int) int { return len(r.at[model]) }

// source plays a model's requests at a rate. The first run starts where the
// trace does, others anywhere in it.
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

// played is a model's stream.
type played struct {
	at      []time.Duration
	next    int
	base    float64 // ns of the recording at which this round began
	round   float64 // ns of a round
	stretch float64
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
