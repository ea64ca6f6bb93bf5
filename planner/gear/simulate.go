package gear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/sim"
)

// bench tries gears on one placement: the real policy in the simulator, Poisson
// arrivals at a constant rate.
type bench struct {
	p        *Problem
	tables   policy.Tables // but for its gear
	minQueue int           // of first models, in trials
	seed     uint64
	runs     int

	requests  int // run on measured rates
	simulated int // requests of runs at constant rates

	pipelines [][]int32 // by model

	orders    map[*Samples][]gear.Records // by stream, the samples in its order
	latencies []time.Duration             // of the run before, for its memory
}

func newBench(p *Problem, configs []Config, chains []PlacedChain, seed uint64) *bench {
	b := &bench{p: p, seed: seed, minQueue: 1, orders: map[*Samples][]gear.Records{}}
	b.tables, b.pipelines = tablesOf(p, configs, chains)
	return b
}

// Gear is a cascade as a gear up to a rate, whose stages name models.
func (c *Cascade) Gear(to float64, minQueue int, shares [][]float64) gear.Gear {
	g := gear.Gear{ToQPS: to}
	for k, m := range c.Models {
		s := gear.Stage{Pipeline: int32(m), MinQueue: 1, Split: shares[m]}
		if k < len(c.Levels) {
			s.Below = int32(c.Levels[k])
		}
		if k == 0 {
			s.MinQueue = int32(minQueue)
		}
		g.Stages = append(g.Stages, s)
	}
	return g
}

// errLate ends a trial early.
var errLate = errors.New("more requests are late than the percentile allows")

// attempt is a cascade alone at a rate.
type attempt struct {
	c        *Cascade
	minQueue int
	shares   [][]float64
	rate     float64
	length   time.Duration
	limit    time.Duration // once too many requests take longer, the run ends
	most     float64       // share of them that is not yet too many; 0: what the percentile allows
	stream   int           // of arrivals
	on       *Samples      // that requests bring; nil: those planned on
	block    time.Duration // what is shown in parts of this length; 0: is not
}

// shown is what an attempt showed.
type shown struct {
	tail   time.Duration // at the percentile, without the first quarter
	above  bool          // the limit: the run was not taken to its end
	late   float64       // share of the requests above the limit
	growth time.Duration // of the mean latency, from the second quarter to the last
	blocks []block
}

