package vqueue

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"inferplan/solver/stoch"
)

// RCT estimates when requests of one kind are answered on one kind of device (request completion time): QLM's
// section 6 with corrections.
//
//   - A request takes Alpha of the instance's time per prompt token and Beta per output token. The paper counts output
//     tokens alone (equation 2), which is wrong for long prompts.
//   - The waiting time has an intercept below 0: the first batch does not wait.
//   - The residence of a request is Prefill and Decode per output token. Decode includes the paper's inefficiency factor
//     (equation 4).
type RCT struct {
	Alpha, Beta float64 // seconds of the instance per token of prompt and output
	Intercept   float64 // seconds by which waiting differs from the work ahead; usually below 0
	Prefill     float64 // seconds from start to the first token
	Decode      float64 // seconds per output token with a full batch
	DecodeAlone float64 // seconds per output token of a request that runs alone; 0 means the same as Decode
	Batch       float64 // requests that run at once; 0 if requests cannot run on the kind of device

	// Mean and variance of the tokens of prompts and answers.
	PromptMean, PromptVar float64
	OutputMean, OutputVar float64
	// CommonSD is the relative standard deviation of the error of the throughput.
	CommonSD float64

	// The following fields come from a calibration. Without it waiting times vary as answers do, and residences are
	// normal.

	// FillShare is the time until the first batch has started, relative to its work: its prompts are computed one
	// after the other.
	FillShare float64
	// NoiseVariance is the variance that waiting gains per second of work. FittedWork is the work, in seconds, of
	// the queue that the estimator was fitted to; it determines the error of the fit.
	NoiseVariance, FittedWork float64
	// Residences are equally likely residences with a full batch, in seconds, ascending.
	Residences []float64
	// TailScale and TailShape are the parameters of a generalised Pareto distribution of the residences beyond the
	// last eighth's smallest. If they are 0, the tail is exponential.
	TailScale, TailShape float64
}

// Work returns the mean and variance of the time, in seconds, that an instance spends on a number of requests:
//
//	requestCount (Alpha PromptMean + Beta OutputMean),  requestCount (Alpha^2 PromptVar + Beta^2 OutputVar)
func (r *RCT) Work(requestCount float64) (mean, variance float64) {
	return requestCount * (r.Alpha*r.PromptMean + r.Beta*r.OutputMean), requestCount * (r.Alpha*r.Alpha*r.PromptVar + r.Beta*r.Beta*r.OutputVar)
}

// AnswerVariance returns the variance of the time, in seconds, that an instance spends on requests whose prompts are known, given their
// number and the mean of that time (work). It is the variance that comes from the unknown lengths of their answers, or that of the
// calibration if it is larger.
func (r *RCT) AnswerVariance(requestCount, work float64) float64 {
	return max(requestCount*r.Beta*r.Beta*r.OutputVar, r.NoiseVariance*work)
}

// MeanWait returns how many seconds a request waits behind this many seconds of work: the paper's equation 2 with an intercept.
func (r *RCT) MeanWait(work float64) float64 { return max(0, r.FillShare*work, r.Intercept+work) }

// WaitVariance returns the variance of the time that seconds of work take if the lengths of their answers are not known: NoiseVariance work
// for the work itself, and NoiseVariance work^2 / FittedWork for the error of the fit.
func (r *RCT) WaitVariance(work float64) float64 {
	if r.FittedWork == 0 {
		return r.NoiseVariance * work
	}
	return r.NoiseVariance * (work + work*work/r.FittedWork)
}

// Residence returns the mean and variance, in seconds, of the time from a request's start to its answer, if the running batch is filled to
// a share from 0 to 1 (equations 1 and 4).
func (r *RCT) Residence(fill float64) (mean, variance float64) {
	timePerToken := r.Decode
	if r.DecodeAlone > 0 {
		timePerToken = r.DecodeAlone + min(max(fill, 0), 1)*(r.Decode-r.DecodeAlone)
	}
	return r.Prefill + timePerToken*r.OutputMean, timePerToken * timePerToken * r.OutputVar
}

// timeToMilestone returns the mean and variance, in seconds, of the time from a request's start to its milestone, the point to which its
// SLO applies, in a full batch. The first token comes after the prompt (Prefill) and one step (Decode).
// If the SLO applies to the start itself, both are 0.
func (r *RCT) timeToMilestone(point milestone) (mean, variance float64) {
	switch point {
	case atAnswer:
		return r.Residence(1)
	case atFirstToken:
		return r.Prefill + r.Decode, 0
	}
	return 0, 0
}

