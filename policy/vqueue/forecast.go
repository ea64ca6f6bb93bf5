package vqueue

import "math"

const (
	// Constants of the adaptive width. It aims at a little more than nine of ten, because it always reacts late.
	// widthStep and coverageGoal are the values with which the coverage of the quarters of the first halves of
	// bench/qlm's rows is nearest to nine of ten.
	aimedShare  = 0.92
	normalWidth = 1.2815515655446004 // standard deviations from the mean to the 90 % quantile of a normal
	leastWidth  = 0.1
	mostWidth   = 4
	widthStep   = 0.2
)

// WaitQuantile keeps a quantile of waits above nine of ten of them, however the work drifts. After each forecast wait
// the quantile moves: up if the wait exceeded it, else down by about a ninth of that. This is the gradient of the
// quantile loss. Its coverage is right in the long run for any sequence (Gibbs and Candès, NeurIPS 2021). The zero
// value is the quantile of a normal.
type Coverage struct{ moved float64 }

// Width returns by how many standard deviations the quantile is above the mean.
func (c *Coverage) Width() float64 { return normalWidth + c.moved }

// Scale returns the factor for standard deviations: the width relative to that of a normal.
func (c *Coverage) Scale() float64 { return c.Width() / normalWidth }

// Observe moves the quantile after a start that deviated from its mean by `deviation` standard deviations and was
// forecast with the given width.
func (c *Coverage) Saw(late, width float64) {
	switch {
	case math.IsNaN(late):
		return
	case late > width:
		c.moved += widthStep * aimedShare
	default:
		c.moved -= widthStep * (1 - aimedShare)
	}
	c.moved = min(max(c.moved, leastWidth-normalWidth), mostWidth-normalWidth)
}

// RequestPrice is the time of an instance, in seconds, that a request is expected to take: for each token of its prompt,
// and for its answer. Variance is the variance of the whole.
type Price struct{ Prompt, Rest, Variance float64 }

// Price returns the price of a request of which only the prompt is known.
func (r *RCT) Price() Price {
	return Price{r.Alpha, r.Beta * r.OutputMean, r.Varies(1, r.Alpha*r.PromptMean+r.Beta*r.OutputMean)}
}

// forecastDepths has the seconds of expected work after which a forecast is compared with the start. For each
// depth, forecastsPerDepth forecasts run at the same time, with evenly spaced starts.
var ahead = [...]float64{8, 24, 72, 216}

const atOnce = 2

// Forecast predicts when an instance starts the requests further back in its queue, and compares the prediction
// with the starts. It counts only while the instance is saturated, and only after a whole batch has started
// meanwhile: the first requests of an empty batch start at once, and none ends for a while.
type Forecast struct {
	// Quantile learns how late starts are, and Pace learns the time from start to start. Forecasts may share them.
	Cover  *Coverage
	Pace   *Follower
	kinds  int     // number of kinds of requests
	starts int     // since the instance became saturated
	last   float64 // time of the last start, in seconds
	work   float64 // expected work, in seconds, between it and the next start
	marks  [len(ahead) * atOnce]mark
	prices []Price // by forecast and kind of request, as they were when the forecast began
}

// pendingForecast is a forecast that began with a start: the work that was expected since then.
type mark struct {
	began          float64 // time of that start, in seconds
	width          float64 // width of the quantile at that time
	due            float64 // seconds of work after which the forecast is judged; 0 if it has not begun
	work, variance float64 // expected seconds since the start, and their variance
}

// NewForecast returns a forecast for this many kinds of requests.
func NewForecast(kinds int, cover *Coverage, pace *Follower) Forecast {
	return Forecast{Cover: cover, Pace: pace, kinds: kinds, prices: make([]Price, kinds*len(ahead)*atOnce)}
}

// Reset ends all pending forecasts: the instance is no longer saturated, or has loaded another network.
func (f *Forecast) Reset() {
	f.starts, f.work = 0, 0
	clear(f.marks[:])
}

// ObserveStart adds the start of a request of a kind while concurrentRequests ran. unpacedPrice is its price
// without the pace, and prices are those of all kinds with it. The relative error of the throughput, commonSD, is
// common to all work.
func (f *Forecast) Started(now float64, beside, kind int, prompt float64, bare Price, prices []Price, common float64) {
	// Skip the first batch.
	if f.starts++; f.starts <= beside {
		return
	}

	// Learn the pace: the time since the last start, against the work that was expected.
	if f.work > 0 {
		f.Pace.Worked(now-f.last, f.work)
	}
	f.last, f.work = now, bare.Prompt*prompt+bare.Rest

	// Update the forecasts: judge those that are due, restart them, and add the request's work to all.
	for i := range f.marks {
		m, own := &f.marks[i], f.prices[i*f.kinds:][:f.kinds]
		if m.work >= m.due {
			depth := ahead[i/atOnce]
			if m.due > 0 {
				f.Cover.Saw((now-m.began-m.work)/math.Sqrt(m.variance+common*common*m.work*m.work+1e-9), m.width)
			} else {
				depth *= float64(1+i%atOnce) / atOnce
			}
			*m = mark{began: now, due: depth, width: f.Cover.Width()}
			copy(own, prices)
		}
		p := &own[kind]
		m.work += p.Prompt*prompt + p.Rest
		m.variance += p.Variance
	}
}

// WithPace returns the estimator with all times multiplied by the pace of the starts so far.
func (f *Follower) Paced(r RCT) RCT {
	by := f.Factor()
	r.Alpha, r.Beta, r.Intercept, r.Noise = r.Alpha*by, r.Beta*by, r.Intercept*by, r.Noise*by
	return r
}
