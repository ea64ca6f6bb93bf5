package profiler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/report"
)

// Precision says when the samples of a block are enough.
type Precision struct {
	// HalfWidth is the half width of the 95 % interval of the median, as a
	// share of the median, at which a number counts as tight.
	HalfWidth float64
	// Floor is a half width that is always tight enough: timers and
	// interrupts move short blocks by more than HalfWidth of them.
	Floor time.Duration
	// MinRounds and MaxRounds bound the samples per block; MaxRounds does not
	// hold before MinSpan.
	MinRounds, MaxRounds int
	// MinSpan is the time over which the samples of a batch are at least
	// spread, so that a neighbour's short burst is not taken for the truth;
	// after MaxSpan sampling stops as it does after MaxRounds.
	MinSpan, MaxSpan time.Duration
}

// DefaultPrecision is what profiles use unless told otherwise.
var DefaultPrecision = Precision{
	HalfWidth: 0.01, Floor: time.Microsecond, MinRounds: 30, MaxRounds: 150, MinSpan: 10 * time.Second, MaxSpan: 2 * time.Minute,
}

// budgetRounds is how many rounds a batch gets even where the budget is spent:
// less is no measurement.
const budgetRounds = 3

// minSample is how long one sample takes at least: shorter runs are repeated
// inside the engine, because reading the clock would show.
const minSample = 20 * time.Microsecond

// probe is one thing that is timed: a block or the whole model, bound to a
// batch size.
type probe struct {
	name      string
	run       func(n int) (engine.Timing, error)
	reps      int
	cpu, wall []time.Duration
	host      []time.Duration // as long as the others where the engine tells it
	rest      func()          // before a further sample, into idle; nil: none
	idle      []time.Duration // wall time after a rest
}

// sample runs the probe once (reps times where it is short), and once after a rest
// where that is asked for.
func (p *probe) sample() error {
	t, err := p.run(p.reps)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if p.rest != nil {
		p.rest()
		after, err := p.run(1)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		_, w := after.PerRun()
		p.idle = append(p.idle, w)
	}
	c, w := t.PerRun()
	p.cpu = append(p.cpu, c)
	p.wall = append(p.wall, w)
	if t.Host > 0 {
		p.host = append(p.host, t.Host/time.Duration(max(1, t.Runs)))
	}
	return nil
}

// lane is what one Measurement is made of: the blocks, ranges of them and the
// whole of one model at one batch size. Its probes always have the same number of
// samples.
type lane struct {
	name   string
	onCPU  bool
	probes []*probe // blocks, ranges, whole
	blocks int      // number of them; 0 where ranges alone are measured
	ranges [][2]int

	rounds int
	begun  time.Time
	round  time.Duration // duration of the latest round
	ended  string        // why sampling stopped: tight, rounds, budget, interrupted

	reference []time.Duration // beside the rounds: see reference

	tries int        // that were given up for a busy machine
	best  *laneTries // the least busy of them
}

// laneTries are the samples of one try.
type laneTries struct {
	factor                float64
	rounds                int
	cpu, wall, host, idle [][]time.Duration // by probe
	ended                 string
}

// Why a lane stopped.
const (
	endTight       = "tight"
	endRounds      = "rounds"
	endBudget      = "budget"
	endInterrupted = "interrupted"
)

// series is what decides whether a probe is tight: CPU time where one thread
// did all the work, else wall time.
func (l *lane) series(p *probe) []time.Duration {
	if l.onCPU {
		return p.cpu
	}
	return p.wall
}

// selectFrom is the number of rounds from which on the quieter half is taken.
const selectFrom = 6

// quiet lists the rounds that medians are taken over, in the order of time: the
// half of them that the machine's other work disturbed least. What a round took
// in relation to the medians of its probes tells; the choice is made for whole
// rounds, so it favours no block, and a block's own scatter stays in.
func (l *lane) quiet() []int {
	all := make([]int, l.rounds)
	for i := range all {
		all[i] = i
	}
	if l.rounds < selectFrom {
		return all
	}
	took := make([]float64, l.rounds)
	for _, p := range l.probes {
		s := l.series(p)
		mid := float64(max(1, median(s)))
		for i := range took {
			// A single sample that an interrupt hit says little about its round.
			took[i] += min(2, float64(s[i])/mid) * mid
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(took[a], took[b]) })
	half := all[:(l.rounds+1)/2]
	slices.Sort(half)
	return half
}

func pick(s []time.Duration, rounds []int) []time.Duration {
	out := make([]time.Duration, len(rounds))
	for i, r := range rounds {
		out[i] = s[r]
	}
	return out
}

