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
func DecodeEventV1(record []byte) (now time.Duration, ev Event, err error) {
	reader := recordReader{rest: record}
	if number := reader.readByte(); int(number) < len(eventsV1) {
		ev.Kind = eventsV1[number]
	} else {
		reader.err = fmt.Errorf("kind %d, expected less than %d", number, len(eventsV1))
	}
	now = reader.readTime()
	ev.Hop, ev.Model, ev.Req, ev.Batch, ev.Device = reader.readInt16(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32()
	ev.Value, ev.ArrivedAt, ev.Deadline, ev.Start, ev.End = reader.readInt(), reader.readTime(), reader.readTime(), reader.readTime(), reader.readTime()
	ev.Task, ev.Service = ev.Req, ev.Model
	if ev.Kind == NetworkLoaded || ev.Kind == NetworkUnloaded {
		ev.Network = ev.Model
	}
	return now, ev, reader.finish("an event of version 1")
}

// DecodeActionsV1 decodes actions of version 1 of event logs into an empty buffer. The numbers of their kinds are
// still the same.
func DecodeActionsV1(record []byte, out *Actions) error {
	return decodeActions(record, out, func(reader *recordReader) Action {
		action := reader.readAction()
		action.HopCount, action.Pipeline, action.Model, action.Req, action.Batch = reader.readInt16(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32()
		action.Size, action.Device, action.Tag, action.At = reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readTime()
		return action
	})
}
