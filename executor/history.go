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
)

// planHistory sums what the plans of a process have counted, so that counters, statistics and reports continue when
// another plan comes into force.
type planHistory struct {
	mu        sync.Mutex
	startedAt time.Time // when the first plan came into force
	current   *turn.Core
	retiring  []*turn.Core // cores that are no longer in force and still answer what they have accepted

	// The fields below are sums over plans that have ended.
	series     seriesSums
	statistics []oip.ModelStatistics
	tallies    []modelTally
	events     int64
	reports    []formats.PlanReport // of the latest plans
	maxReports int                  // bound of reports
	endedPlans int                  // number of plans that have ended
}

// newPlanHistory returns a history without a plan. It keeps the reports of the last hundred plans that have ended.
func newPlanHistory() planHistory { return planHistory{series: seriesSums{}, maxReports: 100} }

// install makes a core the current one, whose plan is in force. The earlier current core, if there is one, becomes one
// of the retiring, which still answer what they have accepted. The first core sets the time at which the history begins.
func (h *planHistory) install(c *turn.Core) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.retiring = append(h.retiring, h.current)
	} else {
		h.startedAt = c.Loop.Epoch()
	}
	h.current = c
}

// addEnded is called when a retiring core has answered everything. It adds the core's metrics, statistics and counts to
// the sums of earlier plans, stores its part of the report (the last maxReports parts are stored), and removes the core
// from the retiring. An error of its metrics is returned at the end, after all of this.
func (h *planHistory) addEnded(c *turn.Core) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	families, err := c.Metrics.Registry.Gather()
	h.series.addCounted(families)
	for _, m := range c.ServedModels.Models {
		h.statistics = turn.AddStatistics(h.statistics, m.Stats.Statistics())
	}
	r, tallies := reportOf(c)
	h.tallies = addTallies(h.tallies, tallies)
	h.events += r.Events
	h.reports = append(h.reports, h.planReport(c, r))
	h.reports = slices.Delete(h.reports, 0, max(0, len(h.reports)-h.maxReports))
	h.endedPlans++
	h.retiring = slices.DeleteFunc(h.retiring, func(r *turn.Core) bool { return r == c })
	return err
}

// Gather implements prometheus.Gatherer for the metrics page. It returns all series of the plan in force. Counters and
// histograms also include what the plans before it have counted, both those that still answer requests (retiring) and
// those that have ended, so that a switch of plans sets no counter back.
func (h *planHistory) Gather() ([]*dto.MetricFamily, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sums := seriesSums{}
	families, err := h.current.Metrics.Registry.Gather()
	for _, f := range families {
		sums.add(f)
	}
	for _, c := range h.retiring {
		counted, gatherErr := c.Metrics.Registry.Gather()
		err = errors.Join(err, gatherErr)
		sums.addCounted(counted)
	}
	for _, sum := range h.series {
		sums.add(sum.family)
	}
	gathered := make([]*dto.MetricFamily, 0, len(sums))
	for _, sum := range sums {
		gathered = append(gathered, sum.family)
	}
	return gathered, err
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

// add adds the series of a family to the sum of the family of the same name. A series (one set of labels) that the sum
// lacks is copied. Of one that it has, counters and histograms are added up; other types, such as gauges, stay as they
// are. It keeps no reference to f.
func (s seriesSums) add(f *dto.MetricFamily) {
	sum := s[f.GetName()]
	if sum == nil {
		sum = &familySum{&dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}, map[string]*dto.Metric{}}
		s[f.GetName()] = sum
	}
	for _, m := range f.Metric {
		// The key of a series is its labels in their order.
		key := ""
		for _, l := range m.Label {
			key += l.GetName() + "\x00" + l.GetValue() + "\x00"
		}
		summed := sum.byLabels[key]
		switch {
		case summed == nil:
			summed = proto.CloneOf(m)
			sum.byLabels[key], sum.family.Metric = summed, append(sum.family.Metric, summed)
		case summed.Counter != nil && m.Counter != nil:
			summed.Counter.Value = proto.Float64(summed.Counter.GetValue() + m.Counter.GetValue())
		case summed.Histogram != nil && m.Histogram != nil:
			addHistogram(summed.Histogram, m.Histogram)
		}
	}
}

