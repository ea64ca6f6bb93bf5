package vqueue

import "math"

const (
	// Constants of the adaptive width. It aims at a little more than nine of ten, because it always reacts late. widthStep is the step of a
	// forecast over stepDepth seconds of work. They were chosen by the coverage of the first halves of bench/qlm's rows, forwards,
	// backwards and with their quarters and eighths in other orders, with half-lives of lengths (Follower) of 250 and 300 answers.
	coverageGoal = 0.92
	normalWidth  = 1.2815515655446004 // standard deviations from the mean to the 90 % quantile of a normal
	minWidth     = 0.1
	maxWidth     = 4
	widthStep    = 0.2
	stepDepth    = 24
)

// WaitQuantile estimates a quantile that nine of ten waits stay below, however the work drifts. After each forecast wait
// the quantile moves: up if the wait exceeded it, else down by about a ninth of that. This is the gradient of the
// quantile loss. Its coverage is right in the long run for any sequence (Gibbs and Candès, NeurIPS 2021). A forecast
// moves it in proportion to the square root of its depth: short forecasts are many and say little of long waits, which
// they would make narrow while the work drifts. The zero value is the quantile of a normal.
type WaitQuantile struct {
	offset float64 // by how many standard deviations the quantile lies above that of a normal
}

// Width returns by how many standard deviations the quantile, which nine of ten waits stay below, lies above the mean wait.
func (c *WaitQuantile) Width() float64 { return normalWidth + c.offset }

// Scale returns the factor by which standard deviations of waits are to be multiplied, so that the 90 % quantile of a normal lies at the
// observed quantile.
func (c *WaitQuantile) Scale() float64 { return c.Width() / normalWidth }

// Observe moves the quantile after a start was observed: it came `deviation` standard deviations after its mean, the quantile was
// `width` standard deviations above the mean when it was forecast, and `depth` seconds of work were in front of it then.
func (c *WaitQuantile) Observe(deviation, width, depth float64) {
	step := widthStep * math.Sqrt(depth/stepDepth)
	switch {
	case math.IsNaN(deviation):
		return
	// The steps balance if the share coverageGoal of the deviations is below the width.
	case deviation > width:
		c.offset += step * coverageGoal
	default:
		c.offset -= step * (1 - coverageGoal)
	}
	c.offset = min(max(c.offset, minWidth-normalWidth), maxWidth-normalWidth)
}

// RequestWork is the time of an instance, in seconds, that a request of some kind is expected to take: for each token of its prompt,
// and for its answer. Variance is the variance of the whole.
type RequestWork struct{ PerPromptToken, PerRequest, Variance float64 }

// RequestWork returns the instance's time that a request is expected to take if only its prompt is known.
func (r *RCT) RequestWork() RequestWork {
	return RequestWork{r.Alpha, r.Beta * r.OutputMean, r.AnswerVariance(1, r.Alpha*r.PromptMean+r.Beta*r.OutputMean)}
}

// forecastDepths has the seconds of expected work after which a forecast is compared with the start that comes then. For each
// depth, forecastsPerDepth forecasts run at the same time, with evenly spaced starts.
var forecastDepths = [...]float64{8, 24, 72, 216}

const forecastsPerDepth = 2

// Forecast predicts when an instance starts the requests further back in its queue, and compares the prediction
// with the starts. It counts only while the instance is saturated, and only after a whole batch has started
// meanwhile: the first requests of an empty batch start at once, and none ends for a while.
type Forecast struct {
	// Quantile learns how late starts are, and Pace learns the time between starts relative to the expected time. Forecasts may share them.
	Quantile       *WaitQuantile
	Pace           *Follower
	requestKinds   int     // number of kinds of requests
	starts         int     // number of starts since the instance became saturated
	lastStart      float64 // time of the last start, in seconds
	expectedWork   float64 // expected seconds of work between it and the next start
	pending        [len(forecastDepths) * forecastsPerDepth]pendingForecast
	workOfForecast []RequestWork // by pending forecast and kind of request: the expected work of a request when the forecast began
}

// pendingForecast is a forecast that began with a start: the work that was expected between that start and later ones.
type pendingForecast struct {
	startedAt      float64 // time of that start, in seconds
	width          float64 // WaitQuantile.Width at that time
	judgeAfter     float64 // seconds of work after which the forecast is compared with the time that has passed; 0 if it has not begun
	work, variance float64 // expected seconds of work since the start, and their variance
}

