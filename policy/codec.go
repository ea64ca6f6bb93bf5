package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// eventNumbers has the numbers of event kinds in event logs. A kind that is added later gets the next number,
// wherever its constant stands.
var eventNumbers = [NumEvents]byte{
	BatchFinished: 0, BatchReturned: 1, TransferFinished: 2, BatchStarted: 3, NetworkLoaded: 4, NetworkUnloaded: 5, WorkerLost: 6, WorkerBack: 7,
	ControlRevealed: 8, TaskRevealed: 9, TokenProgress: 10, PlanInstalled: 11, ReplanResult: 12, Arrival: 13, Cancel: 14, Timer: 15,
}

// actionNumbers has the numbers of action kinds in event logs, likewise.
var actionNumbers = [NumActions]byte{
	Dispatch: 0, Drop: 1, Wake: 2, Abort: 3, Load: 4, Unload: 5, Evict: 6, SwitchMode: 7, Replan: 8, Complete: 9, Place: 10,
}

// AppendEvent appends an event in the form of event logs: its kind, every field as a signed varint, the length of
// its list and the list, and the client if there is one.
func AppendEvent(dst []byte, now time.Duration, ev *Event) []byte {
	dst = append(dst, eventNumbers[ev.Kind])
	for _, v := range [...]int64{int64(now), int64(ev.Hop), int64(ev.Model), int64(ev.Req), int64(ev.Task), int64(ev.Service), int64(ev.Network),
		int64(ev.Batch), int64(ev.Device), int64(ev.Tokens), int64(ev.Limit), ev.Value, ev.Key,
		int64(ev.Arrived), int64(ev.Deadline), int64(ev.Start), int64(ev.End)} {
		dst = binary.AppendVarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, uint64(len(ev.List)))
	for _, v := range ev.List {
		dst = binary.AppendVarint(dst, int64(v))
	}
	if ev.Client != 0 {
		dst = binary.AppendVarint(dst, int64(ev.Client))
	}
	return dst
}

// AppendActions appends the actions of a buffer from number firstAction on, each with its tasks and hops. The
// bytes do not depend on where in the buffer the actions stand.
func AppendActions(dst []byte, a *Actions, first int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(a.List)-first))
	for i := range a.List[first:] {
		act := &a.List[first+i]
		dst = append(dst, actionNumbers[act.Kind], byte(act.Reason))
		for _, v := range [...]int64{int64(act.HopCount), int64(act.Pipeline), int64(act.Model), int64(act.Req), int64(act.Task), int64(act.Network),
			int64(act.Batch), int64(act.Size), int64(act.Device), int64(act.Tag), act.Key, int64(act.At)} {
			dst = binary.AppendVarint(dst, v)
		}
		if act.Kind == Dispatch {
			dst = appendBatch(dst, a, act)
		}
	}
	return dst
}

// appendBatch appends the tasks and hops of a Dispatch.
func appendBatch(dst []byte, a *Actions, act *Action) []byte {
	tasks, hops := a.Dispatched(act)
	for _, t := range tasks {
		dst = binary.AppendVarint(dst, int64(t))
	}
	for h := range hops {
		hop := &hops[h]
		for _, v := range [...]int64{int64(hop.Stage), int64(hop.Device), int64(hop.Uplink), int64(hop.Downlink),
			int64(hop.XferStart), int64(hop.XferEnd), int64(hop.Start), int64(hop.End)} {
			dst = binary.AppendVarint(dst, v)
		}
	}
	return dst
}

// errShort is returned when a record ends before all of its fields are read.
var errShort = errors.New("ends within a record")

// recordReader reads numbers from a record. Its first error is kept, and later reads return 0.
type fields struct {
	b   []byte
	err error
}

// readByte reads a byte.
func (f *fields) byte() byte {
	if len(f.b) == 0 {
		f.err = errShort
		return 0
	}
	c := f.b[0]
	f.b = f.b[1:]
	return c
}

// readInt reads a signed varint.
func (f *fields) int() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.err, f.b = errShort, nil
		return 0
	}
	f.b = f.b[n:]
	return v
}

// readCount reads the length of a list, of which every value takes at least a byte.
func (f *fields) count() int {
	v, n := binary.Uvarint(f.b)
	if n <= 0 || v > uint64(len(f.b)-n) {
		f.err, f.b = errShort, nil
		return 0
	}
	f.b = f.b[n:]
	return int(v)
}

// readInt32 reads a number of 32 bits, such as an index.
func (f *fields) int32() int32 {
	v := f.int()
	if v != int64(int32(v)) && f.err == nil {
		f.err = fmt.Errorf("the number %d where an index was expected", v)
	}
	return int32(v)
}

