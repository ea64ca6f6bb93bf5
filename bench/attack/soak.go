package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"inferplan/bench/instrument"
	"inferplan/executor/load"
	"inferplan/formats/report"
	"inferplan/pages/picture"
)

// What was asked of a soak.
const (
	soakLoad  = 0.7
	soakSlope = 1.0 // MiB in ten minutes, of the last half
	soakDrift = 5.0 // percent by which the median latency may grow from the first half to the last
)

// sample is the server at one moment.
type sample struct {
	at                      time.Duration
	memory                  float64 // MiB
	descriptors, goroutines float64
	answers                 float64 // since the start, as the server counts
}

// soaking serves for a long time at 70 % of the planned rate, over both protocols, and
// looks at the server all the while.
func (a *attack) soaking(r *instrument.Run) error {
	path, plan, err := a.smallPlan(r.Ctx, 2, 50*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	rate := soakLoad * promised(plan)
	return a.whileServing(r.Ctx, path, func(s *server) error {
		watching, stop := context.WithCancel(r.Ctx)
		watched := make(chan []sample, 1)
		go func() { watched <- s.watch(watching, a.soak) }()
		var halves [2][]time.Duration
		results, err := a.behave(r.Ctx, []string{"http://" + s.HTTP, "grpc://" + s.GRPC}, rate, a.soak, func(o load.Outcome) {
			half := 0
			if o.Due >= a.soak/2 {
				half = 1
			}
			if o.Reason == "" {
				halves[half] = append(halves[half], o.Latency)
			}
		})
		stop()
		samples := <-watched
		if err != nil {
			return err
		}
		m, err := s.settled(r.Ctx)
		if err != nil {
			return err
		}
		if len(samples) < 10 {
			return fmt.Errorf("only %d samples", len(samples))
		}
		share, requests := attained(results)
		wrong := apart(int(m.sum(requestsTotal)), int(requests))
		for _, x := range results {
			wrong += int(x.Unanswered + x.Errors)
		}
		none(r, "soak: requests without one answer of their own, or counted otherwise by the server", wrong, int(requests),
			"%v at %.0f requests/s, 70 %% of the planned rate; attainment %.4f", a.soak, rate, share/100)
		return a.judgeSoak(r, samples, halves)
	})
}

// watch samples the server some six hundred times.
func (s *server) watch(ctx context.Context, length time.Duration) (samples []sample) {
	start := time.Now()
	tick := time.NewTicker(max(length/600, 100*time.Millisecond))
	defer tick.Stop()
	for {
		if m, err := s.scrape(); err == nil {
			samples = append(samples, sample{time.Since(start), s.memory("VmRSS"), float64(s.descriptors()), m["go_goroutines"], m.sum(requestsTotal)})
		}
		select {
		case <-ctx.Done():
			return samples
		case <-tick.C:
		}
	}
}

// judgeSoak states how memory, descriptors and latency developed, and draws the samples.
func (a *attack) judgeSoak(r *instrument.Run, samples []sample, halves [2][]time.Duration) error {
	last := samples[len(samples)/2:]
	slope := slopeOf(last) * (10 * time.Minute).Seconds()
	least, most := last[0].memory, last[0].memory
	for _, x := range last {
		least, most = min(least, x.memory), max(most, x.memory)
	}
	state(r, "soak: growth of the server's memory in the last half", "below 1", slope, "MiB in 10 min", slope < soakSlope, "%.1f to %.1f MiB there", least, most)
	first, end := samples[len(samples)/10], samples[len(samples)-2]
	state(r, "soak: descriptors at its end, less those after a tenth of it", "they follow what is open", end.descriptors-first.descriptors, "", end.descriptors <= first.descriptors+50,
		"goroutines %.0f then %.0f", first.goroutines, end.goroutines)
	var p50, p99 [2]float64
	for i, list := range halves {
		slices.Sort(list)
		p50[i], p99[i] = 1e3*report.Percentile(list, .5).Seconds(), 1e3*report.Percentile(list, .99).Seconds()
	}
	grown := 100 * (p50[1]/p50[0] - 1)
	state(r, "soak: growth of the median latency from the first half to the last", fmt.Sprintf("below %g", soakDrift), grown, "%", grown < soakDrift,
		"p50 %.2f then %.2f ms, p99 %.2f then %.2f ms", p50[0], p50[1], p99[0], p99[1])
	if a.picture == "" {
		return nil
	}
	drawn, err := drawSoak(samples)
	if err != nil {
		return err
	}
	return os.WriteFile(a.picture, drawn, 0o644)
}

// slopeOf returns the growth of the memory in MiB per second: Theil and Sen's median of the
// slopes between pairs, which single peaks do not move.
func slopeOf(list []sample) float64 {
	var slopes []float64
	for i := range list {
		for j := i + 1; j < len(list); j++ {
			slopes = append(slopes, (list[j].memory-list[i].memory)/(list[j].at-list[i].at).Seconds())
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}

// drawSoak draws what was sampled, a panel each.
func drawSoak(samples []sample) ([]byte, error) {
	var panels []picture.Panel
	for _, p := range []struct {
		title string
		value func(i int) float64
	}{
		{"memory, MiB", func(i int) float64 { return samples[i].memory }},
		{"descriptors", func(i int) float64 { return samples[i].descriptors }},
		{"goroutines", func(i int) float64 { return samples[i].goroutines }},
		{"answers/s", func(i int) float64 { // over ten samples
			from := max(i-10, 0)
			i = max(i, 1)
			return (samples[i].answers - samples[from].answers) / (samples[i].at - samples[from].at).Seconds()
		}},
	} {
		points := make(plotter.XYs, len(samples))
		for i := range samples {
			points[i] = plotter.XY{X: samples[i].at.Minutes(), Y: p.value(i)}
		}
		panels = append(panels, picture.Panel{Title: p.title, FromZero: true, Lines: []picture.Line{{Points: points}}})
	}
	return picture.Panels("minutes", panels)
}
