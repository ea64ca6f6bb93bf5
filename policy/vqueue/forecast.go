package vqueue

import "math"

// How the width of a quantile adapts. It aims at a little more than nine of ten, because it is always late. Step and
// aim are those with which the first halves of the rows of bench/qlm, parted into quarters, are nearest to nine of ten.
const (
	aimedShare  = 0.92
	normalWidth = 1.2815515655446004 // standard deviations from the mean to the 90 % quantile of a normal
	leastWidth  = 0.1
	mostWidth   = 4
	widthStep   = 0.2
)

// Coverage keeps a quantile of waits above nine of ten of them, however the work drifts. After each wait that was
// foretold the quantile moves: up if the wait passed it, and down by about a ninth of that if not. That is the gradient
// of the quantile loss, whose coverage is right in the long run for any sequence (Gibbs and Candès, NeurIPS 2021).
// The zero value is the quantile of a normal.
type Coverage struct{ moved float64 }

// Width returns the standard deviations by which the quantile is above the mean.
func (c *Coverage) Width() float64 { return normalWidth + c.moved }

// Scale returns the factor for standard deviations: the width over that of a normal.
func (c *Coverage) Scale() float64 { return c.Width() / normalWidth }

// Saw moves the quantile by a start that came so many standard deviations after its mean, foretold with a width.
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

// Price is what a request is expected to take of an instance, in seconds: for each token of its prompt, and besides.
// Variance is that of the whole.
type Price struct{ Prompt, Rest, Variance float64 }

// Price returns the price of a request of which only the prompt is known.
func (r *RCT) Price() Price {
	return Price{r.Alpha, r.Beta * r.OutputMean, r.Varies(1, r.Alpha*r.PromptMean+r.Beta*r.OutputMean)}
}

// ahead are the seconds of expected work after which a start is held against what was foretold, and atOnce is how
// many forecasts of each are under way, evenly apart.
var ahead = [...]float64{8, 24, 72, 216}

const atOnce = 2

// Forecast foretells when an instance starts what is further back in its queue, and holds it against the starts. It
// works while the instance has more to do than it can take, once a batch was started meanwhile: the first requests of
// a batch that was empty start at once, and none ends for a while.
type Forecast struct {
	// Cover is told how late starts are, and Pace how much time passes from start to start. Forecasts may share them.
	Cover  *Coverage
	Pace   *Follower
	kinds  int
	starts int     // since the instance had less to do
	last   float64 // start
	work   float64 // that was expected from it to the next
	marks  [len(ahead) * atOnce]mark
	prices []Price // by mark and kind of request, as they were when the mark began
}

// mark is a start, and the work that was expected to come before another one.
type mark struct {
	began          float64
	width          float64 // of the quantile then
	due            float64 // work after which the forecast is judged; 0: the mark has not begun
	work, variance float64
}

// NewForecast tells so many kinds of requests apart.
func NewForecast(kinds int, cover *Coverage, pace *Follower) Forecast {
	return Forecast{Cover: cover, Pace: pace, kinds: kinds, prices: make([]Price, kinds*len(ahead)*atOnce)}
}

// Reset ends the forecasts that are under way: the instance has no more to do than it can take, or another model.
func (f *Forecast) Reset() {
	f.starts, f.work = 0, 0
	clear(f.marks[:])
}

// Started tells that a request of a kind started beside so many, what it is expected to take without the pace, and what
// requests of all kinds are with it. The error of the throughput, common, is shared by all work.
func (f *Forecast) Started(now float64, beside, kind int, prompt float64, bare Price, prices []Price, common float64) {
	if f.starts++; f.starts <= beside {
		return
	}
	if f.work > 0 {
		f.Pace.Worked(now-f.last, f.work)
	}
	f.last, f.work = now, bare.Prompt*prompt+bare.Rest
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

// Paced returns the estimator with all times multiplied by the pace of the starts so far.
func (f *Follower) Paced(r RCT) RCT {
	by := f.Factor()
	r.Alpha, r.Beta, r.Intercept, r.Noise = r.Alpha*by, r.Beta*by, r.Intercept*by, r.Noise*by
	return r
}
