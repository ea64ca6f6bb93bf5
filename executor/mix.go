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
// Windows without requests do not count. Older ones fade, so that what counts
// is about the last MixWindows of them.
type mix struct {
	limit   float64
	windows float64
	names   []string
	planned []float64 // share of the requests by model
	rps     []float64 // planned
	inputs  []formats.Input
	metrics *mixMetrics

	seen    []float64 // requests by model, faded
	took    float64   // seconds, faded
	weight  float64   // windows, faded
	counted []int64
	last    time.Duration
	shifted bool
	now     float64
}

// newMix is nil where there is no ratio to hold.
func newMix(plan *formats.Plan, t *policy.Tables, o *Options, reg prometheus.Registerer) *mix {
	total := 0.0
	for i := range t.Models {
		total += max(t.Models[i].RPS, 0)
	}
	if len(t.Models) < 2 || total <= 0 {
		return nil
	}
	m := &mix{
		limit: o.MixLimit, windows: float64(o.MixWindows), inputs: plan.Inputs,
		seen: make([]float64, len(t.Models)), counted: make([]int64, len(t.Models)),
	}
	for i := range t.Models {
		m.names = append(m.names, t.Models[i].Key().String())
		m.rps = append(m.rps, t.Models[i].RPS)
		m.planned = append(m.planned, max(t.Models[i].RPS, 0)/total)
	}
	m.metrics = newMixMetrics(reg, t)
	return m
}

// window takes the numbers of requests that came until now, by model.
func (m *mix) window(now time.Duration, arrived []int64, log *slog.Logger) {
	took, n := (now - m.last).Seconds(), int64(0)
	for i, a := range arrived {
		n += a - m.counted[i]
	}
	m.last = now
	if n == 0 || took <= 0 {
		return
	}
	keep := 1 - 1/m.windows
	m.took, m.weight = keep*m.took+took, keep*m.weight+1
	for i, a := range arrived {
		m.seen[i] = keep*m.seen[i] + float64(a-m.counted[i])
		m.counted[i] = a
	}
	m.now = 0
	for i, s := range normal(m.seen) {
		m.now += math.Abs(s-m.planned[i]) / 2
		m.metrics.rates[i].Set(m.seen[i] / m.took)
	}
	m.metrics.distance.Set(m.now)
	switch {
	case !m.shifted && m.weight >= m.windows/2 && m.now > m.limit+m.chance():
		m.shifted = true
		m.metrics.replan.Set(1)
		log.Warn(m.notice())
	case m.shifted && m.now < driftBack*m.limit:
		m.shifted = false
		m.metrics.replan.Set(0)
		log.Info("the mix of models is again the planned one", "distance", round3(m.now))
	}
}

// chance bounds what random arrivals of the planned mix may look like: the
// total variation between n draws and their distribution over k values has a
// mean of at most sqrt(k/n)/2 and exceeds it by sqrt(ln(1/p)/(2n)) with
// probability p at most (McDiarmid); p is one in 10,000.
func (m *mix) chance() float64 {
	n := 0.0
	for _, s := range m.seen {
		n += s
	}
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

// mixMetrics are the series of a plan's mix.
type mixMetrics struct {
	rates            []prometheus.Gauge
	distance, replan prometheus.Gauge
}

func newMixMetrics(reg prometheus.Registerer, t *policy.Tables) *mixMetrics {
	l := labelsOf(t.Models)
	rates := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "arrival_rps", Help: "Recent rate of requests (samples)."}, l.names())
	planned := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "planned_rps", Help: "Rate that the plan promises."}, l.names())
	m := &mixMetrics{
		distance: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "mix_distance", Help: "How far the recent mix of models is from the planned one: total variation, 0 to 1."}),
		replan:   prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "replan_due", Help: "1 while mix_distance is so large that another plan is due; the log tells the command."}),
	}
	for i := range t.Models {
		own := l.values(t.Models[i].Key())
		m.rates = append(m.rates, rates.WithLabelValues(own...))
		planned.WithLabelValues(own...).Set(t.Models[i].RPS)
	}
	reg.MustRegister(rates, planned, m.distance, m.replan)
	return m
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
