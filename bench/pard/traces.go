package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"inferplan/formats/arrivals"
)

// trace is a rate per second, scaled for each pipeline.
type trace struct {
	name  string
	rates []float64
}

const seconds = 1200

// readTraces reads 1,200 samples of three public traces (wiki stands for WorldCup98:
// no trace of Wikipedia is public), then others of them, on which nothing was
// tuned. Those of minutes are played as seconds.
func readTraces(dir string) ([]*trace, error) {
	var out []*trace
	var failed error
	for _, t := range []struct {
		name, file, column string
		first              int
	}{
		{"wiki", "worldcup98_permin_part1.csv.gz", "requests_per_minute", 11280},
		{"tweet", "twitter_2021_08_persec_days01_15.csv.gz", "requests_per_second", 573300},
		{"azure", "azure_functions_2019_permin_10f_days01_09.csv.gz", "f_9c61f960", 2820},
		{"wiki2", "worldcup98_permin_part1.csv.gz", "requests_per_minute", 60000},
		{"tweet2", "twitter_2021_08_persec_days01_15.csv.gz", "requests_per_second", 200000},
		{"azure2", "azure_functions_2019_permin_10f_days01_09.csv.gz", "f_e369a477", 6000},
		{"azure3", "azure_functions_2019_permin_10f_days01_09.csv.gz", "f_9c61f960", 4260}, // the day after the first
	} {
		tr, row := &trace{name: t.name}, 0
		err := readRows(filepath.Join(dir, "traces", t.file), func(cell func(string) string) error {
			if row++; row <= t.first || row > t.first+seconds {
				return nil
			}
			x, err := strconv.ParseFloat(cell(t.column), 64)
			tr.rates = append(tr.rates, x)
			return err
		})
		if err == nil && len(tr.rates) < seconds {
			err = fmt.Errorf("%s has %d of %d samples", t.file, len(tr.rates), seconds)
		}
		failed = errors.Join(failed, err)
		out = append(out, tr)
	}
	return out, failed
}

// scaled is the trace with its largest mean of 5 seconds at a rate, and the
// factor that makes it so.
func (t *trace) scaled(rate float64) ([]float64, float64) {
	most := 0.0
	for i := 0; i+5 <= len(t.rates); i++ {
		sum := 0.0
		for _, x := range t.rates[i : i+5] {
			sum += x
		}
		most = max(most, sum/5)
	}
	f, out := rate/most, make([]float64, len(t.rates))
	for i, x := range t.rates {
		out[i] = f * x
	}
	return out, f
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

// firstSecond is how many requests come in the first second.
func firstSecond(rates []float64, seed uint64) int {
	src, n := newPoisson(rates, seed), 0
	for r := (arrivals.Request{}); src.Next(&r) && r.ArrivedAt < time.Second; n++ {
	}
	return n
}
