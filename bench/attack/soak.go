package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/picture"
	"inferplan/executor/load"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
)

// What was asked of a soak.
const (
	soakLoad  = 0.7
	soakSlope = 1.0 // MiB in ten minutes, of the last half
	soakDrift = 5.0 // percent by which the median latency may grow from the first half to the last
)

// sample is the server at one moment.
type sample struct {
	at                     time.Duration
	rss                    float64 // MiB
	descriptors, goroutine float64
	answers                float64 // since the start, as the server counts
}

// soaking serves for a long time at 70 % of the planned rate, over both protocols, and
// looks at the server all the while.
func (a *attack) soaking(ctx context.Context) ([]figures.Figure, error) {
	plan, err := a.smallPlan(ctx, 2, 50*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	rate, err := promised(plan)
	if err != nil {
		return nil, err
	}
	s, err := a.startServer(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	stop, watched := context.WithCancel(ctx)
	var samples []sample
	done := make(chan struct{})
	go func() {
		defer close(done)
		samples = s.watch(stop, a.soak)
	}()
	var halves [2][]time.Duration
	runs, err := a.bothProtocols(ctx, s, soakLoad*rate, &halves)
	watched()
	<-done
	if err != nil {
		return nil, err
	}
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	series, err := s.scrape()
	if err != nil {
		return nil, err
	}
	counted := sum(series, "inferplan_requests_total", "")
	if code, err := s.stop(); err != nil || code != 0 || s.panics() > 0 {
		return nil, fmt.Errorf("the server ended with code %d, %d panics: %w", code, s.panics(), errors.Join(err, errors.New("expected 0, none")))
	}
	list, err := a.soaked(samples, runs, counted, soakLoad*rate)
	if err != nil {
		return nil, err
	}
	return append(list, drift(a, halves)), nil
}

// drift says how the latency of the last half compares with that of the first.
func drift(a *attack, halves [2][]time.Duration) figures.Figure {
	var p50, p99 [2]float64
	for i, list := range halves {
		slices.Sort(list)
		p50[i], p99[i] = 1e3*report.Percentile(list, .5).Seconds(), 1e3*report.Percentile(list, .99).Seconds()
	}
	grown := 100 * (p50[1]/p50[0] - 1)
	note := fmt.Sprintf("p50 %.2f then %.2f ms, p99 %.2f then %.2f ms", p50[0], p50[1], p99[0], p99[1])
	a.printf("soak: latency of the first half, then of the last: %s\n", note)
	return figures.Figure{Claim: "soak: growth of the median latency from the first half to the last", Source: source, Asked: fmt.Sprintf("below %g", soakDrift), Measured: round(grown), Unit: "%",
		Holds: figures.If(grown < soakDrift), Note: note}
}

// bothProtocols drives the server, half over REST and half over gRPC. It appends the latencies of
// what is answered to those of the half of the soak in which it fell due.
func (a *attack) bothProtocols(ctx context.Context, s *server, rate float64, halves *[2][]time.Duration) ([]*load.Result, error) {
	models := []load.Model{{Name: "m", SLO: 800 * time.Millisecond}, {Name: "words", SLO: 800 * time.Millisecond}}
	out := make([]*load.Result, 2)
	errs := make(chan error, 2)
	var mu sync.Mutex
	ended := func(o load.Outcome) {
		half := 0
		if o.Due >= a.soak/2 {
			half = 1
		}
		if o.Reason == "" {
			mu.Lock()
			halves[half] = append(halves[half], o.Latency)
			mu.Unlock()
		}
	}
	for i, url := range []string{"http://" + s.http, "grpc://" + s.grpc} {
		go func() {
			var err error
			src := arrivals.Merge(arrivals.Poisson(seeded.New(a.seed, "soak m "+url[:4]), 0, rate/4, a.soak), arrivals.Poisson(seeded.New(a.seed, "soak words "+url[:4]), 1, rate/4, a.soak))
			out[i], err = load.Run(ctx, load.Config{URL: url, Models: models, Duration: a.soak, Seed: a.seed, OnOutcome: ended}, src)
			errs <- err
		}()
	}
	return out, errors.Join(<-errs, <-errs)
}

// watch samples the server some six hundred times.
func (s *server) watch(ctx context.Context, length time.Duration) (out []sample) {
	start := time.Now()
	tick := time.NewTicker(max(length/600, 100*time.Millisecond))
	defer tick.Stop()
	for {
		if series, err := s.scrape(); err == nil {
			out = append(out, sample{time.Since(start), float64(s.status("VmRSS")) / (1 << 20), float64(s.descriptors()), series["go_goroutines"], sum(series, "inferplan_requests_total", "")})
		}
		select {
		case <-ctx.Done():
			return out
		case <-tick.C:
		}
	}
}

func (a *attack) soaked(samples []sample, runs []*load.Result, counted, rate float64) ([]figures.Figure, error) {
	if len(samples) < 10 {
		return nil, fmt.Errorf("only %d samples", len(samples))
	}
	var all formats.Counts
	unanswered, errored := int64(0), int64(0)
	for _, r := range runs {
		all.Requests += r.Requests
		all.Completed += r.Completed
		all.Late += r.Late
		unanswered += r.Unanswered
		errored += r.Errors
	}
	apart := counted - float64(all.Requests)
	if apart < 0 {
		apart = -apart
	}
	half := samples[len(samples)/2:]
	slope := slopeOf(half) * (10 * time.Minute).Seconds()
	least, most := half[0].rss, half[0].rss
	for _, x := range half {
		least, most = min(least, x.rss), max(most, x.rss)
	}
	first, last := samples[len(samples)/10], samples[len(samples)-2]
	a.printf("soak %v at %.0f/s: %d requests, %d late, %d errors, %d unanswered, the server counts %.0f; rss %.1f to %.1f MiB in the last half, slope %.2f MiB in 10 min; descriptors %.0f then %.0f, goroutines %.0f then %.0f\n",
		a.soak, rate, all.Requests, all.Late, errored, unanswered, counted, least, most, slope, first.descriptors, last.descriptors, first.goroutine, last.goroutine)
	if a.picture != "" {
		if err := os.WriteFile(a.picture, []byte(drawSoak(samples)), 0o644); err != nil {
			return nil, err
		}
	}
	of := fmt.Sprintf("%v at %.0f requests/s, 70 %% of the planned rate", a.soak, rate)
	return []figures.Figure{
		{Claim: "soak: requests without one answer of their own, or counted otherwise by the server", Source: source, Asked: "none", Measured: float64(unanswered+errored) + apart, Unit: fmt.Sprintf("of %d", all.Requests),
			Holds: figures.If(unanswered+errored == 0 && apart == 0), Note: fmt.Sprintf("%s; attainment %.4f", of, float64(all.Completed-all.Late)/float64(max(all.Requests, 1)))},
		{Claim: "soak: growth of the server's memory in the last half", Source: source, Asked: "below 1", Measured: round(slope), Interval: nil, Unit: "MiB in 10 min", Holds: figures.If(slope < soakSlope),
			Note: fmt.Sprintf("%.1f to %.1f MiB there", least, most)},
		{Claim: "soak: descriptors at its end, less those after a tenth of it", Source: source, Asked: "they follow what is open", Measured: last.descriptors - first.descriptors, Holds: figures.If(last.descriptors <= first.descriptors+50),
			Note: fmt.Sprintf("goroutines %.0f then %.0f", first.goroutine, last.goroutine)},
	}, nil
}

// slopeOf is the growth of the memory in MiB per second: Theil and Sen's median of the
// slopes between pairs, which single peaks do not move.
func slopeOf(list []sample) float64 {
	var slopes []float64
	for i := range list {
		for j := i + 1; j < len(list); j++ {
			slopes = append(slopes, (list[j].rss-list[i].rss)/(list[j].at-list[i].at).Seconds())
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}

// drawSoak draws what was sampled, a panel each.
func drawSoak(samples []sample) string {
	const width, height, left, right = 760, 130, 70, 10
	panels := []struct {
		name string
		of   func(i int) float64
	}{
		{"memory, MiB", func(i int) float64 { return samples[i].rss }},
		{"descriptors", func(i int) float64 { return samples[i].descriptors }},
		{"goroutines", func(i int) float64 { return samples[i].goroutine }},
		{"answers/s", func(i int) float64 {
			from := max(i-10, 0)
			if from == i {
				from, i = 0, 1
			}
			return (samples[i].answers - samples[from].answers) / (samples[i].at - samples[from].at).Seconds()
		}},
	}
	p := picture.New(width, height*len(panels)+40, 12)
	end := samples[len(samples)-1].at
	x := func(at time.Duration) float64 { return left + float64(width-left-right)*float64(at)/float64(end) }
	for k, panel := range panels {
		top, bottom := float64(k*height+25), float64((k+1)*height)
		most := 0.0
		for i := range samples {
			most = max(most, panel.of(i))
		}
		most = max(most*1.1, 1)
		p.Text(left, top-8, `font-weight="bold"`, panel.name)
		for _, mark := range []float64{0, most / 2, most} {
			at := bottom - (bottom-top)*mark/most
			p.Addf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`, left, at, width-right, at)
			p.Text(left-6, at+4, `text-anchor="end"`, fmt.Sprintf("%.0f", mark))
		}
		points := make([][2]float64, len(samples))
		for i := range samples {
			points[i] = [2]float64{x(samples[i].at), bottom - (bottom-top)*panel.of(i)/most}
		}
		p.Curve(picture.Colours[k], 1.2, points)
	}
	for _, part := range []float64{0, .25, .5, .75, 1} {
		at := time.Duration(part * float64(end))
		p.Text(x(at), float64(height*len(panels)+18), `text-anchor="middle"`, fmt.Sprintf("%.3g min", at.Minutes()))
	}
	return p.String()
}
