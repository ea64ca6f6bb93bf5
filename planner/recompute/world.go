package recompute

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// CurrentCosts computes what a plan costs by the documents of today.
type World struct{ *kind.Today }

// ProfileModel returns a model of the profile, or nil if there is none.
func (w *World) ProfileModel(name string) *formats.ProfileModel { return w.Profile.Find(name) }

// Pool returns a pool of the cluster, or nil if there is none.
func (w *World) Pool(device string) *formats.Pool { return w.Cluster.Find(device) }

// MeasurementFor returns the measurement of the smallest measured batch that is not smaller than batch,
// or nil if there is none.
func Measured(m *formats.ProfileModel, device string, share, batch int) *formats.Measurement {
	var best *formats.Measurement
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		if ms.Device == device && max(ms.Share, 1) == share && ms.Batch >= batch && (best == nil || ms.Batch < best.Batch) {
			best = ms
		}
	}
	return best
}

// BatchTime holds the times of a batch today.
type Taken struct {
	Infer, Most time.Duration // undisturbed; Max is an upper bound if the size was not measured
	Mean        time.Duration // on average; 0 if the profile has no means
}

// BatchTime returns the time of a batch through blocks [first, last) today. A size between two measured
// ones that runs without padding lies on the line between them, unless the larger size takes less;
// otherwise it takes as long as the larger size. It returns false if no size was measured.
func (w *World) Taken(m *formats.ProfileModel, device string, share, batch, first, last int) (t Taken, ok bool) {
	if t, ok = w.takenByRuns(m, device, share, batch, first, last); t.Mean > 0 {
		t.Mean += m.DispatchUS.D()
	}
	return t, ok
}

// runTime returns the same as BatchTime, without the time that a batch occupies a device beside its run.
func (w *World) takenByRuns(m *formats.ProfileModel, device string, share, batch, first, last int) (t Taken, ok bool) {
	above := Measured(m, device, share, batch)
	if above == nil || len(above.Blocks) != len(m.Blocks) {
		return t, false
	}

	// Begin with the next larger measured size.
	most := Inference(m, above, first, last)
	t = Taken{Infer: most, Most: most}
	factor := meanFactor(above, first, last)
	if factor > 0 {
		t.Mean = max(1, time.Duration(math.Round(factor*float64(most))))
	}

	// Interpolate, if a smaller size was measured and takes less.
	below := largestBelow(m, device, share, batch)
	if above.Batch == batch || below == nil || m.Pads(device, first, last) {
		return t, true
	}
	least := Inference(m, below, first, last)
	if least >= most {
		return t, true
	}
	part := float64(batch-below.Batch) / float64(above.Batch-below.Batch)
	t.Infer = least + time.Duration(math.Round(part*float64(most-least)))
	switch under := meanFactor(below, first, last); {
	case factor == 0:
	case under == 0:
		t.Mean = max(1, time.Duration(math.Round(factor*float64(t.Infer))))
	default:
		low := max(1, time.Duration(math.Round(under*float64(least))))
		t.Mean = low + time.Duration(math.Round(part*float64(t.Mean-low)))
	}
	return t, true
}

// nextSmallerMeasurement returns the measurement of the largest batch below batch, or nil if there is none.
func largestBelow(m *formats.ProfileModel, device string, share, batch int) (best *formats.Measurement) {
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		if ms.Device == device && max(ms.Share, 1) == share && ms.Batch < batch && (best == nil || ms.Batch > best.Batch) && len(ms.Blocks) == len(m.Blocks) {
			best = ms
		}
	}
	return best
}

// meanFactor returns the mean time of blocks [first, last) over their median: their own if they were
// measured in one piece, else that of the whole model. It returns 0 if that is unknown.
func meanFactor(ms *formats.Measurement, first, last int) float64 {
	if ms.Whole == nil || ms.Whole.MeanUS <= 0 {
		return 0
	}
	l := ms.Whole
	for k := range ms.Ranges {
		if r := &ms.Ranges[k]; r.Blocks == [2]int{first, last} && r.Latency.MeanUS > 0 {
			l = &r.Latency
		}
	}
	return float64(l.MeanUS) / float64(l.WallUS)
}

