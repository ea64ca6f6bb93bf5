package trials

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/lists"
	"inferplan/sim"
	"inferplan/solver/tolerance"
)

// Trials are a sequential test. A short run weeds out cascades with shortRunSieve times the late requests that the
// promise allows. Then come streams of arrivals, each streamRunFactor times as long, cut into blocks. After each
// number of streams in judgedAfterStreams, the blocks of all streams show one of three things: the gear keeps the
// SLO, it does not, or more streams are needed. In doubtful cases that goes on for maxStreams streams, so no
// single stream decides.
//
// The promise is that a range holds its upper edge forever: a fresh trial, freshTrialFactor times as long as the
// short run, misses the SLO with a chance of at most MaxFailChance. That is a tolerance bound (solver/tolerance).
// It must hold for the share of late requests and for the tail latency of a block, which also shows latency that
// grows while no request is late yet. Each judgement spends an equal part of the chance to be wrong (Bonferroni),
// so a gear that breaks the promise passes with a chance of at most 1 - TrialConfidence.
//
// A trial also fails if the mean latency grows. Near full load it wanders, and may seem to grow. How far it
// wanders from one quarter to another is estimated from the blocks. That must be small, too, unless the busiest
// device is well below full load.
//
// Every stream has the samples in an order of its own. In one order for all, the same quarter would always have
// the harder samples, and latency would seem to grow there.
const (
	freshTrialFactor = 10
	MaxFailChance    = .01
	TrialConfidence  = .95

	shortRunSieve   = 2   // late requests at which the short run fails, as a multiple of those allowed
	streamSieve     = 1.5 // the same of a stream
	fewSieve        = 1.2 // the same of the mean of two or three streams
	streamRunFactor = 5
	blocksPerRun    = 4 // blocks in the length of the short run; a stream's first blocks of that length are left out
)

// judgedAfterStreams are the numbers of streams after which a trial is judged.
var judgedAfterStreams = []int{1, 2, 3, 5, 8, 16}

// maxStreams limits the streams of a trial. From manyStreams on, streams are compared with each other. The chance
// to be wrong is spent in chanceParts parts, one at each judgement: twice as many as there are judgements, because
// the correlation of blocks is an estimate, too.
const (
	maxStreams  = 16
	manyStreams = 5
	chanceParts = 12
)

// Trial is the result of trying a gear at a constant rate.
type Trial struct {
	Latency time.Duration // at the SLO's percentile, without the first quarter; the mean over several streams
	Stable  bool          // the latency does not grow over the run
	Passed  bool
	// HeldOutLatency is the latency if requests bring the held-out samples. It is 0 if these were not tried.
	HeldOutLatency  time.Duration
	LateShare       float64 // share of late requests, of the planning or held-out samples, whichever is larger
	tooManyRequests bool    // the trial was not made, because it would have too many requests
	failsHeldOut    bool    // it passes with the planning samples but not with the held-out ones
}

// The length of the shortest trial: usualTrialRequests requests, unless long batches or many devices need other
// numbers, and never more than MaxTrialRequests. minTrialBatches is the least latency limit of a shortened trial,
// in multiples of the largest batches of a cascade.
const (
	usualTrialRequests = 200_000
	minTrialBatches    = 10
	maxTrialSeconds    = 5e8 // ten times that still is a time.Duration
)

// ShortestRunLength returns the length of the shortest trial for answers within a latency limit: 20 times the
// limit, or 40 times if that is below eight seconds, and long enough for 2000 requests.
func ShortestRunLength(latencyLimit time.Duration, rate float64) time.Duration {
	slo := latencyLimit.Seconds()
	seconds := min(max(min(8, 40*slo, usualTrialRequests/rate), 20*slo, 2000/rate), maxTrialSeconds)
	return time.Duration(seconds * float64(time.Second))
}

// trialLengthFactor returns the factor on the length of trials if a search keeps back a surplus. Then other random
// numbers have shown queues that are too rare for short trials.
func trialLengthFactor(surplus float64) float64 { return 1 + 20*surplus }

