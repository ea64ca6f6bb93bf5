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
	Gauge prometheus.Gauge // 1 while the alarm is raised, else 0
	Back  string           // message of the log when the alarm ends
	on    bool
}

// alarmEndFraction is the fraction of the limit below which an alarm ends.
const alarmEnds = 0.8

// Update raises the alarm if the distance is above limit + margin, and logs the notice. It ends the alarm if the
// distance is well below the limit.
func (a *Alarm) Update(distance, limit, margin float64, notice func() string, log *slog.Logger) {
	switch {
	case !a.on && distance > limit+margin:
		a.on = true
		a.Gauge.Set(1)
		log.Warn(notice())
	case a.on && distance < alarmEnds*limit:
		a.on = false
		a.Gauge.Set(0)
		log.Info(a.Back, "distance", math.Round(distance*1000)/1000)
	}
}

// shareDrift compares the observed shares of parts of the requests, or of the time, with the shares that a plan was
// made for. Parts are ranges of rates, models or members of a cascade.
//
// A window is about a second. Older windows fade, so that about the last limit.Windows of them count.
type departure struct {
	Alarm
	limit    Limit
	random   bool             // the observations are requests drawn at random, not times
	distance prometheus.Gauge // gauge of the distance after the last window
	planned  []float64        // by part
	seen     []float64        // by part: faded sum of the windows
	windows  int              // number of windows so far
}

// newShareDrift returns a drift from planned amounts in any unit.
func newDeparture(planned []float64, l Limit, random bool, a Alarm, distance prometheus.Gauge) departure {
	return departure{Alarm: a, limit: l, random: random, distance: distance, planned: normal(planned), seen: make([]float64, len(planned))}
}

// addWindow adds a window with the amounts by part, and updates the alarm once there are enough windows.
func (d *departure) add(parts []float64, notice func() string, log *slog.Logger) {
	d.fade(d.seen, parts)
	d.windows++
	distance := d.variation()
	d.distance.Set(distance)
	if d.on || 2*d.windows >= d.limit.Windows {
		d.Update(distance, d.limit.Distance, d.chance(), notice, log)
	}
}

// chanceDistance returns a bound of the distance that chance alone explains. With n draws over k parts, the total
// variation between the draws and their distribution has a mean of at most sqrt(k/n)/2, and exceeds it by
// sqrt(ln(1/p)/(2n)) with probability at most p (McDiarmid). Here p is 1/10,000.
func (d *departure) chance() float64 {
	if !d.random {
		return 0
	}
	n := sum(d.seen)
	return math.Sqrt(float64(len(d.seen))/n)/2 + math.Sqrt(math.Log(1e4)/(2*n))
}

// totalVariation returns the total variation between the observed and the planned shares: the share that is in the
// wrong part.
func (d *departure) variation() float64 {
	total := 0.0
	for i, s := range normal(d.seen) {
		total += math.Abs(s - d.planned[i])
	}
	return total / 2
}

// addFaded multiplies earlier observations by 1 - 1/Windows and adds a window.
func (d *departure) fade(seen, window []float64) {
	for i := range seen {
		seen[i] = (1-1/float64(d.limit.Windows))*seen[i] + window[i]
	}
}

// sharesOf returns the amounts divided by their sum. If the sum is 0, all shares are 0.
func normal(v []float64) []float64 {
	out, all := make([]float64, len(v)), sum(v)
	for i, x := range v {
		if all > 0 {
			out[i] = x / all
		}
	}
	return out
}

func sum(v []float64) float64 {
	total := 0.0
	for _, x := range v {
		total += x
	}
	return total
}
