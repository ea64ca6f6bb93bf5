package tasks

import (
	"time"

	"inferplan/formats/document"
	"inferplan/formats/served"
)

// Part implements turn.Answerer: what the modules have done, and which of them requests were dropped for.
func (f *applicationAnswerer) Part() served.Part {
	part := &served.Flow{}
	for i := range f.Modules.Series {
		s := &f.Modules.Series[i]
		m := served.Module{Module: s.name, Tasks: s.Tasks, Ended: s.ended, Dropped: s.dropped, Waiting: s.waiting.Load(), Running: s.inFlight.Load()}
		if s.batches > 0 {
			m.RunUS, m.Batch = document.Micros(s.runTime/time.Duration(s.batches)), float64(s.ended)/float64(s.batches)
		}
		part.Modules = append(part.Modules, m)
	}
	return part
}