// addHistogram adds the counts of histogram add to histogram to. Plans may have different bucket edges, so the result
// has the edges of both. At an edge that one of the two lacks, that one's cumulative count is taken from its next lower
// edge.
func addHistogram(to, add *dto.Histogram) {
	a, b := to.Bucket, add.Bucket
	merged := make([]*dto.Bucket, 0, len(a)+1)
	countBelow, addedBelow := uint64(0), uint64(0)

	// Merge the edges of both in ascending order. countBelow and addedBelow are the cumulative counts at the last edge
	// passed in each.
	for i, j := 0, 0; i < len(a) || j < len(b); {
		comparison := 0
		switch {
		case i == len(a):
			comparison = 1
		case j == len(b):
			comparison = -1
		default:
			comparison = cmp.Compare(a[i].GetUpperBound(), b[j].GetUpperBound())
		}
		edge := 0.0
		if comparison <= 0 {
			edge, countBelow = a[i].GetUpperBound(), a[i].GetCumulativeCount()
			i++
		}
		if comparison >= 0 {
			edge, addedBelow = b[j].GetUpperBound(), b[j].GetCumulativeCount()
			j++
		}
		merged = append(merged, &dto.Bucket{UpperBound: proto.Float64(edge), CumulativeCount: proto.Uint64(countBelow + addedBelow)})
	}
	to.Bucket = merged
	to.SampleCount = proto.Uint64(to.GetSampleCount() + add.GetSampleCount())
	to.SampleSum = proto.Float64(to.GetSampleSum() + add.GetSampleSum())
}

// statisticsOf returns statistics since the process began, over all plans, for the inference protocol: of one model of
// the plan in force, or of each of its models if model is empty. A model's SLO classes are added up.
func (h *planHistory) statisticsOf(model string) (rows []oip.ModelStatistics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Take the models of the plan in force.
	for _, m := range h.current.ServedModels.Models {
		if model == "" || m.Name == model {
			rows = turn.AddStatistics(rows, m.Stats.Statistics())
		}
	}
	// Add what earlier plans counted for the same models, first plans that still answer requests, then those that have
	// ended.
	add := func(s oip.ModelStatistics) {
		if slices.ContainsFunc(rows, func(r oip.ModelStatistics) bool { return r.Name == s.Name }) {
			rows = turn.AddStatistics(rows, s)
		}
	}
	for _, c := range h.retiring {
		for _, m := range c.ServedModels.Models {
			add(m.Stats.Statistics())
		}
	}
	for _, s := range h.statistics {
		add(s)
	}
	return rows
}

// report returns the report of `plan serve`. If the process has had one plan, it is that plan's. Otherwise it has the
// totals over all plans since the process began and, in Plans, a part for each: the last ended ones, those that still
// answer requests (retiring), and the one in force.
func (h *planHistory) report() *formats.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	current, latest := reportOf(h.current)
	if h.endedPlans+len(h.retiring) == 0 {
		return current
	}

	// The parts of the plans.
	plans := slices.Clone(h.reports)
	tallies := addTallies(nil, h.tallies)
	total := &formats.Report{Format: current.Format, Source: current.Source, Policy: current.Policy, Runs: 1, Events: h.events + current.Events}
	for _, c := range h.retiring {
		r, tallied := reportOf(c)
		plans, total.Events = append(plans, h.planReport(c, r)), total.Events+r.Events
		tallies = addTallies(tallies, tallied)
	}

	// The total of all plans.
	total.Plans = append(plans, h.planReport(h.current, current))
	elapsed := h.current.Loop.Epoch().Sub(h.startedAt) + h.current.Loop.Now()
	fillReport(total, addTallies(tallies, latest), elapsed)
	if omitted := h.endedPlans + len(h.retiring) + 1 - len(total.Plans); omitted > 0 {
		total.Warnings = append(total.Warnings, fmt.Sprintf("the first %d plans have no part of their own here", omitted))
	}
	return total
}

