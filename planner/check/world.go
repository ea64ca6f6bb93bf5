package check

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
)

// world is a plan beside the documents of today.
type world struct {
	plan     *formats.Plan
	profile  *formats.Profile
	cluster  *formats.Cluster
	workload *formats.Workload // nil: as the plan says
}

func (w *world) profileModel(name string) *formats.ProfileModel {
	for i := range w.profile.Models {
		if w.profile.Models[i].Model == name {
			return &w.profile.Models[i]
		}
	}
	return nil
}

func (w *world) workloadModel(key formats.ModelClass) *formats.WorkloadModel {
	if w.workload == nil {
		return nil
	}
	for i := range w.workload.Models {
		if w.workload.Models[i].Key() == key {
			return &w.workload.Models[i]
		}
	}
	return nil
}

func (w *world) pool(device string) *formats.Pool {
	for i := range w.cluster.Pools {
		if w.cluster.Pools[i].Device == device {
			return &w.cluster.Pools[i]
		}
	}
	return nil
}

// between is the rate of a crossing: the slower of the NICs that are there.
func between(a, b *formats.Pool) float64 {
	switch ra, rb := a.NICRate(), b.NICRate(); {
	case ra == 0:
		return rb
	case rb == 0:
		return ra
	default:
		return min(ra, rb)
	}
}

// measured finds the measurement that a batch costs: the smallest measured
// batch that is no smaller.
func measured(m *formats.ProfileModel, device string, share, batch int) *formats.Measurement {
	var best *formats.Measurement
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		if ms.Device == device && max(ms.Share, 1) == share && ms.Batch >= batch && (best == nil || ms.Batch < best.Batch) {
			best = ms
		}
	}
	return best
}

// inference is the time of a batch through blocks [first, last): the sum of the
// blocks, each at least a microsecond.
func inference(ms *formats.Measurement, first, last int) time.Duration {
	total := time.Duration(0)
	for _, l := range ms.Blocks[first:last] {
		total += max(l.WallUS.D(), time.Microsecond)
	}
	return total
}

// crossing is the time of a batch over a link, rounded to nanoseconds.
func crossing(bytes int64, gbps float64, batch int) time.Duration {
	if gbps <= 0 {
		return 0
	}
	us := float64(bytes) * 8 / (gbps * 1000)
	return time.Duration(math.Round(us * float64(batch) * 1000))
}

// cutBytes is what crosses after a block today, in a dtype; 0 when not known.
func cutBytes(b *formats.Block, dtype string) int64 {
	if dtype == "FP16" {
		return b.CutBytesFP16
	}
	return b.CutBytesFP32
}

// stageToday is what a stage of the plan costs and carries today.
type stageToday struct {
	known    bool          // whether the profile and cluster have it
	infer    time.Duration // at the planned batch
	transfer time.Duration // of the cut that leaves it
	rate     float64       // of one replica, or of one device on a time-shared pool
}

// pipelineToday is what a pipeline takes and carries today.
type pipelineToday struct {
	known   bool
	latency time.Duration
	stages  []stageToday
	rps     float64 // sustainable; at most what was planned
}

// today evaluates a structurally sound pipeline.
func (w *world) today(m *formats.PlanModel, pl *formats.Pipeline) pipelineToday {
	out := pipelineToday{known: true, stages: make([]stageToday, len(pl.Stages)), rps: pl.RPS}
	pm := w.profileModel(m.Model)
	for i := range pl.Stages {
		s, now := &pl.Stages[i], &out.stages[i]
		pool := w.pool(s.Device)
		if pm == nil || pool == nil || len(pm.Blocks) != m.NumBlocks {
			out.known = false
			continue
		}
		ms := measured(pm, s.Device, s.Share, pl.Batch)
		if ms == nil || len(ms.Blocks) != len(pm.Blocks) {
			out.known = false
			continue
		}
		now.known = true
		now.infer = inference(ms, s.Blocks[0], s.Blocks[1])
		now.rate = float64(pl.Batch) / now.infer.Seconds()
		if i+1 < len(pl.Stages) && s.Cut != nil {
			if next := w.pool(pl.Stages[i+1].Device); next != nil {
				bytes := cutBytes(&pm.Blocks[s.Blocks[1]-1], s.Cut.DType)
				now.transfer = crossing(bytes, between(pool, next), pl.Batch)
				now.rate = min(now.rate, nicRate(bytes, pool, next, pool, s.Share*w.onWire(pool)))
			}
		}
		if i > 0 && pl.Stages[i-1].Cut != nil {
			if prev := w.pool(pl.Stages[i-1].Device); prev != nil {
				bytes := cutBytes(&pm.Blocks[s.Blocks[0]-1], pl.Stages[i-1].Cut.DType)
				now.rate = min(now.rate, nicRate(bytes, prev, pool, pool, s.Share*w.onWire(pool)))
			}
		}
		out.latency += now.infer + now.transfer
		if !pool.TimeShared() {
			out.rps = min(out.rps, now.rate*float64(s.Replicas))
		}
	}
	return out
}

