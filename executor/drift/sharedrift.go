package drift

import (
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
)

// Limit is the distance from which on another plan is due, and the number of windows over which observations fade.
type Limit struct {
	Distance float64
	Windows  int
}

// Alarm is raised while a distance is above its limit.
type Alarm struct {
	gauge      prometheus.Gauge // 1 while the alarm is raised, else 0
	endMessage string           // message of the log when the alarm ends
	raised     bool
}

// NewAlarm returns an alarm that is not raised, and registers its gauge under the name of a series.
func NewAlarm(name, help, endMessage string, reg prometheus.Registerer) *Alarm {
	a := &Alarm{gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + name, Help: help}), endMessage: endMessage}
	reg.MustRegister(a.gauge)
	return a
}

// alarmEndFraction is the fraction of the limit below which an alarm ends.
const alarmEndFraction = 0.8

// Update raises the alarm if distance, by which measured values depart from the plan's, is above limit + margin: it sets
// the gauge to 1 and logs the notice as a warning. margin is the distance that chance alone may give; 0 allows for none.
// A raised alarm ends when the distance is below alarmEndFraction of the limit. Between the two nothing changes, so that
// the alarm does not flicker.
func (a *Alarm) Update(distance, limit, margin float64, notice func() string, log *slog.Logger) {
	switch {
	case !a.raised && distance > limit+margin:
		a.raised = true
		a.gauge.Set(1)
		log.Warn(notice())
	case a.raised && distance < alarmEndFraction*limit:
		a.raised = false
		a.gauge.Set(0)
		log.Info(a.endMessage, "distance", math.Round(distance*1000)/1000)
	}
}

// kind names what a watcher compares: its two series and the message of the log when an alarm ends.
type kind struct {
	distance, distanceHelp string // gauge of the distance after the last window
	due, dueHelp           string // gauge of the alarm
	endMessage             string
	randomDraws            bool // the observations are requests drawn at random, not times
}

// The kinds of shares that are watched.
var (
	mixKind = kind{
		"mix_distance", "How far the recent mix of models is from the planned one: total variation, 0 to 1.",
		"replan_due", "1 while mix_distance is so large that another plan is due; the log tells the command.",
		"the mix of models is again the planned one", true,
	}
	rateKind = kind{
		"qps_drift", "How far the rates seen are from those planned for: total variation, 0 to 1.",
		"qps_drifted", "1 while qps_drift is so large that another plan is due; the log tells the command.",
		"the rates seen are again those planned for", false,
	}
	forwardKind = kind{
		"forward_drift", "Share of the recent samples that other members answered than planned: total variation, 0 to 1.",
		"forward_drifted", "1 while forward_drift is so large that other records and another plan are due.",
		"samples are again forwarded as planned", true,
	}
)

// shareDrift compares the observed shares of parts of the requests, or of the time, with the shares that a plan was
// made for. Parts are ranges of rates, models or members of a cascade.
//
// A window is about a second. Older windows fade, so that about the last limit.Windows of them count.
type shareDrift struct {
	alarm         *Alarm
	limit         Limit
	randomDraws   bool
	distance      prometheus.Gauge
	plannedShares []float64     // by part
	recent        []float64     // by part: faded sum of the windows
	windows       int           // number of windows so far
	lastWindowEnd time.Duration // end of the last window that endWindow was told of
}

// newShareDrift returns a drift of a kind from planned amounts in any unit, and registers its series.
func newShareDrift(k kind, plannedAmounts []float64, l Limit, reg prometheus.Registerer) shareDrift {
	distance := prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + k.distance, Help: k.distanceHelp})
	reg.MustRegister(distance)
	return shareDrift{alarm: NewAlarm(k.due, k.dueHelp, k.endMessage, reg), limit: l, randomDraws: k.randomDraws, distance: distance, plannedShares: sharesOf(plannedAmounts), recent: make([]float64, len(plannedAmounts))}
}

// endWindow returns how long the window that ends now was.
func (d *shareDrift) endWindow(now time.Duration) (duration time.Duration) {
	duration, d.lastWindowEnd = now-d.lastWindowEnd, now
	return duration
}

// addWindow adds a window with its amounts by part (model, range of rates) to sums in which older windows fade, and
// updates the alarm, once half of the limit's windows were seen.
func (d *shareDrift) addWindow(parts []float64, notice func() string, log *slog.Logger) {
	d.addFaded(d.recent, parts)
	d.windows++
	distance := d.totalVariation()
	d.distance.Set(distance)
	if d.alarm.raised || 2*d.windows >= d.limit.Windows {
		d.alarm.Update(distance, d.limit.Distance, d.chanceDistance(), notice, log)
	}
}

// chanceDistance returns a bound of the distance that chance alone explains. With n draws over k parts, the total
// variation between the draws and their distribution has a mean of at most sqrt(k/n)/2, and exceeds it by
// sqrt(ln(1/p)/(2n)) with probability at most p (McDiarmid). Here p is 1/10,000.
func (d *shareDrift) chanceDistance() float64 {
	if !d.randomDraws {
		return 0
	}
	n := sum(d.recent)
	return math.Sqrt(float64(len(d.recent))/n)/2 + math.Sqrt(math.Log(1e4)/(2*n))
}

// totalVariation returns the total variation between the observed and the planned shares: the share that is in the
// wrong part.
func (d *shareDrift) totalVariation() float64 {
	total := 0.0
	for i, s := range sharesOf(d.recent) {
		total += math.Abs(s - d.plannedShares[i])
	}
	return total / 2
}

// addFaded multiplies earlier observations by 1 - 1/Windows and adds a window.
func (d *shareDrift) addFaded(faded, window []float64) {
	for i := range faded {
		faded[i] = (1-1/float64(d.limit.Windows))*faded[i] + window[i]
	}
}

// sharesOf returns the amounts divided by their sum. If the sum is 0, all shares are 0.
func sharesOf(v []float64) []float64 {
	shares, total := make([]float64, len(v)), sum(v)
	for i, x := range v {
		if total > 0 {
			shares[i] = x / total
		}
	}
	return shares
}

// sum returns the sum of a list of numbers, for example of rates in requests per second.
func sum(v []float64) float64 {
	total := 0.0
	for _, x := range v {
		total += x
	}
	return total
}
