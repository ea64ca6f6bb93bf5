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

// Trials are a sequential test. A short run weeds out what is twice as late as the promise allows.
// Then come streams of arrivals, each with a run of longerRun times that length. They are cut
// into blocks. At every look the blocks of all streams so far say one of three things: the gear
// keeps the SLO, it does not, or further streams are needed. Near the edge that goes on for eight
// streams, so that no single stream decides.
//
// What is tested is the promise that a range holds its upper edge for ever: a fresh
// trial, freshRun times as long as the shortest, misses the SLO with a chance of mayFail
// at most. That is a tolerance bound (solver/tolerance). It has to hold for the share of
// late requests, and for the tail latency of a block: that one also tells of latency that
// grows while nothing is late yet. At every look an equal part of the chance to be wrong
// is spent (Bonferroni). So a gear that breaks the promise passes with a chance of
// 1 - trialConfidence at most.
//
// A trial also fails where the mean latency grows. Near full load it wanders, so that it
// may look so. How far it wanders from one quarter to another is estimated from the
// blocks, and has to be small, too, but where the busiest device is well below full load.
//
// Every stream has the samples in an order of its own. In one order for all, the same
// quarter would always have the harder samples, and latency would seem to grow there.
const (
	freshRun        = 10
	mayFail         = .01
	trialConfidence = .95

	sieve        = 2   // times the lateness that is allowed, of the short run
	streamSieve  = 1.5 // the same of a stream
	fewSieve     = 1.2 // the same of two or three in the mean
	longerRun    = 5
	blocksPerRun = 4 // of the shortest run's length; so much of a stream is left out at its begin
)

// looks are the numbers of streams after which a trial is judged.
var looks = []int{1, 2, 3, 5, 8}

// mostStreams is how many streams a trial has at most. From manyStreams on they are many. The
// chance to be wrong is spent in so many parts, one at each look: twice as many as there are looks,
// because how much blocks are alike is an estimate, too.
const (
	mostStreams = 8
	manyStreams = 5
	chances     = 10
)

// Trial is what a gear showed at a constant rate.
type Trial struct {
	Latency time.Duration // at the SLO's percentile, without the first quarter; of several streams the mean
	Stable  bool          // latency does not grow over the run
	Passed  bool
	// HeldOut is the latency where requests bring the samples held out; 0: it was not tried
	// with these.
	HeldOut      time.Duration
	late         float64 // share of the requests past the SLO, of the samples that show more
	tooMany      bool    // requests: it was not made
	failsHeldOut bool    // holds on the samples planned on, and not on those held out
}

// Of the shortest trial: the requests that it has, but where batches or many devices ask for
// more; those that it never exceeds; and how many times as long as the largest batches of a
// cascade the time is within which a shorter one asks for its answers. On many devices it has fewer requests.
const (
	trialRequests = 200_000
	mostRequests  = 2_000_000
	manyBatches   = 10
	longestTrial  = 5e8 // seconds; ten times that is still a time.Duration
)

// runLength is how long the shortest trial of answers within a time runs: twenty times that,
// or forty times where these are less than eight seconds, and long enough for two thousand
// requests.
func runLength(within time.Duration, rate float64) time.Duration {
	slo := within.Seconds()
	seconds := min(max(min(8, 40*slo, trialRequests/rate), 20*slo, 2000/rate), longestTrial)
	return time.Duration(seconds * float64(time.Second))
}

// lengthened returns how many times as long trials are where a search keeps back a surplus: other
// random numbers have shown waits then that come too seldom for short trials.
func lengthened(surplus float64) float64 { return 1 + 20*surplus }

// triedWithin is the time that a cascade has to keep in trials at a rate: the SLO, or less
// where twenty SLOs are very many requests. What keeps a shorter SLO keeps the longer one.
// Shorter than many batches take it is not: then what waits is no longer what counts.
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

// fewer returns how many times fewer requests runs have than on few devices.
func fewer(p *Problem) float64 {
	devices := 0
	for _, k := range p.Kinds {
		devices += k.Devices
	}
	return sim.FewerOn(devices)
}

// streamName names a stream of arrivals for trials.
func streamName(n int) string {
	if n == 0 {
		return "gear/trial"
	}
	return fmt.Sprintf("gear/trial/%d", n)
}

// try judges a cascade with its split at a rate by the problem's SLO.
func (b *bench) try(ctx context.Context, s *stair, rate float64) (Trial, error) {
	return b.tryLate(ctx, s, rate, 1-b.p.Percentile)
}

