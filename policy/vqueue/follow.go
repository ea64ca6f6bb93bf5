package vqueue

import "math"

// Follower keeps an estimator near what an instance does: rates drift with the
// lengths of prompts and with what else runs. All means are exponentially weighted.
type Follower struct {
	// Half is the amount of predicted work, in seconds, after which an observation
	// counts half; 0 is 120.
	Half float64
	// Requests is the number of answers after which a length counts half; 0 is 500.
	Requests float64

	took, predicted float64
	total           float64 // predicted work in all, unweighted
	squares         float64 // of relative errors, weighted by predicted work
	outputs         lengths
	prompts         lengths
}

// lengths are moments of a number of tokens.
type lengths struct{ seen, weight, mean, square float64 }

func (l *lengths) add(x, keep float64) {
	l.seen++
	l.weight = l.weight*keep + 1
	l.mean += (x - l.mean) / l.weight
	l.square += (x*x - l.square) / l.weight
}

// Worked tells that an instance which was never idle took this many seconds for
// work that the estimator, as calibrated, predicts to take so many.
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

// Answered tells the lengths of a request that was answered.
func (f *Follower) Answered(prompt, output float64) {
	n := f.Requests
	if n == 0 {
		n = 500
	}
	keep := math.Exp2(-1 / n)
	f.prompts.add(prompt, keep)
	f.outputs.add(output, keep)
}

func (f *Follower) half() float64 {
	if f.Half == 0 {
		return 120
	}
	return f.Half
}

// prior is the predicted work, in seconds, that counts for the calibration at first.
func (f *Follower) prior() float64 { return 30 * math.Exp2(-f.total/f.half()) }

// Factor is how much longer work takes than predicted.
func (f *Follower) Factor() float64 { return (f.took + f.prior()) / (f.predicted + f.prior()) }

// Spread is the standard deviation of that factor, where it was known to be so much
// before.
func (f *Follower) Spread(known float64) float64 {
	return math.Sqrt((f.squares + f.prior()*known*known) / (f.predicted + f.prior()))
}

// answersBefore is the number of batches of answers that count for the calibration at first. It halves with every
// batch that is answered, for the first answers are the short ones.
const answersBefore = 4

// blend is the mean and variance with those of the calibration, where so many are answered at once.
func (l *lengths) blend(mean, variance, batch float64) (m, v float64) {
	prior := answersBefore * batch * math.Exp2(-l.seen/batch)
	own := l.weight / (l.weight + prior)
	m = mean + own*(l.mean-mean)
	return m, max((1-own)*(variance+mean*mean)+own*l.square-m*m, 0)
}

// Adjust is the estimator as the follower sees it.
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
