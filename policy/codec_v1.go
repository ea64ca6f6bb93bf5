package policy

import (
	"fmt"
	"time"
)

// eventsV1 has the event kinds of version 1 of event logs, by their numbers there.
var eventsV1 = [...]EventKind{
	BatchFinished, TransferFinished, BatchStarted, NetworkLoaded, NetworkUnloaded, WorkerLost, WorkerBack,
	ControlRevealed, TokenProgress, PlanInstalled, ReplanResult, Arrival, Cancel, Timer,
}

// DecodeEventV1 decodes an event of version 1 of event logs, in which every request had one task, devices held
// models, and nothing had lists.
func DecodeEventV1(b []byte) (now time.Duration, ev Event, err error) {
	f := fields{b: b}
	if number := f.byte(); int(number) < len(eventsV1) {
		ev.Kind = eventsV1[number]
	} else {
		f.err = fmt.Errorf("kind %d, expected less than %d", number, len(eventsV1))
	}
	now = f.time()
	ev.Hop, ev.Model, ev.Req, ev.Batch, ev.Device = f.int16(), f.int32(), f.int32(), f.int32(), f.int32()
	ev.Value, ev.Arrived, ev.Deadline, ev.Start, ev.End = f.int(), f.time(), f.time(), f.time(), f.time()
	ev.Task, ev.Service = ev.Req, ev.Model
	if ev.Kind == NetworkLoaded || ev.Kind == NetworkUnloaded {
		ev.Network = ev.Model
	}
	return now, ev, f.end("an event of version 1")
}

// DecodeActionsV1 decodes actions of version 1 of event logs into an empty buffer. The numbers of their kinds are
// still the same.
func DecodeActionsV1(b []byte, out *Actions) error {
	return decodeActions(b, out, func(f *fields) Action {
		act := f.actionKind()
		act.HopCount, act.Pipeline, act.Model, act.Req, act.Batch = f.int16(), f.int32(), f.int32(), f.int32(), f.int32()
		act.Size, act.Device, act.Tag, act.At = f.int32(), f.int32(), f.int32(), f.time()
		return act
	})
}
