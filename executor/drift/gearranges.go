package drift

import (
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/formats"
)

// RateDrift compares the request rates of a gear plan with those that it was made for. The gears are the best ones at
// every rate, but the division of devices among models and the planned accuracy depend on how often each rate occurs.
//
// Windows without requests do not count, because nothing was asked of the plan. Rates above the plan's largest fall
// into further ranges of the same width.
type RateDrift struct {
	deviation       shareDrift
	Rates           RateHistory // the rates in the order of time
	ratesURL        string
	plan            *formats.Plan
	rangeGauges     []prometheus.Gauge // by planned range: share of the requests
	width           float64            // of a range, in requests per second
	byTime          bool               // the planned shares are of the time, not of the requests
	recentRequests  []float64          // by range, faded
	countedRequests int64              // number of requests until the end of the last window
}

// maxRangeFactor is the multiple of the planned largest rate up to which ranges are distinguished.
const maxRangeFactor = 4

// NewRateDrift returns the watch that compares the rates of requests with those for which a gear plan was made, as
// shares of its ranges: the rates from 0 to the plan's maximum are divided into ranges of one width, one for each gear.
// There are more ranges above the maximum, for which nothing is planned. It registers its series. The notice of a drift
// names url, from which the rates can be fetched; if it is empty, they cannot.
func NewRateDrift(plan *formats.Plan, l Limit, url string, reg prometheus.Registerer) *RateDrift {
	g := formats.GearOf(plan)
	n := len(g.Gears)
	// Windows are classified by their rates, so they are compared with the shares of the rates. If the plan was made
	// from measured rates, its weights are of the gears in force instead.
	isMeasured := slices.ContainsFunc(g.Gears, func(r formats.Gear) bool { return r.RateShare > 0 })
	plannedAmounts := make([]float64, maxRangeFactor*n)
	for i := range g.Gears {
		if plannedAmounts[i] = g.Gears[i].Weight; isMeasured {
			plannedAmounts[i] = g.Gears[i].RateShare
		}
	}
	seenGauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "qps_share", Help: "Share of the recent requests that came at the rates of a gear."}, []string{"gear"})
	reg.MustRegister(seenGauges)
	r := &RateDrift{
		deviation: newShareDrift(rateKind, plannedAmounts, l, reg),
		ratesURL:  url, plan: plan, width: g.MaxQPS / float64(n), byTime: g.Weights == "zipf" || g.Weights == "uniform",
		recentRequests: make([]float64, len(plannedAmounts)),
	}
	for i := range g.Gears {
		r.rangeGauges = append(r.rangeGauges, seenGauges.WithLabelValues(strconv.Itoa(i)))
	}
	return r
}

// Window is called at the end of each window of time (about a second), with the number of requests since the start. The
// whole window counts for the range of its mean rate: by its requests or by its time, whichever the plan's shares are
// of. It adds the rate to the history, lets older windows fade, and raises the alarm if the shares are too far from the
// plan's. A window without requests only enters the history.
func (r *RateDrift) Window(now time.Duration, requestsSoFar int64, log *slog.Logger) {
	n, duration := requestsSoFar-r.countedRequests, r.deviation.endWindow(now)
	r.countedRequests = requestsSoFar
	if duration > 0 {
		r.Rates.Add(n, duration)
	}
	if n == 0 || duration <= 0 {
		return
	}

	// The window falls into one range.
	window := make([]float64, len(r.deviation.plannedShares))
	rangeIndex := min(int(float64(n)/duration.Seconds()/r.width), len(window)-1)
	window[rangeIndex] = float64(n)
	r.deviation.addFaded(r.recentRequests, window)
	for i, s := range r.shares()[:len(r.rangeGauges)] {
		r.rangeGauges[i].Set(s)
	}
	if r.byTime {
		window[rangeIndex] = duration.Seconds()
	}
	r.deviation.addWindow(window, func() string { return r.notice(r.ratesURL) }, log)
}

// Report adds the drift of the rates to the report of a server that has ended, with a warning if the alarm was
// raised. The rates cannot be fetched any more, so the warning has them.
func (r *RateDrift) Report(out *formats.Report) {
	if r.deviation.windows > 0 {
		out.Gears.Drift, out.Gears.ObservedShares = r.deviation.totalVariation(), r.shares()
	}
	if r.deviation.alarm.raised {
		out.Warnings = append(out.Warnings, r.notice(""))
	}
}

// shares returns the shares of the requests by range.
func (r *RateDrift) shares() []float64 { return sharesOf(r.recentRequests) }

// notice returns the text of the alarm: how far the rates are from those planned for, and the commands that make a new
// plan. With url the rates themselves are fetched, in their order; they make the better plan, because a histogram does
// not show which gear answers when rates stay near the edge of two ranges. If url is empty, the text has the histogram
// of the recent rates.
func (r *RateDrift) notice(url string) string {
	n := len(r.rangeGauges)
	shares := r.shares()
	for n < len(shares) && sum(shares[n:]) > 0.001 { // rates above the plan's ranges
		n++
	}
	files, workload := InputFlags(r.plan.Inputs)
	largest := strconv.FormatFloat(r.width*float64(n), 'g', 6, 64)
	fetch, qps := "", ""
	if url != "" {
		// Twice the windows are fetched, because faded observations are on average that old.
		fetch = fmt.Sprintf("type `curl -fsS '%s?last=%d' -o %s` in the plan's folder, ", url, 2*r.deviation.limit.Windows, path.Join(path.Dir(workload), "rates.csv"))
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
		r.deviation.totalVariation(), map[bool]string{true: "time", false: "requests"}[r.byTime], r.deviation.limit.Distance, fetch, workload, qps, files, optionFlags(r.plan))
}

// optionFlags returns the flags of `plan solve` with which a gear plan was made, except for its documents, so that a
// notice can say what to type. Options with their default are left out.
func optionFlags(p *formats.Plan) string {
	var flags strings.Builder
	add := func(name string, value any) { fmt.Fprintf(&flags, " --%s %v", name, value) }
	if p.Objective.Name == "cost" || p.Objective.Name == "power" { // other objectives follow from the SLO
		add("objective", p.Objective.Name)
	}
	options := p.Options.PlanForm()
	for _, o := range options.Options() {
		if options.IsChosen(o.Name) && options.Get(o.Name) != o.Initial() {
			add(o.Name, o.Text(options.Get(o.Name)))
		}
	}
	if p.Seed != 1 {
		add("seed", p.Seed)
	}
	return flags.String()
}