// trialSLO returns the latency limit of a cascade in trials (simulated runs) at a rate in requests per second: the SLO,
// or less if a run of 20 SLOs would have very many requests, as the limit sets the length. A cascade that keeps the
// shorter limit keeps the SLO. The limit is not below minTrialBatches times the sum of the cascade's largest batches,
// because below that batches and not queues would decide.
func trialSLO(p *cascades.Problem, c *cascades.Cascade, rate float64) time.Duration {
	batchTimes := time.Duration(0)
	maxRequests := usualTrialRequests / requestReduction(p)
	if p.SLO.Seconds()*20*rate <= maxRequests {
		return p.SLO
	}
	batch, _ := cascades.BatchesAndSpeeds(p)
	for _, m := range c.Models {
		longest := time.Duration(0)
		for k := range batch {
			if n := batch[k][m]; n > 0 {
				longest = max(longest, p.Models[m].Variants[k].MedianTimes[n-1])
			}
		}
		batchTimes += longest
	}
	return min(p.SLO, max(minTrialBatches*batchTimes, time.Duration(maxRequests/(20*rate)*float64(time.Second))))
}

// requestReduction returns the factor, at least 1, by which trials have fewer requests than on few devices. On very
// many devices each request takes long to simulate, because all of them take part.
func requestReduction(p *cascades.Problem) float64 {
	devices := lists.Sum(len(p.Kinds), func(i int) int { return p.Kinds[i].Devices })
	return sim.CascadeRequestDivisor(devices)
}

// trialStreamName names the random numbers of a stream of a trial.
func trialStreamName(n int) string {
	if n == 0 {
		return "gear/trial"
	}
	return fmt.Sprintf("gear/trial/%d", n)
}

// TryCascade tries a cascade with its split at a rate by the problem's SLO.
func (b *Simulator) TryCascade(ctx context.Context, cascade *placement.LoadedCascade, rate float64) (Trial, error) {
	return b.TryWithLateShare(ctx, cascade, rate, 1-b.Problem.Percentile)
}

// TryWithLateShare tries a cascade with its split in simulated runs at a rate in requests per second, where a share
// maxLateShare of the requests may be late. If that is more than the percentile allows, the cascade need not pass by
// the SLO. It suffices that the trial is Stable: its latency does not grow over the run.
//
// A cascade for which that holds with the planning samples is tried with the held-out samples, too, and the result is
// the worse of both. These are hardened (HardenedFor): some of those of least work are left out, as future samples may
// be harder. If the runs would have too many requests, the cascade is not tried, and does not pass.
func (b *Simulator) TryWithLateShare(ctx context.Context, cascade *placement.LoadedCascade, rate, maxLateShare float64) (Trial, error) {
	p := b.Problem
	slo := trialSLO(p, cascade.Cascade, rate)
	lengthFactor := trialLengthFactor(p.Surplus) // above 1 if other random numbers have shown queues too rare for short trials
	shortRun := time.Duration(lengthFactor * float64(ShortestRunLength(slo, rate)))
	if shortRun.Seconds()*rate > cascades.MaxTrialRequests {
		return Trial{tooManyRequests: true}, nil
	}

	// The planning samples.
	run := trialRun{cascade: cascade.Cascade, minQueue: b.MinQueue, shares: cascade.Shares, rate: rate, length: shortRun, latencyLimit: slo, samples: p.PlanningSamples}
	trial, err := b.trySamples(ctx, run, cascade.MaxLoad, maxLateShare)
	stableSuffices := maxLateShare > 1-p.Percentile
	passes := trial.Passed || trial.Stable && stableSuffices
	if err != nil || !passes || !p.HeldOutSamples.IsPresent() {
		return trial, err
	}

	// The held-out samples.
	run.samples = p.HeldOutSamples.HardenedFor(cascade.Cascade, cascades.MinSecondsPerSample(p))
	heldOutTrial, err := b.trySamples(ctx, run, cascade.MaxLoad, maxLateShare)
	if run.samples != p.HeldOutSamples { // the hardened copy is of this cascade only: drop its shuffled orders
		delete(b.shuffledSamples, run.samples)
	}

	// The worse of both. The trial with the planning samples was stable, or it would have ended above, but need not have passed.
	passesHeldOut := heldOutTrial.Passed || heldOutTrial.Stable && stableSuffices
	trial.HeldOutLatency, trial.failsHeldOut = heldOutTrial.Latency, !passesHeldOut
	trial.Stable = heldOutTrial.Stable
	trial.Passed = trial.Passed && heldOutTrial.Passed
	trial.LateShare = max(trial.LateShare, heldOutTrial.LateShare)
	return trial, err
}

