package report

import (
	"slices"
	"time"

	"inferplan/formats"
)

// Model describes a model to an accumulator.
type Model struct {
	Name  string
	Class string // SLO class; empty if the model has one without a name
	SLO   time.Duration
	Share float64 // share of the requests that has to be in time; 0 means .99
}

// Config describes a run.
type Config struct {
	Source   string // simulate, serve, load
	Policy   string
	Seed     uint64
	Load     float64 // factor of the planned rate; 0 if there is none
	Models   []Model
	Reasons  []string      // names of the codes that Drop takes, by code
	Warmup   time.Duration // earlier arrivals are not counted
	Duration time.Duration // later arrivals are not counted; 0 means up to the last arrival
	Window   time.Duration // width of the windows; 0 means none
	Expect   int           // expected number of requests per model, to allocate memory
}

// Accumulator collects the outcomes of one run. Only one goroutine may use it.
type Accumulator struct {
	cfg         Config
	models      []modelCounts
	devices     []formats.DeviceReport
	events      int64
	latestEvent time.Duration // latest counted arrival
}

type modelCounts struct {
	outcomes  outcomeCounts
	latencies []time.Duration // latencies of completed requests, in order of completion
	windowOf  []int32         // the window of each latency; nil without windows
	batches   []int64         // the number of batches by size
	windows   []outcomeCounts
}

type outcomeCounts struct {
	Outcomes
	dropped []int64 // the number of dropped requests by reason
}

// New returns an accumulator for the outcomes of one run, with memory for cfg.Expect requests per model.
func New(cfg Config) *Accumulator {
	a := &Accumulator{cfg: cfg, models: make([]modelCounts, len(cfg.Models))}
	for i := range a.models {
		m := &a.models[i]
		m.outcomes.dropped = make([]int64, len(cfg.Reasons))
		m.latencies = make([]time.Duration, 0, cfg.Expect)
		if cfg.Window > 0 {
			m.windowOf = make([]int32, 0, cfg.Expect)
		}
	}
	return a
}

// IsCounted reports whether a request with this arrival time is counted.
func (a *Accumulator) IsCounted(arrivedAt time.Duration) bool {
	return arrivedAt >= a.cfg.Warmup && (a.cfg.Duration <= 0 || arrivedAt < a.cfg.Duration)
}

// EndAt ends the counted time earlier than configured. All requests so far arrived before.
func (a *Accumulator) EndAt(duration time.Duration) { a.cfg.Duration = duration }

// Arrive records the arrival of a request for a model, unless it is in the warm-up. model is an index into
// Config.Models. Times are virtual, or count from the start of the server.
func (a *Accumulator) Arrive(model int32, arrivedAt time.Duration) {
	if !a.IsCounted(arrivedAt) {
		return
	}
	a.latestEvent = max(a.latestEvent, arrivedAt)
	m := &a.models[model]
	m.outcomes.Requests++
	if w := a.window(m, arrivedAt); w != nil {
		w.Requests++
	}
}

// Complete records that the request that arrived at arrivedAt was answered at completedAt. It was late if that is
// after its deadline.
func (a *Accumulator) Complete(model int32, arrivedAt, completedAt, deadline time.Duration) {
	if !a.IsCounted(arrivedAt) {
		return
	}
	m := &a.models[model]
	isLate := int64(0)
	if completedAt > deadline {
		isLate = 1
	}
	m.outcomes.Completed++
	m.outcomes.Late += isLate
	m.latencies = append(m.latencies, completedAt-arrivedAt)
	if w := a.window(m, arrivedAt); w != nil {
		w.Completed++
		w.Late += isLate
		m.windowOf = append(m.windowOf, a.windowIndex(arrivedAt))
	}
}

// Drop records that the request that arrived at arrivedAt was dropped. reason is an index into Config.Reasons.
func (a *Accumulator) Drop(model int32, arrivedAt time.Duration, reason int) {
	if !a.IsCounted(arrivedAt) {
		return
	}
	m := &a.models[model]
	m.outcomes.dropped[reason]++
	if w := a.window(m, arrivedAt); w != nil {
		w.dropped[reason]++
	}
}

// Batch records a batch of a model that was dispatched at its first stage. Batches of the warm-up do not count.
func (a *Accumulator) Batch(model int32, size int, startedAt time.Duration) {
	if startedAt < a.cfg.Warmup {
		return
	}
	m := &a.models[model]
	for len(m.batches) <= size {
		m.batches = append(m.batches, 0)
	}
	m.batches[size]++
}

// AddDevice records the use of one device kind. Its Utilisation is computed from the times.
func (a *Accumulator) AddDevice(d formats.DeviceReport) { a.devices = append(a.devices, d) }

// AddEvents counts events of the simulator's loop.
func (a *Accumulator) AddEvents(n int64) { a.events += n }

func (a *Accumulator) windowIndex(moment time.Duration) int32 {
	return int32((moment - a.cfg.Warmup) / a.cfg.Window)
}

// window returns the counts of the window of time in which a moment lies, or nil if the report has no windows.
func (a *Accumulator) window(m *modelCounts, moment time.Duration) *outcomeCounts {
	if a.cfg.Window <= 0 {
		return nil
	}
	i := int(a.windowIndex(moment))
	for len(m.windows) <= i {
		m.windows = append(m.windows, outcomeCounts{dropped: make([]int64, len(a.cfg.Reasons))})
	}
	return &m.windows[i]
}

// totalDropped returns how many requests were dropped, for any reason.
func (c *outcomeCounts) totalDropped() int64 {
	n := int64(0)
	for _, d := range c.dropped {
		n += d
	}
	return n
}

// add adds the counts of o to c. Either none or both know the same reasons for dropping.
func (c *outcomeCounts) add(o *outcomeCounts) {
	c.Add(o.Outcomes)
	if c.dropped == nil {
		c.dropped = slices.Clone(o.dropped)
		return
	}
	for i, d := range o.dropped {
		c.dropped[i] += d
	}
}
