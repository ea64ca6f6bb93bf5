package sim

import "time"

// unitWork is a task's usual work (policy.Reveal).
const unitWork = 1_000_000

// stretched is how long a batch takes whose tasks have works of their own: as long
// as that with the most asks for.
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

// takes is how long it takes from now to bring what a task reads to a device. The
// inputs come beside each other, each from when it was there and asked for.
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
