package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/formats/report"
)

// bench holds the flags.
type bench struct {
	rates          []float64
	length, budget time.Duration
}

func main() {
	served.Worker()
	b := &bench{}
	rates := ""
	instrument.Main(&instrument.Instrument{
		Name: "workflows",
		Parts: []instrument.Part{{Name: "pages", Title: "Pages of text, served and simulated", Measure: b.measure,
			Columns: []string{"requests/s", "requests", "lines", "exact", "lack spaces", "loads", "mean batches", "p50 ms", "simulated", "p99 ms", "simulated", "load average"}}},
		Flags: func(f *flag.FlagSet) {
			f.DurationVar(&b.length, "length", time.Minute, "of a run")
			f.DurationVar(&b.budget, "budget", time.Minute, "for measuring the models")
			f.StringVar(&rates, "rps", "2,4,8", "requests per second, a run for each")
		},
		Begin: func(*instrument.Run) error {
			for text := range strings.SplitSeq(rates, ",") {
				rate, err := strconv.ParseFloat(text, 64)
				if err != nil || !(rate > 0) {
					return instrument.Usagef("-rps: found %q, expected rates above 0", text)
				}
				b.rates = append(b.rates, rate)
			}
			return nil
		},
	})
}

// measure serves and simulates a run for each rate.
func (b *bench) measure(r *instrument.Run, t *instrument.Table) error {
	dir, err := os.MkdirTemp("", "bench-workflows-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o, err := newOCR(r.Ctx, dir, b.budget)
	if err != nil {
		return err
	}
	const source = "own"
	state := func(claim, asked string, measured float64, unit string, holds bool, note string) {
		r.Figure(figures.Figure{Claim: claim, Source: source, Asked: asked, Measured: measured, Unit: unit, Holds: figures.If(holds), Note: note})
	}
	least, failed := 1., 0
	var lost []string
	for i, rate := range b.rates {
		x, err := o.serve(r.Ctx, rate, b.length)
		if err != nil {
			return err
		}
		if err := o.replay(r.Ctx, x); err != nil {
			return err
		}
		s := x.sums()
		least, failed = min(least, float64(s.exact)/float64(max(1, s.lines))), failed+s.failed
		lost = append(lost, fmt.Sprintf("%g requests/s: %d of %d lines lack spaces alone", rate, s.spaces, s.lines))
		at, busy := fmt.Sprintf("the same at %g requests/s: ", rate), "load average at the end "+x.busy
		state(at+"loads", fmt.Sprint("above ", len(o.plan.Deployment)), float64(s.loads), "", s.loads > len(o.plan.Deployment), busy)
		var batches []string
		for k := range o.plan.Deployment {
			batch := x.meanBatch(k)
			batches = append(batches, fmt.Sprintf("%.2f", batch))
			if i == len(b.rates)-1 {
				state(at+"mean batch of "+o.plan.Deployment[k].Model, "above 1", batch, "tasks", batch > 1, busy)
			}
		}
		row := []any{rate, s.requests, s.lines, s.exact, s.spaces, s.loads, strings.Join(batches, ", ")}
		for _, q := range []struct {
			name            string
			quantile, asked float64
		}{{"p50", .5, .1}, {"p99", .99, .15}} {
			measured, simulated := quantile(q.quantile, s.latencies), quantile(q.quantile, x.simulated)
			off := simulated/measured - 1
			row = append(row, fmt.Sprintf("%.0f", measured), fmt.Sprintf("%.0f (%+.1f %%)", simulated, 100*off))
			state(at+q.name+" simulated with the recorded times, relative difference", fmt.Sprintf("within %g", q.asked), off, "share", math.Abs(off) <= q.asked, busy)
		}
		t.Add(append(row, x.busy)...)
	}
	state("pages of text read by a workflow of three models: lines that are read exactly, least run", "at least 0.95", least, "share", least >= .95, strings.Join(lost, ", "))
	state("the same: requests that were not answered, models swapped in memory that holds two of three", "exactly 0", float64(failed), "", failed == 0, "")
	return nil
}

// quantile returns a quantile of latencies in ms; it is not a number if there are none.
func quantile(p float64, latencies []time.Duration) float64 {
	if len(latencies) == 0 {
		return math.NaN()
	}
	return report.PercentileReordering(latencies, p).Seconds() * 1e3
}
