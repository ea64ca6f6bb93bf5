package policy

import (
	"bytes"
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

// AppendEvent appends an event, which the policy got at the time now, in the form of event logs: its kind, every
// field as a signed varint, the length of its list and the list, and the client if there is one.
func AppendEvent(dst []byte, now time.Duration, ev *Event) []byte {
	dst = append(dst, eventNumbers[ev.Kind])
	for _, number := range [...]int64{int64(now), int64(ev.Hop), int64(ev.Model), int64(ev.Req), int64(ev.Task), int64(ev.Service), int64(ev.Network),
		int64(ev.Batch), int64(ev.Device), int64(ev.Tokens), int64(ev.Limit), ev.Value, ev.Key,
		int64(ev.ArrivedAt), int64(ev.Deadline), int64(ev.Start), int64(ev.End)} {
		dst = binary.AppendVarint(dst, number)
	}
	dst = binary.AppendUvarint(dst, uint64(len(ev.List)))
	for _, number := range ev.List {
		dst = binary.AppendVarint(dst, int64(number))
	}
	if ev.Client != 0 {
		dst = binary.AppendVarint(dst, int64(ev.Client))
	}
	return dst
}

// AppendActions appends the encoding of a buffer's actions from number firstAction on to dst, for an event log:
// each with its kind, its numbers as varints and, for a Dispatch, its tasks and hops (a device for each stage). The
// bytes do not depend on where in the buffer the actions stand.
func AppendActions(dst []byte, actions *Actions, firstAction int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(actions.List)-firstAction))
	for i := range actions.List[firstAction:] {
		action := &actions.List[firstAction+i]
		dst = append(dst, actionNumbers[action.Kind], byte(action.Reason))
		for _, number := range [...]int64{int64(action.HopCount), int64(action.Pipeline), int64(action.Model), int64(action.Req), int64(action.Task), int64(action.Network),
			int64(action.Batch), int64(action.Size), int64(action.Device), int64(action.Tag), action.Key, int64(action.At)} {
			dst = binary.AppendVarint(dst, number)
		}
		if action.Kind == Dispatch {
			dst = appendBatch(dst, actions, action)
		}
	}
	return dst
}

// appendBatch appends the tasks and hops (stages on devices) of a Dispatch action to the encoding of an event log,
// each number as a varint.
func appendBatch(dst []byte, actions *Actions, action *Action) []byte {
	tasks, hops := actions.BatchOf(action)
	for _, task := range tasks {
		dst = binary.AppendVarint(dst, int64(task))
	}
	for hopIndex := range hops {
		hop := &hops[hopIndex]
		for _, number := range [...]int64{int64(hop.Stage), int64(hop.Device), int64(hop.Uplink), int64(hop.Downlink),
			int64(hop.XferStart), int64(hop.XferEnd), int64(hop.Start), int64(hop.End)} {
			dst = binary.AppendVarint(dst, number)
		}
	}
	return dst
}

// errShort is returned when a record ends before all of its fields are read.
var errShort = errors.New("ends within a record")

// recordReader reads numbers from a record of an event log. Its first error is kept, and later reads return 0; finish
// returns the error.
type recordReader struct {
	rest []byte // bytes that are not read yet
	err  error
}

// readByte reads a byte of the record. If none is left, it keeps an error and returns 0.
func (reader *recordReader) readByte() byte {
	if len(reader.rest) == 0 {
		reader.err = errShort
		return 0
	}
	value := reader.rest[0]
	reader.rest = reader.rest[1:]
	return value
}

// readInt reads a signed varint of the record. If none is left, it keeps an error and returns 0.
func (reader *recordReader) readInt() int64 {
	number, size := binary.Varint(reader.rest)
	if size <= 0 {
		reader.err, reader.rest = errShort, nil
		return 0
	}
	reader.rest = reader.rest[size:]
	return number
}

// readCount reads the length of a list in the record. Every value of the list takes at least a byte, so a greater
// length is an error.
func (reader *recordReader) readCount() int {
	count, size := binary.Uvarint(reader.rest)
	if size <= 0 || count > uint64(len(reader.rest)-size) {
		reader.err, reader.rest = errShort, nil
		return 0
	}
	reader.rest = reader.rest[size:]
	return int(count)
}

// readInt32 reads a number of 32 bits, such as an index. A larger one is an error of the record, which finish
// returns.
func (reader *recordReader) readInt32() int32 {
	number := reader.readInt()
	if number != int64(int32(number)) && reader.err == nil {
		reader.err = fmt.Errorf("the number %d where an index was expected", number)
	}
	return int32(number)
}

