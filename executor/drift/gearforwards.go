package drift

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/formats"
)

// ForwardDrift watches how often the members of a cascade forward samples. Inputs that are harder than the recorded
// ones are forwarded to larger members more often, so the plan's devices sustain less than its rates. The request
// rates do not show that.
//
// It compares the shares of samples that each member answers with those that it would answer under the gears in
// force. Windows without answers do not count.
type Forwards struct {
	departure
	names    []string   // of the family, each once
	member   []int      // index of the member, by pipeline
	planned  [][]shares // by gear
	plan     *formats.Plan
	counted  [][]int64             // by gear and pipeline: answers at the last window
	expected []float64             // by member: answers that were planned, faded
	reached  [2][]float64          // samples that came to the member: planned and observed, by member, faded
	passed   [2][]float64          // samples forwarded: planned and observed, by member, faded
	metrics  [2][]prometheus.Gauge // gauges of the shares forwarded: planned and observed, by member
}

// memberShares are the planned shares of a member in a gear: of the samples, those that come to it and those that it
// answers.
type shares struct {
	member            int
	reached, answered float64
}

// NewForwardDrift returns the watch of a gear plan. family names the model of each pipeline.
func NewForwards(plan *formats.Plan, family []string, l Limit, reg prometheus.Registerer) *Forwards {
	f := &Forwards{plan: plan}

	// The members are the different models of the family.
	for _, name := range family {
		at := slices.Index(f.names, name)
		if at < 0 {
			at, f.names = len(f.names), append(f.names, name)
		}
		f.member = append(f.member, at)
	}

	// The planned shares, by gear.
	gears := formats.GearOf(plan).Gears
	for i := range gears {
		var list []shares
		for k, s := range gears[i].Stages {
			on := 0.0
			if k+1 < len(gears[i].Stages) {
				on = gears[i].Stages[k+1].Fraction
			}
			list = append(list, shares{slices.Index(f.names, s.Model), s.Fraction, s.Fraction - on})
		}
		f.planned, f.counted = append(f.planned, list), append(f.counted, make([]int64, len(family)))
	}
	n := len(f.names)
	for k := range f.reached {
		f.reached[k], f.passed[k] = make([]float64, n), make([]float64, n)
	}
	f.expected = make([]float64, n)

	// The series.
	distance := prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "forward_drift", Help: "Share of the recent samples that other members answered than planned: total variation, 0 to 1."})
	drifted := prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "forward_drifted", Help: "1 while forward_drift is so large that other records and another plan are due."})
	shares := [2]*prometheus.GaugeVec{
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "forward_planned_share", Help: "Share of the samples at a member that the gears in force would have it forward."}, []string{"model"}),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "forward_share", Help: "Share of the recent samples at a member that it forwarded."}, []string{"model"}),
	}
	for k, vec := range shares {
		for _, name := range f.names {
			f.metrics[k] = append(f.metrics[k], vec.WithLabelValues(name))
		}
	}
	reg.MustRegister(shares[0], shares[1], distance, drifted)
	f.departure = newDeparture(make([]float64, n), l, true, Alarm{Gauge: drifted, Back: "samples are again forwarded as planned"}, distance)
	return f
}

// Window takes the number of answers until now, by the gear that was in force when the sample came and by the
// pipeline that answered.
func (f *Forwards) Window(answers [][]int64, log *slog.Logger) {
	n := len(f.names)
	seen, expected := make([]float64, n), make([]float64, n)
	var reached, passed [2][]float64
	for k := range reached {
		reached[k], passed[k] = make([]float64, n), make([]float64, n)
	}

	// Count the answers of this window, and what was planned for so many samples.
	for g, list := range f.planned {
		by, all := make([]float64, n), 0.0
		for p, count := range answers[g] {
			by[f.member[p]] += float64(count - f.counted[g][p])
			all += float64(count - f.counted[g][p])
			f.counted[g][p] = count
		}
		left := all
		for _, s := range list {
			expected[s.member] += all * s.answered
			seen[s.member] += by[s.member]
			reached[0][s.member] += all * s.reached
			passed[0][s.member] += all * (s.reached - s.answered)
			reached[1][s.member] += left
			left -= by[s.member]
			passed[1][s.member] += left
		}
	}
	if sum(seen) == 0 {
		return
	}

	// Add the window to the faded sums.
	f.fade(f.expected, expected)
	for k := range reached {
		f.fade(f.reached[k], reached[k])
		f.fade(f.passed[k], passed[k])
	}
	f.departure.planned = normal(f.expected)
	for k, gauges := range f.metrics {
		for m, gauge := range gauges {
			gauge.Set(share(f.passed[k][m], f.reached[k][m]))
		}
	}
	f.add(seen, f.notice, log)
}

// fraction returns part/total, or 0 if total is 0.
func share(part, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return max(0, part/all)
}

// Report adds a warning to the report of a server that has ended, if another plan is due.
func (f *Forwards) Report(out *formats.Report) {
	if f.on {
		out.Warnings = append(out.Warnings, f.notice())
	}
}

// notice returns what differs and what to do.
func (f *Forwards) notice() string {
	seen := normal(f.seen)
	var list []string
	for m, name := range f.names {
		list = append(list, fmt.Sprintf("%s %s (planned %s)", name, strconv.FormatFloat(seen[m], 'f', 3, 64), strconv.FormatFloat(f.departure.planned[m], 'f', 3, 64)))
	}
	files, _ := Inputs(f.plan.Inputs)
	return fmt.Sprintf("samples are not forwarded as planned (%.2f of them answered by other members, limit %.2f): %s; the plan's rates and accuracy are of samples like the recorded ones: record today's with `plan profile --records`, "+
		"type `plan solve --method gear%s%s -o plan.json` in the plan's folder, and send SIGHUP", f.variation(), f.limit.Distance, strings.Join(list, ", "), files, choices(f.plan))
}
