package report

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Unfinished is the reason for requests that had not ended when the report was made.
const Unfinished = "unfinished"

// Build returns the report of this run.
func (a *Accumulator) Build() *formats.Report { return Merge([]*Accumulator{a}) }

// Merge makes one report of replications: runs of the same configuration under different seeds. The report names the
// seed of the first run. Counts and latencies are pooled; rates are means over the runs. Without a configured
// duration it is that of the longest run, until its latest event.
func Merge(runs []*Accumulator) *formats.Report {
	firstRun := runs[0]
	cfg := &firstRun.cfg
	r := &formats.Report{
		Format: formats.FormatReport, Source: cfg.Source, Policy: cfg.Policy, Seed: cfg.Seed,
		Runs: len(runs), Load: cfg.Load, WarmupUS: document.Micros(cfg.Warmup),
		Models: make([]formats.ModelReport, len(cfg.Models)),
	}
	duration := cfg.Duration
	for _, a := range runs {
		if cfg.Duration <= 0 {
			duration = max(duration, a.latestEvent)
		}
		r.Events += a.events
	}
	r.DurationUS = document.Micros(duration)
	b := &builder{cfg: cfg, runs: runs, countedTime: max(duration-cfg.Warmup, 0), report: r}

	// Pool the runs for each model, and for all together.
	totals := make([]outcomeCounts, len(runs)) // per run, over all models
	var allLatencies []time.Duration
	for i := range cfg.Models {
		perRun := make([]outcomeCounts, len(runs))
		var latencies []time.Duration
		for k, a := range runs {
			perRun[k].add(&a.models[i].outcomes)
			totals[k].add(&a.models[i].outcomes)
			latencies = append(latencies, a.models[i].latencies...)
		}
		m := &r.Models[i]
		m.Model, m.Class, m.SLOUS = cfg.Models[i].Name, cfg.Models[i].Class, document.Micros(cfg.Models[i].SLO)
		if share := cfg.Models[i].Share; share > 0 && share != document.ShareAt("") {
			m.Percentile = document.PercentileName(share)
		}
		m.Counts = b.counts(perRun)
		m.OfferedRPS = b.rate(m.Requests)
		m.Latency = summarise(latencies)
		allLatencies = append(allLatencies, latencies...) // each model's latencies are sorted already
		m.BatchSizes = b.batchSizes(i)
	}
	r.Counts = b.counts(totals)
	r.Latency = summarise(allLatencies)
	r.Devices = b.devices()
	b.windows()
	b.warn()
	return r
}

// Attained returns the share of the requests of some models that were answered in time, over all runs, as Merge
// reports it.
func Attained(runs []*Accumulator, models ...int) float64 {
	var sum outcomeCounts
	for _, a := range runs {
		for _, model := range models {
			sum.add(&a.models[model].outcomes)
		}
	}
	return sum.Attainment()
}

// builder is the common state of the parts of Merge.
type builder struct {
	cfg         *Config
	runs        []*Accumulator
	countedTime time.Duration // counted time of one run
	report      *formats.Report
}

// rate returns n per second of counted time, as a mean over the runs.
func (b *builder) rate(n int64) float64 {
	return Rate(n, b.countedTime.Seconds()) / float64(len(b.runs))
}

// counts returns the counts of all runs together, with the interval of the attainment.
func (b *builder) counts(perRun []outcomeCounts) formats.Counts {
	var sum outcomeCounts
	for i := range perRun {
		sum.add(&perRun[i])
	}
	out := b.poolOver(&sum, b.countedTime)
	_, interval := Attainment(document.Map(perRun, func(c *outcomeCounts) Outcomes { return c.Outcomes })...)
	out.AttainmentCI = &interval
	return out
}

// poolOver returns the counts of all runs together, sum, with the goodput per run over a time d. Requests without
// an outcome at the end of a run count as dropped, with the reason Unfinished.
func (b *builder) poolOver(sum *outcomeCounts, d time.Duration) formats.Counts {
	unfinished := max(sum.Requests-sum.Completed-sum.totalDropped(), 0)
	out := formats.Counts{
		Requests: sum.Requests, Completed: sum.Completed, Late: sum.Late,
		Dropped:         sum.totalDropped() + unfinished,
		DroppedByReason: map[string]int64{},
		Attainment:      sum.Attainment(),
		GoodputRPS:      sum.Goodput(d.Seconds()) / float64(len(b.runs)),
	}
	for i, n := range sum.dropped {
		if n > 0 {
			out.DroppedByReason[b.cfg.Reasons[i]] += n
		}
	}
	if unfinished > 0 {
		out.DroppedByReason[Unfinished] += unfinished
	}
	return out
}