// trySamples tries a gear in simulation with one set of samples, run.samples: a short run, which sieves out what
// clearly fails, then streams (longer runs with other arrivals) until a judgement by the blocks of all of them decides
// (judgeGear). run.length is that of the short run. maxLoad is the load of the busiest device (seconds per request). A
// run with clearly more late requests than maxLateShare ends early, and the gear fails.
//
// If maxLateShare is more than the percentile allows, the gear need not keep the SLO. Then the first stream decides: it
// shows the late share and whether the latency grows.
func (b *Simulator) trySamples(ctx context.Context, run trialRun, maxLoad, maxLateShare float64) (Trial, error) {
	p, slo, shortRun := b.Problem, run.latencyLimit, run.length

	// The short run.
	run.maxLateShare = min(1, shortRunSieve*maxLateShare)
	result, err := b.simulateRun(ctx, &run)
	if err != nil {
		return Trial{}, err
	}
	if t := result.asTrial(slo); result.stoppedEarly || result.lateShare > run.maxLateShare {
		t.Passed, t.Stable = false, false
		return t, nil
	}

	// Streams, until a judgement decides. One stream may have somewhat more late requests than the mean of several.
	run.length, run.blockLength = streamRunFactor*shortRun, shortRun/blocksPerRun
	firstDecides := maxLateShare > 1-p.Percentile
	run.maxLateShare = maxLateShare
	if !firstDecides {
		run.maxLateShare = streamSieve * maxLateShare
	}
	evidence, tails := trialEvidence{busiestLoad: maxLoad * run.rate}, time.Duration(0)
	for {
		run.stream++
		if result, err = b.simulateRun(ctx, &run); err != nil {
			return Trial{}, err
		}
		t := result.asTrial(slo) // a run that was stopped early neither passes nor is stable
		if result.stoppedEarly || firstDecides {
			return t, nil
		}
		evidence.addStream(result.blocks)
		tails += t.Latency
		if !slices.Contains(judgedAfterStreams, run.stream) {
			continue
		}
		keepsSLO, hopeless := evidence.judgeGear(slo, maxLateShare)
		t.Latency = tails / time.Duration(run.stream) // the mean over the streams so far
		t.Stable, t.Passed, t.LateShare = keepsSLO, keepsSLO && t.Latency <= slo, stat.Mean(evidence.lateShares, nil)
		if keepsSLO || hopeless || run.stream == maxStreams {
			return t, nil
		}
	}
}

// TryOnce tries a cascade with its split in one run of a length at a rate, whatever share of its requests is late, and
// judges it by an SLO. The requests bring the given samples or, if samples is nil, the planning samples.
func (b *Simulator) TryOnce(ctx context.Context, cascade *placement.LoadedCascade, rate float64, length, slo time.Duration, samples *cascades.Samples) (Trial, error) {
	result, err := b.simulateRun(ctx, &trialRun{cascade: cascade.Cascade, minQueue: b.MinQueue, shares: cascade.Shares, rate: rate, length: length, latencyLimit: slo, maxLateShare: 1, samples: samples})
	if err != nil {
		return Trial{}, err
	}
	return result.asTrial(slo), nil
}

// asTrial returns the verdict of one run by an SLO: it passes if the tail latency is within the SLO, and stable, that
// is, the mean latency grows from the second quarter to the last by at most 1/growthDivisor of the SLO. A run that was
// stopped early fails, with a latency of -1.
func (s *runResult) asTrial(slo time.Duration) Trial {
	if s.stoppedEarly {
		return Trial{Latency: -1}
	}
	t := Trial{Latency: s.tail, Stable: s.latencyGrowth <= slo/growthDivisor, LateShare: s.lateShare}
	t.Passed = t.Stable && t.Latency <= slo
	return t
}

// growthDivisor is the SLO divided by the growth of the mean latency that a run may show.
const growthDivisor = 20

// runBlock is the result of a part of a run.
type runBlock struct {
	lateShare   float64       // share of late requests
	tailLatency time.Duration // latency at the percentile
	meanLatency time.Duration // latency
}

// trialEvidence sums up the blocks of requests of all streams of a trial.
type trialEvidence struct {
	lateShares, tailLatencies, meanLatencies []float64 // by block; latencies in seconds
	streams                                  int
	busiestLoad                              float64 // share of the time that the busiest device is busy
}

