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
type RecordedArrivals struct {
	times [][]time.Duration // by model, in nanoseconds from the start of the trace
	span  time.Duration     // length of a round
}

// maxRecorded bounds the requests that RecordArrivals holds.
const maxRecorded = 50_000_000

// RecordArrivals reads the arrivals of a number of models to their end, so that they can be played again at other
// rates. It returns an error for a model number out of range or more than maxRecorded requests.
func RecordArrivals(source arrivals.Source, models int) (*RecordedArrivals, error) {
	recorded := &RecordedArrivals{times: make([][]time.Duration, models)}
	total := 0
	var arrival arrivals.Request
	for source.Next(&arrival) {
		if arrival.Model < 0 || int(arrival.Model) >= models {
			return nil, fmt.Errorf("reading arrivals: a request at %v names model %d of %d", arrival.ArrivedAt, arrival.Model, models)
		}
		total++
		if total > maxRecorded {
			return nil, fmt.Errorf("reading arrivals: more than %d requests", maxRecorded)
		}
		recorded.times[arrival.Model] = append(recorded.times[arrival.Model], arrival.ArrivedAt)
		recorded.span = max(recorded.span, arrival.ArrivedAt)
	}
	if err := arrivals.Err(source); err != nil {
		return nil, fmt.Errorf("reading arrivals: %w", err)
	}
	// Between the last request and the first of the next round lies one mean gap.
	if total > 0 {
		recorded.span += max(recorded.span/time.Duration(total), 1)
	}
	return recorded, nil
}

// Requests returns how many requests of a model the trace has.
func (r *RecordedArrivals) Requests(model int) int { return len(r.times[model]) }

// playModel returns a source that plays a model's recorded requests at a rate (rps), up to a time. Run 0 begins where
// the trace does; other runs begin at a random request, drawn from the stream "recorded/" + name of the seed. If there
// are no recorded requests, or the rate is not above 0, the source is empty.
func (r *RecordedArrivals) playModel(model int32, rps float64, until time.Duration, run int, seed uint64, name string) arrivals.Source {
	times := r.times[model]
	if len(times) == 0 || !(rps > 0) {
		return &tracePlayer{}
	}
	player := &tracePlayer{times: times, model: model, endsAt: until, round: float64(r.span)}

	// The recording plays its requests in span seconds; at the wanted rate they take len(times)/rps seconds.
	player.stretch = float64(len(times)) / rps / r.span.Seconds()

	// Begin at a random request: roundStart puts it at time 0.
	if run > 0 {
		player.nextIndex = seeded.New(seed, "recorded/"+name).IntN(len(times))
		player.roundStart = -float64(times[player.nextIndex])
	}
	return player
}

// tracePlayer plays the recorded requests of a model.
type tracePlayer struct {
	times      []time.Duration
	nextIndex  int
	roundStart float64 // nanoseconds of the recording at which this round began
	round      float64 // length of a round in nanoseconds of the recording
	stretch    float64 // factor on the recorded times
	endsAt     time.Duration
	model      int32
}

// Next sets arrival to the next recorded arrival of the model. At the end of the recorded times it starts another round
// of them. Times of the recording, to which those of earlier rounds are added (roundStart), are multiplied by stretch,
// so that the requests come at the rate that is played. It returns false if there are no times, or if the next arrival
// is at endsAt or later. It implements arrivals.Source.
func (p *tracePlayer) Next(arrival *arrivals.Request) bool {
	if len(p.times) == 0 {
		return false
	}
	arrivesAt := (p.roundStart + float64(p.times[p.nextIndex])) * p.stretch
	if arrivesAt >= float64(p.endsAt) {
		return false
	}
	*arrival = arrivals.Request{ArrivedAt: time.Duration(arrivesAt), Model: p.model}
	p.nextIndex++
	if p.nextIndex == len(p.times) {
		p.nextIndex = 0
		p.roundStart += p.round
	}
	return true
}