// readInt16 reads a number of 16 bits, such as a hop.
func (f *fields) int16() int16 {
	v := f.int()
	if v != int64(int16(v)) && f.err == nil {
		f.err = fmt.Errorf("the number %d where a hop was expected", v)
	}
	return int16(v)
}

// readTime reads a time.
func (f *fields) time() time.Duration { return time.Duration(f.int()) }

// kindOf returns the kind with a number in event logs. If there is none, it returns -1.
func kindOf(numbers []byte, number byte) int {
	for kind, n := range numbers {
		if n == number {
			return kind
		}
	}
	return -1
}

// readEventKind reads the kind of an event by a table of numbers.
func (f *fields) eventKind(numbers []byte) EventKind {
	number := f.byte()
	kind := kindOf(numbers, number)
	if kind < 0 && f.err == nil {
		f.err = fmt.Errorf("kind %d, which no event has", number)
	}
	return EventKind(max(0, kind))
}

// finish returns the error of a record after its last field: a failed read, or bytes behind the last field.
func (f *fields) end(what string) error {
	switch {
	case f.err != nil:
		return fmt.Errorf("decoding %s: %w", what, f.err)
	case len(f.b) > 0:
		return fmt.Errorf("decoding %s: %d bytes behind it", what, len(f.b))
	}
	return nil
}

// DecodeEvent decodes an event that AppendEvent encoded.
func DecodeEvent(b []byte) (now time.Duration, ev Event, err error) {
	f := fields{b: b}
	ev.Kind = f.eventKind(eventNumbers[:])
	now = f.time()
	ev.Hop, ev.Model, ev.Req, ev.Task, ev.Service, ev.Network = f.int16(), f.int32(), f.int32(), f.int32(), f.int32(), f.int32()
	ev.Batch, ev.Device, ev.Tokens, ev.Limit, ev.Value, ev.Key = f.int32(), f.int32(), f.int32(), f.int32(), f.int(), f.int()
	ev.Arrived, ev.Deadline, ev.Start, ev.End = f.time(), f.time(), f.time(), f.time()
	for n := f.count(); n > 0; n-- {
		ev.List = append(ev.List, f.int32())
	}
	if len(f.b) > 0 && f.err == nil {
		ev.Client = f.int32()
	}
	return now, ev, f.end("an event")
}

// DecodeActions decodes actions that AppendActions encoded, into an empty buffer.
func DecodeActions(b []byte, out *Actions) error {
	return decodeActions(b, out, func(f *fields) Action {
		act := f.actionKind()
		act.HopCount, act.Pipeline, act.Model, act.Req, act.Task, act.Network = f.int16(), f.int32(), f.int32(), f.int32(), f.int32(), f.int32()
		act.Batch, act.Size, act.Device, act.Tag, act.Key, act.At = f.int32(), f.int32(), f.int32(), f.int32(), f.int(), f.time()
		return act
	})
}

// readAction reads the kind of an action and its reason.
func (f *fields) actionKind() Action {
	number := f.byte()
	kind := kindOf(actionNumbers[:], number)
	if kind < 0 && f.err == nil {
		f.err = fmt.Errorf("kind %d, which no action has", number)
	}
	return Action{Kind: ActionKind(max(0, kind)), Reason: Reason(f.byte())}
}

// decodeActions decodes actions; read decodes one without its batch.
func decodeActions(b []byte, out *Actions, read func(*fields) Action) error {
	out.Reset()
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return fmt.Errorf("decoding actions: %w", errShort)
	}
	f := fields{b: b[size:]}
	for ; n > 0 && f.err == nil; n-- {
		// Decode the action itself.
		act := read(&f)
		act.TaskFirst, act.HopFirst = int32(len(out.Tasks)), int32(len(out.Hops))

		// Decode the tasks and hops of a Dispatch. Check their number first, before making room for them.
		if act.Kind == Dispatch {
			if act.Size < 0 || act.HopCount < 0 || int64(act.Size)+int64(act.HopCount) > int64(len(f.b)) {
				return fmt.Errorf("decoding actions: a batch of %d along %d hops in %d bytes", act.Size, act.HopCount, len(f.b))
			}
			for range act.Size {
				out.Tasks = append(out.Tasks, f.int32())
			}
			for range act.HopCount {
				out.Hops = append(out.Hops, Hop{Stage: f.int32(), Device: f.int32(), Uplink: f.int32(), Downlink: f.int32(),
					XferStart: f.time(), XferEnd: f.time(), Start: f.time(), End: f.time()})
			}
		}
		out.List = append(out.List, act)
	}
	return f.end("actions")
}