// nicRate is the rate at which one replica on pool own can pass a cut between
// pools a and b: all of a node share its NIC.
func nicRate(bytes int64, a, b, own *formats.Pool, all int) float64 {
	gbps := between(a, b)
	if own.NICRate() == 0 || gbps == 0 || bytes == 0 {
		return math.Inf(1)
	}
	perSample := float64(bytes) * 8 / (gbps * 1e9) // seconds
	return 1 / perSample / float64(all)
}

// onWire is how many devices share a NIC of a pool: those of a node, or, where
// the pool is one node, those of them that the plan has pass something.
func (w *world) onWire(pool *formats.Pool) int {
	perNode := max(pool.PerNode, 1)
	if pool.Count > perNode {
		return perNode
	}
	passing := map[int]bool{}
	for mi := range w.plan.Models {
		for pi := range w.plan.Models[mi].Pipelines {
			pl := &w.plan.Models[mi].Pipelines[pi]
			for si := range pl.Stages {
				if s := &pl.Stages[si]; s.Device == pool.Device && len(pl.Stages) > 1 {
					for _, run := range s.Placement {
						for i := range (run.Replicas + max(run.PerDevice, 1) - 1) / max(run.PerDevice, 1) {
							passing[run.First+i] = true
						}
					}
				}
			}
		}
	}
	if len(passing) == 0 {
		return perNode
	}
	return min(perNode, len(passing))
}

// held is what the whole plan carries today: per model and pipeline.
type held struct {
	pipelines [][]pipelineToday
	rps       []float64 // per model; NaN where something is not known
	latency   []time.Duration
	shares    map[string]float64 // time-shared pools: devices taken at the planned rates
}

// hold evaluates the whole plan. Pipelines on an overloaded time-shared pool
// are scaled down alike.
func (w *world) hold() *held {
	h := &held{shares: map[string]float64{}}
	for mi := range w.plan.Models {
		m := &w.plan.Models[mi]
		var list []pipelineToday
		for pi := range m.Pipelines {
			p := w.today(m, &m.Pipelines[pi])
			for si, s := range m.Pipelines[pi].Stages {
				if pool := w.pool(s.Device); pool != nil && pool.TimeShared() && p.stages[si].rate > 0 {
					h.shares[s.Device] += m.Pipelines[pi].RPS / p.stages[si].rate
				}
			}
			list = append(list, p)
		}
		h.pipelines = append(h.pipelines, list)
	}
	for mi := range w.plan.Models {
		m := &w.plan.Models[mi]
		total, longest := 0.0, time.Duration(0)
		for pi := range m.Pipelines {
			p := &h.pipelines[mi][pi]
			if !p.known {
				total = math.NaN()
				continue
			}
			for _, s := range m.Pipelines[pi].Stages {
				pool := w.pool(s.Device)
				if taken := h.shares[s.Device]; taken > float64(pool.Count) && pool.TimeShared() {
					p.rps = min(p.rps, m.Pipelines[pi].RPS*float64(pool.Count)/taken)
				}
			}
			total += p.rps
			longest = max(longest, p.latency+m.Pipelines[pi].BatchBuildUS.D())
		}
		h.rps = append(h.rps, total)
		h.latency = append(h.latency, longest)
	}
	return h
}

// slo is a model's target today, with ok false where the documents do not say.
func (w *world) slo(m *formats.PlanModel) (time.Duration, bool) {
	var target formats.SLO
	if wm := w.workloadModel(m.Key()); wm != nil {
		target = wm.SLO
	}
	if w.plan.Options.SLO != "" {
		if s, err := formats.ParseSLO(w.plan.Options.SLO); err == nil {
			target = s
		}
	}
	if target.IsZero() {
		return m.SLOUS.D(), true
	}
	if target.Times == 0 {
		return target.Duration, true
	}
	pm := w.profileModel(m.Model)
	if pm == nil {
		return 0, false
	}
	var wholes []time.Duration
	for _, ms := range pm.Measurements {
		if ms.Batch == 1 && ms.Share <= 1 && ms.Whole != nil && ms.Whole.WallUS > 0 {
			wholes = append(wholes, ms.Whole.WallUS.D())
		}
	}
	if len(wholes) == 0 {
		return 0, false
	}
	return target.Of(slices.Min(wholes)), true
}
