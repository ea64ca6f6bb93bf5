package executor

import (
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// departure holds the shares that parts have of the requests, or of the time,
// against those that a plan was made for. Parts are ranges of rates (drift) or
// models (mix).
//
// A window is about a second. Older ones fade, so that what counts is about the
// last span of them.
type departure struct {
	planned []float64 // share by part
	span    float64   // windows
	limit   float64   // of the distance
	back    string    // what is said when it is small again
	metrics departureMetrics

	seen    []float64 // by part, faded
	windows int
	drifted bool
	now     float64 // distance after the last window
}

// departureMetrics are a distance, and whether it is above the limit: 0 or 1.
type departureMetrics struct{ distance, drifted prometheus.Gauge }

// A plan that drifted has come back when the distance is this much smaller.
const driftBack = 0.8

// newDeparture takes what is planned in any unit.
func newDeparture(planned []float64, span int, limit float64, back string, m departureMetrics) departure {
	return departure{planned: normal(planned), span: float64(span), limit: limit, back: back, metrics: m, seen: make([]float64, len(planned))}
}

// window takes a window, of which add says how much fell on each part. A distance
// of at most chance says nothing. notice is what is said of one that is larger.
func (d *departure) window(add []float64, chance func() float64, notice func() string, log *slog.Logger) {
	fade(d.seen, d.span, add)
	d.windows++
	d.now = d.distance()
	d.metrics.distance.Set(d.now)
	switch {
	case !d.drifted && float64(d.windows) >= d.span/2 && d.now > d.limit+chance():
		d.drifted = true
		d.metrics.drifted.Set(1)
		log.Warn(notice())
	case d.drifted && d.now < driftBack*d.limit:
		d.drifted = false
		d.metrics.drifted.Set(0)
		log.Info(d.back, "distance", round3(d.now))
	}
}

// distance is the total variation between what was seen and what was planned
// for: the share that lies in the wrong part.
func (d *departure) distance() float64 {
	sum := 0.0
	for i, s := range normal(d.seen) {
		sum += math.Abs(s - d.planned[i])
	}
	return sum / 2
}

// fade adds a window to those before it.
func fade(seen []float64, span float64, add []float64) {
	for i := range seen {
		seen[i] = (1-1/span)*seen[i] + add[i]
	}
}

func normal(v []float64) []float64 {
	out, sum := make([]float64, len(v)), tail(v)
	for i, x := range v {
		if sum > 0 {
			out[i] = x / sum
		}
	}
	return out
}

func tail(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
