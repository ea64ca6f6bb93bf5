package gear

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

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
// short run, misses the SLO with a chance of at most maxFailChance. That is a tolerance bound (solver/tolerance).
// It must hold for the share of late requests and for the tail latency of a block, which also shows latency that
// grows while no request is late yet. Each judgement spends an equal part of the chance to be wrong (Bonferroni),
// so a gear that breaks the promise passes with a chance of at most 1 - trialConfidence.
//
// A trial also fails if the mean latency grows. Near full load it wanders, and may seem to grow. How far it
// wanders from one quarter to another is estimated from the blocks. That must be small, too, unless the busiest
// device is well below full load.
//
// Every stream has the samples in an order of its own. In one order for all, the same quarter would always have
// the harder samples, and latency would seem to grow there.
const (
	freshRun        = 10
	mayFail         = .01
	trialConfidence = .95

	sieve        = 2   // late requests at which the short run fails, as a multiple of those allowed
	streamSieve  = 1.5 // the same of a stream
	fewSieve     = 1.2 // the same of the mean of two or three streams
	longerRun    = 5
	blocksPerRun = 4 // blocks in the length of the short run; a stream's first blocks of that length are left out
)

// judgedAfterStreams are the numbers of streams after which a trial is judged.
var looks = []int{1, 2, 3, 5, 8}

// maxStreams limits the streams of a trial. From manyStreams on, streams are compared with each other. The chance
// to be wrong is spent in chanceParts parts, one at each judgement: twice as many as there are judgements, because
// the correlation of blocks is an estimate, too.
const (
	mostStreams = 8
	manyStreams = 5
	chances     = 10
)

// Trial is the result of trying a gear at a constant rate.
type Trial struct {
	Latency time.Duration // at the SLO's percentile, without the first quarter; the mean over several streams
	Stable  bool          // the latency does not grow over the run
	Passed  bool
	// HeldOutLatency is the latency if requests bring the held-out samples. It is 0 if these were not tried.
	HeldOut      time.Duration
	late         float64 // share of late requests, of the planning or held-out samples, whichever is larger
	tooMany      bool    // the trial was not made, because it would have too many requests
	failsHeldOut bool    // it passes with the planning samples but not with the held-out ones
}

// The length of the shortest trial: usualTrialRequests requests, unless long batches or many devices need other
// numbers, and never more than maxTrialRequests. minTrialBatches is the least latency limit of a shortened trial,
// in multiples of the largest batches of a cascade.
const (
	trialRequests = 200_000
	mostRequests  = 2_000_000
	manyBatches   = 10
	longestTrial  = 5e8 // ten times that still is a time.Duration
)

// shortestRunLength returns the length of the shortest trial for answers within a latency limit: 20 times the
// limit, or 40 times if that is below eight seconds, and long enough for 2000 requests.
func runLength(within time.Duration, rate float64) time.Duration {
	slo := within.Seconds()
	seconds := min(max(min(8, 40*slo, trialRequests/rate), 20*slo, 2000/rate), longestTrial)
	return time.Duration(seconds * float64(time.Second))
}

// trialLengthFactor returns the factor on the length of trials if a search keeps back a surplus. Then other random
// numbers have shown queues that are too rare for short trials.
func lengthened(surplus float64) float64 { return 1 + 20*surplus }

// trialSLO returns the latency limit of a cascade in trials at a rate: the SLO, or less if 20 SLOs bring very many
// requests. What keeps a shorter SLO keeps the longer one. The limit is not below minTrialBatches times the
// cascade's largest batches, because below that batches and not queues would decide.
func (p *Problem) triedWithin(c *Cascade, rate float64) time.Duration {
	path := time.Duration(0)
	most := trialRequests / fewer(p)
	if float64(p.SLO.Seconds())*20*rate <= most {
		return p.SLO
	}
	batch, _ := speedsOf(p)
	for _, m := range c.Models {
		longest := time.Duration(0)
		for k := range batch {
			if n := batch[k][m]; n > 0 {
				longest = max(longest, p.Models[m].On[k].Times[n-1])
			}
		}
		path += longest
	}
	return min(p.SLO, max(manyBatches*path, time.Duration(most/(20*rate)*float64(time.Second))))
}

