package recompute

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// CurrentCosts computes what a plan costs by the documents of today.
type CurrentCosts struct{ *kind.CheckInput }

// ProfileModel returns a model of the profile, or nil if there is none.
func (w *CurrentCosts) ProfileModel(name string) *formats.ProfileModel {
	return w.Profile.FindModel(name)
}

// Pool returns a pool of the cluster, or nil if there is none.
func (w *CurrentCosts) Pool(device string) *formats.Pool { return w.Cluster.FindPool(device) }

// MeasurementFor returns the measurement of a model on a share of a device (1/share of it) for the smallest measured batch that is at
// least batch, since a smaller batch takes at most as long. If none is that large, it returns nil.
func MeasurementFor(m *formats.ProfileModel, device string, share, batch int) *formats.Measurement {
	var closest *formats.Measurement
	for i := range m.Measurements {
		measurement := &m.Measurements[i]
		if measurement.Device != device || max(measurement.Share, 1) != share { // a share of 0 stands for a whole device
			continue
		}
		if measurement.Batch >= batch && (closest == nil || measurement.Batch < closest.Batch) {
			closest = measurement
		}
	}
	return closest
}

// BatchTime holds the times of a batch today.
type BatchTime struct {
	Median, Max time.Duration // undisturbed; Max is an upper bound if the size was not measured
	Mean        time.Duration // on average; 0 if the profile has no means
}

// BatchTime returns the time of a batch through the blocks from firstBlock to endBlock-1 today, on 1/share of a device, with the dispatch
// time in its mean. A batch size between two measured ones lies on the line between their times, unless it is padded to the larger size
// or the larger size takes less; then it takes as long as the larger size. It returns false if no size that large was measured.
func (w *CurrentCosts) BatchTime(m *formats.ProfileModel, device string, share, batch, firstBlock, endBlock int) (t BatchTime, ok bool) {
	if t, ok = w.runTime(m, device, share, batch, firstBlock, endBlock); t.Mean > 0 {
		t.Mean += m.DispatchUS.D()
	}
	return t, ok
}

// runTime returns the time of a batch through blocks as BatchTime does, but without the dispatch time for which
// the batch occupies the device beside its run. It returns false if no batch size that large was measured.
func (w *CurrentCosts) runTime(m *formats.ProfileModel, device string, share, batch, firstBlock, endBlock int) (t BatchTime, ok bool) {
	above := MeasurementFor(m, device, share, batch)
	if above == nil || len(above.Blocks) != len(m.Blocks) {
		return t, false
	}

	// Begin with the next larger measured size.
	aboveTime := RangeTime(m, above, firstBlock, endBlock)
	t = BatchTime{Median: aboveTime, Max: aboveTime}
	aboveFactor := meanFactor(above, firstBlock, endBlock)
	if aboveFactor > 0 {
		t.Mean = max(1, time.Duration(math.Round(aboveFactor*float64(aboveTime))))
	}

	// Interpolate, if a smaller size was measured and takes less.
	below := nextSmallerMeasurement(m, device, share, batch)
	if above.Batch == batch || below == nil || m.PadsBatches(device, firstBlock, endBlock) {
		return t, true
	}
	belowTime := RangeTime(m, below, firstBlock, endBlock)
	if belowTime >= aboveTime {
		return t, true
	}

	// Median and mean lie at the same fraction of the way between the two sizes.
	fraction := float64(batch-below.Batch) / float64(above.Batch-below.Batch)
	t.Median = belowTime + time.Duration(math.Round(fraction*float64(aboveTime-belowTime)))
	switch belowFactor := meanFactor(below, firstBlock, endBlock); {
	case aboveFactor == 0: // the profile has no means
	case belowFactor == 0:
		t.Mean = max(1, time.Duration(math.Round(aboveFactor*float64(t.Median))))
	default:
		belowMean := max(1, time.Duration(math.Round(belowFactor*float64(belowTime))))
		t.Mean = belowMean + time.Duration(math.Round(fraction*float64(t.Mean-belowMean)))
	}
	return t, true
}

// nextSmallerMeasurement returns the measurement of a model on 1/share of a device for the largest batch below batch, between which and
// the next larger one times are interpolated. If there is none, it returns nil.
func nextSmallerMeasurement(m *formats.ProfileModel, device string, share, batch int) (best *formats.Measurement) {
	for i := range m.Measurements {
		measurement := &m.Measurements[i]
		if measurement.Device != device || max(measurement.Share, 1) != share || len(measurement.Blocks) != len(m.Blocks) {
			continue
		}
		if measurement.Batch < batch && (best == nil || measurement.Batch > best.Batch) {
			best = measurement
		}
	}
	return best
}

// meanFactor returns the mean time of a range of blocks divided by its median: of the range itself if it was measured in one run, else of
// the whole model. If the profile has no mean, it returns 0.
func meanFactor(measurement *formats.Measurement, firstBlock, endBlock int) float64 {
	if measurement.WholeModel == nil || measurement.WholeModel.MeanUS <= 0 {
		return 0
	}
	l := measurement.WholeModel
	for k := range measurement.Ranges {
		if r := &measurement.Ranges[k]; r.Blocks == [2]int{firstBlock, endBlock} && r.Latency.MeanUS > 0 {
			l = &r.Latency
		}
	}
	return float64(l.MeanUS) / float64(l.WallUS)
}

