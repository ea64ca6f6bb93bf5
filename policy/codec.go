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
		int64(ev.ArrivedAt), int64(ev.Deadline), int64(ev.Start), int64(ev.End)} {
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

// AppendActions appends the encoding of a buffer's actions from number firstAction on to dst, for an event log:
// each with its kind, its numbers as varints and, for a Dispatch, its tasks and hops (a device for each stage). The
// bytes do not depend on where in the buffer the actions stand.
func AppendActions(dst []byte, a *Actions, firstAction int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(a.List)-firstAction))
	for i := range a.List[firstAction:] {
		act := &a.List[firstAction+i]
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

// appendBatch appends the tasks and hops (stages on devices) of a Dispatch action to the encoding of an event log,
// each number as a varint.
func appendBatch(dst []byte, a *Actions, act *Action) []byte {
	tasks, hops := a.BatchOf(act)
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
type recordReader struct {
	bytes []byte
	err   error
}

// readByte reads a byte.
func (f *recordReader) readByte() byte {
	if len(f.bytes) == 0 {
		f.err = errShort
		return 0
	}
	c := f.bytes[0]
	f.bytes = f.bytes[1:]
	return c
}

// readInt reads a signed varint.
func (f *recordReader) readInt() int64 {
	v, n := binary.Varint(f.bytes)
	if n <= 0 {
		f.err, f.bytes = errShort, nil
		return 0
	}
	f.bytes = f.bytes[n:]
	return v
}

// readCount reads the length of a list, of which every value takes at least a byte.
func (f *recordReader) readCount() int {
	v, n := binary.Uvarint(f.bytes)
	if n <= 0 || v > uint64(len(f.bytes)-n) {
		f.err, f.bytes = errShort, nil
		return 0
	}
	f.bytes = f.bytes[n:]
	return int(v)
}

// readInt32 reads a number of 32 bits, such as an index. A larger one is an error of the record, which finish
// returns.
func (f *recordReader) readInt32() int32 {
	v := f.readInt()
	if v != int64(int32(v)) && f.err == nil {
		f.err = fmt.Errorf("the number %d where an index was expected", v)
	}
	return int32(v)
}

// readInt16 reads a number of 16 bits, such as a hop (the position of a stage). A larger one is an error of the
// record, which finish returns.
func (f *recordReader) readInt16() int16 {
	v := f.readInt()
	if v != int64(int16(v)) && f.err == nil {
		f.err = fmt.Errorf("the number %d where a hop was expected", v)
	}
	return int16(v)
}

// readTime reads a time.
func (f *recordReader) readTime() time.Duration { return time.Duration(f.readInt()) }

// kindOf returns the kind with a number in event logs. If there is none, it returns -1.
func kindOf(numbers []byte, number byte) int {
	for kind, n := range numbers {
		if n == number {
			return kind
		}
	}
	return -1
}

// readEventKind reads the kind of an event. numbers has the byte of each kind in this version of the log. An
// unknown byte is an error of the record, which finish returns.
func (f *recordReader) readEventKind(numbers []byte) EventKind {
	number := f.readByte()
	kind := kindOf(numbers, number)
	if kind < 0 && f.err == nil {
		f.err = fmt.Errorf("kind %d, which no event has", number)
	}
	return EventKind(max(0, kind))
}

// finish returns the error of a record after its last field: a failed read, or bytes behind the last field.
func (f *recordReader) finish(record string) error {
	switch {
	case f.err != nil:
		return fmt.Errorf("decoding %s: %w", record, f.err)
	case len(f.bytes) > 0:
		return fmt.Errorf("decoding %s: %d bytes behind it", record, len(f.bytes))
	}
	return nil
}

// DecodeEvent decodes an event of a log, which AppendEvent encoded, with the time at which the policy got it. The
// client is missing in older logs.
func DecodeEvent(b []byte) (now time.Duration, ev Event, err error) {
	f := recordReader{bytes: b}
	ev.Kind = f.readEventKind(eventNumbers[:])
	now = f.readTime()
	ev.Hop, ev.Model, ev.Req, ev.Task, ev.Service, ev.Network = f.readInt16(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32()
	ev.Batch, ev.Device, ev.Tokens, ev.Limit, ev.Value, ev.Key = f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt(), f.readInt()
	ev.ArrivedAt, ev.Deadline, ev.Start, ev.End = f.readTime(), f.readTime(), f.readTime(), f.readTime()
	for n := f.readCount(); n > 0; n-- {
		ev.List = append(ev.List, f.readInt32())
	}
	if len(f.bytes) > 0 && f.err == nil {
		ev.Client = f.readInt32()
	}
	return now, ev, f.finish("an event")
}

// DecodeActions decodes the actions of a log, which AppendActions encoded, into out, whose contents are dropped
// first.
func DecodeActions(b []byte, out *Actions) error {
	return decodeActions(b, out, func(f *recordReader) Action {
		act := f.readAction()
		act.HopCount, act.Pipeline, act.Model, act.Req, act.Task, act.Network = f.readInt16(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32()
		act.Batch, act.Size, act.Device, act.Tag, act.Key, act.At = f.readInt32(), f.readInt32(), f.readInt32(), f.readInt32(), f.readInt(), f.readTime()
		return act
	})
}

// readAction reads the kind of an action and its reason.
func (f *recordReader) readAction() Action {
	number := f.readByte()
	kind := kindOf(actionNumbers[:], number)
	if kind < 0 && f.err == nil {
		f.err = fmt.Errorf("kind %d, which no action has", number)
	}
	return Action{Kind: ActionKind(max(0, kind)), Reason: DropReason(f.readByte())}
}

// decodeActions decodes a list of actions into out. read decodes one action without its batch, in the way of the
// log's version; the tasks and hops of a Dispatch follow it.
func decodeActions(b []byte, out *Actions, read func(*recordReader) Action) error {
	out.Reset()
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return fmt.Errorf("decoding actions: %w", errShort)
	}
	f := recordReader{bytes: b[size:]}
	for ; n > 0 && f.err == nil; n-- {
		// Decode the action itself.
		act := read(&f)
		act.TaskFirst, act.HopFirst = int32(len(out.Tasks)), int32(len(out.Hops))

		// Decode the tasks and hops of a Dispatch. Check their number first, before making room for them.
		if act.Kind == Dispatch {
			if act.Size < 0 || act.HopCount < 0 || int64(act.Size)+int64(act.HopCount) > int64(len(f.bytes)) {
				return fmt.Errorf("decoding actions: a batch of %d along %d hops in %d bytes", act.Size, act.HopCount, len(f.bytes))
			}
			for range act.Size {
				out.Tasks = append(out.Tasks, f.readInt32())
			}
			for range act.HopCount {
				out.Hops = append(out.Hops, Hop{Stage: f.readInt32(), Device: f.readInt32(), Uplink: f.readInt32(), Downlink: f.readInt32(),
					XferStart: f.readTime(), XferEnd: f.readTime(), Start: f.readTime(), End: f.readTime()})
			}
		}
		out.List = append(out.List, act)
	}
	return f.finish("actions")
}