// readInt16 reads a number of 16 bits, such as a hop (the position of a stage). A larger one is an error of the
// record, which finish returns.
func (reader *recordReader) readInt16() int16 {
	number := reader.readInt()
	if number != int64(int16(number)) && reader.err == nil {
		reader.err = fmt.Errorf("the number %d where a hop was expected", number)
	}
	return int16(number)
}

// readTime reads a time of the record, in nanoseconds.
func (reader *recordReader) readTime() time.Duration { return time.Duration(reader.readInt()) }

// readKind reads the kind of an event or action. numbers has the byte of each kind in event logs. An unknown byte is an
// error of the record, which finish returns.
func (reader *recordReader) readKind(numbers []byte, record string) int {
	number := reader.readByte()
	kind := bytes.IndexByte(numbers, number)
	if kind < 0 && reader.err == nil {
		reader.err = fmt.Errorf("kind %d, which no %s has", number, record)
	}
	return max(0, kind)
}

// finish returns the error of a record after its last field: a failed read, or bytes behind the last field.
func (reader *recordReader) finish(record string) error {
	switch {
	case reader.err != nil:
		return fmt.Errorf("decoding %s: %w", record, reader.err)
	case len(reader.rest) > 0:
		return fmt.Errorf("decoding %s: %d bytes behind it", record, len(reader.rest))
	}
	return nil
}

// DecodeEvent decodes an event of a log, which AppendEvent encoded, with the time at which the policy got it. The
// client is missing in older logs.
func DecodeEvent(record []byte) (now time.Duration, ev Event, err error) {
	reader := recordReader{rest: record}
	ev.Kind = EventKind(reader.readKind(eventNumbers[:], "event"))
	now = reader.readTime()
	ev.Hop, ev.Model, ev.Req, ev.Task, ev.Service, ev.Network = reader.readInt16(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32()
	ev.Batch, ev.Device, ev.Tokens, ev.Limit, ev.Value, ev.Key = reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt(), reader.readInt()
	ev.ArrivedAt, ev.Deadline, ev.Start, ev.End = reader.readTime(), reader.readTime(), reader.readTime(), reader.readTime()
	for remaining := reader.readCount(); remaining > 0; remaining-- {
		ev.List = append(ev.List, reader.readInt32())
	}
	if len(reader.rest) > 0 && reader.err == nil {
		ev.Client = reader.readInt32()
	}
	return now, ev, reader.finish("an event")
}

// DecodeActions decodes the actions of a log, which AppendActions encoded, into out, whose contents are dropped
// first.
func DecodeActions(record []byte, out *Actions) error {
	return decodeActions(record, out, func(reader *recordReader) Action {
		action := reader.readAction()
		action.HopCount, action.Pipeline, action.Model, action.Req, action.Task, action.Network = reader.readInt16(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32()
		action.Batch, action.Size, action.Device, action.Tag, action.Key, action.At = reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt32(), reader.readInt(), reader.readTime()
		return action
	})
}

// readAction reads the first two bytes of an action: its kind and the reason of a Drop.
func (reader *recordReader) readAction() Action {
	return Action{Kind: ActionKind(reader.readKind(actionNumbers[:], "action")), Reason: DropReason(reader.readByte())}
}

// decodeActions decodes a list of actions into out. read decodes one action without its batch, in the way of the
// log's version; the tasks and hops of a Dispatch follow it.
func decodeActions(record []byte, out *Actions, read func(*recordReader) Action) error {
	out.Reset()
	remaining, size := binary.Uvarint(record)
	if size <= 0 {
		return fmt.Errorf("decoding actions: %w", errShort)
	}
	reader := recordReader{rest: record[size:]}
	for ; remaining > 0 && reader.err == nil; remaining-- {
		// Decode the action itself.
		action := read(&reader)
		action.TaskFirst, action.HopFirst = int32(len(out.Tasks)), int32(len(out.Hops))

		// Decode the tasks and hops of a Dispatch. Check their number first, before making room for them.
		if action.Kind == Dispatch {
			if action.Size < 0 || action.HopCount < 0 || int64(action.Size)+int64(action.HopCount) > int64(len(reader.rest)) {
				return fmt.Errorf("decoding actions: a batch of %d along %d hops in %d bytes", action.Size, action.HopCount, len(reader.rest))
			}
			for range action.Size {
				out.Tasks = append(out.Tasks, reader.readInt32())
			}
			for range action.HopCount {
				out.Hops = append(out.Hops, Hop{Stage: reader.readInt32(), Device: reader.readInt32(), Uplink: reader.readInt32(), Downlink: reader.readInt32(),
					XferStart: reader.readTime(), XferEnd: reader.readTime(), Start: reader.readTime(), End: reader.readTime()})
			}
		}
		out.List = append(out.List, action)
	}
	return reader.finish("actions")
}
