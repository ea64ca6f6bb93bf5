package profiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine"
)

// fixedLane is a probe set whose probes cost what is given on the clock.
func fixedLane(name string, clock *fakeClock, log *[]string, noise func(time.Time) float64, costs ...time.Duration) *probeSet {
	l := &probeSet{name: name, onCPU: true}
	for i, c := range costs {
		l.probes = append(l.probes, &probe{name: fmt.Sprint("block ", i), reps: 1, run: func(n int) (engine.Timing, error) {
			if log != nil {
				*log = append(*log, fmt.Sprintf("%s%d", name, i))
			}
			d := time.Duration(n) * c
			if noise != nil {
				d = time.Duration(float64(d) * noise(clock.now()))
			}
			clock.advance(d)
			return engine.Timing{Runs: n, CPU: d, Wall: d}, nil
		}})
	}
	return l
}

func TestRoundsInterleave(t *testing.T) {
	clock := newFakeClock()
	var log []string
	lanes := []*probeSet{
		fixedLane("a", clock, &log, nil, time.Millisecond, 2*time.Millisecond),
		fixedLane("b", clock, &log, nil, time.Millisecond),
	}
	var order []string
	s := &sampler{rule: Precision{HalfWidth: 0.01, MinRounds: 3, MaxRounds: 5}, now: clock.now,
		onFinished: func(l *probeSet) error { order = append(order, l.name+" "+l.stopReason); return nil }}
	if err := s.run(context.Background(), lanes); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(log, " "), "a0 a1 b0 a0 a1 b0 a0 a1 b0"; got != want {
		t.Errorf("ran %s, expected %s", got, want)
	}
	if got := strings.Join(order, ", "); got != "a tight, b tight" {
		t.Errorf("finished %s", got)
	}
}

// Constant times are tight after MinRounds, noisy ones run to MaxRounds.
func TestStopsWhenTight(t *testing.T) {
	clock := newFakeClock()
	rule := Precision{HalfWidth: 0.01, MinRounds: 20, MaxRounds: 60}
	still := fixedLane("still", clock, nil, nil, time.Millisecond)
	little := fixedLane("little", clock, nil, jitter(1, 0.01), time.Millisecond)
	wild := fixedLane("wild", clock, nil, jitter(2, 0.5), time.Millisecond)
	short := fixedLane("short", clock, nil, jitter(3, 0.5), time.Microsecond)
	s := &sampler{rule: Precision{HalfWidth: rule.HalfWidth, MinRounds: 20, MaxRounds: 60, Floor: time.Microsecond}, now: clock.now}
	if err := s.run(context.Background(), []*probeSet{still, little, wild, short}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l      *probeSet
		ended  string
		lo, hi int
	}{{still, endTight, 20, 20}, {little, endTight, 20, 40}, {wild, endRounds, 60, 60}, {short, endTight, 20, 20}} {
		if c.l.stopReason != c.ended || c.l.roundCount < c.lo || c.l.roundCount > c.hi {
			t.Errorf("%s ended %q after %d rounds, expected %q after %d to %d", c.l.name, c.l.stopReason, c.l.roundCount, c.ended, c.lo, c.hi)
		}
	}
}

// A neighbour that halves the speed for a second moves some samples of every
// number, and none of the medians: rounds are spread over MinSpan.
func TestBurstMovesNoMedian(t *testing.T) {
	clock := newFakeClock()
	begin := clock.now()
	burst := func(at time.Time) float64 {
		if d := at.Sub(begin); d > time.Second && d < 2*time.Second {
			return 2
		}
		return 1
	}
	var lanes []*probeSet
	for i := range 4 {
		lanes = append(lanes, fixedLane(fmt.Sprint("l", i), clock, nil, burst, time.Millisecond, 3*time.Millisecond))
	}
	s := &sampler{rule: Precision{HalfWidth: 0.01, MinRounds: 20, MaxRounds: 1000, MinSpan: 5 * time.Second}, now: clock.now}
	if err := s.run(context.Background(), lanes); err != nil {
		t.Fatal(err)
	}
	for _, l := range lanes {
		if got := clock.now().Sub(begin); got < 5*time.Second {
			t.Fatalf("sampled for %v only", got)
		}
		for i, want := range []time.Duration{time.Millisecond, 3 * time.Millisecond} {
			if lat := l.latency(l.probes[i], l.quietRounds()); lat.CPUUS.D() != want {
				t.Errorf("%s block %d: %v, expected %v", l.name, i, lat.CPUUS.D(), want)
			}
		}
	}
}

