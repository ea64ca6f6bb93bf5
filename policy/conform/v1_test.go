package conform_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"inferplan/policy"
)

// This file is a second, private codec for event logs in their first form. It does
// not use the one of package policy on purpose: the logs below testdata/guards say
// what policies did when they were recorded, and must keep saying so, byte for byte,
// after events, actions and the public form of logs have changed.
//
// The first part maps what the first form knows to today's events and actions. It is
// all that may change with them. The second part is the form, and stays.

// The kinds and reasons of the first form, in its order.
var (
	v1Events = []policy.EventKind{
		policy.BatchFinished, policy.TransferFinished, policy.BatchStarted, policy.NetworkLoaded, policy.NetworkUnloaded,
		policy.WorkerLost, policy.WorkerBack, policy.ControlRevealed, policy.TokenProgress, policy.PlanInstalled,
		policy.ReplanResult, policy.Arrival, policy.Cancel, policy.Timer,
	}
	v1Actions = []policy.ActionKind{
		policy.Dispatch, policy.Drop, policy.Wake, policy.Abort, policy.Load, policy.Unload, policy.Evict,
		policy.SwitchMode, policy.Replan, policy.Complete,
	}
	v1Reasons = []policy.DropReason{
		policy.ReasonNone, policy.ReasonDeadline, policy.ReasonQueueFull, policy.ReasonWorkerLost, policy.ReasonCancelled,
		policy.ReasonDraining, policy.ReasonFailed,
	}
)

// today makes the event that a policy is told.
func (e *v1Event) today() policy.Event {
	return policy.Event{
		Kind: v1Events[e.kind], Hop: int16(e.hop), Model: int32(e.model), Service: int32(e.model), Req: int32(e.req), Task: int32(e.req), Batch: int32(e.batch), Device: int32(e.device),
		Value: e.value, ArrivedAt: time.Duration(e.arrived), Deadline: time.Duration(e.deadline), Start: time.Duration(e.start), End: time.Duration(e.end),
	}
}

// v1EventOf makes of an event what the first form keeps of it.
func v1EventOf(now time.Duration, ev *policy.Event) v1Event {
	return v1Event{
		kind: v1Number(v1Events, ev.Kind), now: int64(now), hop: int64(ev.Hop), model: int64(ev.Model), req: int64(ev.Req),
		batch: int64(ev.Batch), device: int64(ev.Device), value: ev.Value,
		arrived: int64(ev.ArrivedAt), deadline: int64(ev.Deadline), start: int64(ev.Start), end: int64(ev.End),
	}
}

// v1ActionOf makes of the i-th action what the first form keeps of it.
func v1ActionOf(out *policy.Actions, i int) v1Action {
	act := &out.List[i]
	a := v1Action{
		kind: v1Number(v1Actions, act.Kind), reason: v1Number(v1Reasons, act.Reason), hopCount: int64(act.HopCount),
		pipeline: int64(act.Pipeline), model: int64(act.Model), req: int64(act.Req), batch: int64(act.Batch),
		size: int64(act.Size), device: int64(act.Device), tag: int64(act.Tag), at: int64(act.At),
	}
	if act.Kind != policy.Dispatch {
		return a
	}
	reqs, hops := out.BatchOf(act)
	for _, r := range reqs {
		a.reqs = append(a.reqs, int64(r))
	}
	for _, h := range hops {
		a.hops = append(a.hops, v1Hop{
			int64(h.Stage), int64(h.Device), int64(h.Uplink), int64(h.Downlink),
			int64(h.XferStart), int64(h.XferEnd), int64(h.Start), int64(h.End),
		})
	}
	return a
}

// v1Number is a kind's number in the first form. What came later has none there, and
// no policy of these logs may use it.
func v1Number[K comparable](list []K, kind K) byte {
	n := slices.Index(list, kind)
	if n < 0 {
		panic(fmt.Sprintf("%T %v: not in the first form of event logs", kind, kind))
	}
	return byte(n)
}

// What follows is the first form itself.

const v1Header = "inferplan.eventlog/v1\n"

type v1Event struct {
	kind                                 byte
	now, hop, model, req, batch, device  int64
	value, arrived, deadline, start, end int64
}

type v1Hop [8]int64 // stage, device, uplink, downlink, transfer's start and end, start, end

type v1Action struct {
	kind, reason                                byte
	hopCount, pipeline, model, req, batch, size int64
	device, tag, at                             int64
	reqs                                        []int64
	hops                                        []v1Hop
}

func (e *v1Event) append(dst []byte) []byte {
	dst = append(dst, e.kind)
	for _, v := range []int64{e.now, e.hop, e.model, e.req, e.batch, e.device, e.value, e.arrived, e.deadline, e.start, e.end} {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

func (a *v1Action) append(dst []byte) []byte {
	dst = append(dst, a.kind, a.reason)
	for _, v := range []int64{a.hopCount, a.pipeline, a.model, a.req, a.batch, a.size, a.device, a.tag, a.at} {
		dst = binary.AppendVarint(dst, v)
	}
	for _, r := range a.reqs {
		dst = binary.AppendVarint(dst, r)
	}
	for _, h := range a.hops {
		for _, v := range h {
			dst = binary.AppendVarint(dst, v)
		}
	}
	return dst
}

// appendV1 appends the actions of a buffer from the first-th on.
func appendV1(dst []byte, out *policy.Actions, first int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(out.List)-first))
	for i := first; i < len(out.List); i++ {
		a := v1ActionOf(out, i)
		dst = a.append(dst)
	}
	return dst
}

func decodeV1(b []byte) (v1Event, error) {
	if len(b) == 0 || int(b[0]) >= len(v1Events) {
		return v1Event{}, fmt.Errorf("no event: % x", b)
	}
	e := v1Event{kind: b[0]}
	b = b[1:]
	for _, v := range []*int64{&e.now, &e.hop, &e.model, &e.req, &e.batch, &e.device, &e.value, &e.arrived, &e.deadline, &e.start, &e.end} {
		x, n := binary.Varint(b)
		if n <= 0 {
			return v1Event{}, io.ErrUnexpectedEOF
		}
		*v, b = x, b[n:]
	}
	if len(b) > 0 {
		return v1Event{}, fmt.Errorf("%d bytes behind an event", len(b))
	}
	return e, nil
}

// v1Record reads the next record of a log; io.EOF where it ends.
func v1Record(r *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

// v1Recorder is a policy that records another in the first form. It does not pass
// on what else the policy offers.
type v1Recorder struct {
	policy.Policy
	w     io.Writer
	calls int64
}

func (r *v1Recorder) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	first := len(out.List)
	e := v1EventOf(now, ev)
	r.Policy.Handle(now, ev, out)
	for _, b := range [][]byte{e.append(nil), appendV1(nil, out, first)} {
		r.w.Write(binary.AppendUvarint(nil, uint64(len(b))))
		r.w.Write(b)
	}
	r.calls++
}
