package main

import (
	"time"

	"inferplan/policy"
)

// watch is a policy around another that sees what devices do.
type watch struct {
	policy.Policy
	from, to time.Duration // what is counted
	devices  []watched
	timely   *timely // nil if nobody asks
	loads    int64
	batches  int64
	tasks    int64
	held     [][]time.Duration // by device and network: how long it was there
	since    [][]time.Duration
}

// watched is the time of a device.
type watched struct {
	seen           time.Duration
	busy           int // batches; several of language models
	loading        bool
	run, load, two time.Duration
}

func newWatch(p policy.Policy, t *policy.Tables, from, to time.Duration) *watch {
	w := &watch{Policy: p, from: from, to: to, devices: make([]watched, len(t.Devices)), timely: newTimely(t)}
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

// Handle implements policy.Policy.
func (w *watch) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.BatchFinished:
		w.move(ev.Device, now).busy--
	case policy.NetworkLoaded:
		if ev.Network < 0 {
			break // the state of a session
		}
		w.move(ev.Device, now).loading = false
		w.since[ev.Device][ev.Network] = now
	}
	if w.timely != nil {
		w.timely.hear(now, ev)
	}
	w.Policy.Handle(now, ev, out)
	for i := range out.List {
		a := &out.List[i]
		if a.Network < 0 {
			continue
		}
		switch a.Kind {
		case policy.Dispatch:
			w.move(a.Device, now).busy++
			if w.timely != nil {
				w.timely.started(now, a, out.Tasks)
			}
			if now >= w.from && now < w.to {
				w.batches++
				w.tasks += int64(a.Size)
			}
		case policy.Load:
			w.move(a.Device, now).loading = true
			if now >= w.from && now < w.to {
				w.loads++
			}
		case policy.Unload:
			w.gone(a.Device, a.Network, now)
		}
	}
}

// gone counts how long a network was on a device.
func (w *watch) gone(device, network int32, now time.Duration) {
	if s := &w.since[device][network]; *s >= 0 {
		w.held[device][network] += now - *s
		*s = -1
	}
}

// move counts what a device did up to now.
func (w *watch) move(device int32, now time.Duration) *watched {
	d := &w.devices[device]
	took := min(now, w.to) - max(d.seen, w.from)
	d.seen = now
	if took > 0 {
		switch {
		case d.busy > 0 && d.loading:
			d.two += took
		case d.busy > 0:
			d.run += took
		case d.loading:
			d.load += took
		}
	}
	return d
}

// longest returns a placement for good: by device the networks that were there for
// longest, as many as its memory holds.
func (w *watch) longest(t *policy.Tables, end time.Duration) [][]int32 {
	out := make([][]int32, len(w.held))
	for d := range w.held {
		for n := range w.held[d] {
			w.gone(int32(d), int32(n), end)
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
			out[d] = append(out[d], best)
			room -= t.Networks[best].Bytes
			w.held[d][best] = 0
		}
	}
	return out
}
