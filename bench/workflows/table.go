package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
)

// quantile of latencies in ms.
func quantile(list []time.Duration, q float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	list = slices.Sorted(slices.Values(list))
	return float64(list[min(int(q*float64(len(list))), len(list)-1)]) / 1e6
}

// sums are the results of a run.
type sums struct {
	requests, failed     int
	lines, exact, spaces int
	loads                int
	latencies            []time.Duration
}

func (r *served) sums() (s sums) {
	for _, a := range r.counted() {
		s.requests++
		if a.err != nil {
			s.failed++
			continue
		}
		s.lines, s.exact, s.spaces = s.lines+a.lines, s.exact+a.exact, s.spaces+a.spaces
		s.latencies = append(s.latencies, a.took)
	}
	for _, l := range r.service.Loads {
		s.loads += len(l)
	}
	return s
}

// row is a run in words.
func (r *served) row() string {
	s := r.sums()
	var out strings.Builder
	fmt.Fprintf(&out, "%g requests/s: %d requests, %d not answered; %d lines, %d read exactly, %d but for spaces; %d loads (%d simulated); batches", r.rate, s.requests, s.failed, s.lines, s.exact, s.spaces, s.loads, r.simLoads)
	for i, name := range r.models {
		fmt.Fprintf(&out, " %s %.2f", name, r.batch(i))
	}
	fmt.Fprintf(&out, "; p50 %.0f ms (simulated %.0f, %+.1f %%), p99 %.0f ms (%.0f, %+.1f %%); load of the machine %s\n",
		quantile(s.latencies, .5), quantile(r.virtual, .5), 100*r.off(&s, .5), quantile(s.latencies, .99), quantile(r.virtual, .99), 100*r.off(&s, .99), r.busy)
	for _, a := range r.counted() {
		if a.err != nil {
			fmt.Fprintf(&out, "  not answered: %v\n", a.err)
			break
		}
	}
	return out.String()
}

// batch is the mean batch of a model, whose only stage has the same number.
func (r *served) batch(model int) float64 {
	batches, tasks := 0, 0
	for i, runs := range r.service.Runs[model] {
		batches, tasks = batches+len(runs), tasks+(i+1)*len(runs)
	}
	return float64(tasks) / float64(max(1, batches))
}

// off is how far the simulated quantile is from the served one, as a share of that.
func (r *served) off(s *sums, q float64) float64 {
	return quantile(r.virtual, q)/quantile(s.latencies, q) - 1
}

// put prints the figures, and puts them into a file where one is named.
func put(o *options, runs []*served) error {
	var list []figures.Figure
	add := func(claim, asked string, measured float64, unit string, holds bool, note string) {
		f := figures.Figure{Claim: claim, Source: "own", Asked: asked, Measured: measured, Unit: unit, Note: note}
		if asked != figures.AskedShown {
			f.Holds = figures.If(holds)
		}
		list = append(list, f)
	}
	least, failed := 1., 0
	var lost []string
	for _, r := range runs {
		s := r.sums()
		least, failed = min(least, float64(s.exact)/float64(max(1, s.lines))), failed+s.failed
		lost = append(lost, fmt.Sprintf("%g requests/s: %d of %d lines lack spaces alone", r.rate, s.spaces, s.lines))
	}
	add("pages of text read by a workflow of three models: lines that are read exactly, least run", "at least 0.95", least, "share", least >= .95, strings.Join(lost, ", "))
	add("the same: requests that were not answered, models swapped in memory that holds two of three", "0", float64(failed), "", failed == 0, "")
	for i, r := range runs {
		s, at := r.sums(), fmt.Sprintf("the same at %g requests/s: ", r.rate)
		busy := "load average at the end " + r.busy
		add(at+"loads", fmt.Sprint("above ", len(r.models)), float64(s.loads), "", s.loads > len(r.models), busy)
		for k, name := range r.models {
			if i == len(runs)-1 {
				add(at+"mean batch of "+name, "above 1", r.batch(k), "tasks", r.batch(k) > 1, busy)
			}
		}
		for _, q := range []struct {
			name     string
			q, asked float64
		}{{"p50", .5, .1}, {"p99", .99, .15}} {
			off := r.off(&s, q.q)
			add(at+q.name, "shown", quantile(s.latencies, q.q), "ms", true, busy)
			add(at+q.name+" simulated with the recorded times, relative difference", fmt.Sprintf("within %g", q.asked), off, "share", math.Abs(off) <= q.asked, busy)
		}
	}
	fmt.Println(figures.Table(list))
	if o.figures == "" {
		return nil
	}
	return figures.Put(o.figures, o.command, list...)
}
