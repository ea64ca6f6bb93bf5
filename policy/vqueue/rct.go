package vqueue

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"inferplan/solver/stoch"
)

// RCT estimates when requests of one kind are answered on one kind of device:
// QLM's section 6 with corrections.
//
//   - A request's share of the instance is Alpha per prompt token and Beta per output
//     token. The paper counts output tokens alone (equation 2), which is wrong where
//     prompts are long.
//   - Waiting has an intercept, below 0: the first batch does not wait.
//   - The residence of a request is Prefill and Decode per output token. Decode has
//     the paper's inefficiency factor in it (equation 4).
type RCT struct {
	Alpha, Beta float64 // seconds of the instance per token of prompt and output
	Intercept   float64 // seconds
	Prefill     float64 // seconds
	Decode      float64 // seconds per output token with a full batch
	Alone       float64 // seconds per output token of a request alone; 0: as Decode
	Batch       float64 // requests that run at once

	PromptMean, PromptVar float64
	OutputMean, OutputVar float64
	// Common is the standard deviation of the throughput's own error.
	Common float64

	// What a calibration knows besides; without it waiting times vary as answers do, and
	// residences are normal.

	// Filling is how long the first batch takes to start, as a part of its work: its
	// prompts are computed one after the other.
	Filling float64
	// Noise is the variance that waiting gains per second of work, and Fitted the work
	// that the estimator was fitted to, of which its own error comes.
	Noise, Fitted float64
	// Stays are residences with a full batch, equally likely, ascending.
	Stays []float64
	// TailScale and TailShape are those of the generalised Pareto distribution by which
	// residences pass the last eighth's least; without them the tail is exponential.
	TailScale, TailShape float64
}

// Work is the mean and variance of the instance's time for n requests.
func (r *RCT) Work(n float64) (mean, variance float64) {
	return n * (r.Alpha*r.PromptMean + r.Beta*r.OutputMean), n * (r.Alpha*r.Alpha*r.PromptVar + r.Beta*r.Beta*r.OutputVar)
}

// Varies is the variance of the time of n requests whose prompts are known, and which take so much work in the mean: that
// of their answers, or what the calibration saw if that is more.
func (r *RCT) Varies(n, work float64) float64 {
	return max(n*r.Beta*r.Beta*r.OutputVar, r.Noise*work)
}

// Wait is the waiting time behind this much work, in seconds of the instance: the
// paper's equation 2 with an intercept.
func (r *RCT) Wait(work float64) float64 { return max(0, r.Filling*work, r.Intercept+work) }

// Waiting is the waiting time behind work whose answers are not known. It varies
// with those answers and with what else makes the instance slower or faster, which the
// noise has both, and with the error of the estimator: it was fitted to a queue that
// varied as much.
func (r *RCT) Waiting(work float64) stoch.Normal {
	wait := r.Wait(work)
	return stoch.Normal{Mu: wait, Sigma: math.Sqrt(r.Strays(work) + r.Common*r.Common*wait*wait)}
}

// Strays is the variance of the time that work takes whose answers are not known: of
// the work itself, and of the fit.
func (r *RCT) Strays(work float64) float64 {
	if r.Fitted == 0 {
		return r.Noise * work
	}
	return r.Noise * (work + work*work/r.Fitted)
}

// Answered is the time to the answer of a request behind work whose answers are not
// known, with a full batch.
func (r *RCT) Answered(work float64) stoch.Dist {
	wait := r.Waiting(work)
	if len(r.Stays) > 0 {
		return stoch.Plus(wait, r.Stays)
	}
	mean, variance := r.Residence(1)
	return stoch.Normal{Mu: wait.Mu + mean, Sigma: math.Hypot(wait.Sigma, math.Sqrt(variance))}
}

// Residence is the mean and variance of the time from start to answer where the
// batch is filled to a share from 0 to 1 (equations 1 and 4).
func (r *RCT) Residence(fill float64) (mean, variance float64) {
	d := r.Decode
	if r.Alone > 0 {
		d = r.Alone + min(max(fill, 0), 1)*(r.Decode-r.Alone)
	}
	return r.Prefill + d*r.OutputMean, d * d * r.OutputVar
}

// reach is the mean and variance of the time from start to a point of a request's
// way with a full batch.
func (r *RCT) reach(p milestone) (mean, variance float64) {
	switch p {
	case answered:
		return r.Residence(1)
	case answering:
		return r.Prefill + r.Decode, 0
	}
	return 0, 0
}

// PerToken is the time per output token of a request with a batch of n, over as many
// tokens as the mean answer has: those that the iterations take which bring it, with
// the prompts that come in them.
func (r *RCT) PerToken(n float64) stoch.Normal {
	d, prompts := r.Decode, n*(r.PromptVar+r.PromptMean*r.PromptMean)
	if r.Alone > 0 {
		d = r.Alone + (n-1)/max(r.Batch-1, 1)*(r.Decode-r.Alone)
	}
	return stoch.Normal{Mu: d, Sigma: r.Alpha * math.Sqrt(prompts) / max(r.OutputMean, 1)}
}

// Concurrency is the largest batch in which this share of requests takes no longer
// per output token than slo seconds; at least one.
func (r *RCT) Concurrency(slo, share float64) int32 {
	n := 1.0
	for n < r.Batch && r.PerToken(n+1).Quantile(share) <= slo {
		n++
	}
	return int32(n)
}

// Throughput is the paper's token generation throughput Theta: mean output tokens
// per request by the instance's time for one. Finished tokens by elapsed time is
// less, because it misses what is not finished and the time to fill the batch.
func (r *RCT) Throughput() float64 {
	work, _ := r.Work(1)
	return r.OutputMean / work
}

