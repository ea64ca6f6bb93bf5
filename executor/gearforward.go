package executor

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
	"inferplan/policy/gear"
)

// forwards holds how often members forward samples against the plan. Inputs that are
// harder than those that were recorded go on to larger members more often: then the
// plan's devices hold less than its rates. Rates say nothing of that.
//
// Held against each other are the shares of the samples that each member answers, and
// those that the gears in force would have it answer. Windows without answers do not
// count.
type forwards struct {
	departure
	names    []string   // of the family, without repeats
	member   []int      // by pipeline
	planned  [][]shares // by gear
	plan     *formats.Plan
	counted  [][]int64 // by gear and pipeline, until the last window
	expected []float64 // by member, faded
	reached  [2][]float64
	passed   [2][]float64 // samples forwarded: planned and seen, by member, faded
	metrics  forwardMetrics
}

// shares are of a member in a gear: of the samples that come to it, and that it answers.
type shares struct {
	member            int
	reached, answered float64
}

type forwardMetrics struct {
	departureMetrics
	planned, seen []prometheus.Gauge // by member
}

func newForwards(plan *formats.Plan, t *gear.Tables, o *Options, reg prometheus.Registerer) *forwards {
	f := &forwards{plan: plan}
	for _, name := range t.Family {
		at := slices.Index(f.names, name)
		if at < 0 {
			at, f.names = len(f.names), append(f.names, name)
		}
		f.member = append(f.member, at)
	}
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
		f.planned, f.counted = append(f.planned, list), append(f.counted, make([]int64, len(t.Family)))
	}
	n := len(f.names)
	for k := range f.reached {
		f.reached[k], f.passed[k] = make([]float64, n), make([]float64, n)
	}
	f.expected, f.metrics = make([]float64, n), newForwardMetrics(reg, f.names)
	f.departure = newDeparture(make([]float64, n), o.ForwardWindows, o.ForwardLimit, "samples are again forwarded as planned", f.metrics.departureMetrics)
	return f
}

// window takes the answers until now, by the gear under which samples came and the
// pipeline that answered.
func (f *forwards) window(answers [][]int64, log *slog.Logger) {
	n := len(f.names)
	seen, expected := make([]float64, n), make([]float64, n)
	var reached, passed [2][]float64
	for k := range reached {
		reached[k], passed[k] = make([]float64, n), make([]float64, n)
	}
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
	if tail(seen) == 0 {
		return
	}
	fade(f.expected, f.span, expected)
	for k := range reached {
		fade(f.reached[k], f.span, reached[k])
		fade(f.passed[k], f.span, passed[k])
	}
	f.departure.planned = normal(f.expected)
	for m := range f.names {
		f.metrics.planned[m].Set(share(f.passed[0][m], f.reached[0][m]))
		f.metrics.seen[m].Set(share(f.passed[1][m], f.reached[1][m]))
	}
	f.departure.window(seen, f.chance, f.notice, log)
}

func share(part, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return max(0, part/all)
}

// chance bounds what samples like the recorded ones may look like, as of a mix of models.
func (f *forwards) chance() float64 {
	n := tail(f.seen)
	return math.Sqrt(float64(len(f.seen))/n)/2 + math.Sqrt(math.Log(1e4)/(2*n))
}

// notice says what differs and what to do.
func (f *forwards) notice() string {
	seen := normal(f.seen)
	var list []string
	for m, name := range f.names {
		list = append(list, fmt.Sprintf("%s %s (planned %s)", name, strconv.FormatFloat(seen[m], 'f', 3, 64), strconv.FormatFloat(f.departure.planned[m], 'f', 3, 64)))
	}
	files, _ := planInputs(f.plan.Inputs)
	return fmt.Sprintf("samples are not forwarded as planned (%.2f of them answered by other members, limit %.2f): %s; the plan's rates and accuracy are of samples like the recorded ones: record today's with `plan profile --records`, "+
		"type `plan solve --method gear%s%s -o plan.json` in the plan's folder, and send SIGHUP", f.now, f.limit, strings.Join(list, ", "), files, choices(f.plan))
}

func newForwardMetrics(reg prometheus.Registerer, names []string) forwardMetrics {
	planned := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "forward_planned_share", Help: "Share of the samples at a member that the gears in force would have it forward."}, []string{"model"})
	seen := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "forward_share", Help: "Share of the recent samples at a member that it forwarded."}, []string{"model"})
	m := forwardMetrics{departureMetrics: departureMetrics{
		distance: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "forward_drift", Help: "Share of the recent samples that other members answered than planned: total variation, 0 to 1."}),
		drifted:  prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "forward_drifted", Help: "1 while forward_drift is so large that other records and another plan are due."}),
	}}
	for _, name := range names {
		m.planned, m.seen = append(m.planned, planned.WithLabelValues(name)), append(m.seen, seen.WithLabelValues(name))
	}
	reg.MustRegister(planned, seen, m.distance, m.drifted)
	return m
}
