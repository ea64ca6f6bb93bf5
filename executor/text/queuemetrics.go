package text

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/report"
)

// queueMetrics are the series of a plan of queues. The histograms have the names and meanings of vLLM's, as seen from
// the front end: they include the time that a request waits for an instance.
type queueMetrics struct {
	c                                      *turn.Core
	ttft, tpot, interToken, e2e, queueTime []prometheus.Observer // by served model
	promptTokens, outputTokens             []prometheus.Counter
	instances                              *prometheus.GaugeVec
	loads, swaps, evictions, returns       *prometheus.CounterVec
	resumedRuns                            prometheus.Counter

	histograms []latencyHistograms // by model and class; belong to the core's turn
	totals     struct{ loads, swaps, evictions int64 }
}

// latencyHistograms are the times of one model and class for the report.
type latencyHistograms struct{ ttft, tpot *hdrhistogram.Histogram }

// tokenTimeBuckets are the buckets of times between tokens, in seconds.
var tokenTimeBuckets = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 10}

// newQueueMetrics registers the Prometheus series of a plan of queues with the core's registry, and makes the
// histograms for the report. There is one observer for each served model (a model with a class).
func newQueueMetrics(c *turn.Core) *queueMetrics {
	l := c.Metrics.Labels
	slos := []time.Duration{}
	for i := range c.Tables.Models {
		slos = append(slos, c.Tables.Models[i].SLO)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: series.Prefix + name, Help: help, Buckets: buckets}, l.Names())
		c.Metrics.Registry.MustRegister(v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + name, Help: help}, labels)
		c.Metrics.Registry.MustRegister(v)
		return v
	}

	// The histograms and counters, by model.
	ttft := histogram("time_to_first_token_seconds", "Time from the arrival of a request to the first token of its answer.", turn.LatencyBuckets(slos))
	tpot := histogram("request_time_per_output_token_seconds", "Mean time per token of an answer after its first.", tokenTimeBuckets)
	gap := histogram("inter_token_latency_seconds", "Time between two pieces of an answer, per token.", tokenTimeBuckets)
	e2e := histogram("e2e_request_latency_seconds", "Time from the arrival of a request to the end of its answer.", turn.LatencyBuckets(slos))
	wait := histogram("request_queue_time_seconds", "Time from the arrival of a request until an instance first had it.", turn.LatencyBuckets(slos))
	promptTokens, outputTokens := counter("prompt_tokens_total", "Tokens of prompts of requests that were answered.", l.Names()...), counter("generation_tokens_total", "Tokens of answers.", l.Names()...)
	m := &queueMetrics{
		c:           c,
		instances:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "instance", Help: "State of instances: up, requests in flight, and the most that their servers have room for (-1: no bound)."}, []string{"instance", "figure"}),
		loads:       counter("instance_loads_total", "Models that came to instances.", "instance"),
		swaps:       counter("instance_swaps_total", "Models that took another's place.", "instance"),
		evictions:   counter("evictions_total", "Requests that left an instance for others.", "instance"),
		returns:     counter("instance_returns_total", "Requests that came back from instances without an answer, by reason.", "instance", "reason"),
		resumedRuns: prometheus.NewCounter(prometheus.CounterOpts{Name: series.Prefix + "resumed_total", Help: "Runs that continued an answer which was begun."}),
	}

	// One observer for each model and class.
	c.Metrics.Registry.MustRegister(m.instances, m.resumedRuns, newGroupGauges(c))
	for i := range c.Tables.Models {
		labelValues := l.Values(c.Tables.Models[i].Key())
		m.ttft, m.tpot, m.interToken = append(m.ttft, ttft.WithLabelValues(labelValues...)), append(m.tpot, tpot.WithLabelValues(labelValues...)), append(m.interToken, gap.WithLabelValues(labelValues...))
		m.e2e, m.queueTime = append(m.e2e, e2e.WithLabelValues(labelValues...)), append(m.queueTime, wait.WithLabelValues(labelValues...))
		m.promptTokens, m.outputTokens = append(m.promptTokens, promptTokens.WithLabelValues(labelValues...)), append(m.outputTokens, outputTokens.WithLabelValues(labelValues...))
		m.histograms = append(m.histograms, latencyHistograms{hdrhistogram.New(turn.MinLatencyUS, turn.MaxLatencyUS, turn.LatencyDigits), hdrhistogram.New(turn.MinLatencyUS, turn.MaxLatencyUS, turn.LatencyDigits)})
	}
	return m
}