// TimePerToken returns the distribution of the seconds per output token of a request in a batch of requestCount requests, over an answer of
// mean length. The mean grows linearly from that of a request alone to that of a full batch. The prompts of the batch are computed in the
// same iterations, Alpha seconds per token, and their lengths spread the time.
func (r *RCT) TimePerToken(requestCount float64) stoch.Normal {
	timePerToken := r.Decode
	if r.DecodeAlone > 0 {
		timePerToken = r.DecodeAlone + (requestCount-1)/max(r.Batch-1, 1)*(r.Decode-r.DecodeAlone)
	}
	squaredPrompts := requestCount * (r.PromptVar + r.PromptMean*r.PromptMean) // expected sum of the squared lengths of the prompts
	return stoch.Normal{Mu: timePerToken, Sigma: r.Alpha * math.Sqrt(squaredPrompts) / max(r.OutputMean, 1)}
}

// MaxConcurrency returns the largest number of requests that can run at once so that the share `percentile` of them takes at most slo
// seconds per output token. It is at least 1.
func (r *RCT) MaxConcurrency(slo, percentile float64) int32 {
	requestCount := 1.0
	for requestCount < r.Batch && r.TimePerToken(requestCount+1).Quantile(percentile) <= slo {
		requestCount++
	}
	return int32(requestCount)
}

// Cost returns the cost of a group of requestCount requests in a queue: its work in seconds, the residence (start to answer) of one request
// in a full batch, and the variances of both.
func (r *RCT) Cost(requestCount float64) Cost {
	var cost Cost
	cost.Work, cost.Variance = r.Work(requestCount)
	cost.Residence, cost.ResidenceVar = r.Residence(1)
	return cost
}

// CalibrationRequest is a request of a calibration run. The run drains a queue that is complete at time 0; its
// requests are listed in the order of their starts.
type CalibrationRequest struct {
	Prompt, Output float64 // tokens
	Start, End     float64 // seconds
}

// settledBatches is the number of batches after which starts follow the work. The first batch starts at once.
const settledBatches = 1.2

// Calibrate returns an estimator that is fitted to a run in which an instance drained a queue. batch is the number of requests that ran at
// once. If the run is too short or its times contradict each other, it returns an error.
// The first settledBatches batches are left out of most fits, because the instance fills up during them.
func Calibrate(run []CalibrationRequest, batch float64) (*RCT, error) {
	firstSettled := int(settledBatches * batch)
	if !(batch >= 1) || len(run)-firstSettled < 10 {
		return nil, fmt.Errorf("calibrating: found %d requests with a batch of %g, expected at least %d", len(run), batch, firstSettled+10)
	}
	estimator := &RCT{Batch: batch}

	// Check the requests, with comparisons that are false for NaN too, and find the moments of their lengths.
	prompts, outputs, residences := make([]float64, len(run)), make([]float64, len(run)), make([]float64, len(run))
	for i, request := range run {
		isInOrder := request.Start >= 0 && request.End >= request.Start && request.Prompt >= 0 && request.Output >= 1
		if !isInOrder || math.IsInf(request.End+request.Prompt+request.Output, 1) {
			return nil, fmt.Errorf("calibrating: request %d: found %+v, expected finite times in order and at least one token", i, request)
		}
		prompts[i], outputs[i], residences[i] = request.Prompt, request.Output, request.End-request.Start
	}
	estimator.PromptMean, estimator.PromptVar = stat.MeanVariance(prompts, nil)
	estimator.OutputMean, estimator.OutputVar = stat.MeanVariance(outputs, nil)

	// Fit residences (seconds from start to answer) by the answers' lengths. All requests but the last batch see a full batch to their end,
	// so only these count.
	fullCount := max(len(run)-int(batch), firstSettled)
	estimator.Prefill, estimator.Decode = stat.LinearRegression(outputs[:fullCount], residences[:fullCount], nil, false)
	if estimator.Prefill < 0 || math.IsNaN(estimator.Decode) {
		// The line makes no sense, so all of the residence counts as decoding.
		estimator.Prefill, estimator.Decode = 0, stat.Mean(residences[:fullCount], nil)/estimator.OutputMean
	}

	// Fit starts by the work ahead, then the errors that remain.
	estimator.fitWork(run, firstSettled)
	if workEach, _ := estimator.Work(1); !(workEach > 0) {
		return nil, fmt.Errorf("calibrating: found %g seconds per request, expected more than 0: starts do not follow the queue", workEach)
	}
	estimator.fitNoise(run, firstSettled)
	estimator.Residences = evenQuantiles(residences[:fullCount])
	estimator.fitTail(residences[:fullCount])
	return estimator, nil
}

// maxResidences is the number of residences that an estimator keeps.
const maxResidences = 64

