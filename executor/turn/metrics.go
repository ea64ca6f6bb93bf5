package turn

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/formats"
	"inferplan/policy"
)

// Metrics are the Prometheus series of an executor. The series that the hot path uses are looked up once, when a plan is
// installed.
type Metrics struct {
	Registry *prometheus.Registry

	requests *prometheus.CounterVec
	drops    *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	batches  *prometheus.HistogramVec
	restarts *prometheus.CounterVec
	loads    *prometheus.CounterVec
	workerUp *prometheus.GaugeVec
	cpu      *prometheus.CounterVec

	transfers, bytes *prometheus.CounterVec
	Reference, Shm   tierMetrics
	Stream           tierMetrics
	Ipc, Pinned      tierMetrics

	plan    *prometheus.GaugeVec
	devices []*DeviceMetrics
	gauges  *queueGauges
	Labels  series.Labels
}

type tierMetrics struct{ Transfers, Bytes prometheus.Counter }

// modelMetrics are the series of a model.
type modelMetrics struct {
	inTime, late, dropped, failed prometheus.Counter
	reasons                       []prometheus.Counter // by policy.DropReason
	latency                       prometheus.Observer
	batch                         prometheus.Observer
}

// DeviceMetrics are the series of a worker.
type DeviceMetrics struct {
	engineCPU, overheadCPU prometheus.Counter
	restarts, Loads        prometheus.Counter
	up                     prometheus.Gauge
}

// NewMetrics returns the Prometheus series of a plan, in a registry of their own, because the next plan may have
// other models. The latency histogram has a bucket edge at each SLO, so that the attainment can be read from it.
func NewMetrics(models []policy.Model) *Metrics {
	l := series.LabelsOf(models)
	var slos []time.Duration
	for i := range models {
		slos = append(slos, models[i].SLO)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + name, Help: help}, labels)
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		Labels:   l,
		requests: counter("requests_total", "Requests (samples) answered, by outcome: in_time, late, dropped or failed.", l.Names("outcome")...),
		drops:    counter("drops_total", "Requests (samples) refused, by reason.", l.Names("reason")...),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: series.Prefix + "request_duration_seconds", Help: "Time from arrival to answer of completed requests; each SLO is a bucket edge.", Buckets: LatencyBuckets(slos),
		}, l.Names()),
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: series.Prefix + "batch_size", Help: "Requests per dispatched batch.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}, l.Names()),
		restarts:  counter("worker_restarts_total", "Times that a worker was started again.", "device", "kind"),
		loads:     counter("loads_total", "Networks loaded at run time.", "device", "kind"),
		workerUp:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "worker_up", Help: "Whether the worker runs."}, []string{"device", "kind"}),
		cpu:       counter("worker_cpu_seconds_total", "CPU time of workers: engine is inside the engine, overhead is the rest.", "device", "kind", "part"),
		transfers: counter("transfers_total", "Tensors handed from a stage to the next, by tier.", "tier"),
		bytes:     counter("transfer_bytes_total", "Bytes of tensors handed from a stage to the next, by tier.", "tier"),
		plan:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "plan_info", Help: "The plan in force; always 1."}, []string{"sha256", "kind", "policy"}),
		gauges:    NewQueueGauges(l),
	}

	// Look up the series of each tier.
	m.Registry.MustRegister(m.requests, m.drops, m.latency, m.batches, m.restarts, m.loads, m.workerUp, m.cpu, m.transfers, m.bytes, m.plan, m.gauges)
	m.Reference = tierMetrics{m.transfers.WithLabelValues("reference"), m.bytes.WithLabelValues("reference")}
	m.Shm = tierMetrics{m.transfers.WithLabelValues("shm"), m.bytes.WithLabelValues("shm")}
	m.Ipc = tierMetrics{m.transfers.WithLabelValues("ipc"), m.bytes.WithLabelValues("ipc")}
	m.Pinned = tierMetrics{m.transfers.WithLabelValues("pinned"), m.bytes.WithLabelValues("pinned")}
	m.Stream = tierMetrics{m.transfers.WithLabelValues("stream"), m.bytes.WithLabelValues("stream")}
	return m
}

