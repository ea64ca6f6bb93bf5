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
	Series []moduleSeries
}

// moduleSeries holds the counts of a module. It is written in the core's turn.
type moduleSeries struct {
	name                                    string
	Tasks, dropped                          int64
	ended, batches                          int64
	runTime                                 time.Duration
	revealedTotal, droppedTotal, endedTotal prometheus.Counter
	queue, run                              prometheus.Observer
	waiting, inFlight                       *atomic.Int64
}

// newModuleMetrics registers the time series of a core's modules (the models of an application, by their place in its
// graph) and returns their counters, in the order of c.Services. Without metrics it returns none.
func newModuleMetrics(c *turn.Core) moduleMetrics {
	if c.Metrics == nil {
		return moduleMetrics{}
	}
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "module_tasks_total",
		Help: "Tasks of modules: came, ended, or because of which their request was dropped."}, []string{"module", "outcome"})
	times := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: series.Prefix + name, Help: help, Buckets: turn.LatencyBuckets(nil)}, []string{"module"})
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
		out.Series = append(out.Series, moduleSeries{name: s.Name, waiting: &s.Waiting, inFlight: &s.Running,
			revealedTotal: counter.WithLabelValues(s.Name, "came"), droppedTotal: counter.WithLabelValues(s.Name, "dropped"), endedTotal: counter.WithLabelValues(s.Name, "ended"),
			queue: queue.WithLabelValues(s.Name), run: run.WithLabelValues(s.Name)})
	}
	return out
}

// countWaiting counts a task of a service (an index in Series) that now waits for a batch: a new one, which also counts
// as revealed, or, with wasInBatch, one that a batch has given back.
func (m *moduleMetrics) countWaiting(service int32, wasInBatch bool) {
	s := &m.Series[service]
	s.waiting.Add(1)
	if wasInBatch {
		s.inFlight.Add(-1)
		return
	}
	s.Tasks++
	s.revealedTotal.Inc()
}

// countEntered counts a task that has entered a batch, and how long it waited. service is the index of its module's
// service in Series.
func (m *moduleMetrics) countEntered(service int32, waitTime time.Duration) {
	s := &m.Series[service]
	s.waiting.Add(-1)
	s.inFlight.Add(1)
	s.queue.Observe(waitTime.Seconds())
}

// countEnded counts a task whose batch has ended. service is the index of its module's service in Series.
func (m *moduleMetrics) countEnded(service int32) {
	s := &m.Series[service]
	s.inFlight.Add(-1)
	s.ended++
	s.endedTotal.Inc()
}

// countGivenUp counts a task that is given up while it waits.
func (m *moduleMetrics) countGivenUp(service int32) { m.Series[service].waiting.Add(-1) }

// countBatch counts a batch of a module that has ended, and the time of its run.
func (m *moduleMetrics) countBatch(service int32, duration time.Duration) {
	s := &m.Series[service]
	s.batches++
	s.runTime += duration
	s.run.Observe(duration.Seconds())
}

// BlameTask counts a dropped request for the module of the task because of which it was dropped.
func (f *applicationAnswerer) BlameTask(task int32) {
	if task >= 0 && int(task) < len(f.store.Tasks.List) && f.store.Tasks.List[task].State != policy.TaskUnused {
		s := &f.Modules.Series[f.store.Tasks.List[task].Service]
		s.dropped++
		s.droppedTotal.Inc()
	}
}

// Report adds to a report, for each module of the applications, the tasks that it ran, the requests dropped because of
// it, its mean time per batch and its mean batch size. Without graphs of modules it adds nothing.
func (f *applicationAnswerer) Report(r *formats.Report) {
	if f.store.Apps.graphs == nil {
		return
	}
	for i := range f.Modules.Series {
		s := &f.Modules.Series[i]
		m := formats.ModuleReport{Module: s.name, Requests: s.Tasks, Dropped: s.dropped}
		if s.batches > 0 {
			m.RunUS, m.Batch = document.Micros(s.runTime/time.Duration(s.batches)), float64(s.ended)/float64(s.batches)
		}
		r.Modules = append(r.Modules, m)
	}
}
