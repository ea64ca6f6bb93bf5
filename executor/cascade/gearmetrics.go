package cascade

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/policy/gear"
)

// gearMetrics are the series of a gear plan.
type gearMetrics struct {
	gear     prometheus.Gauge
	up, down prometheus.Counter
	answers  [][]prometheus.Counter // by gear and pipeline; nil if the gear does not use the model
	batch    []prometheus.Observer  // by pipeline
	samples  []prometheus.Counter
	running  []prometheus.Counter
}

// newGearMetrics registers the time series of a gear plan in r and returns their counters. A gear is the cascade of
// models in use for a range of request rates, with its limits of batch sizes. Its number is its index in t.Gears.
// Counters by model are lists by pipeline: a model on one kind of devices. Pipelines of the same model on different
// kinds share a series.
func newGearMetrics(r *prometheus.Registry, t *gear.Tables) *gearMetrics {
	m := &gearMetrics{gear: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "gear", Help: "The gear in force: the number of its range of rates, from 0."})}
	switches := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "gear_switches_total", Help: "Changes of the gear, to a faster one (up) or a slower one (down)."}, []string{"direction"})
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "answers_total", Help: "Requests (samples) answered, by the gear under which they came and the model that answered."}, []string{"gear", "model"})
	batch := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: series.Prefix + "family_batch_size", Help: "Samples per batch of a model of the family.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128}}, []string{"model"})
	samples := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "family_samples_total", Help: "Samples that a model of the family has run."}, []string{"model"})
	runTimes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "family_running_seconds_total", Help: "Device time of a model of the family."}, []string{"model"})
	r.MustRegister(m.gear, switches, answers, batch, samples, runTimes)
	m.up, m.down = switches.WithLabelValues("up"), switches.WithLabelValues("down")
	// Count answers by gear and pipeline. Only pipelines that some stage of the gear's cascade uses get a counter;
	// others stay nil.
	for i := range t.Gears {
		gear := strconv.Itoa(i)
		row := make([]prometheus.Counter, len(t.PipelineModels))
		for _, s := range t.Gears[i].Stages {
			for _, p := range s.AllPipelines() {
				row[p] = answers.WithLabelValues(gear, t.PipelineModels[p])
			}
		}
		m.answers = append(m.answers, row)
	}
	for _, name := range t.PipelineModels {
		m.batch = append(m.batch, batch.WithLabelValues(name))
		m.samples = append(m.samples, samples.WithLabelValues(name))
		m.running = append(m.running, runTimes.WithLabelValues(name))
	}
	return m
}

// countSwitch counts a change of the gear, up to a faster one or down to a slower one.
func (m *gearMetrics) countSwitch(from, to int32) {
	m.gear.Set(float64(to))
	if to > from {
		m.up.Inc()
	} else {
		m.down.Inc()
	}
}

// countBatch counts a batch of a model.
func (m *gearMetrics) countBatch(pipeline int32, size int, duration time.Duration) {
	m.batch[pipeline].Observe(float64(size))
	m.samples[pipeline].Add(float64(size))
	m.running[pipeline].Add(duration.Seconds())
}