// LatencyBuckets returns the bucket edges of a latency histogram in seconds: 1, 2.5 and 5 of each power of ten from
// 100 us to a minute, together with the SLOs, so that the share in time can be read from it.
func LatencyBuckets(slos []time.Duration) []float64 {
	var out []float64
	for e := 100 * time.Microsecond; e <= time.Minute; e *= 10 {
		for _, f := range []float64{1, 2.5, 5} {
			if v := time.Duration(float64(e) * f); v <= time.Minute {
				out = append(out, v.Seconds())
			}
		}
	}
	for _, s := range slos {
		out = append(out, s.Seconds())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// newModelMetrics returns the counters of a model and class, looked up once here, because each look-up by labels takes
// time. They count answers by outcome and by reason of the drop, latencies, and batch sizes.
func (m *Metrics) newModelMetrics(k formats.ModelClass) *modelMetrics {
	outcome := func(o string) prometheus.Counter { return m.requests.WithLabelValues(m.Labels.Values(k, o)...) }
	labels := m.Labels.Values(k)
	metrics := &modelMetrics{
		inTime: outcome("in_time"), late: outcome("late"), dropped: outcome("dropped"), failed: outcome("failed"),
		reasons: make([]prometheus.Counter, len(policy.DropReasons())+1),
		latency: m.latency.WithLabelValues(labels...), batch: m.batches.WithLabelValues(labels...),
	}
	for _, r := range policy.DropReasons() {
		metrics.reasons[r] = m.drops.WithLabelValues(m.Labels.Values(k, r.String())...)
	}
	return metrics
}

// countAnswer adds a job's answer to the series of its model, once for each of its samples: served (in time or late,
// with the latency), failed or dropped. The last two also count under the reason, if the job has one.
func (m *modelMetrics) countAnswer(j *Job, latency time.Duration) {
	n := float64(j.Samples)
	switch j.Outcome {
	case OutcomeServed:
		if j.IsLate {
			m.late.Add(n)
		} else {
			m.inTime.Add(n)
		}
		for range j.Samples {
			m.latency.Observe(latency.Seconds())
		}
		return
	case OutcomeFailed:
		m.failed.Add(n)
	default:
		m.dropped.Add(n)
	}
	if c := m.reasons[j.Reason]; c != nil {
		c.Add(n)
	}
}

// AddDevice returns the series of the device with an index in the plan's tables, labelled with the index and the kind of
// hardware, and notes them in m.devices.
func (m *Metrics) AddDevice(index int32, kind string) *DeviceMetrics {
	dev := strconv.Itoa(int(index))
	d := &DeviceMetrics{
		engineCPU: m.cpu.WithLabelValues(dev, kind, "engine"), overheadCPU: m.cpu.WithLabelValues(dev, kind, "overhead"),
		restarts: m.restarts.WithLabelValues(dev, kind), Loads: m.loads.WithLabelValues(dev, kind), up: m.workerUp.WithLabelValues(dev, kind),
	}
	for int(index) >= len(m.devices) {
		m.devices = append(m.devices, nil)
	}
	m.devices[index] = d
	return d
}

// AddCPUTime adds the CPU time of a run: of the engine, and of the whole process.
func (d *DeviceMetrics) AddCPUTime(engine, process time.Duration) {
	d.engineCPU.Add(max(engine, 0).Seconds())
	d.overheadCPU.Add(max(process-engine, 0).Seconds())
}

// SetUp sets whether the worker of a device runs.
func (m *Metrics) SetUp(device int32, isUp bool) {
	v := 0.0
	if isUp {
		v = 1
	}
	m.devices[device].up.Set(v)
}

// CountRestart counts a restart of a device's worker.
func (m *Metrics) CountRestart(device int32) { m.devices[device].restarts.Inc() }

// queueGauges reads the models' queues when Prometheus scrapes.
type queueGauges struct {
	Waiting, Running *prometheus.Desc
	labels           series.Labels
	Models           []*Model
}

// NewQueueGauges returns gauges for the queues of models: how many requests wait, and how many are in batches. The
// caller sets the models that they read.
func NewQueueGauges(l series.Labels) *queueGauges {
	return &queueGauges{
		labels:  l,
		Waiting: prometheus.NewDesc(series.Prefix+"queue_length", "Requests (samples) that wait for a batch.", l.Names(), nil),
		Running: prometheus.NewDesc(series.Prefix+"in_flight", "Requests (samples) in batches.", l.Names(), nil),
	}
}

// Describe implements prometheus.Collector.
func (q *queueGauges) Describe(ch chan<- *prometheus.Desc) { ch <- q.Waiting; ch <- q.Running }

// Collect sends the present lengths of the models' queues to Prometheus. It implements prometheus.Collector.
func (q *queueGauges) Collect(ch chan<- prometheus.Metric) {
	for _, m := range q.Models {
		labels := q.labels.Values(formats.ModelClass{Model: m.Name, Class: m.Class})
		ch <- prometheus.MustNewConstMetric(q.Waiting, prometheus.GaugeValue, float64(m.Waiting.Load()), labels...)
		ch <- prometheus.MustNewConstMetric(q.Running, prometheus.GaugeValue, float64(m.Running.Load()), labels...)
	}
}
