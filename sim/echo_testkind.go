//go:build testkind

package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
)

func init() { instanceHost = newEchoes }

// echoHost is the host of instances of the kind echo: every batch on one makes a token per
// millisecond, eight of them if no truth says otherwise.
type echoes struct {
	*loop
	speaking []int64         // by batch slot: the serial of its use; 0 if it is not here
	made     []int32         // tokens by task, as far as they are kept
	down     []bool          // by device
	ran      []time.Duration // by device
}

// Kinds of agenda entries of echoHost.
const (
	isEchoBegun uint8 = ofHost + iota
	isEchoToken
	isEchoSent // a batch returns to the policy
)

// newEchoHost returns the host of the kind echo.
func newEchoes(l *loop) host {
	return &echoes{loop: l, down: make([]bool, len(l.t.Devices)), ran: make([]time.Duration, len(l.t.Devices))}
}

// tokensOf returns the token counter of a batch's task.
func (h *echoes) tokensOf(slot int32) *int32 {
	t := h.members(slot)[0]
	for int(t) >= len(h.made) {
		h.made = append(h.made, 0)
	}
	return &h.made[t]
}

// batchEntry returns an agenda entry of a batch.
func (h *echoes) entry(slot int32, what uint8) item {
	return item{what: what, host: 1, serial: h.batches[slot].serial, batch: slot, device: h.hop(slot, 0).Device, start: h.now}
}

// dispatch implements host.
func (h *echoes) dispatch(slot int32) {
	if h.down[h.hop(slot, 0).Device] {
		return
	}
	for int(slot) >= len(h.speaking) {
		h.speaking = append(h.speaking, 0)
	}
	h.speaking[slot] = h.batches[slot].serial
	h.begun.push(h.entry(slot, isEchoBegun))
	h.next(slot)
}

// scheduleToken schedules the next token of a batch.
func (h *echoes) next(slot int32) {
	h.at(h.now+time.Millisecond, policy.TokenProgress, h.sequence(), h.entry(slot, isEchoToken))
}

// handleEntry implements host. An entry of an ended batch is void.
func (h *echoes) due(it *item) {
	b := &h.batches[it.batch]
	switch here := b.live && b.serial == it.serial; {
	case !here:
	case it.what == isEchoBegun:
		h.beginBatch(policy.BatchStarted, it.batch, it.device).Start = it.start
		h.tell()
	case it.what == isEchoSent:
		h.returned(it.batch, it.device, policy.ReturnEvicted, []int32{*h.tokensOf(it.batch)})
	case h.speaking[it.batch] == it.serial:
		h.ran[it.device] += h.now - it.start
		h.token(it.batch, it.device)
	}
}

// makeToken gives a batch its next token. The last one ends the batch.
func (h *echoes) token(slot, device int32) {
	n, most := h.tokensOf(slot), int32(8)
	if h.truth != nil {
		most = h.truth.Tokens(h.members(slot)[0])
	}
	*n++
	if *n >= most {
		*n, h.speaking[slot], h.batches[slot].live = 0, 0, false
		h.ending.ran(slot, device)
		h.beginBatch(policy.BatchFinished, slot, device).End = h.now
		h.tell()
		return
	}
	h.next(slot)
	if *n == 1 || *n%h.t.Instances[h.t.InstanceOf(device)].Progress == 0 {
		h.beginBatch(policy.TokenProgress, slot, device).Tokens = *n
		h.tell()
	}
}

// abort implements host. The tokens of the task are lost.
func (h *echoes) abort(slot int32) {
	if int(slot) < len(h.speaking) {
		h.speaking[slot] = 0
	}
	*h.tokensOf(slot) = 0
}

// evict implements host.
func (h *echoes) evict(slot int32, keep bool) {
	if h.speaking[slot] = 0; !keep {
		*h.tokensOf(slot) = 0
	}
	h.at(h.now, policy.BatchReturned, h.batches[slot].serial, h.entry(slot, isEchoSent))
}

func (h *echoes) load(o order) { h.fail(fmt.Errorf("network %d: instances load none", o.network)) }

func (h *echoes) place(task, device int32) { h.hosts[0].place(task, device) }

// setDeviceUp implements host. The policy takes back the batches of a failed device.
func (h *echoes) fault(device int32, back bool) {
	if h.down[device] != back {
		return
	}
	h.down[device] = !back
	in, kind := &h.t.Instances[h.t.InstanceOf(device)], policy.WorkerBack
	if !back {
		kind = policy.WorkerLost
	}
	ev := h.begin(kind)
	ev.Device, ev.Value, ev.Limit = device, int64(in.Sequences), int32(in.KV)
	h.tell()
}

func (h *echoes) running(device int32) time.Duration { return h.ran[device] }

// checkIdle implements host.
func (h *echoes) finish() error {
	for slot, serial := range h.speaking {
		if serial != 0 {
			return fmt.Errorf("batch slot %d still speaks when nothing is left to happen", slot)
		}
	}
	return nil
}
