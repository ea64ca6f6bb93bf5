package recompute

import (
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

// StageToday is what a stage of the plan costs and carries today.
type StageToday struct {
	Known    bool          // whether the profile and cluster have it
	Infer    time.Duration // at the planned batch
	Transfer time.Duration // of the cut that leaves it
	Rate     float64       // of one replica, or of one device on a time-shared pool
}

// PipelineToday is what a pipeline takes and carries today.
type PipelineToday struct {
	Known   bool
	Latency time.Duration
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
		ms := Measured(pm, s.Device, s.Share, pl.Batch)
		if ms == nil || len(ms.Blocks) != len(pm.Blocks) {
			out.Known = false
			continue
		}
		now.Known = true
		now.Infer = Inference(pm, ms, s.Blocks[0], s.Blocks[1])
		now.Rate = float64(pl.Batch) / now.Infer.Seconds()
		w.crossings(pm, pl, i, now)
		out.Latency += now.Infer + now.Transfer
		if !pool.TimeShared() {
			out.RPS = min(out.RPS, now.Rate*float64(s.Replicas))
		}
	}
	return out
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
