package verify

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/recompute"
)

// checkServedTimes compares the times by which the plan serves a stage with today's profile: of each batch size the
// longest time, which is above the median if the size was not measured (checkInterval), and the mean, and how much
// longer a run takes after a pause. Means count only down to the first size, from the largest, without one. If not even
// the largest size has one, the plan shall state no time after a pause either.
func (c *planChecker) checkServedTimes(profileModel *formats.ProfileModel, m *formats.Deployed, s *formats.Stage, path string) {
	pauseToday, hasMean := document.Micros(0), true
	for b := len(s.InferUS); b >= 1; b-- { // largest batch first
		today, ok := c.BatchTime(profileModel, s.Device, s.Share, b, s.Blocks[0], s.Blocks[1])
		if !ok {
			return
		}
		c.checkInterval(m, s, b, today, path)
		hasMean = hasMean && today.Mean > 0
		if hasMean {
			pauseToday = pauseTime(profileModel, s)
		} else {
			today.Mean = 0
		}
		plannedMean := time.Duration(0)
		if len(s.MeanUS) >= b {
			plannedMean = s.MeanUS[b-1].D()
		}
		if difference := plannedMean - today.Mean; difference.Abs() > time.Nanosecond { // other programs may round differently
			c.AddWarning("latency", fmt.Sprintf("%s.mean_us[%d]", path, b-1), document.Micros(plannedMean).String(), document.Micros(today.Mean).String(), "%s on %s at batch %d takes another time on average than the plan says (0: not known)", m.Model, s.Device, b)
			return
		}
	}

	// The additional time after a pause.
	if s.IdleUS != pauseToday {
		c.AddWarning("latency", path+".idle_us", s.IdleUS.String(), pauseToday.String(), "a run of %s on %s after a pause takes another time than the plan says", m.Model, s.Device)
	}
}

// checkInterval warns if the longest time that a batch of this size may take by the plan is not today's. A size between
// measured ones has an interval of times around the planned time, the median, and its upper end is the longest. If all
// sizes were measured, a plan states no intervals, and the planned time is the longest. Then, if today's profile has no
// interval either, nothing is compared here: the planned times themselves are compared elsewhere (checkStages).
func (c *planChecker) checkInterval(m *formats.Deployed, s *formats.Stage, batch int, today recompute.BatchTime, path string) {
	planHasIntervals := s.InferRangeUS != nil
	todayHasInterval := today.Max != today.Median
	if !planHasIntervals && !todayHasInterval {
		return
	}
	plannedMax := s.InferUS[batch-1]
	if planHasIntervals {
		if batch > len(s.InferRangeUS) {
			return // a faulty plan: it states no interval of this size
		}
		plannedMax = s.InferRangeUS[batch-1][1]
	}
	if recompute.Differs(plannedMax.D(), today.Max) {
		c.AddWarning("latency", fmt.Sprintf("%s.infer_range_us[%d]", path, batch-1), plannedMax.String(), document.Micros(today.Max).String(), "%s on %s at batch %d takes another time at most than the plan says", m.Model, s.Device, batch)
	}
}

// pauseTime returns how much longer than the mean a run of the stage takes after a pause, measured at the smallest
// batch size that has it. It is 0 if none was measured.
func pauseTime(profileModel *formats.ProfileModel, s *formats.Stage) document.Micros {
	smallestBatch, addedTime := math.MaxInt, document.Micros(0)
	for i := range profileModel.Measurements {
		if ms := &profileModel.Measurements[i]; hasMeans(ms, s) && ms.WholeModel.IdleUS > 0 && ms.Batch < smallestBatch {
			smallestBatch, addedTime = ms.Batch, max(0, ms.WholeModel.IdleUS-ms.WholeModel.MeanUS)
		}
	}
	return addedTime
}

// hasMeans reports whether a measurement is of a stage's device and share and has means.
func hasMeans(ms *formats.Measurement, s *formats.Stage) bool {
	return ms.Device == s.Device && max(ms.Share, 1) == s.Share && ms.WholeModel != nil && ms.WholeModel.MeanUS > 0
}
