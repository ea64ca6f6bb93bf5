package vqueue

import (
	"fmt"
	"math"

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
}

// Work is the mean and variance of the instance's time for n requests.
func (r *RCT) Work(n float64) (mean, variance float64) {
	return n * (r.Alpha*r.PromptMean + r.Beta*r.OutputMean), n * (r.Alpha*r.Alpha*r.PromptVar + r.Beta*r.Beta*r.OutputVar)
}

// Wait is the waiting time behind this much work, in seconds of the instance: the
// paper's equation 2 with an intercept.
func (r *RCT) Wait(work float64) float64 { return max(0, r.Intercept+work) }

// Residence is the mean and variance of the time from start to answer where the
// batch is filled to a share from 0 to 1 (equations 1 and 4).
func (r *RCT) Residence(fill float64) (mean, variance float64) {
	d := r.Decode
	if r.Alone > 0 {
		d = r.Alone + min(max(fill, 0), 1)*(r.Decode-r.Alone)
	}
	return r.Prefill + d*r.OutputMean, d * d * r.OutputVar
}

// Throughput is the paper's token generation throughput Theta: mean output tokens
// per request by the instance's time for one. Finished tokens by elapsed time is
// less, because it misses what is not finished and the time to fill the batch.
func (r *RCT) Throughput() float64 {
	work, _ := r.Work(1)
	return r.OutputMean / work
}

// Completion is the time to the answer of a request behind work with this mean and
// variance.
func (r *RCT) Completion(work, variance, fill float64) stoch.Normal {
	wait := r.Wait(work)
	mean, rest := r.Residence(fill)
	return stoch.Normal{Mu: wait + mean, Sigma: math.Sqrt(variance + rest + r.Common*r.Common*wait*wait)}
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
	return r, nil
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
