package sim

import (
	"fmt"

	"inferplan/formats"
	"inferplan/policy"
)

// verifyDispatch checks a dispatch against the tables and the state.
func (s *machine) verifyDispatch(a *policy.Action, reqs []int32, hops []policy.Hop) error {
	b := &s.batches[a.Batch]
	pl := &s.t.Pipelines[a.Pipeline]
	switch {
	case b.live:
		return fmt.Errorf("the policy dispatches batch slot %d, which is under way", a.Batch)
	case a.Size < 1 || a.Size > pl.Batch || len(reqs) != int(a.Size):
		return fmt.Errorf("the policy dispatches a batch of %d, expected 1 to %d", a.Size, pl.Batch)
	case pl.Model != a.Model || len(hops) == 0:
		return fmt.Errorf("the policy dispatches a batch of model %d along %d hops of pipeline %d, which is of model %d", a.Model, len(hops), a.Pipeline, pl.Model)
	}
	first := hops[0].Stage
	if first < pl.FirstStage || first+int32(len(hops)) > pl.FirstStage+pl.NumStages {
		return fmt.Errorf("the policy dispatches a batch to %d stages from %d on, pipeline %d has those from %d to %d", len(hops), first, a.Pipeline, pl.FirstStage, pl.FirstStage+pl.NumStages-1)
	}
	left := int32(-1)
	if first > pl.FirstStage {
		left = first - 1
	}
	for _, r := range reqs {
		if q := &s.requests[r]; q.state != waiting || q.model != a.Model || q.stage != left {
			return fmt.Errorf("the policy dispatches request slot %d of model %d to stage %d, which is not a waiting request of it that left stage %d", r, a.Model, first, left)
		}
		s.requests[r].state = batched // so that the same request twice is seen
	}
	end := s.now
	for h := range hops {
		hop := &hops[h]
		if hop.Stage != first+int32(h) || !s.onStage(hop) {
			return fmt.Errorf("hop %d of pipeline %d goes to device %d of stage %d, which is not on it", h, a.Pipeline, hop.Device, hop.Stage)
		}
		if hop.XferStart < end || hop.XferEnd < hop.XferStart || hop.Start < hop.XferEnd || hop.End <= hop.Start {
			return fmt.Errorf("hop %d of pipeline %d is reserved out of order: from %v, transfer %v to %v, run %v to %v", h, a.Pipeline, end, hop.XferStart, hop.XferEnd, hop.Start, hop.End)
		}
		end = hop.End
	}
	return nil
}

func (s *machine) onStage(hop *policy.Hop) bool {
	for _, d := range s.t.DevicesOf(hop.Stage) {
		if d == hop.Device {
			return true
		}
	}
	return false
}

// finish closes the run: conservation, the trace, the use of devices.
func (s *machine) finish() error {
	if open := len(s.requests) - len(s.free); open > 0 {
		return fmt.Errorf("%d requests were neither answered nor dropped when nothing was left to happen", open)
	}
	if s.cfg.Verify {
		for slot := range s.batches {
			if s.batches[slot].live {
				return fmt.Errorf("batch slot %d is still under way when nothing is left to happen", slot)
			}
		}
		for d := range s.devices {
			if dev := &s.devices[d]; dev.busy || dev.head >= 0 {
				return fmt.Errorf("device %d still works when nothing is left to happen", d)
			}
		}
	}
	s.acc.AddEvents(s.events)
	s.addDevices()
	return s.trace.close()
}

// addDevices reports the use of each kind; a share 1/v counts 1/v.
func (s *machine) addDevices() {
	span := s.cfg.Duration
	if span == 0 {
		span = s.now
	}
	span = max(0, span-s.cfg.Warmup)
	for kind, name := range s.t.Kinds {
		busy := 0.0
		for d := range s.devices {
			if s.t.Devices[d].Kind == int32(kind) {
				busy += float64(s.devices[d].running) / float64(s.t.Devices[d].Share)
			}
		}
		count := int64(s.t.KindCounts[kind])
		running := formats.Micros(busy)
		s.acc.AddDevice(formats.DeviceReport{
			Device: name, Count: int(count), RunningUS: running, IdleUS: max(0, formats.Micros(int64(span)*count)-running),
		})
	}
}
