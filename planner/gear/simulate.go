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

// gearSimulator simulates gears on one placement with the real policy.
type bench struct {
	p        *Problem
	tables   policy.Tables // of the placement, without gears
	minQueue int           // of first models, in trials
	seed     uint64
	runs     int // number of simulated runs

	requests  int // number of requests simulated at measured rates
	simulated int // number of requests simulated at constant rates

	pipelines [][]int32 // by model

	orders    map[*Samples][]gear.Records // by stream: the samples in the stream's order
	latencies []time.Duration             // of the last run; its memory is used again
}

// newSimulator returns a simulator for a placement.
func newBench(p *Problem, configs []Config, chains []PlacedChain, seed uint64) *bench {
	b := &bench{p: p, seed: seed, minQueue: 1, orders: map[*Samples][]gear.Records{}}
	b.tables, b.pipelines = tablesOf(p, configs, chains)
	return b
}

// Gear returns the cascade as a gear up to a rate. Its stages name models in place of pipelines.
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

// errTooManyLate is the cause with which a run is cancelled early.
var errLate = errors.New("more requests are late than the percentile allows")

// trialRun is one run of a cascade at a constant rate.
type attempt struct {
	c        *Cascade
	minQueue int
	shares   [][]float64   // split, by model and replica
	rate     float64       // requests per second
	length   time.Duration // simulated time
	limit    time.Duration // a request that takes longer is late
	most     float64       // share of late requests at which the run ends; 0 means what the percentile allows
	stream   int           // number of the random arrivals
	on       *Samples      // samples that requests bring; nil means the planning samples
	block    time.Duration // length of a block; 0 means that none are recorded
}

// runResult is what a run showed.
type shown struct {
	tail   time.Duration // latency at the percentile, without the first quarter
	above  bool          // too many requests were late, and nothing else is known
	late   float64       // share of the requests past the limit
	growth time.Duration // of the mean latency, from the second quarter to the last
	blocks []block       // results by block, in order of time
}

// simulateRun simulates a run.
func (b *bench) run(ctx context.Context, a *attempt) (shown, error) {
	b.runs++
	p, on := b.p, cmp.Or(a.on, b.p.Planned)

	// Tables, policy and arrivals.
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

	// The recorder ends the run once too many requests are late.
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
	var service sim.Service // nil means the times of the tables
	if p.Drift > 0 {
		service = sim.SlowerService(sim.Exact(t), p.Drift)
	}
	_, err = sim.Run(ctx, sim.Config{Tables: t, Service: service, Policy: pol, Source: src, Duration: a.length, Egress: p.Beside, FrontEnd: p.FrontEnd, Completed: w.completed, NoReport: true})

	// Collect the result.
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
		out.growth = w.mean(1) // no request came in the last quarter, so the growth is not known: assume the worst
	}
	return out, nil
}

// shareAbove returns the share of latencies above a limit.
func shareAbove(list []time.Duration, limit time.Duration) float64 {
	above := 0
	for _, took := range list {
		if took > limit {
			above++
		}
	}
	return float64(above) / float64(max(1, len(list)))
}

// meanLatency returns the mean of latencies, or 0 if there are none.
func meanOf(list []time.Duration) time.Duration {
	total := time.Duration(0)
	for _, took := range list {
		total += took
	}
	return total / time.Duration(max(1, len(list)))
}

// tablesWith returns the run-time tables with gears up to a rate. The stages of the given gears name models.
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

// pipelineRecords returns the answers of every pipeline to samples.
func (b *bench) records(s *Samples) gear.Records {
	out := gear.Records{Samples: s.N}
	for m, of := range b.pipelines {
		for range of {
			out.Levels, out.Correct = append(out.Levels, s.Levels[m]), append(out.Correct, s.Correct[m])
		}
	}
	return out
}

// streamNameOf names the random numbers of a stream whose requests bring the given samples.
func (b *bench) nameOf(s *Samples, stream int) string {
	if s == b.p.Planned {
		return streamName(stream)
	}
	return streamName(stream) + "/held-out"
}

// shuffledRecords returns the records in the order of a stream, which is the same in every run.
func (b *bench) recordsOf(s *Samples, stream int) gear.Records {
	list := b.orders[s]
	for n := len(list); n <= stream; n++ {
		all := b.records(s)
		list = append(list, shuffled(&all, seeded.New(b.seed, b.nameOf(s, n)+"/samples")))
	}
	b.orders[s] = list
	return list[stream]
}

// shuffleRecords returns records with the samples in random order.
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

// latencyRecorder collects the latencies of a run.
type watch struct {
	length    time.Duration
	limit     time.Duration
	cancel    context.CancelCauseFunc
	latencies []time.Duration // of requests that arrived after the first quarter
	late      int             // number of requests past the limit
	most      int             // number at which the run is cancelled
	block     time.Duration
	parts     [][]time.Duration // latencies by block of arrival
	quarter   [4]struct {
		n   int
		sum time.Duration
	}
}

// addLatency records a request. It cancels the run if too many requests are late.
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

// quarterMean returns the mean latency of a quarter of the run, or 0 if it has no request.
func (w *watch) mean(quarter int) time.Duration {
	q := &w.quarter[quarter]
	return q.sum / time.Duration(max(1, q.n))
}
