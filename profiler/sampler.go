package profiler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/engine"
)

// Precision says when a block has enough samples.
type Precision struct {
	// HalfWidth is the half width of the 95 % interval of the median, as a share of the median, up to which a
	// number counts as tight.
	HalfWidth float64
	// Floor is a half width that always counts as tight: timers and interrupts change the times of short blocks by
	// more than HalfWidth.
	Floor time.Duration
	// MinRounds and MaxRounds bound the samples per block. MaxRounds does not apply before MinSpan.
	MinRounds, MaxRounds int
	// MinSpan is the shortest time over which the samples of a batch are spread, so that a short burst of other
	// work does not decide the result. After MaxSpan sampling stops as after MaxRounds.
	MinSpan, MaxSpan time.Duration
}

// DefaultPrecision is the precision of profiles if none is given.
var DefaultPrecision = Precision{
	HalfWidth: 0.01, Floor: time.Microsecond, MinRounds: 30, MaxRounds: 150, MinSpan: 10 * time.Second, MaxSpan: 2 * time.Minute,
}

// budgetRounds is the number of rounds that a batch gets even if the budget is spent. Fewer are no measurement.
const budgetRounds = 3

// minSample is the shortest time of one sample. Shorter runs are repeated inside the engine, because the time of
// reading the clock would show.
const minSample = 20 * time.Microsecond

// probe is one thing that is timed: a block, a range of blocks or the whole model, bound to a batch size.
type probe struct {
	name      string
	run       func(n int) (engine.Timing, error)
	reps      int             // runs of one sample
	cpu, wall []time.Duration // times of a run, one per sample
	host      []time.Duration // host times, as many as the others if the engine reports them, else none
	idleFirst func()          // leaves the device idle before an additional sample; nil for none
	afterIdle []time.Duration // wall times of runs after an idle time
}

// sample takes one sample of a probe: it runs the probe once (reps times if it is short), and keeps the times of a
// run. If idleFirst is set, it also leaves the device idle for a while, and keeps the time of one more run. t.Host is
// the time until the host has launched the work (GPUs only).
func (p *probe) sample() error {
	t, err := p.run(p.reps)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if p.idleFirst != nil {
		p.idleFirst()
		idleTiming, err := p.run(1)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		_, wall := idleTiming.PerRun()
		p.afterIdle = append(p.afterIdle, wall)
	}
	cpu, wall := t.PerRun()
	p.cpu = append(p.cpu, cpu)
	p.wall = append(p.wall, wall)
	if t.Host > 0 {
		p.host = append(p.host, t.Host/time.Duration(max(1, t.Runs)))
	}
	return nil
}

// sampler takes the samples of several probe sets in turns. One round runs every probe of every open set once, in
// the order of the blocks. So a disturbance of the machine affects a few samples of each number instead of all
// samples of one, and a block finds the caches as the block before leaves them.
type sampler struct {
	rule             Precision
	now              func() time.Time
	turn             func() (done func())
	deadline         time.Time            // zero for none
	measureReference func() time.Duration // does the reference work; nil for none
	shouldRetry      func(*probeSet) bool // reports whether a finished probe set is to be sampled again
	onFinished       func(*probeSet) error
	progress         func(done float64)
}

// longRun is the duration from which on one run that is not faster ends the warm-up: after so long a run, clock
// and caches are stable.
const longRun = 2 * time.Millisecond

