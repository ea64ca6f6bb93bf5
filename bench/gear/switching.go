package main

import (
	"fmt"
	"math"

	"inferplan/bench/figures"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
)

// The most Poisson streams that plans and one cascade are judged on, and about how many requests these come to. Many requests need few
// streams.
const (
	mostPoisson     = 20
	poissonRequests = 3e7
)

// switching holds plans against the best single cascade of the very trace, on the family's trace and on stretches of others. The cascade
// is tuned on the streams that both are judged on: requests that come evenly, and at random instants. Both have to keep the SLO on every
// one of them. Accuracies are those of the gears that requests come under, without the luck of the samples that a stream brings.
func switching(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	if err := switchingOn(r, f, f, "its own", t); err != nil {
		return err
	}
	for i := range published.Stretches {
		stretch := &published.Stretches[i]
		g, err := f.Through(r.Data, stretch, studies[f.Name].seconds)
		if err != nil {
			return err
		}
		if err := switchingOn(r, f, g, stretch.Name, t); err != nil {
			return err
		}
	}
	return nil
}

// switchingOn measures a family on the rates of a trace, with which it is called g.
func switchingOn(r *instrument.Run, f, g *published.Family, trace string, t *instrument.Table) error {
	t.Columns = []string{"workload", "trace", "peak/mean", "devices", "no switching", "points above it, evenly and at random: planner", "all requests", "streams late: planner", "all requests"}

	// Judge plans and the cascade on every number of devices. The even stream is the last.
	random := max(1, min(mostPoisson, int(poissonRequests/g.Rates.Total())))
	streams := append(poisson(random), even)
	peakOverMean := g.Rates.Peak() * g.Rates.Duration().Seconds() / g.Rates.Total()
	var above [][2]float64 // of the plans, evenly and at random instants
	late, all := 0, 0
	for _, devices := range studies[f.Name].switching {
		p := place{g, devices, f.SLO}
		var results [3]*judged
		for i, name := range []string{"planner", "planner, all requests", "no switching"} {
			v, err := methodsByName[name](r, p, streams)
			if err == nil && v != nil {
				results[i], err = judge(r, v.system, streams)
			}
			if err != nil {
				return err
			}
		}
		overRanges, overAll, single := results[0], results[1], results[2]
		cascade := "none in time"
		if single != nil {
			cascade = digits(single.random)
		}
		t.Add(f.Name, trace, fmt.Sprintf("%.2f", peakOverMean), devices, cascade, overRanges.pointsAbove(single), overAll.pointsAbove(single), overRanges.lateStreams(), overAll.lateStreams())
		if overRanges == nil {
			continue
		}
		late, all = late+overRanges.late, all+overRanges.streams
		if single != nil {
			above = append(above, [2]float64{overRanges.even - single.even, overRanges.random - single.random})
		}
	}
	if len(above) == 0 {
		return nil
	}

	// State the least by which the plans are above, and on how many streams they are late.
	least := above[0]
	for _, a := range above {
		least = [2]float64{min(least[0], a[0]), min(least[1], a[1])}
	}
	const source = "no plan is below no switching"
	for i, arrivals := range []string{"", ", requests at random instants"} {
		r.Figure(figures.Figure{Claim: fmt.Sprintf("accuracy of plans of %s above the best single cascade, least, through %s%s", f.Name, trace, arrivals), Source: source,
			Asked: "at least 0", Measured: 100 * least[i], Unit: "points", Holds: figures.If(least[i] > -5e-5), // accuracies are compared to four digits
			Note: fmt.Sprintf("%d numbers of devices, peak over mean %.2f; the cascade keeps the SLO evenly and on %d streams at random instants", len(above), peakOverMean, random)})
	}
	r.AtMost(fmt.Sprintf("streams on which plans of %s are late, through %s", f.Name, trace), source, 5, "%", 100*float64(late)/float64(all)).Note = fmt.Sprintf("%d of %d", late, all)
	return nil
}

// judged holds the results of a system on the streams. It is nil if there is no such system.
type judged struct {
	even, random  float64 // accuracies
	late, streams int     // streams on which the SLO is not kept, and all
}

// judge sums up a system's runs on streams, of which the last is the even one.
func judge(r *instrument.Run, v *system, streams []stream) (*judged, error) {
	runs, err := v.runAll(r, streams)
	if err != nil {
		return nil, err
	}
	last := len(runs) - 1
	j := &judged{even: runs[last].Expected, random: pooled(runs[:last]).Expected, streams: len(runs)}
	for _, run := range runs {
		if run.P95 > v.slo {
			j.late++
		}
	}
	return j, nil
}

// lateStreams writes on how many streams the system is late.
func (j *judged) lateStreams() string {
	if j == nil {
		return "no plan"
	}
	return fmt.Sprintf("%d of %d", j.late, j.streams)
}

// pointsAbove writes how many points of accuracy a plan is above a single cascade, evenly and at random instants.
func (j *judged) pointsAbove(single *judged) string {
	if j == nil || single == nil {
		return ""
	}
	points := func(above float64) float64 { return math.Round(1e4*above)/100 + 0 } // no -0
	return fmt.Sprintf("%.2f, %.2f", points(j.even-single.even), points(j.random-single.random))
}