// run simulates an attempt.
func (b *bench) run(ctx context.Context, a *attempt) (shown, error) {
	b.runs++
	p, on := b.p, cmp.Or(a.on, b.p.Planned)
	t := b.with(a.rate, a.c.Gear(a.rate, a.minQueue, a.shares))
	gear.Of(t).Records = b.recordsOf(on, a.stream)
	pol, err := gear.New(t, gear.NotShedding(t))
	if err != nil {
		return shown{}, err
	}
	src, err := arrivals.Process(&formats.Arrivals{Process: "poisson"}, seeded.New(b.seed, b.nameOf(on, a.stream)), 0, a.rate, a.length)
	if err != nil {
		return shown{}, fmt.Errorf("trying a gear: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	expected := a.rate * a.length.Seconds()
	most := cmp.Or(a.most, 1-p.Percentile)
	w := watch{length: a.length, limit: a.limit, cancel: cancel, most: int(most * expected), block: a.block}
	if a.block > 0 {
		w.parts = make([][]time.Duration, a.length/a.block)
		for i := range w.parts {
			w.parts[i] = make([]time.Duration, 0, int(1.2*a.rate*a.block.Seconds()))
		}
	}
	w.latencies = slices.Grow(b.latencies[:0], int(1.1*expected))
	var service sim.Service // the times of the tables
	if p.Drift > 0 {
		service = sim.SlowerService(sim.Exact(t), p.Drift)
	}
	_, err = sim.Run(ctx, sim.Config{Tables: t, Service: service, Policy: pol, Source: src, Duration: a.length, Egress: p.Beside, FrontEnd: p.FrontEnd, Completed: w.completed, NoReport: true})
	b.latencies = w.latencies
	for q := range w.quarter {
		b.simulated += w.quarter[q].n
	}
	out := shown{}
	if err != nil {
		if errors.Is(context.Cause(ctx), errLate) {
			out.above = true
			return out, nil
		}
		return shown{}, fmt.Errorf("trying a gear: %w", err)
	}
	out.late = shareAbove(w.latencies, a.limit)
	for _, part := range w.parts {
		out.blocks = append(out.blocks, block{shareAbove(part, a.limit), report.PercentileReordering(part, p.Percentile), meanOf(part)})
	}
	out.tail = report.PercentileReordering(w.latencies, p.Percentile)
	out.growth = w.mean(3) - w.mean(1)
	if w.quarter[3].n == 0 {
		out.growth = w.mean(1) // nothing came at the end: nothing can be said of it
	}
	return out, nil
}

// shareAbove is the share of latencies above a limit.
func shareAbove(list []time.Duration, limit time.Duration) float64 {
	above := 0
	for _, took := range list {
		if took > limit {
			above++
		}
	}
	return float64(above) / float64(max(1, len(list)))
}

// meanOf is the mean of latencies, 0 without any.
func meanOf(list []time.Duration) time.Duration {
	total := time.Duration(0)
	for _, took := range list {
		total += took
	}
	return total / time.Duration(max(1, len(list)))
}

// with are the run-time tables with gears up to a rate, whose stages name models.
func (b *bench) with(peak float64, gears ...gear.Gear) *policy.Tables {
	t := b.tables
	t.Models = slices.Clone(t.Models)
	t.Models[0].RPS = peak
	gears = slices.Clone(gears)
	for r := range gears {
		g := &gears[r]
		g.Stages = slices.Clone(g.Stages)
		for k := range g.Stages {
			of := b.pipelines[g.Stages[k].Pipeline]
			g.Stages[k].Pipeline, g.Stages[k].More = of[0], of[1:]
		}
	}
	t.Own = &gear.Tables{MaxQPS: peak, Gears: gears, Records: b.records(b.p.Planned)}
	return &t
}

// records returns the answers of every pipeline to samples.
func (b *bench) records(s *Samples) gear.Records {
	out := gear.Records{Samples: s.N}
	for m, of := range b.pipelines {
		for range of {
			out.Levels, out.Correct = append(out.Levels, s.Levels[m]), append(out.Correct, s.Correct[m])
		}
	}
	return out
}

// nameOf names a stream of requests that bring samples: those planned on, or others.
func (b *bench) nameOf(s *Samples, stream int) string {
	if s == b.p.Planned {
		return streamName(stream)
	}
	return streamName(stream) + "/held-out"
}

// recordsOf returns the records in the order of a stream, which no run changes.
func (b *bench) recordsOf(s *Samples, stream int) gear.Records {
	list := b.orders[s]
	for n := len(list); n <= stream; n++ {
		all := b.records(s)
		list = append(list, shuffled(&all, seeded.New(b.seed, b.nameOf(s, n)+"/samples")))
	}
	b.orders[s] = list
	return list[stream]
}

// shuffled are records with the samples in another order.
func shuffled(r *gear.Records, rng *rand.Rand) gear.Records {
	order := rng.Perm(r.Samples)
	out := gear.Records{Samples: r.Samples}
	for m := range r.Levels {
		levels, correct := make([]uint8, len(order)), make([]bool, len(order))
		for i, k := range order {
			levels[i], correct[i] = r.Levels[m][k], r.Correct[m][k]
		}
		out.Levels, out.Correct = append(out.Levels, levels), append(out.Correct, correct)
	}
	return out
}

// watch gathers the latencies of a run.
type watch struct {
	length    time.Duration
	limit     time.Duration
	cancel    context.CancelCauseFunc
	latencies []time.Duration // of arrivals after the first quarter
	late      int             // above the limit
	most      int
	block     time.Duration
	parts     [][]time.Duration // latencies by block
	quarter   [4]struct {
		n   int
		sum time.Duration
	}
}

func (w *watch) completed(arrived, answered time.Duration) {
	took := answered - arrived
	q := min(3, int(4*arrived/w.length))
	w.quarter[q].n++
	w.quarter[q].sum += took
	if w.block > 0 {
		at := min(int(arrived/w.block), len(w.parts)-1)
		w.parts[at] = append(w.parts[at], took)
	}
	if took > w.limit {
		if w.late++; w.late > w.most+1 {
			w.cancel(errLate)
		}
	}
	if q > 0 {
		w.latencies = append(w.latencies, took)
	}
}

// mean is the mean latency of a quarter of the run, 0 without a request.
func (w *watch) mean(quarter int) time.Duration {
	q := &w.quarter[quarter]
	return q.sum / time.Duration(max(1, q.n))
}