// batchSizes counts the batches of a model in all runs by their size. The keys are texts, as JSON needs.
func (b *builder) batchSizes(model int) map[string]int64 {
	out := map[string]int64{}
	for _, a := range b.runs {
		for size, n := range a.models[model].batches {
			if n > 0 {
				out[strconv.Itoa(size)] += n
			}
		}
	}
	return out
}

// devices returns the use of each device kind, summed over the runs.
func (b *builder) devices() []formats.DeviceReport {
	var out []formats.DeviceReport
	for _, a := range b.runs {
		for _, d := range a.devices {
			i := slices.IndexFunc(out, func(o formats.DeviceReport) bool { return o.Device == d.Device })
			if i < 0 {
				out = append(out, d)
				continue
			}
			o := &out[i]
			o.RunningUS += d.RunningUS
			o.LoadingUS += d.LoadingUS
			o.BothUS += d.BothUS
			o.IdleUS += d.IdleUS
			o.Utilisation += d.Utilisation
		}
	}

	// The utilisation follows from the times or, without them, is the mean over the runs.
	for i := range out {
		o := &out[i]
		if total := o.RunningUS + o.LoadingUS + o.BothUS + o.IdleUS; total > 0 {
			o.Utilisation = float64(o.RunningUS+o.BothUS) / float64(total)
		} else {
			o.Utilisation /= float64(len(b.runs))
		}
	}
	return out
}

// windows adds the report of each window of time over all models and, if there are several models, then each
// model's.
func (b *builder) windows() {
	if b.cfg.Window <= 0 {
		return
	}

	// Collect the latencies of all runs by model and window.
	n := 0
	samples := make([][][]time.Duration, len(b.cfg.Models)) // by model and window
	for i := range b.cfg.Models {
		for _, a := range b.runs {
			m := &a.models[i]
			n = max(n, len(m.windows))
			for len(samples[i]) < len(m.windows) {
				samples[i] = append(samples[i], nil)
			}
			for k, w := range m.windowOf {
				samples[i][w] = append(samples[i][w], m.latencies[k])
			}
		}
	}

	// Report every window: all models together and, if there are several, each model.
	for w := range n {
		start := b.cfg.Warmup + time.Duration(w)*b.cfg.Window
		width := min(b.cfg.Window, b.cfg.Warmup+b.countedTime-start)
		var sum outcomeCounts
		var latencies []time.Duration
		perModel := make([]formats.WindowReport, len(b.cfg.Models))
		for i := range b.cfg.Models {
			var c outcomeCounts
			for _, a := range b.runs {
				if m := &a.models[i]; w < len(m.windows) {
					c.add(&m.windows[w])
				}
			}
			sum.add(&c)
			var modelLatencies []time.Duration
			if w < len(samples[i]) {
				modelLatencies = samples[i][w]
			}
			latencies = append(latencies, modelLatencies...)
			perModel[i] = b.window(b.cfg.Models[i], start, width, &c, modelLatencies)
		}
		b.report.Windows = append(b.report.Windows, b.window(Model{}, start, width, &sum, latencies))
		if len(perModel) > 1 {
			b.report.Windows = append(b.report.Windows, perModel...)
		}
	}
}

// window returns the report of a model over the window of a run's time that begins at start: the counts c, and the
// 95th percentile of the latencies, which it sorts in place.
func (b *builder) window(model Model, start, width time.Duration, c *outcomeCounts, latencies []time.Duration) formats.WindowReport {
	slices.Sort(latencies)
	return formats.WindowReport{
		StartUS: document.Micros(start), Model: model.Name, Class: model.Class,
		Counts: b.poolOver(c, width), P95US: document.Micros(Percentile(latencies, 0.95)),
	}
}

// warn adds warnings about figures that are doubtful: requests without an end, and models without requests.
func (b *builder) warn() {
	if open := b.report.DroppedByReason[Unfinished]; open > 0 {
		b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("%d requests were still under way at the end; they are counted as dropped (%s)", open, Unfinished))
	}
	for i := range b.report.Models {
		if m := &b.report.Models[i]; m.Requests == 0 {
			b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("model %s: no request was counted, its attainment of 1 says nothing", m.Key()))
		}
	}
}

// summarise returns the mean and percentiles of latencies. It sorts them in place.
func summarise(samples []time.Duration) formats.LatencySummary {
	if len(samples) == 0 {
		return formats.LatencySummary{}
	}
	slices.Sort(samples)
	sum := 0.0
	for _, s := range samples {
		sum += float64(s)
	}
	percentile := func(p float64) document.Micros { return document.Micros(Percentile(samples, p)) }
	return formats.LatencySummary{
		MeanUS: document.Micros(sum/float64(len(samples)) + 0.5),
		P50US:  percentile(0.5), P90US: percentile(0.9), P95US: percentile(0.95), P99US: percentile(0.99),
		MaxUS: document.Micros(samples[len(samples)-1]),
	}
}