// requestReduction returns the factor by which runs have fewer requests than on few devices.
func fewer(p *Problem) float64 {
	devices := 0
	for _, k := range p.Kinds {
		devices += k.Devices
	}
	return sim.FewerOn(devices)
}

// trialStreamName names the random numbers of a stream of a trial.
func streamName(n int) string {
	if n == 0 {
		return "gear/trial"
	}
	return fmt.Sprintf("gear/trial/%d", n)
}

// tryCascade tries a cascade with its split at a rate by the problem's SLO.
func (b *bench) try(ctx context.Context, s *stair, rate float64) (Trial, error) {
	return b.tryLate(ctx, s, rate, 1-b.p.Percentile)
}

// tryWithLateShare tries a cascade of which a share of the requests may be late. If that is more than the
// percentile allows, the latency only must not grow. A cascade that passes with the planning samples is tried with
// the held-out samples, too.
func (b *bench) tryLate(ctx context.Context, of *stair, rate, most float64) (Trial, error) {
	p := b.p
	within := p.triedWithin(of.cascade, rate)
	short := time.Duration(lengthened(p.Surplus) * float64(runLength(within, rate)))
	if short.Seconds()*rate > mostRequests {
		return Trial{tooMany: true}, nil
	}

	// The planning samples.
	a := attempt{c: of.cascade, minQueue: b.minQueue, shares: of.shares, rate: rate, length: short, limit: within, on: p.Planned}
	t, err := b.tryOn(ctx, a, of.taken, most)
	holds := t.Passed || t.Stable && most > 1-p.Percentile
	if err != nil || !holds || !p.HeldOut.present() {
		return t, err
	}

	// The held-out samples, hardened. The result is the worse of both.
	a.on = p.HeldOut.hardened(of.cascade, leastSeconds(p))
	other, err := b.tryOn(ctx, a, of.taken, most)
	if a.on != p.HeldOut {
		delete(b.orders, a.on)
	}
	t.HeldOut, t.failsHeldOut = other.Latency, !other.Passed && !(other.Stable && most > 1-p.Percentile)
	t.Stable, t.Passed, t.late = other.Stable, t.Passed && other.Passed, max(t.late, other.late)
	return t, err
}

// isPresent reports whether there are samples.
func (s *Samples) present() bool { return s != nil && s.N > 0 }

// trySamples makes the short run and then streams, by the test described at the top of this file. maxLoad is the
// load of the busiest device (seconds per request).
func (b *bench) tryOn(ctx context.Context, a attempt, taken, most float64) (Trial, error) {
	p, within, short := b.p, a.limit, a.length

	// The short run.
	a.most = min(1, sieve*most)
	s, err := b.run(ctx, &a)
	if err != nil {
		return Trial{}, err
	}
	if t := s.trial(within); s.above || s.late > a.most {
		t.Passed, t.Stable = false, false
		return t, nil
	}

	// Streams, until a judgement decides.
	a.length, a.block = longerRun*short, short/blocksPerRun
	if a.most = most; most <= 1-p.Percentile {
		a.most = streamSieve * most
	}
	e, tails := evidence{load: taken * a.rate}, time.Duration(0)
	for {
		a.stream++
		if s, err = b.run(ctx, &a); err != nil {
			return Trial{}, err
		}
		t := s.trial(within)
		if s.above || most > 1-p.Percentile {
			return t, nil
		}
		e.add(s.blocks)
		tails += t.Latency
		if !slices.Contains(looks, a.stream) {
			continue
		}
		keeps, hopeless := e.judge(within, most)
		t.Latency = tails / time.Duration(a.stream)
		if t.Stable, t.Passed, t.late = keeps, keeps && t.Latency <= within, stat.Mean(e.lates, nil); keeps || hopeless || a.stream == mostStreams {
			return t, nil
		}
	}
}

