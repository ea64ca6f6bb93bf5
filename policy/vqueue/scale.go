package vqueue

import "time"

// Scale has a fleet grow while deadlines are likely to be missed, and shrink while
// instances idle (appendix A.3). The zero value leaves all instances on.
type Scale struct {
	// From is the number of instances that are on from the start; 0: all, always.
	From int
	// Delay passes between the decision for a further instance and its first work.
	Delay time.Duration
	// Hold is how long an instance beyond From idles before it goes off; 0 is a minute.
	Hold time.Duration
	// Pressure is the share of the instances that are on from which on one more comes if
	// so many run requests of the first band, late or not: Chiron's interactive back
	// pressure (Patke et al., 2025). 0: instances come for late requests alone.
	Pressure float64
}

// scaling turns instances on and off.
type scaling struct {
	*grouping
	scale Scale
	bands []bool             // by served model, see urgent
	ready []time.Duration    // by instance: when it is on; never: it is off
	idle  []time.Duration    // since when
	spans [][2]time.Duration // of instances that went off: the decision, and the end
	since []time.Duration    // of the decision
}

// off is the time at which an instance that is off is on.
const off = time.Duration(1<<63 - 1)

func newScaling(s *grouping, scale Scale) scaling {
	if scale.Hold == 0 {
		scale.Hold = time.Minute
	}
	x := scaling{grouping: s, scale: scale, bands: urgent(s.t)}
	if scale.From == 0 {
		return x
	}
	n := len(s.instances)
	x.ready, x.idle, x.since = make([]time.Duration, n), make([]time.Duration, n), make([]time.Duration, n)
	for i := scale.From; i < n; i++ {
		x.ready[i] = off
		s.instances[i].off = true
	}
	return x
}

// tick turns on what is ready, turns off what idles, and decides for one more
// instance where a violation is likely and none is on its way. It tells whether any
// went on.
func (x *scaling) tick(now time.Duration, violation bool) (grown bool) {
	if x.scale.From == 0 {
		return false
	}
	coming := false
	for i := range x.instances {
		in := &x.instances[i]
		if len(in.running) > 0 || x.state.Len(int32(i)) > 0 || in.coming >= 0 {
			x.idle[i] = now
		}
		switch {
		case x.ready[i] == off:
		case in.off && now >= x.ready[i]:
			in.off, grown = false, true
			x.idle[i] = now
		case in.off:
			coming = true
		case i >= x.scale.From && now-x.idle[i] >= x.scale.Hold:
			in.off, x.ready[i] = true, off
			x.spans = append(x.spans, [2]time.Duration{x.since[i], now})
		}
	}
	violation = violation || x.pressed()
	for i := range x.instances {
		if violation && !coming && x.ready[i] == off {
			x.ready[i], x.since[i] = now+x.scale.Delay, now
			break
		}
	}
	return grown
}

// pressed tells whether as many instances as may run requests of the first band.
func (x *scaling) pressed() bool {
	if x.scale.Pressure == 0 {
		return false
	}
	on, busy := 0, 0
	for i := range x.instances {
		in := &x.instances[i]
		if !in.up() {
			continue
		}
		on++
		for m, n := range in.counts {
			if n > 0 && x.bands[m] {
				busy++
				break
			}
		}
	}
	return float64(busy) > x.scale.Pressure*float64(on)
}

// more tells whether more instances than From are on or on their way.
func (x *scaling) more() bool {
	for i := x.scale.From; i < len(x.ready); i++ {
		if x.ready[i] != off {
			return true
		}
	}
	return false
}

// Used is the time of all instances until a time, from the decision for each until it
// went off.
func (p *Policy) Used(until time.Duration) (used time.Duration) {
	x := &p.scale
	if x.scale.From == 0 {
		return until * time.Duration(len(p.instances))
	}
	for i := range p.instances {
		if x.ready[i] != off {
			used += max(0, until-x.since[i])
		}
	}
	for _, s := range x.spans {
		used += min(s[1], until) - min(s[0], until)
	}
	return used
}
