package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"

	"inferplan/bench/traces"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/sim"
)

// process is a kind of arrivals by name. All of them draw a run's requests from
// its seed alone and stretch them with the load: common random numbers.
type process struct {
	name string
	spec *formats.Arrivals // of a process in the simulator; nil if arrivals are from a trace
	// counts are those of the columns of a trace, which go to models in turn. A step of time is played in a second, as a Poisson process
	// whose rate is scaled so that its mean over the run is the one asked for.
	counts [][]float64
}

var poisson = process{name: "poisson", spec: &formats.Arrivals{Process: "poisson"}}

// gamma is of gaps with a coefficient of variation.
func gamma(cv float64) process {
	return process{name: fmt.Sprintf("gamma:%g", cv), spec: &formats.Arrivals{Process: "gamma", CV: cv}}
}

// azureMinutes are counts per minute of functions.
func (b *bench) azureMinutes() (process, error) {
	series, err := traces.Azure.Read(b.Data, 0, 0)
	out := process{name: "azure-minutes"}
	for _, function := range slices.Sorted(maps.Keys(series)) {
		out.counts = append(out.counts, series[function])
	}
	return out, err
}

// twitter are counts per second, which all models have. The recording lacks some minutes of every day.
func (b *bench) twitter() (process, error) {
	series, err := traces.Twitter.Read(b.Data, 0, 0)
	out := process{name: "twitter"}
	for _, counts := range series {
		out.counts = append(out.counts, slices.DeleteFunc(counts, func(count float64) bool { return count == 0 }))
	}
	return out, err
}

// config makes the configuration of one run of a scenario.
func (p *process) config(sc *sim.Scenario, run int) (sim.Config, error) {
	if p.spec != nil {
		return sc.Config(run)
	}
	once := *sc
	once.Seed = seeded.Seed(sc.Seed, fmt.Sprintf("run/%d", run))
	sources := make([]arrivals.Source, len(sc.Tables.Models))
	for m := range sources {
		rng := seeded.New(once.Seed, "arrivals/"+sc.Tables.Models[m].Name)
		sources[m] = ofModel{p.source(rng, m, len(sources), sc.Rates[m]*sc.Load, sc.Duration), int32(m)}
	}
	return once.Replay(arrivals.Merge(sources...))
}

// source returns the arrivals of model m of n at a rate: a window of its counts that has any.
func (p *process) source(rng *rand.Rand, m, n int, rps float64, until time.Duration) arrivals.Source {
	counts := slices.Clone(p.counts[m%len(p.counts)])
	for i := m + n; i < len(p.counts); i += n {
		floats.Add(counts, p.counts[i])
	}
	seconds := min(len(counts), max(1, int(math.Ceil(until.Seconds()))))
	var window []float64
	for window == nil || floats.Sum(window) == 0 {
		first := rng.IntN(max(1, len(counts)-seconds))
		window = counts[first : first+seconds]
	}
	return arrivals.EndAt(arrivals.PoissonOf(traces.ScaledToMean(window, rps), rng), until)
}

// ofModel gives the requests of a source to a model.
type ofModel struct {
	arrivals.Source
	model int32
}

// Next sets r to the next request.
func (s ofModel) Next(r *arrivals.Request) bool {
	more := s.Source.Next(r)
	r.Model = s.model
	return more
}
