package vqueue

import "math"

// Defaults of a Follower, and the weight of the calibration among its measurements.
const (
	defaultHalfLifeWork    = 120 // seconds of predicted work
	defaultHalfLifeAnswers = 500 // answers
	firstPriorWork         = 30  // seconds of predicted work as which the calibration counts at first
)

// Follower recalibrates an estimator (RCT) by the times that an instance really takes: rates drift with the lengths of prompts and with
// other load. All means are exponentially weighted, so that recent observations count most.
type Follower struct {
	// HalfLifeWork is the predicted work, in seconds, after which an observation counts half; 0 means
	// defaultHalfLifeWork.
	HalfLifeWork float64
	// HalfLifeAnswers is the number of answers after which a length counts half; 0 means
	// defaultHalfLifeAnswers.
	HalfLifeAnswers float64

	elapsed, predictedWork float64      // weighted seconds that the work took, and that it was predicted to take
	totalPredicted         float64      // predicted seconds of work since the start, unweighted
	squaredErrors          float64      // squared relative errors, weighted by predicted work
	outputMoments          tokenMoments // of the tokens of answers
	promptMoments          tokenMoments // of the tokens of prompts
}

// tokenMoments holds the weighted mean and mean square of numbers of tokens. samples counts all of them, and weight is the sum of their weights.
type tokenMoments struct{ samples, weight, mean, meanSquare float64 }

// addSample adds the number of tokens of one request to the moments. Earlier samples lose weight by the factor decay, so that recent ones count most.
func (m *tokenMoments) addSample(tokens, decay float64) {
	m.samples++
	m.weight = m.weight*decay + 1
	m.mean += (tokens - m.mean) / m.weight
	m.meanSquare += (tokens*tokens - m.meanSquare) / m.weight
}

// AddWork adds a measurement: an instance that was never idle took `elapsed` seconds for work for which the calibrated estimator predicts
// predictedWork seconds. Older measurements lose weight by the work done since: half of it after halfLife() seconds.
// Values that are no times are ignored.
func (f *Follower) AddWork(elapsed, predictedWork float64) {
	if !(predictedWork > 0) || !(elapsed >= 0) || math.IsInf(elapsed+predictedWork, 1) { // the negations also find NaN
		return
	}
	decay := math.Exp2(-predictedWork / f.halfLife()) // weight of the earlier measurements
	relativeError := elapsed/predictedWork - f.Slowdown()
	f.totalPredicted += predictedWork
	f.elapsed = f.elapsed*decay + elapsed
	f.predictedWork = f.predictedWork*decay + predictedWork
	f.squaredErrors = f.squaredErrors*decay + relativeError*relativeError*predictedWork
}

// AddAnswer adds the prompt and output tokens of a request that was answered to their running means and variances.
// Older answers lose weight: half of it after HalfLifeAnswers more answers (defaultHalfLifeAnswers if that is 0).
func (f *Follower) AddAnswer(prompt, output float64) {
	halfLife := f.HalfLifeAnswers
	if halfLife == 0 {
		halfLife = defaultHalfLifeAnswers
	}
	decay := math.Exp2(-1 / halfLife)
	f.promptMoments.addSample(prompt, decay)
	f.outputMoments.addSample(output, decay)
}

// halfLife returns after how many seconds of predicted work a measurement counts half: HalfLifeWork, or the default.
func (f *Follower) halfLife() float64 {
	if f.HalfLifeWork == 0 {
		return defaultHalfLifeWork
	}
	return f.HalfLifeWork
}

// priorWork returns the predicted work, in seconds, with which the calibration itself counts among the measurements.
// It starts at firstPriorWork and halves with every half-life of measured work.
func (f *Follower) priorWork() float64 {
	return firstPriorWork * math.Exp2(-f.totalPredicted/f.halfLife())
}

// Slowdown returns the measured time of work relative to the time that the calibrated estimator predicts. It is 1 before the first measurement.
func (f *Follower) Slowdown() float64 {
	return (f.elapsed + f.priorWork()) / (f.predictedWork + f.priorWork())
}

// SlowdownSD returns the standard deviation of the slowdown (measured time over predicted time), given the relative standard deviation of
// the calibration's error.
func (f *Follower) SlowdownSD(calibratedSD float64) float64 {
	return math.Sqrt((f.squaredErrors + f.priorWork()*calibratedSD*calibratedSD) / (f.predictedWork + f.priorWork()))
}

// priorBatches is the number of batches of answers with which the calibration counts at first. It halves with
// every batch that is answered, because the first answers are the short ones.
const priorBatches = 4

// blend returns the mean and variance of the samples combined with those of the calibration (mean and variance).
// The calibration counts as priorBatches batches of samples at first, and less with each sample. batch is the number of requests that run at once.
func (l *tokenMoments) blend(mean, variance, batch float64) (blendedMean, blendedVariance float64) {
	// prior is the number of samples as which the calibration counts, and sampleWeight the share of the real ones.
	prior := priorBatches * batch * math.Exp2(-l.samples/batch)
	sampleWeight := l.weight / (l.weight + prior)
	blendedMean = mean + sampleWeight*(l.mean-mean)

	// The variance is the mean square less the square of the mean.
	meanSquare := (1-sampleWeight)*(variance+mean*mean) + sampleWeight*l.meanSquare
	return blendedMean, max(meanSquare-blendedMean*blendedMean, 0)
}

// Adjust returns the calibrated estimator corrected by what was observed: the times per token are multiplied by the slowdown (measured time
// over predicted time), the lengths are blended with those of the answers seen, and the common error (the relative standard deviation of
// the throughput's error) becomes that of the slowdown, of which the calibrated error is a part until enough is measured.
// Prefill, the time to the first token, is not observed and stays as it is.
func (f *Follower) Adjust(estimator RCT) RCT {
	factor := f.Slowdown()
	estimator.Alpha *= factor
	estimator.Beta *= factor
	estimator.Intercept *= factor
	estimator.Decode *= factor
	estimator.CommonSD = f.SlowdownSD(estimator.CommonSD)
	if f.outputMoments.weight > 0 {
		batch := max(estimator.Batch, 1) // the calibration counts as priorBatches of these at first
		estimator.OutputMean, estimator.OutputVar = f.outputMoments.blend(estimator.OutputMean, estimator.OutputVar, batch)
		estimator.PromptMean, estimator.PromptVar = f.promptMoments.blend(estimator.PromptMean, estimator.PromptVar, batch)
	}
	return estimator
}
