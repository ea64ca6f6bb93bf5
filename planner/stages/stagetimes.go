package stages

import (
	"inferplan/formats"
	"inferplan/formats/document"
)

// WriteStage fills the times of a stage of a plan, whose blocks, device and share are set: in microseconds for batch sizes
// from 1 to that of its pipeline (batch), whether they are estimates, and the times of its single blocks at the size batch.
// m is the model's profile, and s its costs on the stage's share of a device.
func (s *ShareCosts) WriteStage(stage *formats.Stage, m *formats.ProfileModel, batch int) {
	firstBlock, endBlock := stage.Blocks[0], stage.Blocks[1]
	s.WriteTimes(stage, m, batch, firstBlock, endBlock)
	stage.Estimated = IsEstimated(s, batch, firstBlock, endBlock)

	// If the stage's time lies between those of the next smaller and larger measured sizes, so do the times of its blocks, at
	// the same fraction of the way. Otherwise, if the size was measured or is padded to the larger one, these are the
	// times at the larger size. A block that took longer at the smaller size counts as at the larger one.
	e := s.ExpectedTimes(batch)
	stageLower, stageUpper := e.Interval(firstBlock, endBlock)
	stage.BlockUS = nil
	for b, upper := range e.nextAbove.Blocks[firstBlock:endBlock] {
		lower := upper
		if isBetweenSizes := stageLower < stageUpper; isBetweenSizes {
			lower = min(e.nextBelow.Blocks[firstBlock+b], upper)
		}
		stage.BlockUS = append(stage.BlockUS, document.Micros(interpolate(lower, upper, e.fraction)))
	}
}

// WriteTimes writes into a stage of a plan the times in microseconds of the blocks from firstBlock to endBlock-1 for batch
// sizes from 1 to batch: the medians; their intervals, if some size lies between measured ones; and, if the profile has
// them for all sizes, the means and the additional time of a run after the device was idle. What it does not write, it
// clears. Rates are computed with the means; runs are compared with the medians.
func (s *ShareCosts) WriteTimes(stage *formats.Stage, m *formats.ProfileModel, batch, firstBlock, endBlock int) {
	hasIntervals, hasMeans := false, true
	stage.InferUS, stage.InferRangeUS, stage.MeanUS, stage.IdleUS = nil, nil, nil, 0
	for b := 1; b <= batch; b++ {
		e := s.ExpectedTimes(b)
		lower, upper := e.Interval(firstBlock, endBlock)
		hasIntervals, hasMeans = hasIntervals || lower < upper, hasMeans && e.nextAbove.MeanFactor > 0
		stage.InferUS = append(stage.InferUS, document.Micros(e.Median(firstBlock, endBlock)))
		stage.InferRangeUS = append(stage.InferRangeUS, [2]document.Micros{document.Micros(lower), document.Micros(upper)})
		stage.MeanUS = append(stage.MeanUS, document.Micros(e.Mean(firstBlock, endBlock)))
	}
	if !hasIntervals {
		stage.InferRangeUS = nil
	}
	if !hasMeans {
		stage.MeanUS = nil
		return
	}
	stage.IdleUS = idleDelay(m, stage.Device, stage.Share)
}

// idleDelay returns how many microseconds longer than on average a run of the smallest batch takes after the device was
// idle. Profiles measure that with whole models; it is used for each stage. If it was not measured, or a run is no
// longer, it returns 0.
func idleDelay(m *formats.ProfileModel, device string, share int) document.Micros {
	var smallest *formats.Measurement
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		isMeasured := ms.Device == device && max(ms.Share, 1) == share && ms.WholeModel != nil && ms.WholeModel.MeanUS > 0 && ms.WholeModel.IdleUS > 0
		if isMeasured && (smallest == nil || ms.Batch < smallest.Batch) {
			smallest = ms
		}
	}
	if smallest == nil {
		return 0
	}
	return max(0, smallest.WholeModel.IdleUS-smallest.WholeModel.MeanUS)
}