// Where the machine is slower for up to half of the time, the numbers are those
// of the other half; p99 and the number of samples are of all.
func TestQuietHalf(t *testing.T) {
	clock := newFakeClock()
	begin := clock.now()
	jit := jitter(5, 0.005)
	busy := func(at time.Time) float64 {
		if at.Sub(begin)%(800*time.Millisecond) > 480*time.Millisecond {
			return 1.5 * jit(at)
		}
		return jit(at)
	}
	l := fixedLane("a", clock, nil, busy, time.Millisecond, 2*time.Millisecond, 300*time.Microsecond)
	s := &sampler{rule: Precision{HalfWidth: 0.01, MinRounds: 800, MaxRounds: 800}, now: clock.now}
	if err := s.run(context.Background(), []*probeSet{l}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1000, 2000, 300} {
		lat := l.latency(l.probes[i], l.quietRounds())
		if got := float64(lat.CPUUS) / 1000; got < 0.99*want || got > 1.01*want {
			t.Errorf("block %d: %v us, expected %v", i, got, want)
		}
		if p99 := float64(lat.P99US) / 1000; p99 < 1.45*want || lat.Samples != 800 {
			t.Errorf("block %d: p99 %v us of %d samples", i, p99, lat.Samples)
		}
	}
}

// The budget ends no probe set with fewer rounds than a measurement needs, and a light one
// with more than a heavy one, but by no more than its turns.
func TestBudgetIsFair(t *testing.T) {
	for _, budget := range []time.Duration{0, 10 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		clock := newFakeClock()
		lanes := []*probeSet{
			fixedLane("light", clock, nil, jitter(1, 0.3), 200*time.Microsecond),
			fixedLane("heavy", clock, nil, jitter(2, 0.3), 8*time.Millisecond, 4*time.Millisecond),
		}
		begin := clock.now()
		s := &sampler{rule: Precision{HalfWidth: 0.001, MinRounds: 25, MaxRounds: 500}, now: clock.now, deadline: begin.Add(budget)}
		if err := s.run(context.Background(), lanes); err != nil {
			t.Fatal(err)
		}
		a, b := lanes[0].roundCount, lanes[1].roundCount
		if a < budgetRounds || b < budgetRounds || b > a+1 || a > maxTurns*(b+1) {
			t.Errorf("budget %v: %d and %d rounds", budget, a, b)
		}
		if lanes[0].stopReason != endBudget {
			t.Errorf("budget %v: ended %s", budget, lanes[0].stopReason)
		}
		if took := clock.now().Sub(begin); took > budget+100*time.Millisecond {
			t.Errorf("budget %v: took %v", budget, took)
		}
	}
}