// latency summarises a probe: medians and interval over the quiet rounds, p99, means
// and number of samples over all.
func (l *lane) latency(p *probe, quiet []int) formats.Latency {
	var cpu []time.Duration
	if l.onCPU {
		cpu = pick(p.cpu, quiet)
	}
	lat := Summarize(cpu, pick(p.wall, quiet))
	lat.Samples = len(p.wall)
	if n := len(p.wall); n > 0 && len(p.host) == n {
		lat.HostUS = formats.Micros(median(pick(p.host, quiet)))
	}
	lat.P99US = formats.Micros(report.Percentile(slices.Sorted(slices.Values(p.wall)), 0.99))
	lat.MeanUS, lat.IdleUS = mean(p.wall), mean(p.idle)
	return lat
}

// disturbance is by how much the last probe's (the whole model's) median over
// all rounds lies above that over the quiet ones: what other work on the machine
// cost.
func (l *lane) disturbance(quiet []int) float64 {
	s := l.series(l.probes[len(l.probes)-1])
	if len(s) == 0 {
		return 0
	}
	return float64(median(s))/float64(max(1, median(pick(s, quiet)))) - 1
}

// A whole model that takes more than busyFactor times the sum of its blocks, or
// of its own CPU time, was kept from the processor: runs of milliseconds fit
// between two preemptions and long ones do not, so that the blocks promise what
// the whole cannot keep. A lane gets busyTries more tries, budget permitting.
const (
	busyFactor = 2
	busyTries  = 2
)

// strain is how busy the machine was under a lane.
type strain struct {
	whole   time.Duration // wall time of the whole model
	factor  float64       // times what it should have taken
	against string        // what that is
}

// strain compares the wall time of the whole, the last probe, with the blocks'
// and with its CPU time where one thread did all the work.
func (l *lane) strain() strain {
	quiet := l.quiet()
	mid := func(s []time.Duration) time.Duration {
		if len(s) < l.rounds || l.rounds == 0 {
			return 0
		}
		return median(pick(s, quiet))
	}
	n := len(l.probes) - 1
	s := strain{whole: mid(l.probes[n].wall)}
	var sum time.Duration
	for _, p := range l.probes[:l.blocks] {
		sum += mid(p.wall)
	}
	if f := float64(s.whole) / float64(max(sum, 1)); sum > 0 {
		s.factor, s.against = f, fmt.Sprintf("%.1f times the sum of its blocks", f)
	}
	if cpu := mid(l.probes[n].cpu); l.onCPU && cpu > 0 {
		if f := float64(s.whole) / float64(cpu); f > s.factor {
			s.factor, s.against = f, fmt.Sprintf("%.1f times its own CPU time", f)
		}
	}
	return s
}

// giveUp keeps the samples of a try where they are the least busy so far, and
// begins anew.
func (l *lane) giveUp(now time.Time) {
	l.keep()
	l.tries++
	l.rounds, l.begun, l.ended, l.reference = 0, now, "", nil
	for _, p := range l.probes {
		p.cpu, p.wall, p.host, p.idle = nil, nil, nil, nil
	}
}

// keep notes the current samples as the best where no try before was less busy,
// and else brings those back.
func (l *lane) keep() {
	if f := l.strain().factor; l.best == nil || f <= l.best.factor {
		l.best = &laneTries{factor: f, rounds: l.rounds, ended: l.ended}
		for _, p := range l.probes {
			l.best.cpu, l.best.wall = append(l.best.cpu, p.cpu), append(l.best.wall, p.wall)
			l.best.host, l.best.idle = append(l.best.host, p.host), append(l.best.idle, p.idle)
		}
		return
	}
	l.rounds, l.ended = l.best.rounds, l.best.ended
	for i, p := range l.probes {
		p.cpu, p.wall, p.host, p.idle = l.best.cpu[i], l.best.wall[i], l.best.host[i], l.best.idle[i]
	}
}

// loosest returns the largest half width of the lane's probes in relation to
// their medians, those within the floor aside.
func (l *lane) loosest(floor time.Duration) float64 {
	worst := 0.0
	quiet := l.quiet()
	for _, p := range l.probes {
		lat := l.latency(p, quiet)
		mid := lat.WallUS
		if lat.CPUUS > 0 {
			mid = lat.CPUUS
		}
		if lat.HalfWidthUS.D() <= floor || mid <= 0 {
			continue
		}
		worst = max(worst, float64(lat.HalfWidthUS)/float64(mid))
	}
	return worst
}

// sampler takes the samples of several lanes in turns. One round runs every
// probe of every open lane once, in the order of the chain of blocks: what
// disturbs the machine for a while then disturbs a few samples of each number
// instead of all samples of one, and blocks find the caches as a chain of
// blocks leaves them.
type sampler struct {
	rule     Precision
	now      func() time.Time
	turn     func() (done func())
	deadline time.Time            // zero: none
	beside   func() time.Duration // the reference; nil: none
	again    func(*lane) bool     // a lane that ended should be sampled anew
	finished func(*lane) error
	progress func(done float64)
}

// longRun is from which length on one run that is not faster ends the warm-up: in as
// long a time the clock and the caches are what they will be.
const longRun = 2 * time.Millisecond

