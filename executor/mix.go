package executor

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
	"inferplan/policy"
)

// mix holds the load ratio among the models of a plan against the one that it
// was made for: devices were divided by it, so when it shifts the plan promises
// the wrong model the throughput (PPipe, section 5.1, re-plans then).
//
// Windows without requests do not count.
type mix struct {
	departure // of the requests among the models
	names     []string
	inputs    []formats.Input
	rates     []prometheus.Gauge // by model
	took      []float64          // seconds, faded
	counted   []int64
	last      time.Duration
}

// newMix is nil where there is no ratio to hold.
func newMix(plan *formats.Plan, t *policy.Tables, o *Options, reg prometheus.Registerer) *mix {
	planned, names := make([]float64, len(t.Models)), make([]string, len(t.Models))
	for i := range t.Models {
		planned[i], names[i] = max(t.Models[i].RPS, 0), t.Models[i].Key().String()
	}
	if len(planned) < 2 || tail(planned) <= 0 {
		return nil
	}
	rates, metrics := newMixMetrics(reg, t)
	return &mix{
		departure: newDeparture(planned, o.MixWindows, o.MixLimit, "the mix of models is again the planned one", metrics),
		names:     names, inputs: plan.Inputs, rates: rates, took: make([]float64, 1), counted: make([]int64, len(planned)),
	}
}

// window takes the numbers of requests that came until now, by model.
func (m *mix) window(now time.Duration, arrived []int64, log *slog.Logger) {
	took, add := (now - m.last).Seconds(), make([]float64, len(arrived))
	for i, a := range arrived {
		add[i] = float64(a - m.counted[i])
	}
	m.last = now
	if tail(add) == 0 || took <= 0 {
		return
	}
	copy(m.counted, arrived)
	fade(m.took, m.span, []float64{took})
	m.departure.window(add, m.chance, m.notice, log)
	for i, s := range m.seen {
		m.rates[i].Set(s / m.took[0])
	}
}

// chance bounds what random arrivals of the planned mix may look like: the
// total variation between n draws and their distribution over k values has a
// mean of at most sqrt(k/n)/2 and exceeds it by sqrt(ln(1/p)/(2n)) with
// probability p at most (McDiarmid); p is one in 10,000.
func (m *mix) chance() float64 {
	n := tail(m.seen)
	return math.Sqrt(float64(len(m.seen))/n)/2 + math.Sqrt(math.Log(1e4)/(2*n))
}

// notice says what differs and what to type.
func (m *mix) notice() string {
	shares := normal(m.seen)
	lines := make([]string, len(m.names))
	for i, name := range m.names {
		lines[i] = fmt.Sprintf("%s %s (planned %s)", name, strconv.FormatFloat(shares[i], 'f', 3, 64), strconv.FormatFloat(m.planned[i], 'f', 3, 64))
	}
	files, workload := planInputs(m.inputs)
	return fmt.Sprintf("the mix of models is not the planned one (%.2f of the requests went to other models than planned, limit %.2f): %s; to re-plan, set the models' weights in %s to these shares, "+
		"type `plan solve%s -o plan.json` in the plan's folder, and send SIGHUP", m.now, m.limit, strings.Join(lines, ", "), workload, files)
}

// newMixMetrics makes the series of a plan's mix: the models' rates, the distance
// and whether another plan is due.
func newMixMetrics(reg prometheus.Registerer, t *policy.Tables) (own []prometheus.Gauge, m departureMetrics) {
	l := labelsOf(t.Models)
	rates := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "arrival_rps", Help: "Recent rate of requests (samples)."}, l.names())
	planned := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "planned_rps", Help: "Rate that the plan promises."}, l.names())
	m = departureMetrics{
		distance: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "mix_distance", Help: "How far the recent mix of models is from the planned one: total variation, 0 to 1."}),
		drifted:  prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "replan_due", Help: "1 while mix_distance is so large that another plan is due; the log tells the command."}),
	}
	for i := range t.Models {
		labels := l.values(t.Models[i].Key())
		own = append(own, rates.WithLabelValues(labels...))
		planned.WithLabelValues(labels...).Set(t.Models[i].RPS)
	}
	reg.MustRegister(rates, planned, m.distance, m.drifted)
	return own, m
}

// planInputs is how a plan was made, for the command that makes it anew: the
// flags that name its documents, and the workload's file.
func planInputs(list []formats.Input) (flags, workload string) {
	workload = "the workload"
	for _, in := range list {
		switch in.Role {
		case "profile", "cluster", "workload":
			flags += " --" + in.Role + " " + in.Path
		}
		if in.Role == "workload" {
			workload = in.Path
		}
	}
	return flags, workload
}
