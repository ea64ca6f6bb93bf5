package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	p      *Problem
	tables policy.Tables // but for its gear
	seed   uint64
	runs   int

	latencies []time.Duration // of the run before, for its memory
}

func newBench(p *Problem, pl *Placement, seed uint64) *bench {
	return &bench{p: p, seed: seed, tables: p.tables(pl)}
}

// tables are the run-time tables of a placement, with pipeline m for model m.
func (p *Problem) tables(pl *Placement) policy.Tables {
	t := policy.Tables{Kinds: []string{"device"}, KindCounts: []int32{int32(p.Devices)}}
	t.Models = []policy.Model{{Name: "cascade", SLO: p.SLO, Percentile: p.Percentile, NumPipelines: int32(len(p.Models))}}
	for d := range p.Devices {
		t.Devices = append(t.Devices, policy.Device{Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1})
	}
	for m := range p.Models {
		batch, _ := p.operating(m)
		devices := pl.DevicesOf(m)
		t.Pipelines = append(t.Pipelines, policy.Pipeline{Batch: int32(batch), FirstStage: int32(m), NumStages: 1})
		t.Stages = append(t.Stages, policy.Stage{Pipeline: int32(m), FirstDevice: int32(len(t.StageDevices)), NumDevices: int32(len(devices)),
			LastBlock: 1, Infer: p.Models[m].Times[:batch]})
		for _, d := range devices {
			t.StageDevices = append(t.StageDevices, int32(d))
		}
	}
	return t
}

// table is a cascade as a gear of the run-time tables.
func (c *Cascade) table(to float64, minQueue int, shares [][]float64) policy.GearTable {
	g := policy.GearTable{ToQPS: to}
	for k, m := range c.Models {
		s := policy.GearStage{Pipeline: int32(m), MinQueue: 1, Split: shares[m]}
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

// Trial is what a gear showed at a constant rate.
type Trial struct {
	Latency time.Duration // at the SLO's percentile, without the first quarter
	Stable  bool          // latency does not grow over the run
	Passed  bool
	batch   float64 // mean of the first model's batches
}

// runLength is how long a trial runs: twenty SLOs, and long enough for two
// thousand requests and for a device to be seen at work.
func (p *Problem) runLength(rate float64) time.Duration {
	seconds := max(8, 20*p.SLO.Seconds(), 2000/rate)
	return time.Duration(seconds * float64(time.Second))
}

// errLate ends a trial early.
var errLate = errors.New("more requests are late than the percentile allows")

// try runs a cascade alone at a rate.
func (b *bench) try(ctx context.Context, c *Cascade, minQueue int, shares [][]float64, rate float64) (Trial, error) {
	b.runs++
	p := b.p
	length := p.runLength(rate)
	t := b.tables
	t.Models = slices.Clone(t.Models)
	t.Models[0].RPS = rate
	t.Gears = &policy.Gears{MaxQPS: rate, Gears: []policy.GearTable{c.table(rate, minQueue, shares)},
		Records: policy.GearRecords{Samples: p.Planned.N, Levels: p.Planned.Levels, Correct: p.Planned.Correct}}
	pol, err := gear.New(&t, gear.DefaultOptions(&t))
	if err != nil {
		return Trial{}, err
	}
	src, err := arrivals.Process(&formats.Arrivals{Process: "poisson"}, seeded.New(b.seed, "gear/trial"), 0, rate, length)
	if err != nil {
		return Trial{}, fmt.Errorf("trying a gear: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := watch{length: length, slo: p.SLO, cancel: cancel, most: int((1 - p.Percentile) * rate * length.Seconds())}
	w.latencies = slices.Grow(b.latencies[:0], int(1.1*rate*length.Seconds()))
	first := &firstBatches{Policy: pol, pipeline: int32(c.Models[0])}
	_, err = sim.Run(ctx, sim.Config{Tables: &t, Policy: first, Source: src, Duration: length, Completed: w.completed, NoReport: true})
	b.latencies = w.latencies
	if err != nil {
		if errors.Is(context.Cause(ctx), errLate) {
			return Trial{Latency: -1, batch: first.mean()}, nil
		}
		return Trial{}, fmt.Errorf("trying a gear: %w", err)
	}
	trial := w.trial(p)
	trial.batch = first.mean()
	return trial, nil
}

// firstBatches watches the batches of a cascade's first model: a least queue
// length that they exceed anyway changes nothing.
type firstBatches struct {
	policy.Policy
	pipeline int32
	n, sum   int64
}

func (f *firstBatches) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	f.Policy.Handle(now, ev, out)
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.Dispatch && a.Pipeline == f.pipeline {
			f.n++
			f.sum += int64(a.Size)
		}
	}
}

func (f *firstBatches) mean() float64 {
	if f.n == 0 {
		return 0
	}
	return float64(f.sum) / float64(f.n)
}

// watch gathers the latencies of a trial.
type watch struct {
	length    time.Duration
	slo       time.Duration
	cancel    context.CancelCauseFunc
	latencies []time.Duration // of arrivals after the first quarter
	late      int
	most      int
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
	if took > w.slo {
		if w.late++; w.late > w.most+1 {
			w.cancel(errLate)
		}
	}
	if q > 0 {
		w.latencies = append(w.latencies, took)
	}
}

// trial judges: the tail within the SLO, and the mean latency of the last
// quarter not above the second's by more than a twentieth of the SLO.
func (w *watch) trial(p *Problem) Trial {
	mean := func(q int) float64 {
		if w.quarter[q].n == 0 {
			return 0
		}
		return float64(w.quarter[q].sum) / float64(w.quarter[q].n)
	}
	t := Trial{Latency: percentile(w.latencies, p.Percentile)}
	t.Stable = mean(3)-mean(1) <= 0.05*float64(p.SLO)
	t.Passed = t.Stable && t.Latency <= p.SLO && !math.IsNaN(mean(3))
	return t
}

// percentile is the nearest-rank percentile of a list that is not sorted, by
// selection; it puts the list into another order.
func percentile(list []time.Duration, share float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	at := report.Rank(len(list), share) - 1
	for lo, hi := 0, len(list)-1; lo < hi; {
		pivot := middle(list[lo], list[lo+(hi-lo)/2], list[hi])
		i, j := lo, hi
		for i <= j {
			for list[i] < pivot {
				i++
			}
			for list[j] > pivot {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i++
				j--
			}
		}
		switch {
		case at <= j:
			hi = j
		case at >= i:
			lo = i
		default:
			return list[at]
		}
	}
	return list[at]
}

func middle(a, b, c time.Duration) time.Duration {
	return max(min(a, b), min(max(a, b), c))
}
