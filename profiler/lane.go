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
		lat.HostUS = document.Micros(median(pick(p.host, quiet)))
	}
	lat.P99US = document.Micros(report.Percentile(slices.Sorted(slices.Values(p.wall)), 0.99))
	lat.MeanUS, lat.DriftUS, lat.IdleUS = mean(p.wall), drift(p.wall), mean(p.idle)
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