// tryLate lets a share of the requests be late. Of more than the percentile allows,
// only that latency does not grow is asked. What holds on the samples planned on is tried on
// those held out, too.
func (b *bench) tryLate(ctx context.Context, of *stair, rate, most float64) (Trial, error) {
	p := b.p
	within := p.triedWithin(of.cascade, rate)
	short := time.Duration(lengthened(p.Surplus) * float64(runLength(within, rate)))
	if short.Seconds()*rate > mostRequests {
		return Trial{tooMany: true}, nil
	}
	a := attempt{c: of.cascade, minQueue: b.minQueue, shares: of.shares, rate: rate, length: short, limit: within, on: p.Planned}
	t, err := b.tryOn(ctx, a, of.taken, most)
	holds := t.Passed || t.Stable && most > 1-p.Percentile
	if err != nil || !holds || !p.HeldOut.present() {
		return t, err
	}
	a.on = p.HeldOut.hardened(of.cascade, leastSeconds(p))
	other, err := b.tryOn(ctx, a, of.taken, most)
	if a.on != p.HeldOut {
		delete(b.orders, a.on)
	}
	t.HeldOut, t.failsHeldOut = other.Latency, !other.Passed && !(other.Stable && most > 1-p.Percentile)
	t.Stable, t.Passed, t.late = other.Stable, t.Passed && other.Passed, max(t.late, other.late)
	return t, err
}

// present returns whether there are samples.
func (s *Samples) present() bool { return s != nil && s.N > 0 }

// tryOn makes an attempt of the shortest length, and then longer ones, by the test that
// stands above. taken is the load of the busiest device per request per second.
func (b *bench) tryOn(ctx context.Context, a attempt, taken, most float64) (Trial, error) {
	p, within, short := b.p, a.limit, a.length
	a.most = min(1, sieve*most)
	s, err := b.run(ctx, &a)
	if err != nil {
		return Trial{}, err
	}
	if t := s.trial(within); s.above || s.late > a.most {
		t.Passed, t.Stable = false, false
		return t, nil
	}
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

// trial judges a run by an SLO: the tail within it, and the mean latency of the last
// quarter not above the second's by more than a twentieth of it.
func (s *shown) trial(slo time.Duration) Trial {
	if s.above {
		return Trial{Latency: -1}
	}
	t := Trial{Latency: s.tail, Stable: s.growth <= slo/mayGrow, late: s.late}
	t.Passed = t.Stable && t.Latency <= slo
	return t
}

// mayGrow says which part of the SLO the mean latency may grow by in a run, from the
// second quarter to the last: a twentieth.
const mayGrow = 20

// block is a part of a run.
type block struct {
	late float64       // share of its requests
	tail time.Duration // at the percentile
	mean time.Duration
}

// evidence is what the blocks of all streams showed.
type evidence struct {
	lates, tails, means []float64 // by block; latencies in seconds
	streams             int
	load                float64 // of the busiest device
}

// add takes a stream.
func (e *evidence) add(blocks []block) {
	e.streams++
	for _, b := range blocks[blocksPerRun:] {
		e.lates, e.tails, e.means = append(e.lates, b.late), append(e.tails, b.tail.Seconds()), append(e.means, b.mean.Seconds())
	}
}

// Loads of the busiest device below which latency does not grow for ever: by any blocks, and where
// so many streams have not shown it. There the tolerance bounds of many streams say enough.
const (
	mayWander     = .9
	mayWanderLong = .97
)

// mayWander returns whether the mean latency may wander as far as it does in blocks.
func (e *evidence) mayWander() bool {
	return e.load < mayWander || e.load < mayWanderLong && e.streams >= manyStreams
}

// judge tells whether a gear keeps the promise, and whether further streams are not worth
// it: what many showed is past a limit in the mean, or would not do even if all further ones
// showed the same. Few tell little of how far streams differ: of these it is past the lateness
// that is allowed by a part.
func (e *evidence) judge(slo time.Duration, most float64) (keeps, hopeless bool) {
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

// within tells whether the mean of a fresh trial, without its first quarter, exceeds a
// limit with a chance of mayFail at most, if there were so many times as many values like these.
func (e *evidence) within(list []float64, limit, more float64) bool {
	run, n := len(list)/e.streams, len(list)/e.streams
	if e.streams >= manyStreams {
		n = len(list) // streams are independent, so that many of them tell how much blocks are alike
	}
	return tolerance.Correlated(list, run, n).Times(more).SeldomAbove(limit, .75*freshRun*blocksPerRun, mayFail, 1-(1-trialConfidence)/chances)
}

// wander is what the mean latency of a fresh trial's last quarter is above that of its
// second with a chance of mayFail, by an estimate that is as often too small as too large.
func (e *evidence) wander() float64 {
	n := len(e.means)
	return tolerance.Correlated(e.means, n/e.streams, n).Wander(freshRun*blocksPerRun/4., mayFail)
}
