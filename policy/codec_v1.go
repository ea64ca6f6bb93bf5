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

// DecodeEventV1 decodes an event of version 1 of event logs, with its time. In that version every request had one
// task, devices held models, and nothing had lists; the fields that it lacks are set accordingly.
func DecodeEventV1(b []byte) (now time.Duration, ev Event, err error) {
	f := recordReader{bytes: b}
	if number := f.readByte(); int(number) < len(eventsV1) {
		ev.Kind = eventsV1[number]
	} else {
		f.err = fmt.Errorf("kind %d, expected less than %d", number, len(eventsV1))
	}
	now = f.readTime()
	ev.Hop, ev.Model, ev.Req, ev.Batch, ev.Device = f.readInt16(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32()
	ev.Value, ev.ArrivedAt, ev.Deadline, ev.Start, ev.End = f.readInt(), f.readTime(), f.readTime(), f.readTime(), f.readTime()
	ev.Task, ev.Service = ev.Req, ev.Model
	if ev.Kind == NetworkLoaded || ev.Kind == NetworkUnloaded {
		ev.Network = ev.Model
	}
	return now, ev, f.finish("an event of version 1")
}

// DecodeActionsV1 decodes actions of version 1 of event logs into an empty buffer. The numbers of their kinds are
// still the same.
func DecodeActionsV1(b []byte, out *Actions) error {
	return decodeActions(b, out, func(f *recordReader) Action {
		act := f.readAction()
		act.HopCount, act.Pipeline, act.Model, act.Req, act.Batch = f.readInt16(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32()
		act.Size, act.Device, act.Tag, act.At = f.readInt32(), f.readInt32(), f.readInt32(), f.readTime()
		return act
	})
}