// warmUp runs every probe until one or two runs are no longer faster than the best
// before (at least two runs, at most ten), and sets the repetitions of short probes.
func (s *sampler) warmUp(ctx context.Context, l *lane) error {
	for _, p := range l.probes {
		best, worse := time.Duration(0), 0
		for i := 0; i < 10 && (i < 2 || worse < 1 || worse < 2 && best < longRun); i++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if i >= 2 && s.spent() {
				break
			}
			t, err := p.run(1)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			c, w := t.PerRun()
			if l.onCPU {
				w = c
			}
			if best == 0 || float64(w) < 0.98*float64(best) {
				worse = 0
			} else {
				worse++
			}
			if best == 0 || w < best {
				best = w
			}
		}
		p.reps = 1
		if best < minSample {
			p.reps = int(minSample/max(best, minSample/64)) + 1
		}
	}
	return nil
}

func (s *sampler) spent() bool { return !s.deadline.IsZero() && !s.now().Before(s.deadline) }

// run samples the lanes until all are finished. Where the context ends first,
// it returns its error and leaves the open lanes with the samples that they
// have and ended as interrupted.
func (s *sampler) run(ctx context.Context, lanes []*lane) error {
	for _, l := range lanes {
		l.begun = s.now()
	}
	open := len(lanes)
	for open > 0 {
		open = 0
		for _, l := range lanes {
			if l.ended != "" {
				continue
			}
			for range turns(l, lanes) {
				if s.spent() && l.rounds >= budgetRounds {
					l.ended = endBudget
				} else if err := s.oneRound(ctx, l); err != nil {
					return interrupt(ctx, lanes, err)
				} else {
					l.ended = s.verdict(l)
				}
				if l.ended != "" {
					break
				}
			}
			if l.ended == "" {
				open++
				continue
			}
			if s.again != nil && l.tries < busyTries && !s.spent() && s.again(l) {
				l.giveUp(s.now())
				open++
				continue
			}
			if l.tries > 0 {
				l.keep()
			}
			if s.finished != nil {
				if err := s.finished(l); err != nil {
					return err
				}
			}
		}
		if s.progress != nil {
			s.progress(s.share(lanes))
		}
	}
	return nil
}

// A lane whose round is short gets several in a row: as many as take a part of the
// longest round of all. Small models then are known as well as large ones.
const (
	turnPart  = 5
	mostTurns = 16
)

// turns is how many rounds a lane gets in a row.
func turns(l *lane, lanes []*lane) int {
	if l.round <= 0 {
		return 1
	}
	longest := slices.MaxFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.round, b.round) }).round
	return min(mostTurns, max(1, int(longest/(turnPart*l.round))))
}

func interrupt(ctx context.Context, lanes []*lane, err error) error {
	if ctx.Err() == nil {
		return err
	}
	for _, l := range lanes {
		if l.ended == "" {
			if l.best != nil {
				l.keep()
			}
			l.ended = endInterrupted
		}
	}
	return ctx.Err()
}

// oneRound runs every probe of the lane once. A round that is broken off
// leaves no sample behind.
func (s *sampler) oneRound(ctx context.Context, l *lane) error {
	if s.turn != nil {
		defer s.turn()()
	}
	begin := s.now()
	for _, p := range l.probes {
		err := ctx.Err()
		if err == nil {
			err = p.sample()
		}
		if err != nil {
			for _, q := range l.probes {
				q.cpu, q.wall, q.host = q.cpu[:l.rounds], q.wall[:l.rounds], q.host[:min(len(q.host), l.rounds)]
				q.idle = q.idle[:min(len(q.idle), l.rounds)]
			}
			if err == ctx.Err() {
				return err
			}
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	l.rounds++
	l.round = s.now().Sub(begin)
	if s.beside != nil {
		l.reference = append(l.reference, s.beside())
	}
	return nil
}

// verdict says whether the lane has enough samples. Intervals are computed
// every few rounds only: they sort.
func (s *sampler) verdict(l *lane) string {
	if l.rounds < s.rule.MinRounds || s.now().Sub(l.begun) < s.rule.MinSpan {
		return ""
	}
	if l.rounds >= s.rule.MaxRounds || s.rule.MaxSpan > 0 && s.now().Sub(l.begun) >= s.rule.MaxSpan {
		if l.loosest(s.rule.Floor) <= s.rule.HalfWidth {
			return endTight
		}
		return endRounds
	}
	if step := max(1, l.rounds/10); (l.rounds-s.rule.MinRounds)%step == 0 && l.loosest(s.rule.Floor) <= s.rule.HalfWidth {
		return endTight
	}
	return ""
}

// share estimates how much of the work is done, 0 to 1.
func (s *sampler) share(lanes []*lane) float64 {
	var all float64
	for _, l := range lanes {
		if l.ended != "" {
			all++
			continue
		}
		all += min(0.99, float64(l.rounds)/float64(max(1, s.rule.MaxRounds)))
	}
	return all / float64(max(1, len(lanes)))
}