// warmUp runs every probe of a set until its time no longer falls: until one or two runs are not faster than the
// fastest before, at least two runs, at most ten. It then sets how often a short probe runs in one sample. The number
// of runs in a sample is p.reps.
func (s *sampler) warmUp(ctx context.Context, set *probeSet) error {
	for _, p := range set.probes {
		// Run until the time no longer falls. After runs of longRun or more, one that is not faster ends this,
		// otherwise two in a row.
		fastest, slowerRuns := time.Duration(0), 0
		for i := range 10 {
			enoughSlower := 2
			if fastest >= longRun {
				enoughSlower = 1
			}
			if i >= 2 && slowerRuns >= enoughSlower {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if i >= 2 && s.isOutOfTime() {
				break
			}
			t, err := p.run(1)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			cpu, runTime := t.PerRun()
			if set.onCPU {
				runTime = cpu
			}
			if fastest == 0 || float64(runTime) < 0.98*float64(fastest) { // faster by more than chance
				slowerRuns = 0
			} else {
				slowerRuns++
			}
			if fastest == 0 || runTime < fastest {
				fastest = runTime
			}
		}

		// Repeat short runs so often that a sample takes at least minSample, but at most 65 times.
		p.reps = 1
		if fastest < minSample {
			p.reps = int(minSample/max(fastest, minSample/64)) + 1
		}
	}
	return nil
}

func (s *sampler) isOutOfTime() bool { return !s.deadline.IsZero() && !s.now().Before(s.deadline) }

// run samples the probe sets in turns, some rounds of each (a round times every probe once), until all are finished.
// A set that other work disturbed is repeated, at most busyTries times, and its least busy try counts. If the context
// ends first, it returns the context's error. The open sets keep their samples, and their stop reason is that they
// were interrupted.
func (s *sampler) run(ctx context.Context, sets []*probeSet) error {
	for _, set := range sets {
		set.begun = s.now()
	}
	open := len(sets)
	for open > 0 {
		open = 0
		for _, set := range sets {
			if set.stopReason != "" {
				continue
			}

			// Sample the set for some rounds, until a rule stops it.
			for range roundsPerTurn(set, sets) {
				if s.isOutOfTime() && set.roundCount >= budgetRounds {
					set.stopReason = endBudget
				} else if err := s.oneRound(ctx, set); err != nil {
					return markInterrupted(ctx, sets, err)
				} else {
					set.stopReason = s.stopReason(set)
				}
				if set.stopReason != "" {
					break
				}
			}
			if set.stopReason == "" {
				open++
				continue
			}

			// Repeat a set that a busy machine disturbed, and keep the best try.
			if s.shouldRetry != nil && set.triesGivenUp < busyTries && !s.isOutOfTime() && s.shouldRetry(set) {
				set.restart(s.now())
				open++
				continue
			}
			if set.triesGivenUp > 0 {
				set.keepBetterTry()
			}
			if s.onFinished != nil {
				if err := s.onFinished(set); err != nil {
					return err
				}
			}
		}
		if s.progress != nil {
			s.progress(s.finishedShare(sets))
		}
	}
	return nil
}

// A probe set with short rounds gets several in a row, until they take 1/turnDivisor of the longest round of all
// sets. So small models are measured as well as large ones.
const (
	turnDivisor = 5
	maxTurns    = 16
)

// roundsPerTurn returns how many rounds a probe set gets in a row before the next set has its turn: as many as take a
// fifth (1/turnDivisor) of the longest round of all sets, at least one and at most maxTurns.
func roundsPerTurn(set *probeSet, sets []*probeSet) int {
	if set.lastRoundTime <= 0 {
		return 1
	}
	longest := slices.MaxFunc(sets, func(a, b *probeSet) int { return cmp.Compare(a.lastRoundTime, b.lastRoundTime) }).lastRoundTime
	return min(maxTurns, max(1, int(longest/(turnDivisor*set.lastRoundTime))))
}

// markInterrupted is called when a round failed with err. If that is because the context ended, it marks all open probe
// sets as interrupted and returns the context's error.
func markInterrupted(ctx context.Context, sets []*probeSet, err error) error {
	if ctx.Err() == nil {
		return err
	}
	for _, set := range sets {
		if set.stopReason == "" {
			if set.bestTry != nil {
				set.keepBetterTry()
			}
			set.stopReason = endInterrupted
		}
	}
	return ctx.Err()
}

// oneRound runs every probe of the set once. An interrupted round leaves no sample behind.
func (s *sampler) oneRound(ctx context.Context, set *probeSet) error {
	if s.turn != nil { // wait for the turn of this run, and give it up at the end
		defer s.turn()()
	}
	begin := s.now()
	for _, p := range set.probes {
		err := ctx.Err()
		if err == nil {
			err = p.sample()
		}
		if err != nil {
			for _, q := range set.probes {
				q.cpu, q.wall, q.host = q.cpu[:set.roundCount], q.wall[:set.roundCount], q.host[:min(len(q.host), set.roundCount)]
				q.afterIdle = q.afterIdle[:min(len(q.afterIdle), set.roundCount)]
			}
			if err == ctx.Err() {
				return err
			}
			return fmt.Errorf("%s: %w", set.name, err)
		}
	}

	// Count the round, and measure how fast the machine is.
	set.roundCount++
	set.lastRoundTime = s.now().Sub(begin)
	if s.measureReference != nil {
		set.reference = append(set.reference, s.measureReference())
	}
	return nil
}

// stopReason returns why the set has enough samples, or "" if it has not. Intervals are computed only every few
// rounds, because that takes sorting. The reasons are that all medians are known well enough (endTight), or that the
// most rounds or the longest span is over (endRounds).
func (s *sampler) stopReason(set *probeSet) string {
	if set.roundCount < s.rule.MinRounds || s.now().Sub(set.begun) < s.rule.MinSpan {
		return ""
	}
	if set.roundCount >= s.rule.MaxRounds || s.rule.MaxSpan > 0 && s.now().Sub(set.begun) >= s.rule.MaxSpan {
		if set.loosestHalfWidth(s.rule.Floor) <= s.rule.HalfWidth {
			return endTight
		}
		return endRounds
	}
	if step := max(1, set.roundCount/10); (set.roundCount-s.rule.MinRounds)%step == 0 && set.loosestHalfWidth(s.rule.Floor) <= s.rule.HalfWidth {
		return endTight
	}
	return ""
}

// finishedShare estimates the share of the work that is done, 0 to 1. A set that is not finished counts by its
// rounds, as if it needed the most.
func (s *sampler) finishedShare(sets []*probeSet) float64 {
	var finished float64
	for _, set := range sets {
		if set.stopReason != "" {
			finished++
			continue
		}
		finished += min(0.99, float64(set.roundCount)/float64(max(1, s.rule.MaxRounds)))
	}
	return finished / float64(max(1, len(sets)))
}
