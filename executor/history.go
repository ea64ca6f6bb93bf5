package executor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/policy"
)

// planHistory sums what the plans of a process have counted, so that counters, statistics and reports continue when
// another plan comes into force.
type history struct {
	mu       sync.Mutex
	began    time.Time // when the first plan came into force
	current  *turn.Core
	retiring []*turn.Core // cores that are no longer in force and still answer what they have accepted

	// The fields below are sums over plans that have ended.
	series     seriesSums
	statistics []oip.ModelStatistics
	tallies    []tally
	events     int64
	reports    []formats.PlanReport // of the latest plans
	most       int                  // bound of reports
	ended      int                  // number of plans that have ended
}

// newPlanHistory returns a history without a plan. It keeps the reports of the last hundred plans that have ended.
func newHistory() history { return history{series: seriesSums{}, most: 100} }

// install puts a core in force.
func (h *history) install(c *turn.Core) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.retiring = append(h.retiring, h.current)
	} else {
		h.began = c.Epoch()
	}
	h.current = c
}

// addEnded adds the counts of a core that has answered everything, and drops the core.
func (h *history) end(c *turn.Core) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	families, err := c.Metrics.Registry.Gather()
	h.series.addCounted(families)
	for _, m := range c.Served.Models {
		h.statistics = turn.AddStatistics(h.statistics, m.Stats.Statistics())
	}
	r, tallies := reportOf(c)
	h.tallies = addTallies(h.tallies, tallies)
	h.events += r.Events
	h.reports = append(h.reports, h.part(c, r))
	h.reports = slices.Delete(h.reports, 0, max(0, len(h.reports)-h.most))
	h.ended++
	h.retiring = slices.DeleteFunc(h.retiring, func(r *turn.Core) bool { return r == c })
	return err
}

// Gather implements prometheus.Gatherer. It returns the series of the plan in force, plus what earlier plans have
// counted.
func (h *history) Gather() ([]*dto.MetricFamily, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := seriesSums{}
	families, err := h.current.Metrics.Registry.Gather()
	for _, f := range families {
		all.add(f)
	}
	for _, c := range h.retiring {
		more, wrong := c.Metrics.Registry.Gather()
		err = errors.Join(err, wrong)
		all.addCounted(more)
	}
	for _, sum := range h.series {
		all.add(sum.family)
	}
	out := make([]*dto.MetricFamily, 0, len(all))
	for _, sum := range all {
		out = append(out, sum.family)
	}
	return out, err
}

// seriesSums are sums of series, by the name of their family.
type seriesSums map[string]*familySum

// familySum is the sum of a family of series. Its series are also found by their labels.
type familySum struct {
	family   *dto.MetricFamily
	byLabels map[string]*dto.Metric
}

// addCounted adds the families that only grow: counters and histograms.
func (s seriesSums) addCounted(families []*dto.MetricFamily) {
	for _, f := range families {
		if t := f.GetType(); t == dto.MetricType_COUNTER || t == dto.MetricType_HISTOGRAM {
			s.add(f)
		}
	}
}

// add adds the series of a family to those with the same labels. It keeps no reference to the family.
func (s seriesSums) add(f *dto.MetricFamily) {
	sum := s[f.GetName()]
	if sum == nil {
		sum = &familySum{&dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}, map[string]*dto.Metric{}}
		s[f.GetName()] = sum
	}
	for _, m := range f.Metric {
		key := ""
		for _, l := range m.Label {
			key += l.GetName() + "\x00" + l.GetValue() + "\x00"
		}
		known := sum.byLabels[key]
		switch {
		case known == nil:
			known = proto.CloneOf(m)
			sum.byLabels[key], sum.family.Metric = known, append(sum.family.Metric, known)
		case known.Counter != nil && m.Counter != nil:
			known.Counter.Value = proto.Float64(known.Counter.GetValue() + m.Counter.GetValue())
		case known.Histogram != nil && m.Histogram != nil:
			addHistogram(known.Histogram, m.Histogram)
		}
	}
}

// addHistogram adds a histogram, which may have other edges. At an edge that one of the two lacks, its count is that
// at its next lower edge.
func addHistogram(to, add *dto.Histogram) {
	a, b := to.Bucket, add.Bucket
	out := make([]*dto.Bucket, 0, len(a)+1)
	below, more := uint64(0), uint64(0)

	// Merge the edges of both in ascending order.
	for i, j := 0, 0; i < len(a) || j < len(b); {
		order := 0
		switch {
		case i == len(a):
			order = 1
		case j == len(b):
			order = -1
		default:
			order = cmp.Compare(a[i].GetUpperBound(), b[j].GetUpperBound())
		}
		edge := 0.0
		if order <= 0 {
			edge, below = a[i].GetUpperBound(), a[i].GetCumulativeCount()
			i++
		}
		if order >= 0 {
			edge, more = b[j].GetUpperBound(), b[j].GetCumulativeCount()
			j++
		}
		out = append(out, &dto.Bucket{UpperBound: proto.Float64(edge), CumulativeCount: proto.Uint64(below + more)})
	}
	to.Bucket = out
	to.SampleCount = proto.Uint64(to.GetSampleCount() + add.GetSampleCount())
	to.SampleSum = proto.Float64(to.GetSampleSum() + add.GetSampleSum())
}

