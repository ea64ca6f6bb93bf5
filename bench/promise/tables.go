package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/bench/instrument"
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
	median := func(value func(all [3]*formats.Report) float64) float64 {
		var list []float64
		for _, r := range rounds {
			list = append(list, value([3]*formats.Report{r.promised, r.replayed, r.served}))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	p50 := func(r *formats.Report) document.Micros { return r.Latency.P50US }
	p99 := func(r *formats.Report) document.Micros { return r.Latency.P99US }
	for i := range 3 {
		x.inTime[i] = median(func(all [3]*formats.Report) float64 { return all[i].Attainment })
		x.p50[i] = median(func(all [3]*formats.Report) float64 { return p50(all[i]).D().Seconds() * 1e3 })
		x.p99[i] = median(func(all [3]*formats.Report) float64 { return p99(all[i]).D().Seconds() * 1e3 })
	}
	relative := func(reference int, latency func(*formats.Report) document.Micros) float64 {
		return median(func(all [3]*formats.Report) float64 {
			return float64(latency(all[2]))/float64(latency(all[reference])) - 1
		})
	}
	x.off50, x.off99, x.replay50, x.replay99 = relative(0, p50), relative(0, p99), relative(1, p50), relative(1, p99)
	for _, r := range rounds {
		x.requests += r.served.Requests
	}
	return x
}

// add adds the row of a load to the deployment's table.
func (d *deployment) add(t *instrument.Table, x *row) {
	three := func(format string, v [3]float64, factor float64) string {
		parts := []string{fmt.Sprintf(format, factor*v[0]), fmt.Sprintf(format, factor*v[1]), fmt.Sprintf(format, factor*v[2])}
		if !d.records {
			parts[1] = "-"
		}
		return strings.Join(parts, ", ")
	}
	replay := "-"
	if d.records {
		replay = fmt.Sprintf("%+.1f, %+.1f %%", 100*x.replay50, 100*x.replay99)
	}
	t.Add(x.load, x.requests, three("%.2f", x.inTime, 100)+" %", three("%.4g", x.p50, 1), three("%.4g", x.p99, 1), fmt.Sprintf("%+.1f, %+.1f %%", 100*x.off50, 100*x.off99), replay)
}

// lowLoad is below which p50 may be off by twice as much.
const lowLoad = 0.5

// figures states the verdicts on a deployment.
func (d *deployment) figures(r *instrument.Run, rows []row) {
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
	const source = "promised against served"
	r.AtLeast(d.kind+": requests in time at load 1, served", source, d.inTime, "", inTime)
	r.AtMost(d.kind+": p50 served against promised, largest relative difference from load .5 to 1", source, d.p50, "", p50)
	r.AtMost(d.kind+": p50 served against promised, largest relative difference below load .5", source, 2*d.p50, "", low)
	r.AtMost(d.kind+": p99 served against promised, largest relative difference up to load 1", source, d.p99, "", p99)
}
