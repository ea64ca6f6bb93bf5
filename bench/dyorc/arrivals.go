package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/csvfile"
	"inferplan/formats/seeded"
	"inferplan/testkit/workflows"
)

// The part of the trace that is played: two hours of its second day.
const (
	traceFile   = "traces/azure_functions_2019_permin_10f_days01_09.csv.gz"
	traceDay    = 2
	firstMinute = 600
	minutes     = 120
)

// trace has the requests per minute of each function.
type trace [][]float64

// readTrace reads the minutes that are played.
func readTrace(folder string) (_ trace, err error) {
	f, err := csvfile.Open(filepath.Join(folder, traceFile))
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	var out trace
	for range tab.Header[2:] {
		out = append(out, nil)
	}
	for {
		if err := tab.Next(); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		day, minute := number(tab.Row[0]), int(number(tab.Row[1]))
		if day != traceDay || minute < firstMinute || minute >= firstMinute+minutes {
			continue
		}
		for i := range out {
			out[i] = append(out[i], number(tab.Row[i+2]))
		}
	}
	if len(out) == 0 || len(out[0]) != minutes {
		return nil, fmt.Errorf("reading %s: expected the minutes %d to %d of day %d", f.Name, firstMinute, firstMinute+minutes-1, traceDay)
	}
	return out, nil
}

func number(text string) float64 {
	v, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return v
}

// series are the requests per minute of an application of several, with a mean of
// one: the functions go to the applications in turn.
func (t trace) series(app, apps int) []float64 {
	sum := make([]float64, minutes)
	total := 0.0
	for i := app; i < len(t); i += apps {
		for m, v := range t[i] {
			sum[m] += v
			total += v
		}
	}
	for m := range sum {
		sum[m] *= minutes / total
	}
	return sum
}

// rates are the requests per second of the applications; shift doubles the first
// and halves the others from the middle on.
type rates struct {
	rps   [3]float64
	shift bool
}

// requests draws the arrivals: Poisson within each minute, each application from a
// stream of its own.
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