// Cost is that of a group of n requests on a queue that is filled.
func (r *RCT) Cost(n float64) Cost {
	var c Cost
	c.Work, c.Variance = r.Work(n)
	c.Residence, c.ResidenceVar = r.Residence(1)
	return c
}

// Served is a request of a calibration run: a queue that was there at time 0 and
// was drained, in order of start.
type Served struct {
	Prompt, Output float64
	Start, End     float64 // seconds
}

// settled is the number of batches after which starts follow the work: the first
// batch starts at once.
const settled = 1.2

// Calibrate fits an estimator to a drained queue. Batch is how many requests ran
// at once.
func Calibrate(run []Served, batch float64) (*RCT, error) {
	first := int(settled * batch)
	if !(batch >= 1) || len(run)-first < 10 {
		return nil, fmt.Errorf("calibrating: found %d requests with a batch of %g, expected at least %d", len(run), batch, first+10)
	}
	r := &RCT{Batch: batch}
	prompts, outputs, stays := make([]float64, len(run)), make([]float64, len(run)), make([]float64, len(run))
	for i, s := range run {
		if !(s.End >= s.Start) || !(s.Start >= 0) || !(s.Prompt >= 0) || !(s.Output >= 1) || math.IsInf(s.End+s.Prompt+s.Output, 1) {
			return nil, fmt.Errorf("calibrating: request %d: found %+v, expected finite times in order and at least one token", i, s)
		}
		prompts[i], outputs[i], stays[i] = s.Prompt, s.Output, s.End-s.Start
	}
	r.PromptMean, r.PromptVar = stat.MeanVariance(prompts, nil)
	r.OutputMean, r.OutputVar = stat.MeanVariance(outputs, nil)
	// Requests that start while the queue waits see a full batch to their end.
	full := max(len(run)-int(batch), first)
	r.Prefill, r.Decode = stat.LinearRegression(outputs[:full], stays[:full], nil, false)
	if r.Prefill < 0 || math.IsNaN(r.Decode) {
		r.Prefill, r.Decode = 0, stat.Mean(stays[:full], nil)/r.OutputMean
	}
	r.fitWork(run, first)
	if w, _ := r.Work(1); !(w > 0) {
		return nil, fmt.Errorf("calibrating: found %g seconds per request, expected more than 0: starts do not follow the queue", w)
	}
	r.fitNoise(run, first)
	r.Stays = spread(stays[:full])
	r.fitTail(stays[:full])
	return r, nil
}

// kept is the number of residences that an estimator keeps.
const kept = 64

// spread is equally spaced quantiles of a list.
func spread(list []float64) []float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := min(kept, len(sorted))
	out := make([]float64, n)
	for k := range out {
		out[k] = sorted[(2*k+1)*len(sorted)/(2*n)]
	}
	return out
}

// apart is the number of batches after which the errors of starts are taken as
// independent: requests of one batch slow each other.
const apart = 2

// fitNoise measures how starts stray from what is predicted without the answers'
// lengths, by pairs of starts that are some batches apart. That is at least what the
// lengths alone make. The fit itself takes out of the starts' errors what a line can,
// for which the pairs' part of the queue corrects.
func (r *RCT) fitNoise(run []Served, first int) {
	work, filled, squares := make([]float64, len(run)), 0.0, 0.0
	for i := range run[1:] {
		work[i+1] = work[i] + r.Alpha*run[i].Prompt + r.Beta*r.OutputMean
	}
	for i := range min(int(r.Batch), len(run)) {
		filled, squares = filled+run[i].Start*work[i], squares+work[i]*work[i]
	}
	if squares > 0 {
		r.Filling = min(max(filled/squares, 0), 1)
	}
	r.Fitted = work[len(work)-1]
	rest := len(run) - first
	lag := max(1, min(int(apart*r.Batch), rest/2))
	strayed, of := 0.0, 0.0
	for i := first; i+lag < len(run); i++ {
		d := run[i+lag].Start - run[i].Start - (work[i+lag] - work[i])
		strayed, of = strayed+d*d, of+work[i+lag]-work[i]
	}
	one, variance := r.Work(1)
	variance -= r.Alpha * r.Alpha * r.PromptVar // prompts are known
	r.Noise = max(variance/one, strayed/of/(1-float64(lag)/float64(rest)))
}

// fitWork fits starts by the prompt and output tokens ahead.
func (r *RCT) fitWork(run []Served, first int) {
	n := len(run) - first
	a, b := mat.NewDense(n, 3, nil), mat.NewVecDense(n, nil)
	var in, out float64
	for i, s := range run {
		if i >= first {
			a.SetRow(i-first, []float64{1, in / r.PromptMean, out / r.OutputMean})
			b.SetVec(i-first, s.Start)
		}
		in, out = in+s.Prompt, out+s.Output
	}
	var x mat.VecDense
	if err := x.SolveVec(a, b); err == nil && x.AtVec(1) >= 0 && x.AtVec(2) >= 0 {
		r.Intercept, r.Alpha, r.Beta = x.AtVec(0), x.AtVec(1)/r.PromptMean, x.AtVec(2)/r.OutputMean
		return
	}
	// Prompts and outputs ahead grow together: one slope for requests, shared out by
	// tokens.
	k, starts := make([]float64, n), make([]float64, n)
	for i := range k {
		k[i], starts[i] = float64(first+i), run[first+i].Start
	}
	var slope float64
	r.Intercept, slope = stat.LinearRegression(k, starts, nil, false)
	r.Alpha, r.Beta = 0, slope/r.OutputMean
}
