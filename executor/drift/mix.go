package drift

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/formats"
	"inferplan/policy"
)

// MixDrift compares the ratio of the load among the models of a plan with the planned one. Devices were divided by
// that ratio, so when it shifts the plan promises throughput to the wrong models (PPipe, §5.1, plans again in this
// case).
//
// Windows without requests do not count.
type Mix struct {
	departure // of the requests among the models
	names     []string
	inputs    []formats.Input
	rates     []prometheus.Gauge // by model
	took      []float64          // duration of the windows, faded; one element
	counted   []int64            // by model: requests until lastWindowEnd
	last      time.Duration
}

// NewMixDrift returns the watch of a plan. If the plan has fewer than two models, or no rates, it returns nil.
func NewMix(plan *formats.Plan, t *policy.Tables, l Limit, reg prometheus.Registerer) *Mix {
	planned, names := make([]float64, len(t.Models)), make([]string, len(t.Models))
	for i := range t.Models {
		planned[i], names[i] = max(t.Models[i].RPS, 0), t.Models[i].Key().String()
	}
	if len(planned) < 2 || sum(planned) <= 0 {
		return nil
	}
	rates, distance, due := newMixMetrics(reg, t)
	return &Mix{
		departure: newDeparture(planned, l, true, Alarm{Gauge: due, Back: "the mix of models is again the planned one"}, distance),
		names:     names, inputs: plan.Inputs, rates: rates, took: make([]float64, 1), counted: make([]int64, len(planned)),
	}
}

// Window takes the number of requests until now, by model.
func (m *Mix) Window(now time.Duration, arrived []int64, log *slog.Logger) {
	took, requests := (now - m.last).Seconds(), make([]float64, len(arrived))
	for i, a := range arrived {
		requests[i] = float64(a - m.counted[i])
	}
	m.last = now
	if sum(requests) == 0 || took <= 0 {
		return
	}
	copy(m.counted, arrived)
	m.fade(m.took, []float64{took})
	m.add(requests, m.notice, log)
	for i, s := range m.seen {
		m.rates[i].Set(s / m.took[0])
	}
}

// notice returns what differs and what to type.
func (m *Mix) notice() string {
	shares := normal(m.seen)
	lines := make([]string, len(m.names))
	for i, name := range m.names {
		lines[i] = fmt.Sprintf("%s %s (planned %s)", name, strconv.FormatFloat(shares[i], 'f', 3, 64), strconv.FormatFloat(m.planned[i], 'f', 3, 64))
	}
	files, workload := Inputs(m.inputs)
	return fmt.Sprintf("the mix of models is not the planned one (%.2f of the requests went to other models than planned, limit %.2f): %s; to re-plan, set the models' weights in %s to these shares, "+
		"type `plan solve%s -o plan.json` in the plan's folder, and send SIGHUP", m.variation(), m.limit.Distance, strings.Join(lines, ", "), workload, files)
}

// newMixMetrics registers the series of the mix: the rates of the models, the distance, and whether another plan is
// due.
func newMixMetrics(reg prometheus.Registerer, t *policy.Tables) (byModel []prometheus.Gauge, distance, due prometheus.Gauge) {
	l := series.LabelsOf(t.Models)
	rates := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "arrival_rps", Help: "Recent rate of requests (samples)."}, l.Names())
	planned := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "planned_rps", Help: "Rate that the plan promises."}, l.Names())
	distance = prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "mix_distance", Help: "How far the recent mix of models is from the planned one: total variation, 0 to 1."})
	due = prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "replan_due", Help: "1 while mix_distance is so large that another plan is due; the log tells the command."})
	for i := range t.Models {
		labels := l.Values(t.Models[i].Key())
		byModel = append(byModel, rates.WithLabelValues(labels...))
		planned.WithLabelValues(labels...).Set(t.Models[i].RPS)
	}
	reg.MustRegister(rates, planned, distance, due)
	return byModel, distance, due
}

// InputFlags returns the flags that name the documents of a plan, for the command that makes it again, and the file
// of the workload.
func Inputs(list []formats.Input) (flags, workload string) {
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
