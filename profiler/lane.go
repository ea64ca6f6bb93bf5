package profiler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
)

// probeSet holds the probes of one Measurement: the blocks, ranges of blocks, and the whole model, all at one
// batch size and share. Its probes always have the same number of samples.
type lane struct {
	name   string
	onCPU  bool
	probes []*probe // blocks, then ranges, then the whole model
	blocks int      // number of probes that are blocks; 0 if only ranges are measured
	ranges [][2]int

	rounds int
	begun  time.Time
	round  time.Duration // duration of the latest round
	ended  string        // why sampling stopped: tight, rounds, budget, interrupted

	reference []time.Duration // times of the reference work, one after each round

	tries int        // number of tries that were repeated because the machine was busy
	best  *laneTries // the least busy try so far
}

// savedTry holds the samples of one try.
type laneTries struct {
	factor                float64
	rounds                int
	cpu, wall, host, idle [][]time.Duration // times by probe, then round
	ended                 string
}

// Reasons why sampling of a probe set stopped.
const (
	endTight       = "tight"
	endRounds      = "rounds"
	endBudget      = "budget"
	endInterrupted = "interrupted"
)

// decisiveTimes returns the samples that decide whether a probe is tight: CPU times if one thread did all the
// work, else wall times.
func (l *lane) series(p *probe) []time.Duration {
	if l.onCPU {
		return p.cpu
	}
	return p.wall
}

// minRoundsToSelect is the number of rounds from which on medians use only the quieter half.
const selectFrom = 6

// quietRounds returns the rounds that medians are taken over, in the order of time: the half that other work on
// the machine disturbed least. A round is judged by its time relative to the medians of its probes. Only whole
// rounds are chosen, so that no block is favoured and the scatter of each block remains.
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
			// Cap the ratio: a single sample that an interrupt hit says little about its round.
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

// latency summarises a probe: medians and their interval over the quiet rounds; p99, means and the number of
// samples over all rounds.
func (l *lane) latency(p *probe, quiet []int) formats.Latency {
	var cpu []time.Duration
	if l.onCPU {
		cpu = pick(p.cpu, quiet)
	}
	lat := Summarize(cpu, pick(p.wall, quiet))
	lat.Samples = len(p.wall)
	if n := len(p.wall); n > 0 && len(p.host) == n {
		lat.HostUS = document.Micros(median(pick(p.host, quiet)))
	}
	lat.P99US = document.Micros(report.Percentile(slices.Sorted(slices.Values(p.wall)), 0.99))
	lat.MeanUS, lat.DriftUS, lat.IdleUS = mean(p.wall), drift(p.wall), mean(p.idle)
	return lat
}

// disturbance returns how much the last probe's median (that of the whole model) over all rounds exceeds the one
// over the quiet rounds, as a share: the cost of other work on the machine.
func (l *lane) disturbance(quiet []int) float64 {
	s := l.series(l.probes[len(l.probes)-1])
	if len(s) == 0 {
		return 0
	}
	return float64(median(s))/float64(max(1, median(pick(s, quiet)))) - 1
}

// If the whole model takes more than busyFactor times the sum of its blocks, or its own CPU time, other work held
// the processor: runs of milliseconds fit between two preemptions and longer ones do not. Plans from such blocks
// would promise too much. A probe set is repeated up to busyTries times, if the budget allows.
const (
	busyFactor = 2
	busyTries  = 2
)

// busyness says how busy the machine was while a probe set was sampled.
type strain struct {
	whole   time.Duration // wall time of the whole model
	factor  float64       // wall time of the whole model, relative to what it should be
	against string        // the time that factor compares with, as text
}

// busyness compares the wall time of the whole model, the last probe, with the sum of its blocks and, if one
// thread did all the work, with its CPU time.
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

// restart saves the samples of a try if it is the least busy so far, and begins a new try.
func (l *lane) giveUp(now time.Time) {
	l.keep()
	l.tries++
	l.rounds, l.begun, l.ended, l.reference = 0, now, "", nil
	for _, p := range l.probes {
		p.cpu, p.wall, p.host, p.idle = nil, nil, nil, nil
	}
}

// keepBetterTry saves the current samples if no earlier try was less busy. Otherwise it restores the saved ones.
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

// loosestHalfWidth returns the largest half width of the probes relative to their medians, without those that are
// within the floor.
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
