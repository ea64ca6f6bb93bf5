package drift

import (
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Limit is the distance from which on another plan is due, and the number of windows over which observations fade.
type Limit struct {
	Distance float64
	Windows  int
}

// Alarm is raised while a distance is above its limit.
type Alarm struct {
	Gauge      prometheus.Gauge // 1 while the alarm is raised, else 0
	EndMessage string           // message of the log when the alarm ends
	raised     bool
}

// alarmEndFraction is the fraction of the limit below which an alarm ends.
const alarmEndFraction = 0.8

// Update raises the alarm if the distance is above limit + margin, and logs the notice. It ends the alarm if the
// distance is well below the limit.
func (a *Alarm) Update(distance, limit, margin float64, notice func() string, log *slog.Logger) {
	switch {
	case !a.raised && distance > limit+margin:
		a.raised = true
		a.Gauge.Set(1)
		log.Warn(notice())
	case a.raised && distance < alarmEndFraction*limit:
		a.raised = false
		a.Gauge.Set(0)
		log.Info(a.EndMessage, "distance", math.Round(distance*1000)/1000)
	}
}

// shareDrift compares the observed shares of parts of the requests, or of the time, with the shares that a plan was
// made for. Parts are ranges of rates, models or members of a cascade.
//
// A window is about a second. Older windows fade, so that about the last limit.Windows of them count.
type shareDrift struct {
	Alarm
	limit         Limit
	randomDraws   bool             // the observations are requests drawn at random, not times
	distance      prometheus.Gauge // gauge of the distance after the last window
	plannedShares []float64        // by part
	recent        []float64        // by part: faded sum of the windows
	windows       int              // number of windows so far
}

// newShareDrift returns a drift from planned amounts in any unit.
func newShareDrift(plannedAmounts []float64, l Limit, random bool, a Alarm, distance prometheus.Gauge) shareDrift {
	return shareDrift{Alarm: a, limit: l, randomDraws: random, distance: distance, plannedShares: sharesOf(plannedAmounts), recent: make([]float64, len(plannedAmounts))}
}

// addWindow adds a window with its amounts by part (model, range of rates) to sums in which older windows fade, and
// updates the alarm, once half of the limit's windows were seen.
func (d *shareDrift) addWindow(parts []float64, notice func() string, log *slog.Logger) {
	d.addFaded(d.recent, parts)
	d.windows++
	distance := d.totalVariation()
	d.distance.Set(distance)
	if d.raised || 2*d.windows >= d.limit.Windows {
		d.Update(distance, d.limit.Distance, d.chanceDistance(), notice, log)
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
