package verify

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/recompute"
)

// checkServedTimes compares the times that the plan serves a stage with to today's profile: the intervals
// between measured batches, the mean at every batch, and the additional time of a run after a pause.
func (c *checker) served(pm *formats.ProfileModel, m *formats.Deployed, s *formats.Stage, path string) {
	idle, known := document.Micros(0), true
	for b := len(s.InferUS); b >= 1; b-- { // largest batch first: without its mean no batch has one
		today, ok := c.Taken(pm, s.Device, s.Share, b, s.Blocks[0], s.Blocks[1])
		if !ok {
			return
		}
		c.interval(m, s, b, today, path)
		if known = known && today.Mean > 0; known {
			idle = pause(pm, s)
		} else {
			today.Mean = 0
		}
		said := time.Duration(0)
		if len(s.MeanUS) >= b {
			said = s.MeanUS[b-1].D()
		}
		if d := said - today.Mean; d.Abs() > time.Nanosecond { // other programs may round differently
			c.Warn("latency", fmt.Sprintf("%s.mean_us[%d]", path, b-1), document.Micros(said).String(), document.Micros(today.Mean).String(), "%s on %s at batch %d takes another time on average than the plan says (0: not known)", m.Model, s.Device, b)
			return
		}
	}

	// The additional time after a pause.
	if s.IdleUS != idle {
		c.Warn("latency", path+".idle_us", s.IdleUS.String(), idle.String(), "a run of %s on %s after a pause takes another time than the plan says", m.Model, s.Device)
	}
}

// checkInterval compares the upper end of the time of a batch with today's. The planned batch itself is compared
// with the pipeline.
func (c *checker) interval(m *formats.Deployed, s *formats.Stage, batch int, today recompute.Taken, path string) {
	if s.InferRangeUS == nil && today.Most == today.Infer || batch > len(s.InferRangeUS) && s.InferRangeUS != nil {
		return
	}
	said := s.InferUS[batch-1]
	if s.InferRangeUS != nil {
		said = s.InferRangeUS[batch-1][1]
	}
	if recompute.Moved(said.D(), today.Most) {
		c.Warn("latency", fmt.Sprintf("%s.infer_range_us[%d]", path, batch-1), said.String(), document.Micros(today.Most).String(), "%s on %s at batch %d takes another time at most than the plan says", m.Model, s.Device, batch)
	}
}

// pauseTime returns the additional time of a run after a pause, measured at the smallest batch that has it.
func pause(pm *formats.ProfileModel, s *formats.Stage) document.Micros {
	least, more := math.MaxInt, document.Micros(0)
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; hasMeans(ms, s) && ms.Whole.IdleUS > 0 && ms.Batch < least {
			least, more = ms.Batch, max(0, ms.Whole.IdleUS-ms.Whole.MeanUS)
		}
	}
	return more
}

// hasMeans reports whether a measurement is of a stage's device and share and has means.
func hasMeans(ms *formats.Measurement, s *formats.Stage) bool {
	return ms.Device == s.Device && max(ms.Share, 1) == s.Share && ms.Whole != nil && ms.Whole.MeanUS > 0
}