// StageCosts holds what a stage of the plan costs and carries today.
type StageToday struct {
	Known    bool          // the profile and the cluster have it
	Infer    time.Duration // undisturbed, at the planned batch size
	Most     time.Duration // the same, at most
	Transfer time.Duration // transfer of the cut after it
	Rate     float64       // requests/s of one replica, or of one device on a time-shared pool
}

// PipelineCosts holds what a pipeline costs and carries today.
type PipelineToday struct {
	Known   bool
	Latency time.Duration
	Most    time.Duration // the latency, at most
	Stages  []StageToday
	RPS     float64 // that it sustains; at most the planned rate
}

// PipelineCosts evaluates a pipeline with a valid structure.
func (w *World) Pipeline(m *formats.Deployed, pl *formats.Pipeline) PipelineToday {
	out := PipelineToday{Known: true, Stages: make([]StageToday, len(pl.Stages)), RPS: pl.RPS}
	pm := w.ProfileModel(m.Model)
	for i := range pl.Stages {
		s, now := &pl.Stages[i], &out.Stages[i]
		pool := w.Pool(s.Device)
		if pm == nil || pool == nil || len(pm.Blocks) != m.NumBlocks {
			out.Known = false
			continue
		}
		today, ok := w.Taken(pm, s.Device, s.Share, pl.Batch, s.Blocks[0], s.Blocks[1])
		if !ok {
			out.Known = false
			continue
		}

		// The times and the rate of the stage, and what they mean for the pipeline.
		now.Known = true
		now.Infer, now.Most = today.Infer, today.Most
		now.Rate = w.rate(pl, s, now.Infer)
		w.crossings(pm, pl, i, now)
		out.Latency += now.Infer + now.Transfer
		out.Most += now.Most + now.Transfer
		if !pool.TimeShared() {
			out.RPS = min(out.RPS, now.Rate*float64(s.Replicas))
		}
	}
	return out
}

// replicaRate returns the requests/s of a replica today: by the time with which the plan's rates were
// computed, scaled by the change of the undisturbed time.
func (w *World) rate(pl *formats.Pipeline, s *formats.Stage, infer time.Duration) float64 {
	run := infer.Seconds()
	if planned := s.InferUS[pl.Batch-1]; planned > 0 {
		run *= w.Plan.RunUS(pl, s).D().Seconds() / planned.D().Seconds()
	}
	return float64(pl.Batch) / run
}

// addTransfers adds the transfer after stage i, and lowers the rate of the stage to what its NIC passes,
// in both directions.
func (w *World) crossings(pm *formats.ProfileModel, pl *formats.Pipeline, i int, now *StageToday) {
	s := &pl.Stages[i]
	pool := w.Pool(s.Device)
	if i+1 < len(pl.Stages) && s.Cut != nil {
		if next := w.Pool(pl.Stages[i+1].Device); next != nil {
			bytes := cutBytes(&pm.Blocks[s.Blocks[1]-1], s.Cut.DType).Bytes()
			now.Transfer = crossing(bytes, between(pool, next), pl.Batch)
			now.Rate = min(now.Rate, nicRate(bytes, pool, next, pool, s.Share*w.onWire(pool)))
		}
	}
	if i > 0 && pl.Stages[i-1].Cut != nil {
		if prev := w.Pool(pl.Stages[i-1].Device); prev != nil {
			bytes := cutBytes(&pm.Blocks[s.Blocks[0]-1], pl.Stages[i-1].Cut.DType).Bytes()
			now.Rate = min(now.Rate, nicRate(bytes, prev, pool, pool, s.Share*w.onWire(pool)))
		}
	}
}
