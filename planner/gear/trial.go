package gear

import (
	"context"
	"fmt"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/solver/tolerance"
)

// Trials are a sequential test. A short run weeds out. Then come streams of arrivals,
// each with a run of longerRun times that length. They are cut into blocks. After every
// stream the blocks say one of three things: the gear keeps the SLO, it does not, or
// another stream is needed.
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
// blocks, and has to be small, too.
//
// Every stream has the samples in an order of its own. In one order for all, the same
// quarter would always have the harder samples, and latency would seem to grow there.
const (
	freshRun        = 10
	mayFail         = .01
	trialConfidence = .95

	longerRun    = 5
	mostStreams  = 3
	blocksPerRun = 4 // of the shortest run's length; so much of a stream is left out at its begin
)

// Trial is what a gear showed at a constant rate.
type Trial struct {
	Latency time.Duration // at the SLO's percentile, without the first quarter
	Stable  bool          // latency does not grow over the run
	Passed  bool
	late    float64 // share of the requests past the SLO
}

// runLength is how long the shortest trial runs: twenty SLOs, or forty where these are
// less than eight seconds, and long enough for two thousand requests.
func (p *Problem) runLength(rate float64) time.Duration {
	slo := p.SLO.Seconds()
	seconds := max(min(8, 40*slo), 20*slo, 2000/rate)
	return time.Duration(seconds * float64(time.Second))
}

// streamName names a stream of arrivals for trials.
func streamName(n int) string {
	if n == 0 {
		return "gear/trial"
	}
	return fmt.Sprintf("gear/trial/%d", n)
}

// try judges a cascade at a rate by the problem's SLO.
func (b *bench) try(ctx context.Context, c *Cascade, minQueue int, shares [][]float64, rate float64) (Trial, error) {
	return b.tryLate(ctx, c, minQueue, shares, rate, 1-b.p.Percentile)
}

// tryLate lets a share of the requests be late. Of more than the percentile allows,
// only that latency does not grow is asked.
func (b *bench) tryLate(ctx context.Context, c *Cascade, minQueue int, shares [][]float64, rate, most float64) (Trial, error) {
	p := b.p
	short := p.runLength(rate)
	a := attempt{c: c, minQueue: minQueue, shares: shares, rate: rate, length: short, limit: p.SLO, most: most}
	s, err := b.run(ctx, &a)
	if err != nil {
		return Trial{}, err
	}
	if t := s.trial(p.SLO); s.above || s.late > most {
		t.Passed, t.Stable = false, false
		return t, nil
	}
	a.length, a.block = longerRun*short, short/blocksPerRun
	var e evidence
	for {
		a.stream++
		if s, err = b.run(ctx, &a); err != nil {
			return Trial{}, err
		}
		t := s.trial(p.SLO)
		if s.above || most > 1-p.Percentile {
			return t, nil
		}
		e.add(s.blocks)
		keeps, hopeless := e.judge(p.SLO, most)
		if t.Stable, t.Passed, t.late = keeps, keeps && t.Latency <= p.SLO, stat.Mean(e.lates, nil); keeps || hopeless || a.stream == mostStreams {
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
}

// add takes a stream.
func (e *evidence) add(blocks []block) {
	e.streams++
	for _, b := range blocks[blocksPerRun:] {
		e.lates, e.tails, e.means = append(e.lates, b.late), append(e.tails, b.tail.Seconds()), append(e.means, b.mean.Seconds())
	}
}

// judge tells whether a gear keeps the promise, and whether it would not even if all
// further streams showed the same.
func (e *evidence) judge(slo time.Duration, most float64) (keeps, hopeless bool) {
	holds := func(streams int) bool {
		more := float64(streams) / float64(e.streams)
		return e.within(e.lates, most, more) && e.within(e.tails, slo.Seconds(), more)
	}
	keeps = holds(e.streams) && e.wander() <= slo.Seconds()/mayGrow
	return keeps, !keeps && !holds(mostStreams)
}

// within tells whether the mean of a fresh trial, without its first quarter, exceeds a
// limit with a chance of mayFail at most, if there were more values like these.
func (e *evidence) within(list []float64, limit, more float64) bool {
	run := len(list) / e.streams
	return tolerance.Correlated(list, run, run).Times(more).SeldomAbove(limit, .75*freshRun*blocksPerRun, mayFail, 1-(1-trialConfidence)/mostStreams)
}

// wander is what the mean latency of a fresh trial's last quarter is above that of its
// second with a chance of mayFail, by an estimate that is as often too small as too large.
func (e *evidence) wander() float64 {
	n := len(e.means)
	return tolerance.Correlated(e.means, n/e.streams, n).Wander(freshRun*blocksPerRun/4., mayFail)
}
