package rules

import (
	"time"

	"inferplan/policy/vqueue"
)

// Scale has a fleet grow while deadlines are likely to be missed, and shrink while
// instances idle (appendix A.3). The zero value leaves all instances on.
type Scale struct {
	// From is the number of instances that are on from the start; 0 stands for all, always.
	From int
	// Delay passes between the decision for a further instance and its first work.
	Delay time.Duration
	// Hold is how long an instance beyond From idles before it goes off; 0 is a minute.
	Hold time.Duration
}

// Scaling turns instances on and off.
type Scaling struct {
	*vqueue.InstanceControl
	scale Scale
	on    []bool             // by instance
	ready []time.Duration    // by instance: when it is on; never: it is off
	idle  []time.Duration    // since when
	spans [][2]time.Duration // of instances that went off: the decision, and the end
	since []time.Duration    // of the decision
}

// off is the time at which an instance that is off is on.
const off = time.Duration(1<<63 - 1)

// NewScaling turns off the instances that are not on from the start.
func NewScaling(s *vqueue.InstanceControl, scale Scale) *Scaling {
	if scale.Hold == 0 {
		scale.Hold = time.Minute
	}
	n := s.Len()
	x := &Scaling{InstanceControl: s, scale: scale, ready: make([]time.Duration, n), idle: make([]time.Duration, n), since: make([]time.Duration, n), on: make([]bool, n)}
	for q := range min(int32(scale.From), n) {
		x.on[q] = true
	}
	for q := int32(scale.From); q < n; q++ {
		x.ready[q] = off
		s.Instance(q).IsSwitchedOff = true
	}
	return x
}

// Tick turns on what is ready, turns off what idles, and decides for one more
// instance where a violation is likely and none is on its way. It returns whether any
// went on.
func (x *Scaling) Tick(now time.Duration, violation bool) (grown bool) {
	coming := false
	for q := range x.Len() {
		in := x.Instance(q)
		if len(in.RunningBatches) > 0 || x.WaitingGroups(q) > 0 || in.LoadingNetwork >= 0 {
			x.idle[q] = now
		}
		switch {
		case x.ready[q] == off:
		case !x.on[q] && now >= x.ready[q]:
			in.IsSwitchedOff = false
			x.idle[q], x.on[q], grown = now, true, true
		case !x.on[q]:
			coming = true
		case int(q) >= x.scale.From && now-x.idle[q] >= x.scale.Hold:
			in.IsSwitchedOff = true
			x.ready[q], x.on[q] = off, false
			x.spans = append(x.spans, [2]time.Duration{x.since[q], now})
		}
	}
	for q := range x.ready {
		if violation && !coming && x.ready[q] == off {
			x.ready[q], x.since[q] = now+x.scale.Delay, now
			break
		}
	}
	return grown
}

// NeedsTicks returns whether more instances than From are on or on their way.
func (x *Scaling) NeedsTicks() bool {
	for q := x.scale.From; q < len(x.ready); q++ {
		if x.ready[q] != off {
			return true
		}
	}
	return false
}

// Used is the time of all instances until a time, from the decision for each until it
// went off.
func (x *Scaling) Used(until time.Duration) (used time.Duration) {
	for q := range x.ready {
		if x.ready[q] != off {
			used += max(0, until-x.since[q])
		}
	}
	for _, s := range x.spans {
		used += min(s[1], until) - min(s[0], until)
	}
	return used
}
