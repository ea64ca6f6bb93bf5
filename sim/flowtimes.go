package sim

import "time"

// unitWork is the usual work of a task (policy.Reveal).
const unitWork = 1_000_000

// batchTime returns how long a batch takes: the usual time multiplied by the largest work of
// its tasks, plus the time to compute missing session states.
func (f *flow) stretched(slot int32, usual time.Duration) time.Duration {
	most := int64(0)
	for _, t := range f.l.members(slot) {
		work := f.facts[t].work
		if work == 0 {
			work = unitWork
		}
		most = max(most, work)
	}
	if most != unitWork && most != 0 {
		usual = max(1, time.Duration(float64(usual)*float64(most)/unitWork))
	}
	if f.kept != nil {
		usual += f.kept.recomputed(slot)
	}
	return usual
}

// bringTime returns how long it takes from now until the inputs of a task are at a device. The
// inputs move in parallel, each from when it was ready and the task was placed.
func (f *flow) takes(t, device int32) time.Duration {
	l := f.l
	if l.cfg.PlaceTime != nil {
		return l.cfg.PlaceTime(t, device)
	}
	if l.cfg.MoveTime == nil {
		return 0
	}
	fa, last := &f.facts[t], l.now
	for _, in := range l.tasks.List[t].Inputs {
		if in < 0 {
			continue
		}
		from := max(fa.asked, f.facts[in].ended)
		last = max(last, from+l.cfg.MoveTime(l.tasks.List[in].Service, l.spots[in].device, device))
	}
	return last - l.now
}
