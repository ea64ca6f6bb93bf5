package recompute

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// World is a plan beside the documents of today.
type World struct{ *kind.Today }

// ProfileModel finds a model of the profile; nil where there is none.
func (w *World) ProfileModel(name string) *formats.ProfileModel { return w.Profile.Find(name) }

// Pool finds a pool of the cluster; nil where there is none.
func (w *World) Pool(device string) *formats.Pool { return w.Cluster.Find(device) }

// Measured finds the measurement that a batch costs: the smallest measured
// batch that is no smaller.
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

// Taken is what a batch takes today.
type Taken struct {
	Infer, Most time.Duration // undisturbed, and at most where its size was not measured
	Mean        time.Duration // on average; 0: the profile does not say it
}

// Taken is what a batch takes through blocks [first, last) today: where its size was not
// measured, and it is run as it is, what lies on the line between the sizes that were,
// unless the larger takes less; else what the larger takes. False where none was measured.
func (w *World) Taken(m *formats.ProfileModel, device string, share, batch, first, last int) (t Taken, ok bool) {
	if t, ok = w.takenByRuns(m, device, share, batch, first, last); t.Mean > 0 {
		t.Mean += m.DispatchUS.D()
	}
	return t, ok
}

// takenByRuns returns what Taken does, without what a batch takes up a device beside its run.
func (w *World) takenByRuns(m *formats.ProfileModel, device string, share, batch, first, last int) (t Taken, ok bool) {
	above := Measured(m, device, share, batch)
	if above == nil || len(above.Blocks) != len(m.Blocks) {
		return t, false
	}
	most := Inference(m, above, first, last)
	t = Taken{Infer: most, Most: most}
	factor := meanFactor(above, first, last)
	if factor > 0 {
		t.Mean = max(1, time.Duration(math.Round(factor*float64(most))))
	}
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

// largestBelow is the measurement of the largest batch below one; nil where there is none.
func largestBelow(m *formats.ProfileModel, device string, share, batch int) (best *formats.Measurement) {
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		if ms.Device == device && max(ms.Share, 1) == share && ms.Batch < batch && (best == nil || ms.Batch > best.Batch) && len(ms.Blocks) == len(m.Blocks) {
			best = ms
		}
	}
	return best
}

// meanFactor is what blocks [first, last) take on average over what they take undisturbed:
// theirs, where they were measured in one piece, else the whole model's. 0: not known.
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

// StageToday is what a stage of the plan costs and carries today.
type StageToday struct {
	Known    bool          // whether the profile and cluster have it
	Infer    time.Duration // at the planned batch
	Most     time.Duration // the same, at most
	Transfer time.Duration // of the cut that leaves it
	Rate     float64       // of one replica, or of one device on a time-shared pool
}

// PipelineToday is what a pipeline takes and carries today.
type PipelineToday struct {
	Known   bool
	Latency time.Duration
	Most    time.Duration // the latency, at most
	Stages  []StageToday
	RPS     float64 // sustainable; at most what was planned
}

// Pipeline evaluates a structurally sound pipeline.
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

// rate is what a replica carries today: by the time that the plan's rates were computed
// with, as much longer or shorter as the undisturbed time is.
func (w *World) rate(pl *formats.Pipeline, s *formats.Stage, infer time.Duration) float64 {
	run := infer.Seconds()
	if planned := s.InferUS[pl.Batch-1]; planned > 0 {
		run *= w.Plan.RunUS(pl, s).D().Seconds() / planned.D().Seconds()
	}
	return float64(pl.Batch) / run
}

// crossings adds what stage i sends on, and lowers its rate to what its NIC
// passes of that and of what it receives.
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