// addStream adds the figures of a stream's blocks (parts of the run) to the evidence, without those of its
// beginning, in which queues are still filling.
func (e *trialEvidence) addStream(blocks []runBlock) {
	e.streams++
	for _, b := range blocks[blocksPerRun:] {
		e.lateShares, e.tailLatencies, e.meanLatencies = append(e.lateShares, b.lateShare), append(e.tailLatencies, b.tailLatency.Seconds()), append(e.meanLatencies, b.meanLatency.Seconds())
	}
}

// Loads of the busiest device below which latency cannot grow forever, so wandering is allowed: in any trial, and
// in one of many streams that have not shown growth, whose tolerance bounds suffice.
const (
	safeLoad            = .9
	safeLoadManyStreams = .97
)

// wanderAllowed reports whether the mean latency may wander as far as the blocks show. Below full load it does not grow
// forever, so in many streams it may also wander if the tail latency stays below half of the SLO then.
func (e *trialEvidence) wanderAllowed(slo time.Duration) bool {
	if e.streams < manyStreams {
		return e.busiestLoad < safeLoad
	}
	staysFarBelow := e.busiestLoad < 1 && stat.Mean(e.tailLatencies, nil)+e.latencyWander() < slo.Seconds()/2
	return e.busiestLoad < safeLoadManyStreams || staysFarBelow
}

// judgeGear judges a gear (a cascade with its split) after some streams (simulated runs): whether it surely keeps the
// SLO, and whether further streams are hopeless, because they would not show that it does. It keeps the SLO if late
// share and tail latency of a fresh trial seldom exceed their limits, and the mean latency does not grow.
//
// From manyStreams on further streams are hopeless if a mean is past its limit, or if the gear would not pass even if
// maxStreams streams showed the same. Fewer streams say little about the differences between streams, so they are
// hopeless only if the late share is well past maxLateShare, by fewSieve, and never after one stream.
func (e *trialEvidence) judgeGear(slo time.Duration, maxLateShare float64) (keepsSLO, hopeless bool) {
	// holdsWith reports whether both tolerance bounds would hold if there were that many streams like these.
	holdsWith := func(streams int) bool {
		factor := float64(streams) / float64(e.streams)
		return e.seldomExceeds(e.lateShares, maxLateShare, factor) && e.seldomExceeds(e.tailLatencies, slo.Seconds(), factor)
	}

	// The mean latency may differ by chance from one quarter of a run to another (wander). If that may exceed the growth at which
	// runs fail, growth cannot be ruled out, unless the load is low enough.
	maxGrowth := slo.Seconds() / growthDivisor
	keepsSLO = holdsWith(e.streams) && (e.wanderAllowed(slo) || e.latencyWander() <= maxGrowth)

	meanLateShare := stat.Mean(e.lateShares, nil)
	if e.streams < manyStreams {
		return keepsSLO, e.streams > 1 && !keepsSLO && meanLateShare > fewSieve*maxLateShare
	}
	exceedsMean := meanLateShare > maxLateShare || stat.Mean(e.tailLatencies, nil) > slo.Seconds()
	return keepsSLO, !keepsSLO && (exceedsMean || !holdsWith(maxStreams))
}

// seldomExceeds reports whether a fresh trial would exceed a limit with a chance of at most MaxFailChance, if its mean
// of values by block counts, without its first quarter. factor says how many times as many values like the given ones
// to suppose: 1 judges the given ones. The chance that it returns true wrongly is one of chanceParts parts of
// 1 - TrialConfidence, because a trial is judged several times.
func (e *trialEvidence) seldomExceeds(values []float64, limit, factor float64) bool {
	runBlocks, n := len(values)/e.streams, len(values)/e.streams // n corrects the estimated correlation: a small n is on the safe side
	if e.streams >= manyStreams {
		n = len(values) // streams are independent, so many of them show the correlation of blocks well
	}
	return tolerance.CorrelatedValues(values, runBlocks, n).ScaleCount(factor).SeldomAbove(limit, .75*freshTrialFactor*blocksPerRun, MaxFailChance, 1-(1-TrialConfidence)/chanceParts)
}

// latencyWander returns by how much, in seconds, the mean latency of a fresh trial's last quarter exceeds that of its
// second with a chance of MaxFailChance, if it only wanders as it does between the blocks seen so far. The estimate is
// as often too small as too large.
func (e *trialEvidence) latencyWander() float64 {
	n := len(e.meanLatencies)
	return tolerance.CorrelatedValues(e.meanLatencies, n/e.streams, n).Wander(freshTrialFactor*blocksPerRun/4., MaxFailChance)
}