// A round that is broken off leaves every probe with the same number of
// samples.
func TestInterruptedRoundLeavesNothing(t *testing.T) {
	clock := newFakeClock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	l := fixedLane("a", clock, nil, func(time.Time) float64 {
		if n++; n == 8 { // in the middle of the third round
			cancel()
		}
		return 1
	}, time.Millisecond, time.Millisecond, time.Millisecond)
	s := &sampler{rule: Precision{HalfWidth: 0.01, MinRounds: 20, MaxRounds: 20}, now: clock.now}
	if err := s.run(ctx, []*probeSet{l}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if l.stopReason != endInterrupted || l.roundCount != 2 {
		t.Errorf("ended %q after %d rounds", l.stopReason, l.roundCount)
	}
	for _, p := range l.probes {
		if len(p.cpu) != 2 || len(p.wall) != 2 {
			t.Errorf("%s has %d samples", p.name, len(p.cpu))
		}
	}
}

func TestProbeErrorNamesIt(t *testing.T) {
	clock := newFakeClock()
	l := fixedLane("resnet50, share 1/1, batch 4", clock, nil, nil, time.Millisecond)
	boom := errors.New("device lost")
	l.probes[0].run = func(int) (engine.Timing, error) { return engine.Timing{}, boom }
	s := &sampler{rule: DefaultPrecision, now: clock.now}
	err := s.run(context.Background(), []*probeSet{l})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "resnet50, share 1/1, batch 4: block 0") {
		t.Errorf("error %v", err)
	}
}

func TestWarmUp(t *testing.T) {
	clock := newFakeClock()
	cold := 0
	l := fixedLane("a", clock, nil, func(time.Time) float64 {
		cold++
		return 1 + 3/float64(cold*cold) // 4, 1.75, 1.33, 1.19, 1.12, 1.08, ...
	}, 100*time.Microsecond)
	tiny := fixedLane("tiny", clock, nil, nil, 500*time.Nanosecond)
	s := &sampler{rule: DefaultPrecision, now: clock.now}
	for _, x := range []*probeSet{l, tiny} {
		if err := s.warmUp(context.Background(), x); err != nil {
			t.Fatal(err)
		}
	}
	if cold < 6 || cold > 10 || l.probes[0].reps != 1 || len(l.probes[0].cpu) != 0 {
		t.Errorf("%d runs, %d repetitions, %d samples", cold, l.probes[0].reps, len(l.probes[0].cpu))
	}
	if r := tiny.probes[0].reps; r < 40 || r > 70 {
		t.Errorf("a block of 0.5 us is repeated %d times per sample", r)
	}
}

func TestTogetherGivesMeanTime(t *testing.T) {
	var runs []func(int) (engine.Timing, error)
	for _, ms := range []time.Duration{1, 2, 6} {
		runs = append(runs, func(n int) (engine.Timing, error) {
			d := time.Duration(n) * ms * time.Millisecond
			return engine.Timing{Runs: n, CPU: d, Wall: d}, nil
		})
	}
	got, err := RunTogether(runs)(2)
	if _, wall := got.PerRun(); err != nil || wall != 3*time.Millisecond {
		t.Errorf("%+v, %v: expected the mean, 3 ms", got, err)
	}
	boom := errors.New("worker lost")
	runs = append(slices.Clone(runs), func(int) (engine.Timing, error) { return engine.Timing{}, boom })
	if _, err := RunTogether(runs)(1); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

// An interrupt during a retry leaves the samples of the finished try.
func TestInterruptedRetryKeepsFinishedTry(t *testing.T) {
	for _, rounds := range []int{0, 2} { // of the retry
		clock := newFakeClock()
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		l := fixedLane("a", clock, nil, func(time.Time) float64 {
			if n++; n == 20+rounds+1 {
				cancel()
			}
			return 1
		}, time.Millisecond)
		s := &sampler{rule: Precision{HalfWidth: 0.01, MinRounds: 20, MaxRounds: 20}, now: clock.now,
			measureReference: func() time.Duration { return time.Millisecond }, shouldRetry: func(*probeSet) bool {
				if rounds == 0 {
					cancel()
				}
				return true
			}}
		err := s.run(ctx, []*probeSet{l})
		cancel()
		if !errors.Is(err, context.Canceled) || l.stopReason != endInterrupted || l.roundCount != 20 || len(l.probes[0].cpu) != 20 || len(l.reference) != 20 {
			t.Errorf("interrupted %d rounds after a try: error %v, ended %q with %d rounds, %d samples and %d references, expected the 20 of the try", rounds, err, l.stopReason, l.roundCount, len(l.probes[0].cpu), len(l.reference))
		}
	}
}
