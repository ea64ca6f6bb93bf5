package conform

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"inferplan/policy"
)

const (
	// Headers of the versions, both of the same length. New logs have version 2.
	headerV1 = "inferplan.eventlog/v1\n"
	header   = "inferplan.eventlog/v2\n"
)

// maxRecord is the largest record, in bytes, that is read.
const maxRecord = 1 << 26

// Recorder is a policy that records the calls of another.
type Recorder struct {
	recorded policy.Policy
	w        *bufio.Writer
	event    []byte
	actions  []byte
	length   [binary.MaxVarintLen64]byte
	calls    int64
	err      error // first error of writing the log
}

// NewRecorder returns a recorder of a policy and starts a log. Close it when the run is over.
func NewRecorder(p policy.Policy, w io.Writer) *Recorder {
	recorder := &Recorder{recorded: p, w: bufio.NewWriterSize(w, 1<<16)}
	_, recorder.err = recorder.w.WriteString(header)
	return recorder
}

// Unwrap returns the recorded policy, for its extensions (policy.FindExtension).
func (r *Recorder) Unwrap() policy.Policy { return r.recorded }

// Handle lets the recorded policy decide and writes the call, the event with the actions, to the log. A write error
// is kept for Close and does not disturb the policy.
func (r *Recorder) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	firstAction := len(out.List)
	r.event = policy.AppendEvent(r.event[:0], now, ev)
	r.recorded.Handle(now, ev, out)
	r.actions = policy.AppendActions(r.actions[:0], out, firstAction)
	r.writeRecord(r.event)
	r.writeRecord(r.actions)
	r.calls++
}

// writeRecord writes a record with its length, unless an earlier write failed.
func (r *Recorder) writeRecord(record []byte) {
	if r.err != nil {
		return
	}
	lengthBytes := binary.PutUvarint(r.length[:], uint64(len(record)))
	if _, r.err = r.w.Write(r.length[:lengthBytes]); r.err == nil {
		_, r.err = r.w.Write(record)
	}
}

// Close flushes the log and returns the first error of writing it. It does not close the writer below.
func (r *Recorder) Close() error {
	if r.err == nil {
		r.err = r.w.Flush()
	}
	if r.err != nil {
		return fmt.Errorf("writing the event log: %w", r.err)
	}
	return nil
}

// LogReader reads the calls of a log.
type LogReader struct {
	r         *bufio.Reader
	calls     int64          // number of calls read
	isV1      bool           // the log has version 1
	buffers   [2][]byte      // an event's and its actions' record
	actionsV1 policy.Actions // decoded actions of a call of version 1
	converted []byte         // the same, encoded as in version 2
}

// Call is one call of a policy. Its slices are valid until the next call is read.
type Call struct {
	Time    time.Duration
	Event   policy.Event
	Actions []byte // in the form of policy.AppendActions
}

// OpenLog starts to read an event log of version 1 or 2, which its header names. Anything else is an error.
func OpenLog(source io.Reader) (*LogReader, error) {
	log := &LogReader{r: bufio.NewReaderSize(source, 1<<16)}
	start := make([]byte, len(header))
	if _, err := io.ReadFull(log.r, start); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the event log: %w", err)
	}
	log.isV1 = string(start) == headerV1
	if !log.isV1 && string(start) != header {
		return nil, fmt.Errorf("reading the event log: it starts with %q, expected %q", start, header)
	}
	return log, nil
}

// Next returns the next call of the log: an event with its time, and the actions that the policy answered with. At
// the end of the log it returns io.EOF.
func (l *LogReader) Next() (Call, error) {
	var call Call
	event, err := l.readRecord(0)
	if errors.Is(err, io.EOF) {
		return call, io.EOF
	}
	if err == nil {
		call.Time, call.Event, err = l.decodeEvent(event)
	}
	if err == nil {
		call.Actions, err = l.readActions()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the log must not end between an event and its actions
		}
	}
	if err != nil {
		return call, fmt.Errorf("reading the event log: call %d: %w", l.calls, err)
	}
	l.calls++
	return call, nil
}

// decodeEvent decodes the record of an event by the log's version.
func (l *LogReader) decodeEvent(record []byte) (time.Duration, policy.Event, error) {
	if l.isV1 {
		return policy.DecodeEventV1(record)
	}
	return policy.DecodeEvent(record)
}

