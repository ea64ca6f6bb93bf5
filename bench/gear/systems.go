package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/policy"
)

// stream names arrivals: even, or Poisson with a seed.
type stream uint64

const even stream = 0

// evenAlone are the streams of methods that are judged on even arrivals.
var evenAlone = []stream{even}

// fivePoisson are the Poisson streams beside the even one.
var fivePoisson = poisson(5)

// String returns the name of the stream in keys of results.
func (s stream) String() string {
	if s == even {
		return "even"
	}
	return fmt.Sprintf("poisson-%d", uint64(s))
}

// source returns the stream's arrivals at the rates of a family.
func (s stream) source(f *published.Family) arrivals.Source {
	if s == even {
		return f.Rates.Even()
	}
	return f.Rates.Poisson(seeded.New(uint64(s), "bench/gear"))
}

// poisson returns the Poisson streams of the seeds 1 to n.
func poisson(n int) []stream {
	streams := make([]stream, n)
	for i := range streams {
		streams[i] = stream(i + 1)
	}
	return streams
}

// place is where a system runs: a family's models on some devices under an SLO.
type place struct {
	f       *published.Family
	devices int
	slo     time.Duration
}

// String returns the place in keys of results.
func (p place) String() string { return fmt.Sprintf("%s/%d/%v", p.f.Name, p.devices, p.slo) }

// ranges of all plans but those of part time.
const ranges = 10

// problem returns the planning problem of the place.
func (p place) problem() (*cascades.Problem, error) {
	return baseline.Problem(p.f, p.devices, ranges, p.slo)
}

// system is a system under measurement. Its tables are only made if a run is not kept yet; several goroutines may ask for them.
type system struct {
	place
	name   string
	tables func() (*policy.Tables, error)
}

// fixed returns a system whose tables are there.
func fixed(p place, name string, t *policy.Tables) *system {
	return &system{p, name, func() (*policy.Tables, error) { return t, nil }}
}

// run measures the system on a stream, once.
func (s *system) run(r *instrument.Run, arrivals stream, variant string, w baseline.Watch) (*baseline.Run, error) {
	return instrument.Measured(r, fmt.Sprintf("%s/%s/%v%s", s.place, s.name, arrivals, variant), func() (*baseline.Run, error) {
		t, err := s.tables()
		if err != nil {
			return nil, err
		}
		run, err := baseline.Execute(r.Ctx, t, arrivals.source(s.f), w)
		if errors.Is(err, baseline.ErrLate) {
			return nil, nil
		}
		return run, err
	})
}

// tryRun returns the system's run on a stream. It ends a run as soon as its p95 is sure to be above the SLO, and then returns nil.
func (s *system) tryRun(r *instrument.Run, arrivals stream) (*baseline.Run, error) {
	// A twentieth of the requests, and four sigma of what a Poisson stream may bring more.
	total := s.f.Rates.Total()
	return s.run(r, arrivals, "", baseline.Watch{GiveUp: int(.05*(total+4*math.Sqrt(total))) + 1})
}

// inTime returns the system's run on a stream, or nil if its p95 is above the SLO.
func (s *system) inTime(r *instrument.Run, arrivals stream) (*baseline.Run, error) {
	run, err := s.tryRun(r, arrivals)
	if err != nil || run == nil || run.P95 > s.slo {
		return nil, err
	}
	return run, nil
}

// allInTime returns the system's runs on streams, or nil if it is late on one of them, after which no other is tried.
func (s *system) allInTime(r *instrument.Run, streams []stream) ([]*baseline.Run, error) {
	var runs []*baseline.Run
	for _, arrivals := range streams {
		run, err := s.inTime(r, arrivals)
		if err != nil || run == nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// runAll returns the system's whole runs on streams, in their order, whether they are in time or not.
func (s *system) runAll(r *instrument.Run, streams []stream) ([]*baseline.Run, error) {
	runs := make([]*baseline.Run, len(streams))
	err := r.ForEach(len(streams), func(_ context.Context, i int) (err error) {
		if runs[i], err = s.tryRun(r, streams[i]); err == nil && runs[i] == nil {
			runs[i], err = s.run(r, streams[i], "/whole", baseline.Watch{})
		}
		return err
	})
	return runs, err
}

// pooled returns mean accuracies and the largest p95 of runs.
func pooled(runs []*baseline.Run) *baseline.Run {
	all := &baseline.Run{}
	for _, run := range runs {
		all.Accuracy += run.Accuracy / float64(len(runs))
		all.Expected += run.Expected / float64(len(runs))
		all.P95 = max(all.P95, run.P95)
	}
	return all
}

// meanOf writes the mean of values with half of its 95 % interval.
func meanOf(values []float64, decimals int) string {
	mean, interval := instrument.Mean(values)
	half := math.NaN()
	if interval != nil {
		half = interval[1] - mean
	}
	return fmt.Sprintf("%.*f ± %.*f", decimals, mean, decimals, half)
}

// digits writes an accuracy.
func digits(accuracy float64) string { return fmt.Sprintf("%.4f", accuracy) }

// ms returns milliseconds.
func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// wholeMS writes whole milliseconds.
func wholeMS(d time.Duration) string { return fmt.Sprintf("%.0f", ms(d)) }