// evenQuantiles returns a short form of a list: up to maxResidences of its values, at equally spaced quantiles (the middles of equal
// parts), in ascending order.
func evenQuantiles(list []float64) []float64 {
	ascending := slices.Sorted(slices.Values(list))
	count := min(maxResidences, len(ascending))
	quantiles := make([]float64, count)
	for index := range quantiles {
		quantiles[index] = ascending[(2*index+1)*len(ascending)/(2*count)]
	}
	return quantiles
}

// independentBatches is the number of batches after which the errors of starts are taken as independent: requests
// of one batch slow each other.
const independentBatches = 2

// fitNoise measures how the starts of a calibration run deviate from their prediction if the answers' lengths are not known, and sets
// NoiseVariance (the variance that waiting gains per second of work), FittedWork (the work of the run) and FillShare (the time until the
// first batch has started, relative to its work). It compares pairs of starts that are independentBatches apart.
// NoiseVariance is at least the variance that comes from the answers' lengths. The prediction was fitted to the same run, which makes the
// deviations smaller, the more of the run lies between a pair; so the measured variance is divided by the part that does not.
// The first firstSettled requests started while the instance filled up.
func (r *RCT) fitNoise(run []CalibrationRequest, firstSettled int) {
	// Compute the work ahead of every request, in seconds, as it was expected at its start: prompts are known, answers count by their mean.
	work := make([]float64, len(run))
	for i := range run[1:] {
		work[i+1] = work[i] + r.Alpha*run[i].Prompt + r.Beta*r.OutputMean
	}

	// Fit the starts of the first batch by FillShare * work, with least squares.
	startWorkSum, squaredWork := 0.0, 0.0
	for i := range min(int(r.Batch), len(run)) {
		startWorkSum += run[i].Start * work[i]
		squaredWork += work[i] * work[i]
	}
	if squaredWork > 0 {
		r.FillShare = min(max(startWorkSum/squaredWork, 0), 1)
	}

	// Sum over the pairs the squared deviations of the time between them from the work between them, and that work.
	r.FittedWork = work[len(work)-1]
	settledCount := len(run) - firstSettled
	lag := max(1, min(int(independentBatches*r.Batch), settledCount/2))
	squaredErrors, lagWork := 0.0, 0.0
	for i := firstSettled; i+lag < len(run); i++ {
		deviation := run[i+lag].Start - run[i].Start - (work[i+lag] - work[i])
		squaredErrors += deviation * deviation
		lagWork = lagWork + work[i+lag] - work[i]
	}

	// Take the larger of the variance by the lengths of answers, and of the measured deviations, per second of work.
	workEach, variance := r.Work(1)
	variance -= r.Alpha * r.Alpha * r.PromptVar              // prompts are known
	remainingShare := 1 - float64(lag)/float64(settledCount) // part of the settled requests that does not lie between a pair
	r.NoiseVariance = max(variance/workEach, squaredErrors/lagWork/remainingShare)
}

// fitWork sets Intercept, Alpha and Beta by fitting the starts of a calibration run by the prompt and output tokens ahead:
//
//	start = Intercept + Alpha promptsAhead + Beta outputsAhead
//
// The first firstSettled requests are left out, because the instance fills up while they start. Tokens are divided
// by their means for the fit, which keeps it well-conditioned.
func (r *RCT) fitWork(run []CalibrationRequest, firstSettled int) {
	settledCount := len(run) - firstSettled
	tokensAhead, startTimes := mat.NewDense(settledCount, 3, nil), mat.NewVecDense(settledCount, nil)
	var promptsAhead, outputsAhead float64
	for i, request := range run {
		if i >= firstSettled {
			tokensAhead.SetRow(i-firstSettled, []float64{1, promptsAhead / r.PromptMean, outputsAhead / r.OutputMean})
			startTimes.SetVec(i-firstSettled, request.Start)
		}
		promptsAhead += request.Prompt
		outputsAhead += request.Output
	}

	// Use the least squares if both slopes are valid.
	var coefficients mat.VecDense
	if err := coefficients.SolveVec(tokensAhead, startTimes); err == nil && coefficients.AtVec(1) >= 0 && coefficients.AtVec(2) >= 0 {
		r.Intercept, r.Alpha, r.Beta = coefficients.AtVec(0), coefficients.AtVec(1)/r.PromptMean, coefficients.AtVec(2)/r.OutputMean
		return
	}
	// Otherwise prompts and outputs ahead have grown together: fit one slope for requests, and attribute it to
	// output tokens.
	requestsAhead, starts := make([]float64, settledCount), make([]float64, settledCount)
	for i := range requestsAhead {
		requestsAhead[i], starts[i] = float64(firstSettled+i), run[firstSettled+i].Start
	}
	var slope float64
	r.Intercept, slope = stat.LinearRegression(requestsAhead, starts, nil, false)
	r.Alpha, r.Beta = 0, slope/r.OutputMean
}
