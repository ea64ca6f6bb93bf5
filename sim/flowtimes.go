package sim

import "time"

// unitWork is the usual work of a task (policy.RevealedTask.Work).
const unitWork = 1_000_000

// batchTime returns how long a batch takes: the usual time multiplied by the largest work of
// its tasks, plus the time to compute missing session states.
func (f *flowEnding) batchTime(slot int32, duration time.Duration) time.Duration {
	maxWork := int64(0)
	for _, t := range f.l.members(slot) {
		work := f.records[t].work
		if work == 0 {
			work = unitWork
		}
		maxWork = max(maxWork, work)
	}
	if maxWork != unitWork && maxWork != 0 {
		duration = max(1, time.Duration(float64(duration)*float64(maxWork)/unitWork))
	}
	if f.sessions != nil {
		duration += f.sessions.countRecomputed(slot)
	}
	return duration
}

// bringTime returns how long it takes from now until the inputs of a task are at a device. The
// inputs move in parallel, each from when it was ready and the task was placed.
func (f *flowEnding) bringTime(t, device int32) time.Duration {
	l := f.l
	if l.cfg.PlaceTime != nil {
		return l.cfg.PlaceTime(t, device)
	}
	if l.cfg.MoveTime == nil {
		return 0
	}
	record, arrivesAt := &f.records[t], l.now
	for _, in := range l.tasks.List[t].Inputs {
		if in < 0 {
			continue
		}
		startsAt := max(record.placedAt, f.records[in].endedAt)
		arrivesAt = max(arrivesAt, startsAt+l.cfg.MoveTime(l.tasks.List[in].Service, l.locations[in].device, device))
	}
	return arrivesAt - l.now
}
