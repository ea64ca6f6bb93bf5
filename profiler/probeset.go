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
type probeSet struct {
	name       string
	onCPU      bool
	probes     []*probe // blocks, then ranges, then the whole model
	blockCount int      // number of probes that are blocks; 0 if only ranges are measured
	ranges     [][2]int

	roundCount    int
	begun         time.Time
	lastRoundTime time.Duration // duration of the latest round
	stopReason    string        // why sampling stopped: tight, rounds, budget, interrupted

	reference []time.Duration // times of the reference work, one after each round

	triesGivenUp int       // number of tries that were repeated because the machine was busy
	bestTry      *savedTry // the least busy try so far
}

// savedTry holds the samples of one try.
type savedTry struct {
	factor                     float64
	roundCount                 int
	cpu, wall, host, afterIdle [][]time.Duration // times by probe, then round
	stopReason                 string
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
func (l *probeSet) decisiveTimes(p *probe) []time.Duration {
	if l.onCPU {
		return p.cpu
	}
	return p.wall
}

// minRoundsToSelect is the number of rounds from which on medians use only the quieter half.
const minRoundsToSelect = 6

// quietRounds returns the rounds that medians are taken over, in the order of time: the half that other work on
// the machine disturbed least. A round is judged by its time relative to the medians of its probes. Only whole
// rounds are chosen, so that no block is favoured and the scatter of each block remains.
func (l *probeSet) quietRounds() []int {
	rounds := make([]int, l.roundCount)
	for i := range rounds {
		rounds[i] = i
	}
	if l.roundCount < minRoundsToSelect {
		return rounds
	}
	roundTimes := make([]float64, l.roundCount)
	for _, p := range l.probes {
		s := l.decisiveTimes(p)
		mid := float64(max(1, median(s)))
		for i := range roundTimes {
			// Cap the ratio: a single sample that an interrupt hit says little about its round.
			roundTimes[i] += min(2, float64(s[i])/mid) * mid
		}
	}
	slices.SortStableFunc(rounds, func(a, b int) int { return cmp.Compare(roundTimes[a], roundTimes[b]) })
	quieterHalf := rounds[:(l.roundCount+1)/2]
	slices.Sort(quieterHalf)
	return quieterHalf
}

func pickRounds(s []time.Duration, rounds []int) []time.Duration {
	out := make([]time.Duration, len(rounds))
	for i, r := range rounds {
		out[i] = s[r]
	}
	return out
}

// latency summarises a probe: medians and their interval over the quiet rounds; p99, means and the number of
// samples over all rounds.
func (l *probeSet) latency(p *probe, quiet []int) formats.Latency {
	var cpu []time.Duration
	if l.onCPU {
		cpu = pickRounds(p.cpu, quiet)
	}
	lat := Summarize(cpu, pickRounds(p.wall, quiet))
	lat.Samples = len(p.wall)
	if n := len(p.wall); n > 0 && len(p.host) == n {
		lat.HostUS = document.Micros(median(pickRounds(p.host, quiet)))
	}
	lat.P99US = document.Micros(report.Percentile(slices.Sorted(slices.Values(p.wall)), 0.99))
	lat.MeanUS, lat.DriftUS, lat.IdleUS = mean(p.wall), drift(p.wall), mean(p.afterIdle)
	return lat
}

// disturbance returns how much the last probe's median (that of the whole model) over all rounds exceeds the one
// over the quiet rounds, as a share: the cost of other work on the machine.
func (l *probeSet) disturbance(quiet []int) float64 {
	s := l.decisiveTimes(l.probes[len(l.probes)-1])
	if len(s) == 0 {
		return 0
	}
	return float64(median(s))/float64(max(1, median(pickRounds(s, quiet)))) - 1
}

// If the whole model takes more than busyFactor times the sum of its blocks, or its own CPU time, other work held
// the processor: runs of milliseconds fit between two preemptions and longer ones do not. Plans from such blocks
// would promise too much. A probe set is repeated up to busyTries times, if the budget allows.
const (
	busyFactor = 2
	busyTries  = 2
)

// busyness says how busy the machine was while a probe set was sampled.
type busyness struct {
	wholeTime  time.Duration // wall time of the whole model
	factor     float64       // wall time of the whole model, relative to what it should be
	comparison string        // the time that factor compares with, as text
}

// busyness compares the wall time of the whole model, the last probe, with the sum of its blocks and, if one
// thread did all the work, with its CPU time.
func (l *probeSet) busyness() busyness {
	quiet := l.quietRounds()
	mid := func(s []time.Duration) time.Duration {
		if len(s) < l.roundCount || l.roundCount == 0 {
			return 0
		}
		return median(pickRounds(s, quiet))
	}
	n := len(l.probes) - 1
	s := busyness{wholeTime: mid(l.probes[n].wall)}
	var sum time.Duration
	for _, p := range l.probes[:l.blockCount] {
		sum += mid(p.wall)
	}
	if f := float64(s.wholeTime) / float64(max(sum, 1)); sum > 0 {
		s.factor, s.comparison = f, fmt.Sprintf("%.1f times the sum of its blocks", f)
	}
	if cpu := mid(l.probes[n].cpu); l.onCPU && cpu > 0 {
		if f := float64(s.wholeTime) / float64(cpu); f > s.factor {
			s.factor, s.comparison = f, fmt.Sprintf("%.1f times its own CPU time", f)
		}
	}
	return s
}

// restart saves the samples of a try if it is the least busy so far, and begins a new try.
func (l *probeSet) restart(now time.Time) {
	l.keepBetterTry()
	l.triesGivenUp++
	l.roundCount, l.begun, l.stopReason, l.reference = 0, now, "", nil
	for _, p := range l.probes {
		p.cpu, p.wall, p.host, p.afterIdle = nil, nil, nil, nil
	}
}

// keepBetterTry saves the current samples if no earlier try was less busy. Otherwise it restores the saved ones.
func (l *probeSet) keepBetterTry() {
	if factor := l.busyness().factor; l.bestTry == nil || factor <= l.bestTry.factor {
		l.bestTry = &savedTry{factor: factor, roundCount: l.roundCount, stopReason: l.stopReason}
		for _, p := range l.probes {
			l.bestTry.cpu, l.bestTry.wall = append(l.bestTry.cpu, p.cpu), append(l.bestTry.wall, p.wall)
			l.bestTry.host, l.bestTry.afterIdle = append(l.bestTry.host, p.host), append(l.bestTry.afterIdle, p.afterIdle)
		}
		return
	}
	l.roundCount, l.stopReason = l.bestTry.roundCount, l.bestTry.stopReason
	for i, p := range l.probes {
		p.cpu, p.wall, p.host, p.afterIdle = l.bestTry.cpu[i], l.bestTry.wall[i], l.bestTry.host[i], l.bestTry.afterIdle[i]
	}
}

// loosestHalfWidth returns the largest half width of the probes relative to their medians, without those that are
// within the floor.
func (l *probeSet) loosestHalfWidth(floor time.Duration) float64 {
	loosest := 0.0
	quiet := l.quietRounds()
	for _, p := range l.probes {
		lat := l.latency(p, quiet)
		mid := lat.WallUS
		if lat.CPUUS > 0 {
			mid = lat.CPUUS
		}
		if lat.HalfWidthUS.D() <= floor || mid <= 0 {
			continue
		}
		loosest = max(loosest, float64(lat.HalfWidthUS)/float64(mid))
	}
	return loosest
}