// asTrial judges a run by an SLO: the tail latency is within it, and the mean latency does not grow from the
// second quarter to the last by more than 1/growthDivisor of it.
func (s *shown) trial(slo time.Duration) Trial {
	if s.above {
		return Trial{Latency: -1}
	}
	t := Trial{Latency: s.tail, Stable: s.growth <= slo/mayGrow, late: s.late}
	t.Passed = t.Stable && t.Latency <= slo
	return t
}

// growthDivisor is the SLO divided by the growth of the mean latency that a run may show.
const mayGrow = 20

// runBlock is the result of a part of a run.
type block struct {
	late float64       // share of late requests
	tail time.Duration // latency at the percentile
	mean time.Duration // latency
}

// trialEvidence is what the blocks of all streams of a trial showed.
type evidence struct {
	lates, tails, means []float64 // by block; latencies in seconds
	streams             int
	load                float64 // share of the time that the busiest device is busy
}

// addStream adds the blocks of a stream, without those at its beginning.
func (e *evidence) add(blocks []block) {
	e.streams++
	for _, b := range blocks[blocksPerRun:] {
		e.lates, e.tails, e.means = append(e.lates, b.late), append(e.tails, b.tail.Seconds()), append(e.means, b.mean.Seconds())
	}
}

// Loads of the busiest device below which latency cannot grow forever, so wandering is allowed: in any trial, and
// in one of many streams that have not shown growth, whose tolerance bounds suffice.
const (
	mayWander     = .9
	mayWanderLong = .97
)

// wanderAllowed reports whether the mean latency may wander as far as the blocks show.
func (e *evidence) mayWander() bool {
	return e.load < mayWander || e.load < mayWanderLong && e.streams >= manyStreams
}

// judgeGear returns whether a gear keeps the promise, and whether more streams are hopeless. With many streams
// they are if a mean is past its limit, or if the gear would not pass even if all further streams showed the same.
// Few streams say little about the differences between streams, so there it takes a late share well past the
// limit.
func (e *evidence) judge(slo time.Duration, most float64) (keeps, hopeless bool) {
	// holdsWith returns whether both tolerance bounds hold if there were that many streams like these.
	holds := func(streams int) bool {
		more := float64(streams) / float64(e.streams)
		return e.within(e.lates, most, more) && e.within(e.tails, slo.Seconds(), more)
	}
	keeps = holds(e.streams) && (e.mayWander() || e.wander() <= slo.Seconds()/mayGrow)
	late := stat.Mean(e.lates, nil)
	if e.streams < manyStreams {
		return keeps, e.streams > 1 && !keeps && late > fewSieve*most
	}
	past := late > most || stat.Mean(e.tails, nil) > slo.Seconds()
	return keeps, !keeps && (past || !holds(mostStreams))
}

// seldomExceeds reports whether the mean of a fresh trial, without its first quarter, exceeds a limit with a
// chance of at most maxFailChance, if there were `factor` times as many values like these.
func (e *evidence) within(list []float64, limit, more float64) bool {
	run, n := len(list)/e.streams, len(list)/e.streams
	if e.streams >= manyStreams {
		n = len(list) // streams are independent, so many of them show the correlation of blocks well
	}
	return tolerance.Correlated(list, run, n).Times(more).SeldomAbove(limit, .75*freshRun*blocksPerRun, mayFail, 1-(1-trialConfidence)/chances)
}

// latencyWander returns by how much the mean latency of a fresh trial's last quarter exceeds that of its second
// with a chance of maxFailChance, in seconds. The estimate is as often too small as too large.
func (e *evidence) wander() float64 {
	n := len(e.means)
	return tolerance.Correlated(e.means, n/e.streams, n).Wander(freshRun*blocksPerRun/4., mayFail)
}