// statisticsOf returns the statistics of a model of the plan in force, or of all if model is empty, since the process
// began. They include all classes of the model.
func (h *history) statisticsOf(model string) (rows []oip.ModelStatistics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.current.Served.Models {
		if model == "" || m.Name == model {
			rows = turn.AddStatistics(rows, m.Stats.Statistics())
		}
	}
	add := func(s oip.ModelStatistics) {
		if slices.ContainsFunc(rows, func(r oip.ModelStatistics) bool { return r.Name == s.Name }) {
			rows = turn.AddStatistics(rows, s)
		}
	}
	for _, c := range h.retiring {
		for _, m := range c.Served.Models {
			add(m.Stats.Statistics())
		}
	}
	for _, s := range h.statistics {
		add(s)
	}
	return rows
}

// report returns the report of the plan in force. If there were other plans before, it returns the report of all of
// them, with a part for each.
func (h *history) report() *formats.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, latest := reportOf(h.current)
	if h.ended+len(h.retiring) == 0 {
		return last
	}

	// The parts of the plans.
	plans := slices.Clone(h.reports)
	tallies := addTallies(nil, h.tallies)
	out := &formats.Report{Format: last.Format, Source: last.Source, Policy: last.Policy, Runs: 1, Events: h.events + last.Events}
	for _, c := range h.retiring {
		r, more := reportOf(c)
		plans, out.Events = append(plans, h.part(c, r)), out.Events+r.Events
		tallies = addTallies(tallies, more)
	}

	// The total of all plans.
	out.Plans = append(plans, h.part(h.current, last))
	elapsed := h.current.Epoch().Sub(h.began) + h.current.Now()
	sumUp(out, addTallies(tallies, latest), elapsed)
	if left := h.ended + len(h.retiring) + 1 - len(out.Plans); left > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the first %d plans have no part of their own here", left))
	}
	return out
}

// planReport returns the report of a plan as a part of the report of several.
func (h *history) part(c *turn.Core, r *formats.Report) formats.PlanReport {
	return formats.PlanReport{
		SHA256: c.Sha, Kind: c.Plan.Kind, Policy: r.Policy, StartUS: document.Micros(c.Epoch().Sub(h.began).Truncate(time.Microsecond)), DurationUS: r.DurationUS,
		Counts: r.Counts, Latency: r.Latency, Models: r.Models, Devices: r.Devices, Transfer: r.Transfer, Events: r.Events,
		Accuracy: r.Accuracy, Gears: r.Gears, Modules: r.Modules, TokenReport: r.TokenReport, Warnings: r.Warnings,
	}
}

// modelTally is what was counted of a model, or of one class of it.
type tally struct {
	key formats.ModelClass
	slo time.Duration
	counts
	latency *hdrhistogram.Histogram
	batches map[string]int64 // number of batches, by size
}

// talliesOf returns the tallies of a core's models. Any goroutine may call it.
func talliesOf(c *turn.Core) []tally {
	out := make([]tally, len(c.Served.Models))
	for i, m := range c.Served.Models {
		out[i] = newTally(formats.ModelClass{Model: m.Name, Class: m.Class})
		t, st := &out[i], m.Stats
		st.Mu.Lock()
		t.slo, t.counts = m.Slo, counts{st.Requests, st.Completed, st.Late, slices.Clone(st.Dropped)}
		t.latency.Merge(st.Latency)
		for size := range st.Batches {
			if n := st.Batches[size].N; n > 0 {
				t.batches[strconv.Itoa(size)] = n
			}
		}
		st.Mu.Unlock()
	}
	return out
}

// newTally returns a tally without counts.
func newTally(key formats.ModelClass) tally {
	return tally{key: key, counts: counts{dropped: make([]int64, len(policy.Reasons())+1)}, latency: hdrhistogram.New(turn.ShortestLatency, turn.LongestLatency, turn.LatencyDigits), batches: map[string]int64{}}
}

// add adds another tally. The SLO becomes that of the other.
func (t *tally) add(o *tally) {
	t.slo = o.slo
	t.counts.add(&o.counts)
	t.latency.Merge(o.latency)
	for size, n := range o.batches {
		t.batches[size] += n
	}
}

// addTallies adds tallies to sums by model and class, and returns the sums. It does not change what it adds.
func addTallies(sums, more []tally) []tally {
	for k := range more {
		i := slices.IndexFunc(sums, func(s tally) bool { return s.key == more[k].key })
		if i < 0 {
			i = len(sums)
			sums = append(sums, newTally(more[k].key))
		}
		sums[i].add(&more[k])
	}
	return sums
}

// fillReport sets the models, counts and latencies of a report from tallies over a time.
func sumUp(r *formats.Report, tallies []tally, elapsed time.Duration) {
	r.DurationUS = document.Micros(elapsed.Truncate(time.Microsecond))
	total := newTally(formats.ModelClass{})
	for i := range tallies {
		t := &tallies[i]
		total.add(t)
		r.Models = append(r.Models, formats.ModelReport{
			Model: t.key.Model, Class: t.key.Class, SLOUS: document.Micros(t.slo), OfferedRPS: report.Rate(t.requests, elapsed.Seconds()), Counts: t.counts.report(elapsed), Latency: turn.Summary(t.latency),
			BatchSizes: t.batches,
		})
	}
	r.Counts, r.Latency = total.counts.report(elapsed), turn.Summary(total.latency)
	if open := total.open(); open > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d requests are still under way; they are counted as dropped (%s)", open, report.Unfinished))
	}
}