// readActions returns the record of a call's actions. Those of version 1 are encoded anew as in version 2.
func (l *LogReader) readActions() ([]byte, error) {
	record, err := l.readRecord(1)
	if err != nil || !l.isV1 {
		return record, err
	}
	if err := policy.DecodeActionsV1(record, &l.actionsV1); err != nil {
		return nil, err
	}
	l.converted = policy.AppendActions(l.converted[:0], &l.actionsV1, 0)
	return l.converted, nil
}

// readRecord reads the next record of the log, its length and then its bytes, into a buffer (an index in l.buffers): 0 for
// the event of a call, 1 for its actions. The next call with the same buffer overwrites the bytes. A length above maxRecord means a damaged log.
func (l *LogReader) readRecord(buffer int) ([]byte, error) {
	length, err := binary.ReadUvarint(l.r)
	if err != nil {
		return nil, err
	}
	if length > maxRecord {
		return nil, fmt.Errorf("a record of %d bytes, expected at most %d", length, maxRecord)
	}
	if uint64(cap(l.buffers[buffer])) < length {
		l.buffers[buffer] = make([]byte, length)
	}
	record := l.buffers[buffer][:length]
	if _, err := io.ReadFull(l.r, record); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return record, nil
}

// Difference is the first call at which a policy answered differently from the log. It is an error.
type Difference struct {
	Call                  int64 // counted from 0
	Time                  time.Duration
	Event                 policy.Event
	Logged, PolicyActions policy.Actions // actions in the log, and those of the policy
}

// Error returns the call and both answers as text.
func (d *Difference) Error() string {
	return fmt.Sprintf("call %d at %v: event %+v: the log has actions %+v, the policy gives %+v", d.Call, d.Time, d.Event, d.Logged, d.PolicyActions)
}

// Replay feeds the events of a log to a fresh policy and compares its actions with the log's, byte by byte. It
// returns the number of calls that agree, and a *Difference for the first one that does not.
func Replay(r io.Reader, p policy.Policy) (int64, error) { return ReplayAny(r, p) }

// ReplayAny is Replay for several fresh policies, one of which may be the log's. It returns the number of calls up to
// which one of them gives the log's actions, and if none gives them to the end, the difference at that call.
func ReplayAny(source io.Reader, policies ...policy.Policy) (int64, error) {
	log, err := OpenLog(source)
	if err != nil {
		return 0, err
	}
	policies = slices.Clone(policies)
	for {
		call, err := log.Next()
		if errors.Is(err, io.EOF) {
			return log.calls, nil
		}
		if err != nil {
			return log.calls, err
		}

		// Refuse slots for which a policy would need far too much memory.
		if slot := max(call.Event.Req, call.Event.Task, call.Event.Batch); int64(slot) > log.calls+maxSlotGap {
			return log.calls - 1, fmt.Errorf("reading the event log: call %d: the slot %d, expected one of so few calls", log.calls-1, slot)
		}

		// Drop the policies that differ at this call.
		var firstError error // error of the first policy that differs at this call
		policies = slices.DeleteFunc(policies, func(p policy.Policy) bool {
			err := replayCall(log.calls-1, &call, p)
			firstError = cmp.Or(firstError, err)
			return err != nil
		})
		if len(policies) == 0 {
			return log.calls - 1, firstError
		}
	}
}

// maxSlotGap is how far a slot may exceed the number of calls so far: a policy makes room for the highest slot.
const maxSlotGap = 1 << 24

// replayCall makes a call of a log, by its number, and compares the actions of the policy with those of the log. If they
// differ, it returns a *Difference. If the policy panics, it was given an event that cannot have happened, and an error
// says that the log is damaged, or belongs to another plan.
func replayCall(number int64, call *Call, p policy.Policy) (err error) {
	defer func() {
		if panicValue := recover(); panicValue != nil {
			err = fmt.Errorf("call %d at %v: the policy cannot take the event %+v (%v): the log is damaged, or of another plan", number, call.Time, call.Event, panicValue)
		}
	}()
	var actions policy.Actions
	p.Handle(call.Time, &call.Event, &actions)
	if bytes.Equal(policy.AppendActions(nil, &actions, 0), call.Actions) {
		return nil
	}
	difference := &Difference{Call: number, Time: call.Time, Event: call.Event, PolicyActions: actions}
	if err := policy.DecodeActions(call.Actions, &difference.Logged); err != nil {
		return fmt.Errorf("reading the event log: call %d: %w", number, err)
	}
	return difference
}
