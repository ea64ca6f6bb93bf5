package main

import (
	"time"

	"inferplan/policy"
)

// watch is a policy around another that sees how long networks are on devices.
type watch struct {
	policy.Policy
	held  [][]time.Duration // by device and network, up to the last unload
	since [][]time.Duration // likewise: when it was loaded; -1 if it is not there
}

func newWatch(p policy.Policy, t *policy.Tables) *watch {
	w := &watch{Policy: p}
	for d := range t.Devices {
		w.held = append(w.held, make([]time.Duration, len(t.Networks)))
		since := make([]time.Duration, len(t.Networks))
		for n := range since {
			since[n] = -1
		}
		for _, n := range t.Resident[d] {
			since[n] = 0
		}
		w.since = append(w.since, since)
	}
	return w
}

// Unwrap implements policy.Wrapper.
func (w *watch) Unwrap() policy.Policy { return w.Policy }

// Handle implements policy.Policy. Networks below 0 are states of sessions.
func (w *watch) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.NetworkLoaded && ev.Network >= 0 {
		w.since[ev.Device][ev.Network] = now
	}
	w.Policy.Handle(now, ev, out)
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.Unload && a.Network >= 0 {
			w.unloaded(a.Device, a.Network, now)
		}
	}
}

// unloaded counts how long a network was on a device.
func (w *watch) unloaded(device, network int32, now time.Duration) {
	if since := &w.since[device][network]; *since >= 0 {
		w.held[device][network] += now - *since
		*since = -1
	}
}

// longest returns a placement for good: by device the networks that were there for longest, as many as its memory holds.
func (w *watch) longest(t *policy.Tables, end time.Duration) [][]int32 {
	placement := make([][]int32, len(w.held))
	for d := range w.held {
		for n := range w.held[d] {
			w.unloaded(int32(d), int32(n), end)
		}
		room := t.Memory[d]
		for {
			best := int32(-1)
			for n, took := range w.held[d] {
				if took > 0 && t.Networks[n].Bytes <= room && (best < 0 || took > w.held[d][best]) {
					best = int32(n)
				}
			}
			if best < 0 {
				break
			}
			placement[d] = append(placement[d], best)
			room -= t.Networks[best].Bytes
			w.held[d][best] = 0
		}
	}
	return placement
}
