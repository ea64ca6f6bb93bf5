package sim

import "time"

// unitWork is the usual work of a task (policy.RevealedTask.Work).
const unitWork = 1_000_000

// batchTime returns how long the run of a batch takes, whose usual time is runTime: that multiplied by the largest work
// of its tasks (0 counts as the usual work), plus the time to compute session states that are not on the device. Work is
// in units of unitWork, which is the usual work of a task. startRun calls it for a batch that starts.
func (f *flowEnding) batchTime(batchSlot int32, runTime time.Duration) time.Duration {
	maxWork := int64(0)
	for _, task := range f.loop.batches.members(batchSlot) {
		work := f.records[task].work
		if work == 0 {
			work = unitWork
		}
		maxWork = max(maxWork, work)
	}
	if maxWork != unitWork && maxWork != 0 {
		runTime = max(1, time.Duration(float64(runTime)*float64(maxWork)/unitWork))
	}
	if f.sessions != nil {
		runTime += f.sessions.countRecomputed(batchSlot)
	}
	return runTime
}

// bringTime returns how long it takes from now until the inputs of a placed task are at a device. MoveTime of the run's
// configuration is the time of each input: inputs move in parallel, each from the later of when it was ready and when the
// task was placed. Without it bringTime returns 0. An input of -1 is the client's, and is everywhere.
func (f *flowEnding) bringTime(task, device int32) time.Duration {
	loop := f.loop
	if loop.cfg.MoveTime == nil {
		return 0
	}

	// The last input to arrive decides.
	record, arrivesAt := &f.records[task], loop.agenda.now
	for _, input := range f.ledger.tasks.List[task].Inputs {
		if input < 0 {
			continue
		}
		startsAt := max(record.placedAt, f.records[input].endedAt)
		arrivesAt = max(arrivesAt, startsAt+loop.cfg.MoveTime(f.ledger.tasks.List[input].Service, f.ledger.locations[input].device, device))
	}
	return arrivesAt - loop.agenda.now
}
