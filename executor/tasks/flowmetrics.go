package tasks

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
)

// moduleMetrics are the series of modules, by service. The zero value is for plans without modules.
type moduleMetrics struct {
	Of []moduleSeries
}

// moduleSeries is what is counted of a module. It is written in the core's turn.
type moduleSeries struct {
	name             string
	Tasks, dropped   int64
	ended, batches   int64
	running          time.Duration
	came, gone, done prometheus.Counter
	queue, run       prometheus.Observer
	waiting, inside  *atomic.Int64
}

// newModuleMetrics returns the series of a core's services, registered.
func newModuleMetrics(c *turn.Core) moduleMetrics {
	if c.Metrics == nil {
		return moduleMetrics{}
	}
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "module_tasks_total",
		Help: "Tasks of modules: came, ended, or because of which their request was dropped."}, []string{"module", "outcome"})
	times := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: series.Prefix + name, Help: help, Buckets: turn.LatencyEdges(nil)}, []string{"module"})
	}
	queue := times("module_queue_seconds", "Time of tasks from when they were known until they were in a batch.")
	run := times("module_run_seconds", "Time of batches on their devices.")
	gauges := turn.NewQueueGauges(series.Labels(false))
	gauges.Waiting = prometheus.NewDesc(series.Prefix+"module_queue_length", "Tasks that wait for a batch.", []string{"module"}, nil)
	gauges.Running = prometheus.NewDesc(series.Prefix+"module_in_flight", "Tasks in batches.", []string{"module"}, nil)
	gauges.Models = c.Services
	c.Metrics.Registry.MustRegister(counter, queue, run, gauges)
	out := moduleMetrics{}
	for _, s := range c.Services {
		out.Of = append(out.Of, moduleSeries{name: s.Name, waiting: &s.Waiting, inside: &s.Running,
			came: counter.WithLabelValues(s.Name, "came"), gone: counter.WithLabelValues(s.Name, "dropped"), done: counter.WithLabelValues(s.Name, "ended"),
			queue: queue.WithLabelValues(s.Name), run: run.WithLabelValues(s.Name)})
	}
	return out
}

// countWaiting counts a task that waits; with `again`, one that was in a batch.
func (m *moduleMetrics) comes(service int32, again bool) {
	s := &m.Of[service]
	s.waiting.Add(1)
	if again {
		s.inside.Add(-1)
		return
	}
	s.Tasks++
	s.came.Inc()
}

// countEntered counts a task that is in a batch, and how long it waited.
func (m *moduleMetrics) enters(service int32, waited time.Duration) {
	s := &m.Of[service]
	s.waiting.Add(-1)
	s.inside.Add(1)
	s.queue.Observe(waited.Seconds())
}

// countEnded counts a task whose batch has ended.
func (m *moduleMetrics) ends(service int32) {
	s := &m.Of[service]
	s.inside.Add(-1)
	s.ended++
	s.done.Inc()
}

// countGivenUp counts a task that is given up while it waits.
func (m *moduleMetrics) forsaken(service int32) { m.Of[service].waiting.Add(-1) }

// countBatch counts a batch.
func (m *moduleMetrics) ran(service int32, took time.Duration) {
	s := &m.Of[service]
	s.batches++
	s.running += took
	s.run.Observe(took.Seconds())
}

// BlameTask counts the task because of which a request is dropped.
func (f *ensemble) Blame(task int32) {
	if task >= 0 && int(task) < len(f.made.List) && f.made.List[task].State != policy.TaskUnused {
		s := &f.Modules.Of[f.made.List[task].Service]
		s.dropped++
		s.gone.Inc()
	}
}

// Report adds the statistics of modules to a report.
func (f *ensemble) Report(r *formats.Report) {
	if f.made.Apps.graphs == nil {
		return
	}
	for i := range f.Modules.Of {
		s := &f.Modules.Of[i]
		m := formats.ModuleReport{Module: s.name, Requests: s.Tasks, Dropped: s.dropped}
		if s.batches > 0 {
			m.RunUS, m.Batch = document.Micros(s.running/time.Duration(s.batches)), float64(s.ended)/float64(s.batches)
		}
		r.Modules = append(r.Modules, m)
	}
}
