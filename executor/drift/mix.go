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
type MixDrift struct {
	deviation       shareDrift // of the requests among the models
	names           []string
	inputs          []formats.Input
	rateGauges      []prometheus.Gauge // by model
	recentSeconds   []float64          // duration of the windows, faded; one element
	countedRequests []int64            // by model: requests until the end of the last window
}

// NewMixDrift returns the watch that compares the mix of models (the share of the requests that each has) with that of
// the plan, and registers its series. If the plan has fewer than two models, or no rates, there is no mix, and it
// returns nil.
func NewMixDrift(plan *formats.Plan, t *policy.Tables, l Limit, reg prometheus.Registerer) *MixDrift {
	plannedRates, names := make([]float64, len(t.Models)), make([]string, len(t.Models))
	for i := range t.Models {
		plannedRates[i], names[i] = max(t.Models[i].RPS, 0), t.Models[i].Key().String()
	}
	if len(plannedRates) < 2 || sum(plannedRates) <= 0 {
		return nil
	}
	return &MixDrift{
		deviation: newShareDrift(mixKind, plannedRates, l, reg),
		names:     names, inputs: plan.Inputs, rateGauges: newRateGauges(reg, t), recentSeconds: make([]float64, 1), countedRequests: make([]int64, len(plannedRates)),
	}
}

// Window is called at the end of each window of time (about a second), with the numbers of requests since the start by
// model. It adds the window to sums in which older ones fade, sets the recent rate of each model, and raises the alarm
// if the shares are too far from the plan's. A window without requests is skipped.
func (m *MixDrift) Window(now time.Duration, requestsSoFar []int64, log *slog.Logger) {
	duration, requests := m.deviation.endWindow(now).Seconds(), make([]float64, len(requestsSoFar))
	for i, a := range requestsSoFar {
		requests[i] = float64(a - m.countedRequests[i])
	}
	if sum(requests) == 0 || duration <= 0 {
		return
	}
	copy(m.countedRequests, requestsSoFar)
	m.deviation.addFaded(m.recentSeconds, []float64{duration})
	m.deviation.addWindow(requests, m.notice, log)
	for i, s := range m.deviation.recent {
		m.rateGauges[i].Set(s / m.recentSeconds[0])
	}
}

// notice returns the text of the alarm that requests are spread over the models otherwise than planned: each model's
// recent share of the requests beside the planned one, and the command that makes a new plan.
func (m *MixDrift) notice() string {
	shares := sharesOf(m.deviation.recent)
	lines := make([]string, len(m.names))
	for i, name := range m.names {
		lines[i] = fmt.Sprintf("%s %s (planned %s)", name, strconv.FormatFloat(shares[i], 'f', 3, 64), strconv.FormatFloat(m.deviation.plannedShares[i], 'f', 3, 64))
	}
	files, workload := InputFlags(m.inputs)
	return fmt.Sprintf("the mix of models is not the planned one (%.2f of the requests went to other models than planned, limit %.2f): %s; to re-plan, set the models' weights in %s to these shares, "+
		"type `plan solve%s -o plan.json` in the plan's folder, and send SIGHUP", m.deviation.totalVariation(), m.deviation.limit.Distance, strings.Join(lines, ", "), workload, files)
}

// newRateGauges registers two series by model: the planned rate, which it sets here once, and the recent rate. It
// returns the gauges of the recent rate, in the order of t.Models, for the caller to set. Rates are requests (samples) a
// second.
func newRateGauges(reg prometheus.Registerer, t *policy.Tables) (byModel []prometheus.Gauge) {
	l := series.LabelsOf(t.Models)
	rates := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "arrival_rps", Help: "Recent rate of requests (samples)."}, l.Names())
	plannedGauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "planned_rps", Help: "Rate that the plan promises."}, l.Names())
	for i := range t.Models {
		labels := l.Values(t.Models[i].Key())
		byModel = append(byModel, rates.WithLabelValues(labels...))
		plannedGauge.WithLabelValues(labels...).Set(t.Models[i].RPS)
	}
	reg.MustRegister(rates, plannedGauge)
	return byModel
}

// InputFlags returns the flags of `plan solve` that name a plan's profile, cluster and workload, for an alarm that says
// how to make the plan again, and the path of the workload ("the workload" if the plan names none).
func InputFlags(list []formats.Input) (flags, workload string) {
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
