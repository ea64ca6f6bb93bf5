package sim

import "time"

// unitWork is the usual work of a task (policy.RevealedTask.Work).
const unitWork = 1_000_000

// batchTime returns how long a batch takes: the usual time multiplied by the largest work of its tasks (0 counts as
// the usual work), plus the time to compute session states that are not on the device.
func (f *flowEnding) batchTime(slot int32, duration time.Duration) time.Duration {
	maxWork := int64(0)
	for _, t := range f.loop.batches.members(slot) {
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

// bringTime returns how long it takes from now until the inputs of a placed task are at a device. The inputs move
// in parallel, each from when it was ready and the task was placed. Without times in the run's configuration it is
// 0.
func (f *flowEnding) bringTime(t, device int32) time.Duration {
	l := f.loop
	if l.cfg.PlaceTime != nil {
		return l.cfg.PlaceTime(t, device)
	}
	if l.cfg.MoveTime == nil {
		return 0
	}
	record, arrivesAt := &f.records[t], l.agenda.now
	for _, in := range f.ledger.tasks.List[t].Inputs {
		if in < 0 {
			continue
		}
		startsAt := max(record.placedAt, f.records[in].endedAt)
		arrivesAt = max(arrivesAt, startsAt+l.cfg.MoveTime(f.ledger.tasks.List[in].Service, f.ledger.locations[in].device, device))
	}
	return arrivesAt - l.agenda.now
}
