package baseline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/sim"
)

// Run holds the results of a system on a stream of requests.
type Run struct {
	Requests int
	Accuracy float64
	Expected float64 // the same without the luck of the samples that came
	P95      time.Duration
	Windows  []Window `json:",omitempty"`
}

// Window is a part of a run, by time of arrival.
type Window struct {
	From     time.Duration
	Requests int
	// Expected is the mean accuracy that the gears under which the requests came
	// have on all samples: without the luck of the samples that the window
	// happened to see.
	Expected float64
	P95      time.Duration
}

// Sliding says which windows of a run are wanted: of this width, and how far
// apart they begin. The width is a multiple of the step; zero: none.
type Sliding struct{ Width, Step time.Duration }

// Watch says what is wanted of a run.
type Watch struct {
	Windows Sliding
	// GiveUp ends the run with ErrLate once more requests are late: with a
	// twentieth of all requests its p95 is known to be above the SLO. If it is 0, no run is given up.
	GiveUp int
}

// ErrLate is the end of a run that gives up.
var ErrLate = errors.New("more requests are late than the watch allows")

// Execute runs tables on arrivals with the gear policy.
func Execute(ctx context.Context, t *policy.Tables, src arrivals.Source, w Watch) (*Run, error) {
	pol, err := gear.New(t, gear.OptionsWithoutRefusals(t))
	if err != nil {
		return nil, err
	}
	cfg := sim.Config{Tables: t, Policy: pol, Source: src, NoReport: true}
	var watch *observer
	var parts slicer
	if w.Windows.Step > 0 {
		watch = &observer{inner: pol, step: w.Windows.Step, accuracies: gear.TablesOf(t).GearAccuracies()}
		cfg.Policy, parts.step = watch, w.Windows.Step
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all []time.Duration
	late := 0
	cfg.OnCompleted = func(arrived, answered time.Duration) {
		took := answered - arrived
		all = append(all, took)
		if took > t.Models[0].SLO {
			if late++; w.GiveUp > 0 && late > w.GiveUp {
				cancel(ErrLate)
			}
		}
		if watch != nil {
			parts.add(arrived, took)
		}
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil && errors.Is(context.Cause(ctx), ErrLate) {
		return nil, ErrLate
	}
	if err != nil {
		return nil, fmt.Errorf("running a system: %w", err)
	}
	out := &Run{Requests: len(all), Accuracy: res.Gears.Accuracy(), Expected: res.Gears.ExpectedAccuracy(gear.TablesOf(t))}
	if len(all) == 0 {
		return out, nil
	}
	out.P95 = report.PercentileReordering(all, percentile)
	if watch != nil {
		out.Windows = parts.windows(w.Windows.Width, func(slice int) float64 { return watch.expected[slice] })
	}
	return out, nil
}

// slicer keeps latencies by slices of time.
type slicer struct {
	step time.Duration
	took [][]time.Duration
}

func (s *slicer) add(arrived, took time.Duration) {
	k := int(arrived / s.step)
	for len(s.took) <= k {
		s.took = append(s.took, nil)
	}
	s.took[k] = append(s.took[k], took)
}

// windows slide over the slices; expected returns the sum of the accuracies of a
// slice. Windows reach to the end, and none of them is empty.
func (s *slicer) windows(width time.Duration, expected func(slice int) float64) []Window {
	n := int(width / s.step)
	var out []Window
	var list []time.Duration
	for first := 0; first+n <= max(len(s.took), n); first++ {
		w := Window{From: time.Duration(first) * s.step}
		list = list[:0]
		for k := first; k < min(first+n, len(s.took)); k++ {
			list = append(list, s.took[k]...)
			w.Expected += expected(k)
		}
		if w.Requests = len(list); w.Requests == 0 {
			continue
		}
		w.Expected /= float64(len(list))
		w.P95 = report.PercentileReordering(list, percentile)
		out = append(out, w)
	}
	return out
}

// observer adds up the accuracies of the gears under which requests come, by the
// slice of their arrival.
type observer struct {
	inner      policy.Policy
	step       time.Duration
	gear       int32
	accuracies []float64 // by gear, over all samples
	expected   []float64 // sums by slice
}

func (o *observer) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.Arrival {
		k := int(ev.ArrivedAt / o.step)
		for len(o.expected) <= k {
			o.expected = append(o.expected, 0)
		}
		o.expected[k] += o.accuracies[o.gear]
	}
	o.inner.Handle(now, ev, out)
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.SwitchMode {
			o.gear = a.Tag
		}
	}
}