// NewForecast returns a forecast of starts for this many kinds of requests.
// It moves the quantile `cover` and the follower `pace` by what it observes.
func NewForecast(kinds int, cover *WaitQuantile, pace *Follower) Forecast {
	return Forecast{Quantile: cover, Pace: pace, requestKinds: kinds, workOfForecast: make([]RequestWork, kinds*len(forecastDepths)*forecastsPerDepth)}
}

// Reset ends all pending forecasts, because the instance is no longer saturated or has loaded another network.
func (f *Forecast) Reset() {
	f.starts, f.expectedWork = 0, 0
	clear(f.pending[:])
}

// ObserveStart is called when a saturated instance starts a request of a kind, at `now` in seconds, beside concurrentRequests that run.
// It learns the pace: the time between two starts relative to the work that was expected between them.
//
// Work is the instance's time that requests are expected to take. Each pending forecast says that the requests which start from its own
// start on take as long as their work. It is judged when the work of these requests has reached its depth (judgeAfter, in seconds): the
// time that has passed then is later or earlier than the work, and by this deviation the quantile moves.
//
// workBeforePace is the expected work of the request before it is corrected by the pace. requestWorks has the corrected work of all kinds,
// which a forecast that begins now keeps. commonSD is the relative error of the throughput, which all work shares.
func (f *Forecast) ObserveStart(now float64, concurrentRequests, kind int, prompt float64, workBeforePace RequestWork, requestWorks []RequestWork, commonSD float64) {
	// Skip the first batch, whose requests start at once.
	f.starts++
	if f.starts <= concurrentRequests {
		return
	}

	// Learn the pace: the time since the last start, against the work that was expected.
	if f.expectedWork > 0 {
		f.Pace.AddWork(now-f.lastStart, f.expectedWork)
	}
	f.lastStart, f.expectedWork = now, workBeforePace.PerPromptToken*prompt+workBeforePace.PerRequest

	// Update the forecasts: judge those that are due, restart them, and add the request's work to all. forecastWorks has, by kind of request,
	// the work that was expected when the forecast began.
	for i := range f.pending {
		pending, forecastWorks := &f.pending[i], f.workOfForecast[i*f.requestKinds:][:f.requestKinds]
		if pending.work >= pending.judgeAfter {
			depth := forecastDepths[i/forecastsPerDepth] // forecasts of one depth are neighbours
			if pending.judgeAfter > 0 {
				f.judge(now, pending, commonSD)
			} else {
				// The forecast has never begun (judgeAfter 0). The first ones of a depth get parts of it: number 0 of n an n-th, number 1 two n-ths.
				// So they are not all judged at once.
				depth *= float64(1+i%forecastsPerDepth) / forecastsPerDepth
			}
			*pending = pendingForecast{startedAt: now, judgeAfter: depth, width: f.Quantile.Width()}
			copy(forecastWorks, requestWorks)
		}
		requestWork := &forecastWorks[kind]
		pending.work += requestWork.PerPromptToken*prompt + requestWork.PerRequest
		pending.variance += requestWork.Variance
	}
}

// judge gives the deviation of a forecast that is due to the quantile, which compares it with the width that it had when the forecast began.
// The deviation is the time that passed beyond the forecast's work, in standard deviations: those of the requests' own work, and commonSD of
// all of it. `now` is in seconds.
func (f *Forecast) judge(now float64, due *pendingForecast, commonSD float64) {
	sd := math.Sqrt(due.variance + commonSD*commonSD*due.work*due.work + minVariance)
	f.Quantile.Observe((now-due.startedAt-due.work)/sd, due.width, due.judgeAfter)
}

// WithPace returns the estimator with all times multiplied by the follower's pace: the time between starts over the expected time.
// NoiseVariance, in squared seconds per second of work, grows by the same factor.
func (f *Follower) WithPace(estimator RCT) RCT {
	factor := f.Slowdown()
	estimator.Alpha *= factor
	estimator.Beta *= factor
	estimator.Intercept *= factor
	estimator.NoiseVariance *= factor
	return estimator
}
