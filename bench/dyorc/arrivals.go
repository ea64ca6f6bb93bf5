package main

import (
	"maps"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"

	"inferplan/bench/traces"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/testkit/workflows"
)

// The part of the trace that is played: two hours of its second day.
const (
	firstMinute = traces.DayMinutes + 600
	minutes     = 120
)

// trace has the requests per minute of each function, in the order of their names.
type trace [][]float64

// readTrace reads the minutes that are played.
func readTrace(folder string) (trace, error) {
	series, err := traces.Azure.Read(folder, firstMinute, minutes)
	var t trace
	for _, name := range slices.Sorted(maps.Keys(series)) {
		t = append(t, series[name])
	}
	return t, err
}

// series returns the requests per minute of an application of several, with a mean of one: the functions go to the applications in turn.
func (t trace) series(app, apps int) []float64 {
	sum := make([]float64, minutes)
	for i := app; i < len(t); i += apps {
		floats.Add(sum, t[i])
	}
	floats.Scale(minutes/floats.Sum(sum), sum)
	return sum
}

// rates are the requests per second of the applications; shift doubles the first and halves the others from the middle on.
type rates struct {
	rps   [3]float64
	shift bool
}

// requests draws the arrivals: Poisson within each minute, each application from a stream of its own.
func (t trace) requests(r rates, length time.Duration, seed uint64) []arrivals.Request {
	apps := 0
	for _, rps := range r.rps {
		if rps > 0 {
			apps++
		}
	}
	var list []arrivals.Request
	for m, rps := range r.rps {
		if rps <= 0 {
			continue
		}
		series := t.series(m, 3)
		if apps == 1 {
			series = t.series(0, 1)
		}
		rng := seeded.New(seed, "arrivals/"+workflows.Names[m])
		for minute, share := range series {
			rate := rps * share
			if r.shift && minute >= minutes/2 {
				if rate /= 2; int32(m) == workflows.GILL {
					rate *= 4
				}
			}
			for at := rng.ExpFloat64() / rate; at < 60; at += rng.ExpFloat64() / rate {
				when := time.Duration((float64(minute)*60 + at) * 1e9)
				if when < length {
					list = append(list, arrivals.Request{ArrivedAt: when, Model: int32(m)})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b arrivals.Request) int { return int(a.ArrivedAt - b.ArrivedAt) })
	return list
}
