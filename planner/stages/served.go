package stages

import (
	"inferplan/formats"
	"inferplan/formats/document"
)

// WriteStage writes into a stage of a plan its times for batch sizes from 1 to that of its pipeline.
func (s *Share) Write(to *formats.Stage, m *formats.ProfileModel, batch int) {
	first, last := to.Blocks[0], to.Blocks[1]
	s.WriteTimes(to, m, batch, first, last)
	to.Estimated = Estimated(s, batch, first, last)
	e := s.Expect(batch)
	to.BlockUS = nil
	for b, high := range e.at.Blocks[first:last] {
		low := high
		if l, h := e.Interval(first, last); l < h {
			low = min(e.below.Blocks[first+b], high)
		}
		to.BlockUS = append(to.BlockUS, document.Micros(between(low, high, e.part)))
	}
}

// WriteTimes writes into a stage the times of blocks [first, last) for batch sizes from 1 to batch:
// the medians, with their intervals if some size lies between measured ones, and the means if the
// profile has them for all sizes. Rates use the means; comparisons use the medians.
func (s *Share) WriteTimes(to *formats.Stage, m *formats.ProfileModel, batch, first, last int) {
	apart, means := false, true
	to.InferUS, to.InferRangeUS, to.MeanUS, to.IdleUS = nil, nil, nil, 0
	for b := 1; b <= batch; b++ {
		e := s.Expect(b)
		low, high := e.Interval(first, last)
		apart, means = apart || low < high, means && e.at.Mean > 0
		to.InferUS = append(to.InferUS, document.Micros(e.Median(first, last)))
		to.InferRangeUS = append(to.InferRangeUS, [2]document.Micros{document.Micros(low), document.Micros(high)})
		to.MeanUS = append(to.MeanUS, document.Micros(e.Mean(first, last)))
	}
	if !apart {
		to.InferRangeUS = nil
	}
	if !means {
		to.MeanUS = nil
		return
	}
	to.IdleUS = pause(m, to.Device, to.Share)
}

// idleDelay returns how much longer a run of the smallest batch takes after the device was idle, for
// which profiles measure whole models. It returns 0 if it was not measured.
func pause(m *formats.ProfileModel, device string, share int) document.Micros {
	var of *formats.Measurement
	for i := range m.Measurements {
		ms := &m.Measurements[i]
		known := ms.Device == device && max(ms.Share, 1) == share && ms.Whole != nil && ms.Whole.MeanUS > 0 && ms.Whole.IdleUS > 0
		if known && (of == nil || ms.Batch < of.Batch) {
			of = ms
		}
	}
	if of == nil {
		return 0
	}
	return max(0, of.Whole.IdleUS-of.Whole.MeanUS)
}
