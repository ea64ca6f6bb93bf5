package executor

import (
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// drift holds the rates that a gear plan sees against those that it was made
// for. Its gears are the best for every rate, but how devices were divided
// among models, and the planned accuracy, rest on how often each rate occurs.
//
// Windows without requests do not count: nothing was asked of the plan. Rates above
// the plan's largest fall into further ranges of the same width.
type drift struct {
	departure
	opt      *Options
	plan     *formats.Plan
	seenBy   []prometheus.Gauge // by planned range: share of the requests
	width    float64            // of a range
	byTime   bool               // planned are shares of the time, not of the requests
	rates    rates              // in their order
	requests []float64          // by range, faded
	last     time.Duration      // end of the last window
	counted  int64              // requests until then
}

// Beyond how many times the planned largest rate ranges are not told apart.
const driftRanges = 4

func newDrift(plan *formats.Plan, t *policy.Tables, o *Options, m *gearMetrics) *drift {
	g := formats.GearOf(plan)
	n := len(g.Gears)
	// Windows are told apart by their rates, and so are the shares that they are
	// held against: of measured rates, weights are of the gears in force instead.
	measured := slices.ContainsFunc(g.Gears, func(r formats.Gear) bool { return r.RateShare > 0 })
	planned := make([]float64, driftRanges*n)
	for i := range g.Gears {
		if planned[i] = g.Gears[i].Weight; measured {
			planned[i] = g.Gears[i].RateShare
		}
	}
	return &drift{
		departure: newDeparture(planned, o.DriftWindows, o.DriftLimit, "the rates seen are again those planned for", departureMetrics{m.drift, m.drifted}),
		opt:       o, plan: plan, seenBy: m.seen, width: gear.Of(t).MaxQPS / float64(n), byTime: g.Weights == "zipf" || g.Weights == "uniform",
		requests: make([]float64, len(planned)),
	}
}

// window takes the requests that came until now.
func (d *drift) window(now time.Duration, arrived int64, log *slog.Logger) {
	n, took := arrived-d.counted, now-d.last
	d.counted, d.last = arrived, now
	if took > 0 {
		d.rates.add(n, took)
	}
	if n == 0 || took <= 0 {
		return
	}
	add := make([]float64, len(d.planned))
	at := min(int(float64(n)/took.Seconds()/d.width), len(add)-1)
	add[at] = float64(n)
	fade(d.requests, d.span, add)
	for i, s := range d.shares()[:len(d.seenBy)] {
		d.seenBy[i].Set(s)
	}
	if d.byTime {
		add[at] = took.Seconds()
	}
	d.departure.window(add, func() float64 { return 0 }, func() string { return d.notice(d.opt.RatesURL) }, log)
}

// shares are the shares of the requests by range.
func (d *drift) shares() []float64 { return normal(d.requests) }

// notice says what differs and what to type. The rates themselves, in their
// order, make the better plan: a histogram does not tell which gear answers
// where rates hover at the edge of two ranges. Where url, which gives them, is
// empty, the histogram has to do.
func (d *drift) notice(url string) string {
	n := len(d.seenBy)
	shares := d.shares()
	for n < len(shares) && tail(shares[n:]) > 0.001 { // rates that the plan has no range for
		n++
	}
	files, workload := planInputs(d.plan.Inputs)
	largest := strconv.FormatFloat(d.width*float64(n), 'g', 6, 64)
	fetch, qps := "", ""
	if url != "" {
		// Twice the windows, since those that fade are on average as old.
		fetch = fmt.Sprintf("type `curl -fsS '%s?last=%d' -o %s` in the plan's folder, ", url, 2*d.opt.DriftWindows, path.Join(path.Dir(workload), "rates.csv"))
		qps = fmt.Sprintf("{measured: rates.csv, max: %s, ranges: %d}", largest, n)
	} else {
		histogram := make([]string, n)
		for i := range histogram {
			histogram[i] = strconv.FormatFloat(shares[i], 'f', 3, 64)
		}
		qps = fmt.Sprintf("{max: %s, histogram: [%s]}", largest, strings.Join(histogram, ", "))
	}
	return fmt.Sprintf("the rates seen are not those planned for (%.2f of the %s in other ranges, limit %.2f): to re-plan, %swrite under cascade in %s `qps: %s`, "+
		"type `plan solve --method gear%s%s -o plan.json` in the plan's folder, and send SIGHUP",
		d.now, map[bool]string{true: "time", false: "requests"}[d.byTime], d.opt.DriftLimit, fetch, workload, qps, files, choices(d.plan))
}

// choices are the flags that made a gear plan what it is beside its documents.
func choices(p *formats.Plan) string {
	var out strings.Builder
	add := func(name string, value any) { fmt.Fprintf(&out, " --%s %v", name, value) }
	if p.Objective.Name == "cost" || p.Objective.Name == "power" { // the SLO says the others
		add("objective", p.Objective.Name)
	}
	kept := p.Options.Kept()
	for _, o := range kept.Options() {
		if kept.Chosen(o.Name) && kept.Get(o.Name) != o.Initial() {
			add(o.Name, o.Text(kept.Get(o.Name)))
		}
	}
	if p.Seed != 1 {
		add("seed", p.Seed)
	}
	return out.String()
}
