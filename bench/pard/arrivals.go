package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"inferplan/bench/traces"
	"inferplan/formats/arrivals"
)

// trace is a recording of requests per second.
type trace struct {
	name   string
	counts []float64
}

// seconds says how much of a recording is played.
const seconds = 1200

// readTraces reads 1,200 samples of three recordings (wiki stands for WorldCup98: no trace of Wikipedia is public), then others of them, on which nothing
// was tuned. Those of minutes are played as seconds.
func readTraces(folder string) ([]*trace, error) {
	var list []*trace
	for _, t := range []struct {
		name      string
		recording traces.Recording
		column    string
		first     int
	}{
		{"wiki", traces.WorldCup98, "requests_per_minute", 11280},
		{"tweet", traces.Twitter, "requests_per_second", 573300},
		{"azure", traces.Azure, "f_9c61f960", 2820},
		{"wiki2", traces.WorldCup98, "requests_per_minute", 60000},
		{"tweet2", traces.Twitter, "requests_per_second", 200000},
		{"azure2", traces.Azure, "f_e369a477", 6000},
		{"azure3", traces.Azure, "f_9c61f960", 4260}, // the day after the first
	} {
		series, err := t.recording.Read(folder, t.first, seconds, t.column)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", t.name, err)
		}
		list = append(list, &trace{t.name, series[t.column]})
	}
	return list, nil
}

// rates returns the trace with its largest mean of five seconds at what 64 workers of a pipeline carry.
func (t *trace) rates(p *pipeline) []float64 {
	rates, _ := traces.ScaledToPeak(t.counts, 5, p.capacity(64))
	return rates
}

// poisson is a source with a rate that is constant within every second.
type poisson struct {
	rates []float64
	rng   *rand.Rand
	at    float64 // seconds
}

func newPoisson(rates []float64, seed uint64) *poisson {
	return &poisson{rates: rates, rng: rand.New(rand.NewPCG(seed, 1))}
}

// Next implements arrivals.Source.
func (p *poisson) Next(r *arrivals.Request) bool {
	need := p.rng.ExpFloat64()
	for {
		s := int(p.at)
		if s >= len(p.rates) {
			return false
		}
		if left := p.rates[s] * (float64(s+1) - p.at); left < need {
			need -= left
			p.at = float64(s + 1)
			continue
		}
		p.at += need / p.rates[s]
		*r = arrivals.Request{ArrivedAt: time.Duration(p.at * float64(time.Second))}
		return true
	}
}

// firstSecond returns how many requests come in the first second.
func firstSecond(rates []float64, seed uint64) (n int) {
	source := newPoisson(rates, seed)
	for r := (arrivals.Request{}); source.Next(&r) && r.ArrivedAt < time.Second; n++ {
	}
	return n
}
