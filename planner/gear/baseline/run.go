package baseline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/sim"
)

// Run is what a system showed on a stream of requests.
type Run struct {
	Requests int
	Accuracy float64
	P95, P99 time.Duration
	Late     float64 // share above the SLO
	Switches int64
	Windows  []Window
}

// Window is a part of a run, by time of arrival.
type Window struct {
	Requests, Correct int
	P95               time.Duration
}

// Execute runs tables on arrivals with the gear policy; window 0: no windows.
func Execute(ctx context.Context, t *policy.Tables, src arrivals.Source, window time.Duration) (*Run, error) {
	pol, err := gear.New(t, gear.DefaultOptions(t))
	if err != nil {
		return nil, err
	}
	o := &observer{inner: pol, t: t, window: window, pipelines: make([]int32, len(t.Devices))}
	var all []time.Duration
	var byWindow [][]time.Duration
	late := 0
	res, err := sim.Run(ctx, sim.Config{Tables: t, Policy: o, Source: src, NoReport: true, Completed: func(arrived, answered time.Duration) {
		took := answered - arrived
		all = append(all, took)
		if took > t.Models[0].SLO {
			late++
		}
		if window > 0 {
			w := int(arrived / window)
			for len(byWindow) <= w {
				byWindow = append(byWindow, nil)
			}
			byWindow[w] = append(byWindow[w], took)
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("running a system: %w", err)
	}
	slices.Sort(all)
	out := &Run{Requests: len(all), Accuracy: res.Gears.Accuracy(), Switches: res.Gears.Switches}
	if len(all) == 0 {
		return out, nil
	}
	out.P95, out.P99, out.Late = report.Percentile(all, .95), report.Percentile(all, .99), float64(late)/float64(len(all))
	for w, list := range byWindow {
		slices.Sort(list)
		win := Window{Requests: len(list)}
		if w < len(o.correct) {
			win.Correct = o.correct[w]
		}
		if len(list) > 0 {
			win.P95 = report.Percentile(list, .95)
		}
		out.Windows = append(out.Windows, win)
	}
	return out, nil
}

// observer counts right answers by the window of their arrival. It follows which
// sample a request carries (they cycle) and which model answered last.
type observer struct {
	inner     policy.Policy
	t         *policy.Tables
	window    time.Duration
	arrived   int64
	requests  []observed
	pipelines []int32 // of the batch on each device
	correct   []int
}

type observed struct {
	sample, pipeline int32
	window           int
}

func (o *observer) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if o.window > 0 {
		switch ev.Kind {
		case policy.Arrival:
			for int(ev.Req) >= len(o.requests) {
				o.requests = append(o.requests, observed{})
			}
			o.requests[ev.Req] = observed{sample: int32(o.arrived % int64(o.t.Gears.Records.Samples)), window: int(ev.Arrived / o.window)}
			o.arrived++
		case policy.ControlRevealed:
			o.requests[ev.Req].pipeline = o.pipelines[ev.Device]
		}
	}
	o.inner.Handle(now, ev, out)
	if o.window == 0 {
		return
	}
	for i := range out.List {
		switch a := &out.List[i]; a.Kind {
		case policy.Dispatch:
			o.pipelines[a.Device] = a.Pipeline
		case policy.Complete:
			r := &o.requests[a.Req]
			for len(o.correct) <= r.window {
				o.correct = append(o.correct, 0)
			}
			if o.t.Gears.Records.Correct[r.pipeline][r.sample] {
				o.correct[r.window]++
			}
		}
	}
}