// planReport returns the report of a plan as a part of the report of several.
func (h *planHistory) planReport(c *turn.Core, r *formats.Report) formats.PlanReport {
	return formats.PlanReport{
		SHA256: c.PlanSHA, Kind: c.Plan.Kind, Policy: r.Policy, StartUS: document.Micros(c.Loop.Epoch().Sub(h.startedAt).Truncate(time.Microsecond)), DurationUS: r.DurationUS,
		Counts: r.Counts, Latency: r.Latency, Models: r.Models, Devices: r.Devices, Transfer: r.Transfer, Events: r.Events,
		Accuracy: r.Accuracy, Gears: r.Gears, Modules: r.Modules, TokenReport: r.TokenReport, Warnings: r.Warnings,
	}
}

// modelTally holds the counts of a model, or of one class of it.
type modelTally struct {
	key formats.ModelClass
	slo time.Duration
	requestCounts
	latency *hdrhistogram.Histogram
	batches map[string]int64 // number of batches, by size
}

// talliesOf returns a copy of the counts, latencies and batch sizes of each model and class that a core serves, in the
// core's order. Any goroutine may call it.
func talliesOf(c *turn.Core) []modelTally {
	out := make([]modelTally, len(c.ServedModels.Models))
	for i, m := range c.ServedModels.Models {
		out[i] = newTally(formats.ModelClass{Model: m.Name, Class: m.Class})
		t, st := &out[i], m.Stats
		st.Mu.Lock()
		t.slo, t.requestCounts = m.Slo, requestCounts{st.Requests, st.Completed, st.Late, slices.Clone(st.Dropped)}
		t.latency.Merge(st.Latency)
		for size := range st.Batches {
			if n := st.Batches[size].Count; n > 0 {
				t.batches[strconv.Itoa(size)] = n
			}
		}
		st.Mu.Unlock()
	}
	return out
}

// newTally returns a tally without counts.
func newTally(key formats.ModelClass) modelTally {
	return modelTally{key: key, requestCounts: newCounts(), latency: hdrhistogram.New(turn.MinLatencyUS, turn.MaxLatencyUS, turn.LatencyDigits), batches: map[string]int64{}}
}

// add adds another tally. The SLO becomes that of the other.
func (t *modelTally) add(o *modelTally) {
	t.slo = o.slo
	t.requestCounts.add(&o.requestCounts)
	t.latency.Merge(o.latency)
	for size, n := range o.batches {
		t.batches[size] += n
	}
}

// addTallies adds tallies (counts of a model and class) to those of the same model and class in sums, and returns sums,
// extended by models that it lacked. It does not change `added`.
func addTallies(sums, added []modelTally) []modelTally {
	for k := range added {
		i := slices.IndexFunc(sums, func(s modelTally) bool { return s.key == added[k].key })
		if i < 0 {
			i = len(sums)
			sums = append(sums, newTally(added[k].key))
		}
		sums[i].add(&added[k])
	}
	return sums
}

// fillReport sets a report's duration, models, counts and latencies from the tallies (counts by model and class) of
// `elapsed`. Requests without an answer so far are counted as dropped, and a warning is added that says so.
func fillReport(r *formats.Report, tallies []modelTally, elapsed time.Duration) {
	r.DurationUS = document.Micros(elapsed.Truncate(time.Microsecond))
	total := newTally(formats.ModelClass{})
	for i := range tallies {
		t := &tallies[i]
		total.add(t)
		r.Models = append(r.Models, formats.ModelReport{
			Model: t.key.Model, Class: t.key.Class, SLOUS: document.Micros(t.slo), OfferedRPS: report.Rate(t.requests, elapsed.Seconds()), Counts: t.requestCounts.report(elapsed), Latency: turn.LatencySummary(t.latency),
			BatchSizes: t.batches,
		})
	}
	r.Counts, r.Latency = total.requestCounts.report(elapsed), turn.LatencySummary(total.latency)
	if open := total.unfinished(); open > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d requests are still under way; they are counted as dropped (%s)", open, report.Unfinished))
	}
}
