package baseline

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
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
	P95, P99 time.Duration
	Late     float64 // share above the SLO
	Switches int64
	Windows  []Window `json:",omitempty"`
}

// Window is a part of a run, by time of arrival.
type Window struct {
	From     time.Duration
	Requests int
	// Accuracy is the share of right answers, Expected what the gears that the
	// requests came under have on all samples: the same without the luck of the
	// samples that the window happened to see.
	Accuracy, Expected float64
	P95                time.Duration
	Devices            float64 // in use, where they change
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
		watch = newObserver(pol, t, w.Windows.Step)
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
	out := &Run{Requests: len(all), Accuracy: res.Gears.Accuracy(), Expected: res.Gears.ExpectedAccuracy(gear.TablesOf(t)), Switches: res.Gears.Switches}
	if len(all) == 0 {
		return out, nil
	}
	out.P95, out.P99 = tail(all)
	out.Late = float64(late) / float64(len(all))
	if watch != nil {
		out.Windows = parts.windows(w.Windows.Width, func(w *Window, slice int) {
			w.Accuracy += float64(watch.slices[slice].correct)
			w.Expected += watch.slices[slice].expected
		})
	}
	return out, nil
}

// tail takes the percentiles of latencies: exactly, and without sorting more of
// them than those that are about as long.
func tail(list []time.Duration) (p95, p99 time.Duration) {
	var count [64 << digitBits]int32
	for _, d := range list {
		count[bucket(d)]++
	}
	at := func(share float64) time.Duration {
		rank, below := report.Rank(len(list), share), 0
		for k := range count {
			if n := int(count[k]); below+n < rank {
				below += n
				continue
			}
			var same []time.Duration
			for _, d := range list {
				if bucket(d) == k {
					same = append(same, d)
				}
			}
			slices.Sort(same)
			return same[rank-below-1]
		}
		return 0
	}
	return at(percentile), at(.99)
}

// digitBits are the bits behind the first that tell buckets apart.
const digitBits = 7

// bucket orders latencies by their first bits.
func bucket(d time.Duration) int {
	n := bits.Len64(uint64(d))
	if n <= digitBits {
		return int(d)
	}
	return (n-digitBits)<<digitBits | int(d>>(n-digitBits-1))&(1<<digitBits-1)
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

// windows slide over the slices; accuracies come as sums from fill, slice by
// slice. Windows reach to the end, and none of them is empty.
func (s *slicer) windows(width time.Duration, fill func(w *Window, slice int)) []Window {
	n := int(width / s.step)
	var out []Window
	var list []time.Duration
	for first := 0; first+n <= max(len(s.took), n); first++ {
		w := Window{From: time.Duration(first) * s.step}
		list = list[:0]
		for k := first; k < min(first+n, len(s.took)); k++ {
			list = append(list, s.took[k]...)
			fill(&w, k)
		}
		if w.Requests = len(list); w.Requests == 0 {
			continue
		}
		w.Accuracy /= float64(len(list))
		w.Expected /= float64(len(list))
		slices.Sort(list)
		w.P95 = report.Percentile(list, percentile)
		out = append(out, w)
	}
	return out
}

// observer counts right answers by the slice of their arrival. It follows which
// sample a request carries (they cycle), under which gear it comes, and which
// model answered last.
type observer struct {
	inner     policy.Policy
	t         *policy.Tables
	step      time.Duration
	arrived   int64
	gear      int32
	accuracy  []float64 // by gear, over all samples
	requests  []observed
	pipelines []int32 // of the batch on each device
	slices    []slice
}

type observed struct {
	sample, pipeline int32
	slice            int
}

type slice struct {
	correct  int
	expected float64
}

func newObserver(inner policy.Policy, t *policy.Tables, step time.Duration) *observer {
	o := &observer{inner: inner, t: t, step: step, pipelines: make([]int32, len(t.Devices))}
	o.accuracy = gear.TablesOf(t).GearAccuracies()
	return o
}

func (o *observer) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		for int(ev.Req) >= len(o.requests) {
			o.requests = append(o.requests, observed{})
		}
		k := int(ev.ArrivedAt / o.step)
		for len(o.slices) <= k {
			o.slices = append(o.slices, slice{})
		}
		o.slices[k].expected += o.accuracy[o.gear]
		o.requests[ev.Req] = observed{sample: int32(o.arrived % int64(gear.TablesOf(o.t).Records.Samples)), slice: k}
		o.arrived++
	case policy.ControlRevealed:
		o.requests[ev.Req].pipeline = o.pipelines[ev.Device]
	}
	o.inner.Handle(now, ev, out)
	for i := range out.List {
		switch a := &out.List[i]; a.Kind {
		case policy.Dispatch:
			o.pipelines[a.Device] = a.Pipeline
		case policy.SwitchMode:
			o.gear = a.Tag
		case policy.Complete:
			if r := &o.requests[a.Req]; gear.TablesOf(o.t).Records.Correct[r.pipeline][r.sample] {
				o.slices[r.slice].correct++
			}
		}
	}
}
