package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/formats/document"
)

// row holds the results of the rounds of one load: medians.
type row struct {
	load     float64
	requests int64
	inTime   [3]float64 // promised, replayed, served; likewise below
	p50, p99 [3]float64 // ms
	// Served over promised and over replayed, less 1.
	off50, off99       float64
	replay50, replay99 float64
}

// summary returns the row of a load.
func summary(load float64, rounds []*round) row {
	x := row{load: load}
	of := func(value func(*round) float64) float64 {
		var list []float64
		for _, r := range rounds {
			list = append(list, value(r))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	for i := range 3 {
		x.inTime[i] = of(func(r *round) float64 { return r.reports()[i].Attainment })
		x.p50[i] = of(func(r *round) float64 { return milliseconds(r.reports()[i].Latency.P50US) })
		x.p99[i] = of(func(r *round) float64 { return milliseconds(r.reports()[i].Latency.P99US) })
	}
	relative := func(reference int, latency func(*formats.Report) document.Micros) float64 {
		return of(func(r *round) float64 {
			all := r.reports()
			return float64(latency(all[2]))/float64(latency(all[reference])) - 1
		})
	}
	p50 := func(r *formats.Report) document.Micros { return r.Latency.P50US }
	p99 := func(r *formats.Report) document.Micros { return r.Latency.P99US }
	x.off50, x.off99, x.replay50, x.replay99 = relative(0, p50), relative(0, p99), relative(1, p50), relative(1, p99)
	for _, r := range rounds {
		x.requests += r.served.Requests
	}
	return x
}

// reports returns promised, replayed and served; where nothing was recorded, replayed is as promised.
func (r *round) reports() [3]*formats.Report {
	replayed := r.replayed
	if replayed == nil {
		replayed = r.promised
	}
	return [3]*formats.Report{r.promised, replayed, r.served}
}

func milliseconds(t document.Micros) float64 { return t.D().Seconds() * 1e3 }

const header = "| load | requests | in time: promised, replayed, served | p50 ms | p99 ms | p50, p99 against promised | against replayed |\n|---|---|---|---|---|---|---|\n"

// table returns the rows of a deployment in Markdown.
func (d *deployment) table(rows []row) string {
	var b strings.Builder
	b.WriteString(header)
	three := func(format string, v [3]float64, by float64) string {
		parts := []string{fmt.Sprintf(format, by*v[0]), fmt.Sprintf(format, by*v[1]), fmt.Sprintf(format, by*v[2])}
		if !d.records {
			parts[1] = "-"
		}
		return strings.Join(parts, ", ")
	}
	for _, x := range rows {
		replay := "-"
		if d.records {
			replay = fmt.Sprintf("%+.1f, %+.1f %%", 100*x.replay50, 100*x.replay99)
		}
		fmt.Fprintf(&b, "| %g | %d | %s %% | %s | %s | %+.1f, %+.1f %% | %s |\n", x.load, x.requests, three("%.2f", x.inTime, 100), three("%.4g", x.p50, 1), three("%.4g", x.p99, 1), 100*x.off50, 100*x.off99, replay)
	}
	return b.String()
}

// lowLoad is below which p50 may be off by twice as much.
const lowLoad = 0.5

// figures returns the verdicts on a deployment.
func (d *deployment) figures(rows []row) []figures.Figure {
	var p50, p99, low, inTime float64 = 0, 0, 0, 1
	for _, x := range rows {
		switch {
		case x.load < lowLoad:
			low, p99 = max(low, math.Abs(x.off50)), max(p99, math.Abs(x.off99))
		case x.load <= 1:
			p50, p99 = max(p50, math.Abs(x.off50)), max(p99, math.Abs(x.off99))
		}
		if x.load == 1 {
			inTime = x.inTime[2]
		}
	}
	figure := func(what string, most, v float64) figures.Figure {
		return figures.Figure{Claim: d.kind + ": " + what, Source: "promised against served", Asked: fmt.Sprintf("at most %.3g", most), Measured: v, Holds: figures.If(v <= most)}
	}
	share := figure("requests in time at load 1, served", 0, inTime)
	share.Asked, share.Holds = "at least .99", figures.If(inTime >= .99)
	if d.kind == "gear" {
		share.Asked, share.Holds = "at least .95", figures.If(inTime >= .95)
	}
	return []figures.Figure{
		share,
		figure("p50 served against promised, largest relative difference from load .5 to 1", d.p50, p50),
		figure("p50 served against promised, largest relative difference below load .5", 2*d.p50, low),
		figure("p99 served against promised, largest relative difference up to load 1", d.p99, p99),
	}
}
