package drift

import (
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Limit says from which distance on another plan is due, and over how many windows what
// is seen counts.
type Limit struct {
	Distance float64
	Windows  int
}

// Alarm asks for another plan while a distance is above its limit.
type Alarm struct {
	Gauge prometheus.Gauge // 1 while it is raised, else 0
	Back  string           // message of the log when it is no more
	on    bool
}

// An alarm ends below this part of its limit.
const alarmEnds = 0.8

// Update raises the alarm if the distance is above limit + margin, with a notice in the
// log, and ends it if the distance is well below the limit.
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

// departure holds the shares that parts have of the requests, or of the time, against
// those that a plan was made for. Parts are ranges of rates, models or members of a
// cascade.
//
// A window is about a second. Older ones fade, so that what counts is about the
// last limit.Windows of them.
type departure struct {
	Alarm
	limit    Limit
	random   bool             // what is seen are requests drawn at random, not times
	distance prometheus.Gauge // after the last window
	planned  []float64        // share by part
	seen     []float64        // by part, faded
	windows  int
}

// newDeparture takes what is planned in any unit.
func newDeparture(planned []float64, l Limit, random bool, a Alarm, distance prometheus.Gauge) departure {
	return departure{Alarm: a, limit: l, random: random, distance: distance, planned: normal(planned), seen: make([]float64, len(planned))}
}

// add takes a window, of which parts says how much fell on each.
func (d *departure) add(parts []float64, notice func() string, log *slog.Logger) {
	d.fade(d.seen, parts)
	d.windows++
	distance := d.variation()
	d.distance.Set(distance)
	if d.on || 2*d.windows >= d.limit.Windows {
		d.Update(distance, d.limit.Distance, d.chance(), notice, log)
	}
}

// chance bounds the distance that chance alone explains: the total variation between n
// draws and their distribution over k parts has a mean of at most sqrt(k/n)/2 and
// exceeds it by sqrt(ln(1/p)/(2n)) with probability p at most (McDiarmid). Here p is one
// in 10,000.
func (d *departure) chance() float64 {
	if !d.random {
		return 0
	}
	n := sum(d.seen)
	return math.Sqrt(float64(len(d.seen))/n)/2 + math.Sqrt(math.Log(1e4)/(2*n))
}

// variation returns the total variation between what was seen and what was planned
// for: the share that lies in the wrong part.
func (d *departure) variation() float64 {
	total := 0.0
	for i, s := range normal(d.seen) {
		total += math.Abs(s - d.planned[i])
	}
	return total / 2
}

// fade adds a window to those before it.
func (d *departure) fade(seen, window []float64) {
	for i := range seen {
		seen[i] = (1-1/float64(d.limit.Windows))*seen[i] + window[i]
	}
}

// normal returns shares that add up to 1, or zeros.
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
