package verify

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
)

// requests compares what the plan says that a request takes beside its runs with what
// the profile says today.
func (c *checker) requests(m *formats.Deployed, path string) {
	if pm := c.ProfileModel(m.Model); pm != nil && pm.RequestUS != m.RequestUS {
		c.Warn("latency", path+".request_us", m.RequestUS.String(), pm.RequestUS.String(), "a request for %s takes another time beside its runs than the plan says (0: not known)", m.Model)
	}
}

// served compares what the plan says that serving a stage takes with what the profile
// says today: the mean at every batch, and what a run takes more after a pause.
func (c *checker) served(pm *formats.ProfileModel, m *formats.Deployed, s *formats.Stage, path string) {
	idle, known := formats.Micros(0), true
	for b := len(s.InferUS); b >= 1 && known; b-- { // of the largest batch first: without its mean there is none
		share := meanShare(pm, s, b)
		if known = share > 0; known {
			idle = pause(pm, s)
		}
		want, said := formats.Micros(math.Round(share*float64(s.InferUS[b-1]))), formats.Micros(0)
		if len(s.MeanUS) >= b {
			said = s.MeanUS[b-1]
		}
		if d := (said - want).D(); d.Abs() > time.Nanosecond { // others round elsewhere
			c.Warn("latency", fmt.Sprintf("%s.mean_us[%d]", path, b-1), said.String(), want.String(), "%s on %s at batch %d takes another time on average than the plan says (0: not known)", m.Model, s.Device, b)
			return
		}
	}
	if s.IdleUS != idle {
		c.Warn("latency", path+".idle_us", s.IdleUS.String(), idle.String(), "a run of %s on %s after a pause takes another time than the plan says", m.Model, s.Device)
	}
}

// meanShare is what runs take on average over what is planned, by the smallest measured
// batch that holds one: of the stage, where it was measured in one piece, else of the
// whole model. 0: not known.
func meanShare(pm *formats.ProfileModel, s *formats.Stage, batch int) float64 {
	least, share := math.MaxInt, 0.0
	for i := range pm.Measurements {
		ms := &pm.Measurements[i]
		if ms.Batch < batch || ms.Batch >= least || !hasMeans(ms, s) {
			continue
		}
		l := ms.Whole
		for k := range ms.Ranges {
			if r := &ms.Ranges[k]; r.Blocks == s.Blocks && r.Latency.MeanUS > 0 {
				l = &r.Latency
			}
		}
		least, share = ms.Batch, float64(l.MeanUS)/float64(l.WallUS)
	}
	return share
}

// pause is what a run of the smallest batch measured so takes more after one.
func pause(pm *formats.ProfileModel, s *formats.Stage) formats.Micros {
	least, more := math.MaxInt, formats.Micros(0)
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; hasMeans(ms, s) && ms.Whole.IdleUS > 0 && ms.Batch < least {
			least, more = ms.Batch, max(0, ms.Whole.IdleUS-ms.Whole.MeanUS)
		}
	}
	return more
}

// hasMeans tells whether a measurement is of a stage's device and share, with means.
func hasMeans(ms *formats.Measurement, s *formats.Stage) bool {
	return ms.Device == s.Device && max(ms.Share, 1) == s.Share && ms.Whole != nil && ms.Whole.MeanUS > 0
}
