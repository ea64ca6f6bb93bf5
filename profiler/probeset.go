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

	isPartial    bool      // interrupted so early that the next run repeats it
	triesGivenUp int       // number of tries that were repeated because the machine was busy
	bestTry      *savedTry // the least busy try so far
}

// savedTry holds the samples of one try.
type savedTry struct {
	factor                     float64
	roundCount                 int
	cpu, wall, host, afterIdle [][]time.Duration // times by probe, then round
	reference                  []time.Duration
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
func (set *probeSet) decisiveTimes(p *probe) []time.Duration {
	if set.onCPU {
		return p.cpu
	}
	return p.wall
}

// minRoundsToSelect is the number of rounds from which on medians use only the quieter half.
const minRoundsToSelect = 6

// quietRounds returns the rounds that medians are taken over, in the order of time: the half that other work on the
// machine disturbed least. A round is judged by its time relative to the medians of its probes. Only whole rounds are
// chosen, so that no block is favoured and the scatter of each block remains. With few rounds (below
// minRoundsToSelect) it returns all. The result has indices of rounds.
func (set *probeSet) quietRounds() []int {
	rounds := make([]int, set.roundCount)
	for i := range rounds {
		rounds[i] = i
	}
	if set.roundCount < minRoundsToSelect {
		return rounds
	}
	roundTimes := make([]float64, set.roundCount)
	for _, p := range set.probes {
		s := set.decisiveTimes(p)
		mid := float64(max(1, report.Median(s)))
		for i := range roundTimes {
			// Cap the ratio: a single sample that an interrupt hit says little about its round.
			roundTimes[i] += min(2, float64(s[i])/mid) * mid
		}
	}
	slices.SortStableFunc(rounds, func(a, b int) int { return cmp.Compare(roundTimes[a], roundTimes[b]) })
	quieterHalf := rounds[:(set.roundCount+1)/2]
	slices.Sort(quieterHalf)
	return quieterHalf
}

// pickRounds returns the samples of the given rounds.
func pickRounds(s []time.Duration, rounds []int) []time.Duration {
	out := make([]time.Duration, len(rounds))
	for i, r := range rounds {
		out[i] = s[r]
	}
	return out
}

// latency summarises the samples of a probe (a timed block, range or whole model) for the profile. Medians and their
// interval are over the quiet rounds: the half of the rounds that other work on the machine disturbed least. The
// 99th percentile, means and the number of samples are over all rounds.
func (set *probeSet) latency(p *probe, quiet []int) formats.Latency {
	var cpu []time.Duration
	if set.onCPU {
		cpu = pickRounds(p.cpu, quiet)
	}
	lat := Summarize(cpu, pickRounds(p.wall, quiet))
	lat.Samples = len(p.wall)
	if n := len(p.wall); n > 0 && len(p.host) == n {
		lat.HostUS = document.Micros(report.Median(pickRounds(p.host, quiet)))
	}
	lat.P99US = document.Micros(report.Percentile(slices.Sorted(slices.Values(p.wall)), 0.99))
	lat.MeanUS, lat.DriftUS, lat.IdleUS = mean(p.wall), drift(p.wall), mean(p.afterIdle)
	return lat
}

// disturbance returns how much the last probe's median (that of the whole model) over all rounds exceeds the one
// over the quiet rounds, as a share: the cost of other work on the machine.
func (set *probeSet) disturbance(quiet []int) float64 {
	s := set.decisiveTimes(set.probes[len(set.probes)-1])
	if len(s) == 0 {
		return 0
	}
	return float64(report.Median(s))/float64(max(1, report.Median(pickRounds(s, quiet)))) - 1
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

// busyness returns how busy other work kept the machine: the larger of two ratios, with words that describe it. One
// is the wall time of the whole model (the last probe) over the sum of its blocks' wall times. The other, if one
// thread did all the work, is over its CPU time. The factor is 0 if neither can be computed.
func (set *probeSet) busyness() busyness {
	quiet := set.quietRounds()
	mid := func(s []time.Duration) time.Duration {
		if len(s) < set.roundCount || set.roundCount == 0 {
			return 0
		}
		return report.Median(pickRounds(s, quiet))
	}
	n := len(set.probes) - 1
	s := busyness{wholeTime: mid(set.probes[n].wall)}
	var sum time.Duration
	for _, p := range set.probes[:set.blockCount] {
		sum += mid(p.wall)
	}
	if f := float64(s.wholeTime) / float64(max(sum, 1)); sum > 0 {
		s.factor, s.comparison = f, fmt.Sprintf("%.1f times the sum of its blocks", f)
	}
	if cpu := mid(set.probes[n].cpu); set.onCPU && cpu > 0 {
		if f := float64(s.wholeTime) / float64(cpu); f > s.factor {
			s.factor, s.comparison = f, fmt.Sprintf("%.1f times its own CPU time", f)
		}
	}
	return s
}

// restart begins a new try, after one on a busy machine. It saves the samples of the last one if it is the least busy
// so far. now is when the new try begins.
func (set *probeSet) restart(now time.Time) {
	set.keepBetterTry()
	set.triesGivenUp++
	set.roundCount, set.begun, set.stopReason, set.reference = 0, now, "", nil
	for _, p := range set.probes {
		p.cpu, p.wall, p.host, p.afterIdle = nil, nil, nil, nil
	}
}

// keepBetterTry is called when a try to sample the set has ended, of several on a busy machine. It saves the current
// samples in bestTry if no earlier try was less busy. Otherwise, or if the current try was interrupted with fewer
// rounds, it puts the saved ones back in place of the current ones.
func (set *probeSet) keepBetterTry() {
	isShorter := set.bestTry != nil && set.stopReason == "" && set.roundCount < set.bestTry.roundCount
	if factor := set.busyness().factor; set.bestTry == nil || factor <= set.bestTry.factor && !isShorter {
		set.bestTry = &savedTry{factor: factor, roundCount: set.roundCount, stopReason: set.stopReason, reference: set.reference}
		for _, p := range set.probes {
			set.bestTry.cpu, set.bestTry.wall = append(set.bestTry.cpu, p.cpu), append(set.bestTry.wall, p.wall)
			set.bestTry.host, set.bestTry.afterIdle = append(set.bestTry.host, p.host), append(set.bestTry.afterIdle, p.afterIdle)
		}
		return
	}
	set.roundCount, set.stopReason, set.reference = set.bestTry.roundCount, set.bestTry.stopReason, set.bestTry.reference
	for i, p := range set.probes {
		p.cpu, p.wall, p.host, p.afterIdle = set.bestTry.cpu[i], set.bestTry.wall[i], set.bestTry.host[i], set.bestTry.afterIdle[i]
	}
}

// loosestHalfWidth returns how well the least known probe is known: the largest half width of the 95 % interval of a
// median, as a share of the median. Probes whose half width is within floor do not count. The result decides whether
// sampling may stop.
func (set *probeSet) loosestHalfWidth(floor time.Duration) float64 {
	loosest := 0.0
	quiet := set.quietRounds()
	for _, p := range set.probes {
		lat := set.latency(p, quiet)
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
