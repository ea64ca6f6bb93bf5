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
	c                                *turn.Core
	ttft, tpot, gap, e2e, wait       []prometheus.Observer // by served model
	prompts, made                    []prometheus.Counter
	instances                        *prometheus.GaugeVec
	loads, swaps, evictions, returns *prometheus.CounterVec
	resumed                          prometheus.Counter

	figures []queueFigures // by model and class; belong to the core's turn
	sums    struct{ loads, swaps, evictions int64 }
}

// latencyHistograms are the times of one model and class for the report.
type queueFigures struct{ ttft, tpot *hdrhistogram.Histogram }

// tokenTimeBuckets are the buckets of times between tokens, in seconds.
var tokenEdges = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 10}

// newQueueMetrics registers the series of a core's plan.
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
	ttft := histogram("time_to_first_token_seconds", "Time from the arrival of a request to the first token of its answer.", turn.LatencyEdges(slos))
	tpot := histogram("request_time_per_output_token_seconds", "Mean time per token of an answer after its first.", tokenEdges)
	gap := histogram("inter_token_latency_seconds", "Time between two pieces of an answer, per token.", tokenEdges)
	e2e := histogram("e2e_request_latency_seconds", "Time from the arrival of a request to the end of its answer.", turn.LatencyEdges(slos))
	wait := histogram("request_queue_time_seconds", "Time from the arrival of a request until an instance first had it.", turn.LatencyEdges(slos))
	prompts, made := counter("prompt_tokens_total", "Tokens of prompts of requests that were answered.", l.Names()...), counter("generation_tokens_total", "Tokens of answers.", l.Names()...)
	m := &queueMetrics{
		c:         c,
		instances: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "instance", Help: "State of instances: up, requests in flight, and the most that their servers have room for (-1: no bound)."}, []string{"instance", "figure"}),
		loads:     counter("instance_loads_total", "Models that came to instances.", "instance"),
		swaps:     counter("instance_swaps_total", "Models that took another's place.", "instance"),
		evictions: counter("evictions_total", "Requests that left an instance for others.", "instance"),
		returns:   counter("instance_returns_total", "Requests that came back from instances without an answer, by reason.", "instance", "reason"),
		resumed:   prometheus.NewCounter(prometheus.CounterOpts{Name: series.Prefix + "resumed_total", Help: "Runs that continued an answer which was begun."}),
	}

	// One observer for each model and class.
	c.Metrics.Registry.MustRegister(m.instances, m.resumed, newGroupGauges(c))
	for i := range c.Tables.Models {
		own := l.Values(c.Tables.Models[i].Key())
		m.ttft, m.tpot, m.gap = append(m.ttft, ttft.WithLabelValues(own...)), append(m.tpot, tpot.WithLabelValues(own...)), append(m.gap, gap.WithLabelValues(own...))
		m.e2e, m.wait = append(m.e2e, e2e.WithLabelValues(own...)), append(m.wait, wait.WithLabelValues(own...))
		m.prompts, m.made = append(m.prompts, prompts.WithLabelValues(own...)), append(m.made, made.WithLabelValues(own...))
		m.figures = append(m.figures, queueFigures{hdrhistogram.New(turn.ShortestLatency, turn.LongestLatency, turn.LatencyDigits), hdrhistogram.New(turn.ShortestLatency, turn.LongestLatency, turn.LatencyDigits)})
	}
	return m
}

// recordServed records a request that was answered.
func (m *queueMetrics) served(j *turn.Job, now time.Duration) {
	t, i := JobText(j), j.Model.Index
	t.mu.Lock()
	defer t.mu.Unlock()
	m.e2e[i].Observe((now - j.Arrived).Seconds())
	m.wait[i].Observe(max(0, t.began-j.Arrived).Seconds())
	m.prompts[i].Add(float64(t.result.PromptTokens))
	m.made[i].Add(float64(t.result.OutputTokens))
	if t.first == 0 {
		return
	}
	ttft := t.first - j.Arrived
	m.ttft[i].Observe(ttft.Seconds())
	record(m.figures[i].ttft, ttft)
	if t.fresh > 1 {
		tpot := (t.last - t.first) / time.Duration(t.fresh-1)
		m.tpot[i].Observe(tpot.Seconds())
		record(m.figures[i].tpot, tpot)
	}
}

// recordTime adds a time to a histogram, in µs, within its range.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d/time.Microsecond), turn.ShortestLatency), turn.LongestLatency))
}

// fillReport adds the classes, loads, swaps and evictions to the report.
func (m *queueMetrics) report(r *formats.Report) {
	loads, swaps, evictions := m.sums.loads, m.sums.swaps, m.sums.evictions
	r.Loads, r.Swaps, r.Evictions = &loads, &swaps, &evictions
	seen := map[string]bool{}
	for i := range m.c.Tables.Models {
		if name := m.c.Tables.Models[i].Class; !seen[name] {
			seen[name] = true
			r.Classes = append(r.Classes, m.class(name))
		}
	}
}

// classReport returns the figures of a class over all models that have it.
func (m *queueMetrics) class(name string) formats.ClassReport {
	e2e, ttft, tpot := hdrhistogram.New(turn.ShortestLatency, turn.LongestLatency, turn.LatencyDigits), hdrhistogram.New(turn.ShortestLatency, turn.LongestLatency, turn.LatencyDigits), hdrhistogram.New(turn.ShortestLatency, turn.LongestLatency, turn.LatencyDigits)
	var o report.Outcomes
	for i, own := range m.c.Served.Models {
		if own.Class != name {
			continue
		}
		own.Stats.Mu.Lock()
		o.Add(report.Outcomes{Requests: own.Stats.Requests, Completed: own.Stats.Completed, Late: own.Stats.Late})
		e2e.Merge(own.Stats.Latency)
		own.Stats.Mu.Unlock()
		ttft.Merge(m.figures[i].ttft)
		tpot.Merge(m.figures[i].tpot)
	}
	return formats.ClassReport{Class: name, Requests: o.Requests, Attainment: o.Attained(), E2EP99US: turn.Summary(e2e).P99US, TTFTP99US: turn.Summary(ttft).P99US, TPOTP99US: turn.Summary(tpot).P99US}
}
