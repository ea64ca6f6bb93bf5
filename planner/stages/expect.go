package stages

import (
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// ExpectedTimes gives the median and the mean time that a batch takes through ranges of a model's
// blocks. A size between two measured ones lies on the line between them if it runs without
// padding, unless the larger size takes less. Otherwise it takes as long as the larger size.
type ExpectedTimes struct {
	nextAbove, nextBelow   *BatchCost // the measured sizes around the batch; below is nil if above alone counts
	aboveTimes, belowTimes RangeTimes
	fraction               float64 // position between below and above, 0 to 1
	padsToNext             []bool
	dispatch               time.Duration
}

// ExpectedTimes prepares the median and mean times of a batch size on this share of a device: the times of the next
// larger measured size and, if batches are not always padded to it (PadsToNext is nil then), of the next smaller
// measured one, with the fraction of the way between them. Some measured size must be at least batch.
func (s *ShareCosts) ExpectedTimes(batch int) ExpectedTimes {
	e := ExpectedTimes{nextAbove: s.CostAt(batch), padsToNext: s.PadsToNext, dispatch: s.Dispatch}
	e.aboveTimes = e.nextAbove.rangeTimes()
	if s.PadsToNext == nil || e.nextAbove.Batch == batch {
		return e
	}
	for i := range s.Batches {
		if b := &s.Batches[i]; b.Batch < batch {
			e.nextBelow = b
		}
	}
	if e.nextBelow != nil {
		e.belowTimes = e.nextBelow.rangeTimes()
		e.fraction = float64(batch-e.nextBelow.Batch) / float64(e.nextAbove.Batch-e.nextBelow.Batch)
	}
	return e
}

// Interval returns the least and the largest median time that a batch may take through a range of blocks. Both are
// the same if its size was measured or is padded to a measured one; otherwise they are the times of the measured
// sizes below and above it.
func (e *ExpectedTimes) Interval(firstBlock, endBlock int) (lower, upper time.Duration) {
	upper = e.aboveTimes.Time(firstBlock, endBlock)
	if e.nextBelow == nil || e.padsToNext[firstBlock] && e.padsToNext[endBlock] {
		return upper, upper
	}
	return min(e.belowTimes.Time(firstBlock, endBlock), upper), upper
}

// Median returns the time that a batch takes undisturbed through blocks firstBlock to endBlock-1: the measured median, or
// a point on the line between those of the measured sizes around it.
func (e *ExpectedTimes) Median(firstBlock, endBlock int) time.Duration {
	lower, upper := e.Interval(firstBlock, endBlock)
	return interpolate(lower, upper, e.fraction)
}

// Mean returns how long a batch occupies a device on average with blocks firstBlock to endBlock-1, with the dispatch time
// beside its run. Means come from the medians, times the ratio of mean to median of the range or of the whole model
// (meanFactorOf). If the profile has no means, it returns the median, without the dispatch time.
func (e *ExpectedTimes) Mean(firstBlock, endBlock int) time.Duration {
	lower, upper := e.Interval(firstBlock, endBlock)
	aboveFactor, belowFactor := e.nextAbove.meanFactorOf(firstBlock, endBlock), 0.0
	if aboveFactor == 0 {
		return interpolate(lower, upper, e.fraction)
	}

	// Interpolate between the means of both sizes, if both ratios are known (not 0). Otherwise the ratio of the larger size
	// is applied to the interpolated median. Without a smaller size, or if only the larger one counts for this range, the
	// interval has equal ends.
	scaled := func(median time.Duration, factor float64) time.Duration {
		return max(1, time.Duration(math.Round(float64(median)*factor)))
	}
	if lower < upper {
		belowFactor = e.nextBelow.meanFactorOf(firstBlock, endBlock)
	}
	if belowFactor == 0 {
		return e.dispatch + scaled(interpolate(lower, upper, e.fraction), aboveFactor)
	}
	return e.dispatch + interpolate(scaled(lower, belowFactor), scaled(upper, aboveFactor), e.fraction)
}

// interpolate returns the time at a fraction of the way from lower to upper.
func interpolate(lower, upper time.Duration, fraction float64) time.Duration {
	if lower == upper {
		return upper
	}
	return lower + time.Duration(math.Round(fraction*float64(upper-lower)))
}

// meanFactorOf returns the mean time of a range of blocks divided by its median: that of the range if it was measured in
// one run, else that of the whole model. If the latter is unknown, it returns 0.
func (c *BatchCost) meanFactorOf(firstBlock, endBlock int) float64 {
	if c.MeanFactor == 0 {
		return 0
	}
	for i := range c.Pieces {
		if p := &c.Pieces[i]; p.FirstBlock == firstBlock && p.EndBlock == endBlock && p.MeanFactor > 0 {
			return p.MeanFactor
		}
	}
	return c.MeanFactor
}

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
