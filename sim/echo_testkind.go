//go:build testkind

package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
)

func init() { newTestInstanceHost = newEchoHost }

// echoHost is the host of instances of the kind echo: every batch on one makes a token per
// millisecond, eight of them if no truth says otherwise.
type echoHost struct {
	*loop
	activeSerials []int64         // by batch slot: the serial of its use; 0 if it is not here
	tokensMade    []int32         // tokens by task, as far as they are kept
	isDown        []bool          // by device
	busyTimes     []time.Duration // by device
}

// Kinds of agenda entries of echoHost.
const (
	echoStartedEntry uint8 = firstHostKind + iota
	echoTokenEntry
	echoReturnedEntry // a batch returns to the policy
)

// newEchoHost returns the host of the kind echo.
func newEchoHost(l *loop) host {
	return &echoHost{loop: l, isDown: make([]bool, len(l.tables.Devices)), busyTimes: make([]time.Duration, len(l.tables.Devices))}
}

// tokensOf returns the counter of the tokens that a batch's only task has, which stays when the batch is evicted.
func (h *echoHost) tokensOf(batchSlot int32) *int32 {
	task := h.batches.members(batchSlot)[0]
	for int(task) >= len(h.tokensMade) {
		h.tokensMade = append(h.tokensMade, 0)
	}
	return &h.tokensMade[task]
}

// batchEntry returns an agenda entry of a batch.
func (h *echoHost) batchEntry(batchSlot int32, kind uint8) agendaEntry {
	return agendaEntry{kind: kind, host: instanceHost, serial: h.batches.at(batchSlot).serial, subject: batchSlot, device: h.batches.hopAt(batchSlot, 0).Device, start: h.agenda.now}
}

// dispatch starts a batch of the test kind at once: it makes one token after another. On a device that is down it
// does nothing. It implements host.
func (h *echoHost) dispatch(batchSlot int32) {
	if h.isDown[h.batches.hopAt(batchSlot, 0).Device] {
		return
	}
	for int(batchSlot) >= len(h.activeSerials) {
		h.activeSerials = append(h.activeSerials, 0)
	}
	h.activeSerials[batchSlot] = h.batches.at(batchSlot).serial
	*h.agenda.startedBatches.Add() = h.batchEntry(batchSlot, echoStartedEntry)
	h.scheduleToken(batchSlot)
}

// scheduleToken schedules the next token of a batch.
func (h *echoHost) scheduleToken(batchSlot int32) {
	h.agenda.scheduleAfter(time.Millisecond, policy.TokenProgress, h.batchEntry(batchSlot, echoTokenEntry))
}

// handleEntry handles an agenda entry of the test kind's host: a batch has started, was evicted, or gets its next
// token. An entry is void if its batch has ended or was aborted. A token is also void if the batch was evicted: the
// batch then still has its serial number, but activeSerials, which has those of the batches on an instance, has 0. It
// implements host.
func (h *echoHost) handleEntry(entry *agendaEntry) {
	batch := h.batches.at(entry.batchSlot())
	switch isCurrent := batch.isLive && batch.serial == entry.serial; {
	case !isCurrent: // the policy has aborted the batch
	case entry.kind == echoStartedEntry:
		h.loop.beginBatchEvent(policy.BatchStarted, entry.batchSlot(), entry.device).Start = entry.start
		h.loop.tellPolicy()
	case entry.kind == echoReturnedEntry:
		h.loop.returnBatchToPolicy(entry.batchSlot(), entry.device, policy.ReturnEvicted, []int32{*h.tokensOf(entry.batchSlot())})
	case h.activeSerials[entry.batchSlot()] == entry.serial: // a token is due; the instance was busy with it
		h.busyTimes[entry.device] += h.agenda.now - entry.start
		h.makeToken(entry.batchSlot(), entry.device)
	}
}

// makeToken gives a batch its next token and tells the policy, at the first and at every ProgressTokens-th one. The
// last token, the 8th unless the run's truth says otherwise, ends the batch.
func (h *echoHost) makeToken(batchSlot, device int32) {
	tokens, maxTokens := h.tokensOf(batchSlot), int32(8)
	if h.loop.truth != nil {
		maxTokens = h.loop.truth.Tokens(h.batches.members(batchSlot)[0])
	}
	*tokens++
	if *tokens >= maxTokens {
		*tokens, h.activeSerials[batchSlot], h.batches.at(batchSlot).isLive = 0, 0, false
		h.loop.ending.batchRan(batchSlot, device)
		h.loop.beginBatchEvent(policy.BatchFinished, batchSlot, device).End = h.agenda.now
		h.loop.tellPolicy()
		return
	}
	h.scheduleToken(batchSlot)
	if *tokens == 1 || *tokens%h.loop.tables.Instances[h.loop.tables.InstanceOf(device)].ProgressTokens == 0 {
		h.loop.beginBatchEvent(policy.TokenProgress, batchSlot, device).Tokens = *tokens
		h.loop.tellPolicy()
	}
}

// abort takes a batch that the policy aborts off its instance. The tokens of its only task are lost. It implements host.
func (h *echoHost) abort(batchSlot int32) {
	if int(batchSlot) < len(h.activeSerials) {
		h.activeSerials[batchSlot] = 0
	}
	*h.tokensOf(batchSlot) = 0
}

// evict takes a batch off its instance, as the policy orders, and returns it at once. Without keepTokens its tokens
// are lost. It implements host.
func (h *echoHost) evict(batchSlot int32, keepTokens bool) {
	h.activeSerials[batchSlot] = 0
	if !keepTokens {
		*h.tokensOf(batchSlot) = 0
	}
	h.agenda.schedule(h.agenda.now, policy.BatchReturned, h.batches.at(batchSlot).serial, h.batchEntry(batchSlot, echoReturnedEntry))
}

// handleOrder ends the run with an error, because these instances load no networks. It implements host.
func (h *echoHost) handleOrder(o networkOrder) {
	h.loop.failRun(fmt.Errorf("network %d: instances load none", o.network))
}

// bringInputs passes the task on to the host of devices. It implements host.
func (h *echoHost) bringInputs(task, device int32) { h.loop.hosts[0].bringInputs(task, device) }

// setDeviceUp loses an instance of the test kind or brings it back, and tells the policy, which takes back the
// batches of a lost one. It implements host.
func (h *echoHost) setDeviceUp(device int32, up bool) {
	if h.isDown[device] != up {
		return
	}
	h.isDown[device] = !up
	instance, kind := &h.loop.tables.Instances[h.loop.tables.InstanceOf(device)], policy.WorkerBack
	if !up {
		kind = policy.WorkerLost
	}
	ev := h.loop.beginEvent(kind)
	ev.Device, ev.Value, ev.Limit = device, int64(instance.MaxSequences), int32(instance.KVTokens)
	h.loop.tellPolicy()
}

// busyTime returns how long a device made tokens. It implements host.
func (h *echoHost) busyTime(device int32) time.Duration { return h.busyTimes[device] }

// checkIdle returns an error if a batch still makes tokens at the end of a run. It implements host.
func (h *echoHost) checkIdle() error {
	for batchSlot, serial := range h.activeSerials {
		if serial != 0 {
			return fmt.Errorf("batch slot %d still speaks when nothing is left to happen", batchSlot)
		}
	}
	return nil
}