// StageCosts holds what a stage of the plan costs and carries today.
type StageCosts struct {
	IsKnown  bool          // the profile and the cluster have it
	Median   time.Duration // undisturbed, at the planned batch size
	Max      time.Duration // the same, at most
	Transfer time.Duration // transfer of the cut after it
	Rate     float64       // requests/s of one replica, or of one device on a time-shared pool
}

// PipelineCosts holds what a pipeline costs and carries today.
type PipelineCosts struct {
	IsKnown    bool
	Latency    time.Duration
	MaxLatency time.Duration // the latency, at most
	Stages     []StageCosts
	RPS        float64 // that it sustains; at most the planned rate
}

// PipelineCosts returns the latency and rate of a pipeline of a deployed model, and those of its stages, by today's profile and cluster.
// The pipeline's structure must be valid. If a stage was not measured or its pool is gone, IsKnown is false, and the sums leave that
// stage out. On pools whose models take turns, the rate is not limited by a stage.
func (w *CurrentCosts) PipelineCosts(deployed *formats.Deployed, pl *formats.Pipeline) PipelineCosts {
	costs := PipelineCosts{IsKnown: true, Stages: make([]StageCosts, len(pl.Stages)), RPS: pl.RPS}
	profiled := w.ProfileModel(deployed.Model)
	for i := range pl.Stages {
		s, stage := &pl.Stages[i], &costs.Stages[i]
		pool := w.Pool(s.Device)
		if profiled == nil || pool == nil || len(profiled.Blocks) != deployed.NumBlocks {
			costs.IsKnown = false
			continue
		}
		today, ok := w.BatchTime(profiled, s.Device, s.Share, pl.Batch, s.Blocks[0], s.Blocks[1])
		if !ok {
			costs.IsKnown = false
			continue
		}

		// The times and the rate of the stage, and what they mean for the pipeline.
		stage.IsKnown = true
		stage.Median, stage.Max = today.Median, today.Max
		stage.Rate = w.replicaRate(pl, s, stage.Median)
		w.addTransfers(profiled, pl, i, stage)
		costs.Latency += stage.Median + stage.Transfer
		costs.MaxLatency += stage.Max + stage.Transfer
		if !pool.TimeShared() {
			costs.RPS = min(costs.RPS, stage.Rate*float64(s.Replicas))
		}
	}
	return costs
}

// replicaRate returns the requests/s that a replica of stage s carries today: its batch over the time of a run. infer is its undisturbed
// time today. If the plan's rates were computed with a longer mean time of a run, that is taken to have changed by the same factor as the
// undisturbed time.
func (w *CurrentCosts) replicaRate(pl *formats.Pipeline, s *formats.Stage, infer time.Duration) float64 {
	run := infer.Seconds()
	if planned := s.InferUS[pl.Batch-1]; planned > 0 {
		run *= w.Plan.RunUS(pl, s).D().Seconds() / planned.D().Seconds()
	}
	return float64(pl.Batch) / run
}

// addTransfers adds to the costs of stage i of a pipeline the time of the transfer after it, and lowers the rate of a replica of the stage
// to what its network card can pass on and receive. The replicas on all devices of the card share it; a device that is divided into Share
// shares has as many replicas. pm is the model in today's profile.
func (w *CurrentCosts) addTransfers(pm *formats.ProfileModel, pl *formats.Pipeline, i int, costs *StageCosts) {
	if len(pl.Stages) == 1 {
		return // nothing is transferred
	}
	s := &pl.Stages[i]
	pool := w.Pool(s.Device)
	cardSharers := s.Share * w.devicesPerNIC(pool)

	// Passing on: the bytes that cross after the stage's last block go to the pool of the next stage.
	if i+1 < len(pl.Stages) && s.Cut != nil {
		if next := w.Pool(pl.Stages[i+1].Device); next != nil {
			bytes := cutBytes(&pm.Blocks[s.Blocks[1]-1], s.Cut.DType).Bytes()
			costs.Transfer = transferTime(bytes, linkRate(pool, next), pl.Batch)
			costs.Rate = min(costs.Rate, nicRate(bytes, pool, next, pool, cardSharers))
		}
	}

	// Receiving: the bytes that cross before the stage's first block come from the pool of the stage before. Their time counts there, but
	// this stage's card limits the rate, too.
	if i > 0 && pl.Stages[i-1].Cut != nil {
		if prev := w.Pool(pl.Stages[i-1].Device); prev != nil {
			bytes := cutBytes(&pm.Blocks[s.Blocks[0]-1], pl.Stages[i-1].Cut.DType).Bytes()
			costs.Rate = min(costs.Rate, nicRate(bytes, prev, pool, pool, cardSharers))
		}
	}
}