// recordServed records the times and tokens of a request that was answered at `now` in the series of its model and
// class: from arrival to the end, to the first run, to the first token (TTFT), and per further token (TPOT). The last
// two are left out if no token was seen here, as for an answer that an earlier process wrote.
func (m *queueMetrics) recordServed(j *turn.Job, now time.Duration) {
	t, i := JobText(j), j.Model.Index
	t.mu.Lock()
	defer t.mu.Unlock()
	m.e2e[i].Observe((now - j.ArrivedAt).Seconds())
	m.queueTime[i].Observe(max(0, t.firstRunAt-j.ArrivedAt).Seconds())
	m.promptTokens[i].Add(float64(t.result.PromptTokens))
	m.outputTokens[i].Add(float64(t.result.OutputTokens))
	if t.firstTokenAt == 0 {
		return
	}
	ttft := t.firstTokenAt - j.ArrivedAt
	m.ttft[i].Observe(ttft.Seconds())
	recordTime(m.histograms[i].ttft, ttft)
	if t.newTokens > 1 {
		tpot := (t.lastTokenAt - t.firstTokenAt) / time.Duration(t.newTokens-1)
		m.tpot[i].Observe(tpot.Seconds())
		recordTime(m.histograms[i].tpot, tpot)
	}
}

// recordTime adds a time to a histogram, in µs, within its range.
func recordTime(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d/time.Microsecond), turn.MinLatencyUS), turn.MaxLatencyUS))
}

// fillReport adds to the report at the end the numbers of loads, swaps and evictions of models, and the figures of each
// SLO class (requests with a deadline of their own), over all models that have it.
func (m *queueMetrics) fillReport(r *formats.Report) {
	loads, swaps, evictions := m.totals.loads, m.totals.swaps, m.totals.evictions
	r.Loads, r.Swaps, r.Evictions = &loads, &swaps, &evictions
	seenNames := map[string]bool{}
	for i := range m.c.Tables.Models {
		if name := m.c.Tables.Models[i].Class; !seenNames[name] {
			seenNames[name] = true
			r.Classes = append(r.Classes, m.classReport(name))
		}
	}
}

// classReport returns the figures of a class over all models that have it. The histograms of its models are merged.
// Attainment is the share of requests that were answered in time.
func (m *queueMetrics) classReport(name string) formats.ClassReport {
	e2e, ttft, tpot := hdrhistogram.New(turn.MinLatencyUS, turn.MaxLatencyUS, turn.LatencyDigits), hdrhistogram.New(turn.MinLatencyUS, turn.MaxLatencyUS, turn.LatencyDigits), hdrhistogram.New(turn.MinLatencyUS, turn.MaxLatencyUS, turn.LatencyDigits)
	var o report.Outcomes
	for i, model := range m.c.ServedModels.Models {
		if model.Class != name {
			continue
		}
		model.Stats.Mu.Lock()
		o.Add(report.Outcomes{Requests: model.Stats.Requests, Completed: model.Stats.Completed, Late: model.Stats.Late})
		e2e.Merge(model.Stats.Latency)
		model.Stats.Mu.Unlock()
		ttft.Merge(m.histograms[i].ttft)
		tpot.Merge(m.histograms[i].tpot)
	}
	return formats.ClassReport{Class: name, Requests: o.Requests, Attainment: o.Attainment(), E2EP99US: turn.LatencySummary(e2e).P99US, TTFTP99US: turn.LatencySummary(ttft).P99US, TPOTP99US: turn.LatencySummary(tpot).P99US}
}
