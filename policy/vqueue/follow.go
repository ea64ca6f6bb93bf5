package vqueue

import "math"

// Follower recalibrates an estimator by the times of an instance: rates drift with the lengths of prompts and with
// other load. All means are exponentially weighted.
type Follower struct {
	// HalfLifeWork is the predicted work, in seconds, after which an observation counts half; 0 means 120.
	Half float64
	// HalfLifeAnswers is the number of answers after which a length counts half; 0 means 500.
	Requests float64

	took, predicted float64 // seconds that the work took, and that it was predicted to take
	total           float64 // predicted work since the start, unweighted
	squares         float64 // squared relative errors, weighted by predicted work
	outputs         lengths
	prompts         lengths
}

// tokenMoments are weighted moments of a number of tokens.
type lengths struct{ seen, weight, mean, square float64 }

// addSample adds a number of tokens. Earlier samples lose weight by the factor decay.
func (l *lengths) add(x, keep float64) {
	l.seen++
	l.weight = l.weight*keep + 1
	l.mean += (x - l.mean) / l.weight
	l.square += (x*x - l.square) / l.weight
}

// AddWork adds that an instance which was never idle took `elapsed` seconds for work that the calibrated estimator
// predicts to take predictedWork seconds.
func (f *Follower) Worked(took, predicted float64) {
	if !(predicted > 0) || !(took >= 0) || math.IsInf(took+predicted, 1) {
		return
	}
	keep := math.Exp2(-predicted / f.half())
	e := took/predicted - f.Factor()
	f.total += predicted
	f.took, f.predicted = f.took*keep+took, f.predicted*keep+predicted
	f.squares = f.squares*keep + e*e*predicted
}

// AddAnswer adds the tokens of a request that was answered.
func (f *Follower) Answered(prompt, output float64) {
	n := f.Requests
	if n == 0 {
		n = 500
	}
	keep := math.Exp2(-1 / n)
	f.prompts.add(prompt, keep)
	f.outputs.add(output, keep)
}

// halfLife returns HalfLifeWork or its default.
func (f *Follower) half() float64 {
	if f.Half == 0 {
		return 120
	}
	return f.Half
}

// priorWork returns the predicted work, in seconds, with which the calibration counts. It falls as work is
// observed.
func (f *Follower) prior() float64 { return 30 * math.Exp2(-f.total/f.half()) }

// Slowdown returns the observed time of work relative to the predicted one.
func (f *Follower) Factor() float64 { return (f.took + f.prior()) / (f.predicted + f.prior()) }

// SlowdownSD returns the standard deviation of the slowdown, given that of the calibration.
func (f *Follower) Spread(known float64) float64 {
	return math.Sqrt((f.squares + f.prior()*known*known) / (f.predicted + f.prior()))
}

// priorBatches is the number of batches of answers with which the calibration counts at first. It halves with
// every batch that is answered, because the first answers are the short ones.
const answersBefore = 4

// blend returns the mean and variance of the samples combined with those of the calibration. `batch` is the number
// of requests that run at once.
func (l *lengths) blend(mean, variance, batch float64) (m, v float64) {
	prior := answersBefore * batch * math.Exp2(-l.seen/batch)
	own := l.weight / (l.weight + prior)
	m = mean + own*(l.mean-mean)
	return m, max((1-own)*(variance+mean*mean)+own*l.square-m*m, 0)
}

// Adjust returns the estimator with the observed slowdown, error and lengths.
func (f *Follower) Adjust(r RCT) RCT {
	by := f.Factor()
	r.Alpha, r.Beta, r.Intercept = r.Alpha*by, r.Beta*by, r.Intercept*by
	r.Decode *= by
	r.Common = f.Spread(r.Common)
	if f.outputs.weight > 0 {
		r.OutputMean, r.OutputVar = f.outputs.blend(r.OutputMean, r.OutputVar, max(r.Batch, 1))
		r.PromptMean, r.PromptVar = f.prompts.blend(r.PromptMean, r.PromptVar, max(r.Batch, 1))
	}
	return r
}
