package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// AppendEvent appends an event in the form of event logs: its kind, then every
// field as a signed varint.
func AppendEvent(dst []byte, now time.Duration, ev *Event) []byte {
	dst = append(dst, byte(ev.Kind))
	for _, v := range [...]int64{int64(now), int64(ev.Hop), int64(ev.Model), int64(ev.Req), int64(ev.Batch), int64(ev.Device),
		ev.Value, int64(ev.Arrived), int64(ev.Deadline), int64(ev.Start), int64(ev.End)} {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

// AppendActions appends the actions of a buffer from the first-th on, each with
// its requests and hops: the bytes say what is done and nothing about where in
// the buffer it stood.
func AppendActions(dst []byte, a *Actions, first int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(a.List)-first))
	for i := range a.List[first:] {
		act := &a.List[first+i]
		dst = append(dst, byte(act.Kind), byte(act.Reason))
		for _, v := range [...]int64{int64(act.HopCount), int64(act.Pipeline), int64(act.Model), int64(act.Req), int64(act.Batch),
			int64(act.Size), int64(act.Device), int64(act.Tag), int64(act.At)} {
			dst = binary.AppendVarint(dst, v)
		}
		if act.Kind != Dispatch {
			continue
		}
		reqs, hops := a.Dispatched(act)
		for _, r := range reqs {
			dst = binary.AppendVarint(dst, int64(r))
		}
		for h := range hops {
			hop := &hops[h]
			for _, v := range [...]int64{int64(hop.Stage), int64(hop.Device), int64(hop.Uplink), int64(hop.Downlink),
				int64(hop.XferStart), int64(hop.XferEnd), int64(hop.Start), int64(hop.End)} {
				dst = binary.AppendVarint(dst, v)
			}
		}
	}
	return dst
}

var errShort = errors.New("ends within a record")

// fields reads varints off a record.
type fields struct {
	b   []byte
	err error
}

func (f *fields) byte() byte {
	if len(f.b) == 0 {
		f.err = errShort
		return 0
	}
	c := f.b[0]
	f.b = f.b[1:]
	return c
}

func (f *fields) int() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.err, f.b = errShort, nil
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) int32() int32 {
	v := f.int()
	if v != int64(int32(v)) && f.err == nil {
		f.err = fmt.Errorf("the number %d where an index was expected", v)
	}
	return int32(v)
}

func (f *fields) int16() int16 {
	v := f.int()
	if v != int64(int16(v)) && f.err == nil {
		f.err = fmt.Errorf("the number %d where a hop was expected", v)
	}
	return int16(v)
}

func (f *fields) time() time.Duration { return time.Duration(f.int()) }

// DecodeEvent reads what AppendEvent wrote.
func DecodeEvent(b []byte) (now time.Duration, ev Event, err error) {
	f := fields{b: b}
	ev.Kind = EventKind(f.byte())
	now = f.time()
	ev.Hop, ev.Model, ev.Req, ev.Batch, ev.Device = f.int16(), f.int32(), f.int32(), f.int32(), f.int32()
	ev.Value, ev.Arrived, ev.Deadline, ev.Start, ev.End = f.int(), f.time(), f.time(), f.time(), f.time()
	switch {
	case f.err != nil:
		err = fmt.Errorf("decoding an event: %w", f.err)
	case ev.Kind > Timer:
		err = fmt.Errorf("decoding an event: kind %d, expected at most %d", ev.Kind, Timer)
	case len(f.b) > 0:
		err = fmt.Errorf("decoding an event: %d bytes behind it", len(f.b))
	}
	return now, ev, err
}

// DecodeActions reads what AppendActions wrote, into an empty buffer.
func DecodeActions(b []byte, out *Actions) error {
	out.Reset()
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return fmt.Errorf("decoding actions: %w", errShort)
	}
	f := fields{b: b[size:]}
	for ; n > 0 && f.err == nil; n-- {
		act := Action{Kind: ActionKind(f.byte()), Reason: Reason(f.byte())}
		act.HopCount, act.Pipeline, act.Model, act.Req, act.Batch = f.int16(), f.int32(), f.int32(), f.int32(), f.int32()
		act.Size, act.Device, act.Tag, act.At = f.int32(), f.int32(), f.int32(), f.time()
		act.ReqFirst, act.HopFirst = int32(len(out.Reqs)), int32(len(out.Hops))
		if act.Kind == Dispatch {
			if act.Size < 0 || act.HopCount < 0 || int64(act.Size)+int64(act.HopCount) > int64(len(f.b)) {
				return fmt.Errorf("decoding actions: a batch of %d along %d hops in %d bytes", act.Size, act.HopCount, len(f.b))
			}
			for range act.Size {
				out.Reqs = append(out.Reqs, f.int32())
			}
			for range act.HopCount {
				out.Hops = append(out.Hops, Hop{Stage: f.int32(), Device: f.int32(), Uplink: f.int32(), Downlink: f.int32(),
					XferStart: f.time(), XferEnd: f.time(), Start: f.time(), End: f.time()})
			}
		}
		out.List = append(out.List, act)
	}
	switch {
	case f.err != nil:
		return fmt.Errorf("decoding actions: %w", f.err)
	case len(f.b) > 0:
		return fmt.Errorf("decoding actions: %d bytes behind them", len(f.b))
	}
	return nil
}
