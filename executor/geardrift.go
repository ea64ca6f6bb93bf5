package executor

import (
	"fmt"
	"log/slog"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// drift holds the rates that a gear plan sees against those that it was made
// for. Its gears are the best for every rate, but how devices were divided
// among models, and the planned accuracy, rest on how often each rate occurs.
//
// A window is about a second. Windows without requests do not count: nothing
// was asked of the plan. Older ones fade, so that what counts is about the last
// DriftWindows of them. Rates above the plan's largest fall into further ranges
// of the same width.
type drift struct {
	opt     *Options
	plan    *formats.Plan
	metrics *gearMetrics
	width   float64   // of a range
	planned []float64 // share by range
	byTime  bool      // planned are shares of the time, not of the requests

	rates rates // in their order

	windows  int
	requests []float64 // by range, faded
	time     []float64
	last     time.Duration // end of the last window
	counted  int64         // requests until then
	drifted  bool
	now      float64 // distance after the last window
}

// Beyond how many times the planned largest rate ranges are not told apart.
const driftRanges = 4

// A plan that drifted has come back when the distance is this much smaller.
const driftBack = 0.8

func newDrift(plan *formats.Plan, t *policy.Tables, o *Options, m *gearMetrics) *drift {
	g := formats.GearOf(plan)
	n := len(g.Gears)
	d := &drift{opt: o, plan: plan, metrics: m, width: gear.Of(t).MaxQPS / float64(n), byTime: g.Weights == "zipf" || g.Weights == "uniform"}
	d.planned = make([]float64, driftRanges*n)
	// Windows are told apart by their rates, and so are the shares that they are
	// held against: of measured rates, weights are of the gears in force instead.
	share := func(r *formats.Gear) float64 { return r.Weight }
	if slices.ContainsFunc(g.Gears, func(r formats.Gear) bool { return r.RateShare > 0 }) {
		share = func(r *formats.Gear) float64 { return r.RateShare }
	}
	total := 0.0
	for i := range g.Gears {
		d.planned[i] = share(&g.Gears[i])
		total += d.planned[i]
	}
	for i := range d.planned {
		if total > 0 {
			d.planned[i] /= total
		}
	}
	d.requests, d.time = make([]float64, len(d.planned)), make([]float64, len(d.planned))
	return d
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
	at := min(int(float64(n)/took.Seconds()/d.width), len(d.planned)-1)
	keep := 1 - 1/float64(d.opt.DriftWindows)
	for i := range d.requests {
		d.requests[i] *= keep
		d.time[i] *= keep
	}
	d.requests[at] += float64(n)
	d.time[at] += took.Seconds()
	d.windows++
	d.now = d.distance()
	d.metrics.drift.Set(d.now)
	shares := d.shares()
	for i := range d.metrics.seen {
		d.metrics.seen[i].Set(shares[i])
	}
	switch {
	case !d.drifted && d.windows >= d.opt.DriftWindows/2 && d.now > d.opt.DriftLimit:
		d.drifted = true
		d.metrics.drifted.Set(1)
		log.Warn(d.notice(d.opt.RatesURL))
	case d.drifted && d.now < driftBack*d.opt.DriftLimit:
		d.drifted = false
		d.metrics.drifted.Set(0)
		log.Info("the rates seen are again those planned for", "drift", round3(d.now))
	}
}

// shares are the shares of the requests by range.
func (d *drift) shares() []float64 { return normal(d.requests) }

func normal(v []float64) []float64 {
	out, sum := make([]float64, len(v)), 0.0
	for _, x := range v {
		sum += x
	}
	for i, x := range v {
		if sum > 0 {
			out[i] = x / sum
		}
	}
	return out
}

// distance is the total variation between what was seen and what was planned
// for: the share that lies in the wrong range.
func (d *drift) distance() float64 {
	seen := d.requests
	if d.byTime {
		seen = d.time
	}
	sum := 0.0
	for i, s := range normal(seen) {
		sum += math.Abs(s - d.planned[i])
	}
	return sum / 2
}

// notice says what differs and what to type. The rates themselves, in their
// order, make the better plan: a histogram does not tell which gear answers
// where rates hover at the edge of two ranges. Where url, which gives them, is
// empty, the histogram has to do.
func (d *drift) notice(url string) string {
	n := len(d.metrics.seen)
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
	if p.Algorithm == "em" {
		add("algorithm", p.Algorithm)
	}
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

func tail(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
