package policytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/policy"
)

// Adversary is an interpreter that keeps the contract of package policy and is
// otherwise as unkind as a real machine may be: runs and transfers take any
// time, news and wakes come late, clients go away, requests come with deadlines
// that have passed, devices are lost with what they hold and come back, stages
// fail, the clock jumps ahead, slots are used again at once. It holds what the
// policy does against the contract.
type Adversary struct {
	Tables *policy.Tables
	Policy policy.Policy
	Rand   *rand.Rand
	// Check is called after every event; nil: nothing more is checked.
	Check func() error
	// Levels is how many levels answers may have: each is revealed at the end of
	// its batch, and the policy completes requests. 0: the end of a batch answers.
	Levels int
	// Modes is how many modes the policy may switch between.
	Modes int32

	// What became of the requests.
	Requests, Answered, Dropped int

	now      time.Duration
	requests []foeRequest
	free     []int32
	batches  []*foeBatch // by the policy's slot
	devices  []foeDevice
	crossing []*foeBatch
	wakes    map[int32]time.Duration
	gone     []int32 // requests whose clients went while they were in a batch
	out      policy.Actions
	reveals  *foeBatch
	err      error
}

type foeRequest struct {
	known    bool
	left     bool // nobody waits for it
	revealed bool // of a gear plan: it has an answer
	model    int32
	batch    int32 // -1: it waits
}

type foeBatch struct {
	slot, model, pipeline int32
	reqs                  []int32
	hops                  []policy.Hop
	hop                   int
	live, failed          bool
}

type foeDevice struct {
	down    bool
	queue   []*foeBatch // the first runs
	started bool
	since   time.Duration
}

// Run lets so many things happen, then lets everything end.
func (a *Adversary) Run(steps int) error {
	a.devices = make([]foeDevice, len(a.Tables.Devices))
	a.wakes = map[int32]time.Duration{}
	a.tell(policy.Event{Kind: policy.PlanInstalled})
	for range steps {
		a.step()
		if a.err != nil {
			return a.err
		}
	}
	for n := 0; a.end(); n++ {
		if a.err != nil {
			return a.err
		}
		if n > 100*steps+100_000 {
			return fmt.Errorf("after %d further events %d requests are still open at %v, and no end in sight", n, len(a.requests)-len(a.free), a.now)
		}
	}
	if a.err != nil {
		return a.err
	}
	if open := len(a.requests) - len(a.free); open > 0 || a.Requests != a.Answered+a.Dropped {
		return fmt.Errorf("%d requests: %d answered, %d dropped, %d open when nothing is left to happen", a.Requests, a.Answered, a.Dropped, open)
	}
	return nil
}

// draw gives a number from lo to hi.
func (a *Adversary) draw(lo, hi int) int { return lo + a.Rand.IntN(hi-lo+1) }

func (a *Adversary) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("at %v: %w", a.now, fmt.Errorf(format, args...))
	}
}

// step lets one thing happen.
func (a *Adversary) step() {
	switch k := a.draw(0, 19); {
	case k < 6:
		a.arrive()
	case k < 10:
		a.run(int32(a.draw(0, len(a.devices)-1)))
	case k < 12:
		a.cross(a.draw(0, 3))
	case k < 14:
		a.wake()
	case k == 14:
		a.leave()
	case k == 15:
		switch d := int32(a.draw(0, len(a.devices)-1)); {
		case a.devices[d].down:
			a.devices[d].down = false
			a.tell(policy.Event{Kind: policy.WorkerBack, Device: d})
		case a.draw(0, 3) == 0:
			a.lose(d)
		}
	case k == 16:
		if d := &a.devices[a.draw(0, len(a.devices)-1)]; a.draw(0, 3) == 0 && len(d.queue) > 0 {
			a.spoil(d.queue[len(d.queue)-1])
		}
	case k == 17 && a.draw(0, 9) == 0:
		a.now += time.Duration(a.draw(0, 20)) * time.Second
	default:
		a.now += time.Duration(a.draw(0, 9000)) * time.Microsecond
	}
	a.settleGone()
	a.start()
}

// end lets what is under way go on; false when nothing is.
func (a *Adversary) end() bool {
	a.settleGone()
	a.start()
	a.now += time.Duration(a.draw(0, 3000)) * time.Microsecond
	if len(a.crossing) > 0 {
		a.cross(0)
		return true
	}
	busy := false
	for d := range a.devices {
		if len(a.devices[d].queue) > 0 {
			a.run(int32(d))
			busy = true
		}
	}
	if busy {
		return true
	}
	if len(a.wakes) == 0 || len(a.requests) == len(a.free) && !a.due() {
		return false
	}
	next := time.Duration(1<<63 - 1)
	for _, at := range a.wakes {
		next = min(next, at)
	}
	a.now = max(a.now, next)
	a.wake()
	return true
}

func (a *Adversary) due() bool {
	for _, at := range a.wakes {
		if at <= a.now {
			return true
		}
	}
	return false
}

func (a *Adversary) tell(ev policy.Event) {
	if a.err != nil {
		return
	}
	a.out.Reset()
	a.Policy.Handle(a.now, &ev, &a.out)
	for i := range a.out.List {
		a.act(&ev, &a.out.List[i])
	}
	if a.Check != nil && a.err == nil {
		if err := a.Check(); err != nil {
			a.fail("after %+v: %w", ev, err)
		}
	}
}

func (a *Adversary) arrive() {
	m := int32(a.draw(0, len(a.Tables.Models)-1))
	for range a.draw(1, 5) {
		slot := int32(len(a.requests))
		if n := len(a.free); n > 0 {
			slot = a.free[n-1]
			a.free = a.free[:n-1]
		} else {
			a.requests = append(a.requests, foeRequest{})
		}
		a.requests[slot] = foeRequest{known: true, model: m, batch: -1}
		a.Requests++
		came := max(0, a.now-time.Duration(a.draw(0, 5))*time.Millisecond)
		budget := a.Tables.Models[m].SLO
		if a.draw(0, 9) == 0 { // the client's own, which may be over already
			budget = min(budget, time.Duration(a.draw(0, 30))*time.Millisecond)
		}
		a.tell(policy.Event{Kind: policy.Arrival, Model: m, Req: slot, Arrived: came, Deadline: came + budget})
	}
}

// start starts what is first on devices that do nothing: work is never held back.
func (a *Adversary) start() {
	for d := 0; d < len(a.devices); d++ {
		dev := &a.devices[d]
		if dev.started {
			continue
		}
		for len(dev.queue) > 0 && !dev.queue[0].live { // aborted before its turn
			dev.queue = dev.queue[1:]
		}
		if len(dev.queue) == 0 {
			continue
		}
		b := dev.queue[0]
		dev.started, dev.since = true, a.now
		a.tell(policy.Event{Kind: policy.BatchStarted, Hop: int16(b.hop), Model: b.model, Batch: b.slot, Device: int32(d), Start: a.now})
		d = -1 // the policy may have sent something anywhere
	}
}

// run ends what runs on a device; what was aborted meanwhile ends untold.
func (a *Adversary) run(d int32) {
	dev := &a.devices[d]
	if !dev.started {
		return
	}
	b := dev.queue[0]
	dev.queue, dev.started = dev.queue[1:], false
	end := a.now
	if late := int(min(end-dev.since, 5*time.Millisecond) / time.Microsecond); late > 0 {
		end -= time.Duration(a.draw(0, late)) * time.Microsecond
	}
	if b.live {
		a.finish(b, d, dev.since, end)
	}
}

// finish tells that a batch has left a device.
func (a *Adversary) finish(b *foeBatch, d int32, start, end time.Duration) {
	ev := policy.Event{Kind: policy.BatchFinished, Hop: int16(b.hop), Model: b.model, Batch: b.slot, Device: d, Start: start, End: end}
	if b.hop+1 < len(b.hops) {
		b.hop++
		a.crossing = append(a.crossing, b)
		a.tell(ev)
		return
	}
	a.batches[b.slot], b.live = nil, false
	if a.Levels == 0 {
		a.tell(ev)
		for _, r := range b.reqs {
			a.Answered++
			a.settle(r)
		}
		return
	}
	a.reveals = b
	for _, r := range b.reqs {
		a.requests[r].batch = -1
	}
	for _, r := range b.reqs {
		if q := &a.requests[r]; b.failed || q.left {
			q.left = true
			a.tell(policy.Event{Kind: policy.Cancel, Model: b.model, Req: r})
		}
		a.requests[r].revealed = true
		a.tell(policy.Event{Kind: policy.ControlRevealed, Model: b.model, Req: r, Batch: b.slot, Device: d, Task: r, Value: int64(a.draw(0, a.Levels-1))})
		if q := &a.requests[r]; q.known && q.left && a.err == nil {
			a.fail("request slot %d was cancelled before its answer was revealed and is still with the policy", r)
		}
	}
	a.reveals = nil
	a.tell(ev)
}

// cross ends the i-th transfer under way, or one that is before it on a link.
func (a *Adversary) cross(i int) {
	if len(a.crossing) == 0 {
		return
	}
	i %= len(a.crossing)
	for k := 0; k < i; k++ {
		p, q := &a.crossing[k].hops[a.crossing[k].hop], &a.crossing[i].hops[a.crossing[i].hop]
		if p.Uplink >= 0 && p.Uplink == q.Uplink || p.Downlink >= 0 && p.Downlink == q.Downlink {
			i, k = k, -1
		}
	}
	b := a.crossing[i]
	a.crossing = slices.Delete(a.crossing, i, i+1)
	if !b.live {
		return
	}
	h := &b.hops[b.hop]
	a.tell(policy.Event{Kind: policy.TransferFinished, Hop: int16(b.hop), Model: b.model, Batch: b.slot, Device: h.Device, Start: a.now, End: a.now})
	switch {
	case !b.live:
	case b.failed:
		a.finish(b, h.Device, a.now, a.now)
	default:
		a.queue(b)
	}
}

func (a *Adversary) queue(b *foeBatch) {
	d := b.hops[b.hop].Device
	a.devices[d].queue = append(a.devices[d].queue, b)
}

// wake sends a wake that is due.
func (a *Adversary) wake() {
	first, at := int32(-1), a.now+1
	for tag, due := range a.wakes {
		if due < at || due == at && tag < first {
			first, at = tag, due
		}
	}
	if first < 0 {
		return
	}
	delete(a.wakes, first)
	a.tell(policy.Event{Kind: policy.Timer, Value: int64(first)})
}

// leave takes a client away.
func (a *Adversary) leave() {
	if len(a.requests) == 0 {
		return
	}
	slot := int32(a.draw(0, len(a.requests)-1))
	if q := &a.requests[slot]; q.known && !q.left {
		q.left = true
		a.gone = append(a.gone, slot)
	}
}

// settleGone tells of clients that are gone and whose requests wait.
func (a *Adversary) settleGone() {
	for len(a.gone) > 0 {
		slot := a.gone[0]
		a.gone = a.gone[1:]
		if q := &a.requests[slot]; q.known && q.left && q.batch < 0 {
			a.tell(policy.Event{Kind: policy.Cancel, Model: q.model, Req: slot})
			if q = &a.requests[slot]; q.known && q.left && q.batch < 0 && a.err == nil {
				a.fail("request slot %d was cancelled and still waits", slot)
			}
		}
	}
}

// lose takes a device and what it holds.
func (a *Adversary) lose(d int32) {
	dev := &a.devices[d]
	held := dev.queue
	*dev = foeDevice{down: true}
	a.tell(policy.Event{Kind: policy.WorkerLost, Device: d})
	for _, b := range held {
		if b.live {
			a.fail("batch slot %d was on device %d, which is lost, and was not aborted", b.slot, d)
		}
	}
}

// spoil is a stage that fails: the policy hears that the rest of the batch's way
// took no time.
func (a *Adversary) spoil(b *foeBatch) {
	if !b.live || b.failed {
		return
	}
	b.failed = true
	d := b.hops[b.hop].Device
	dev := &a.devices[d]
	i := slices.Index(dev.queue, b)
	if i == 0 {
		dev.started = false
	}
	dev.queue = slices.Delete(dev.queue, i, i+1)
	a.finish(b, d, a.now, a.now)
}

func (a *Adversary) settle(slot int32) {
	a.requests[slot] = foeRequest{batch: -1}
	a.free = append(a.free, slot)
}

func (a *Adversary) act(ev *policy.Event, act *policy.Action) {
	switch act.Kind {
	case policy.Dispatch:
		a.dispatch(act)
	case policy.Drop, policy.Complete:
		if act.Req < 0 || int(act.Req) >= len(a.requests) || !a.requests[act.Req].known {
			a.fail("on %+v the policy ends request slot %d, which it does not have", *ev, act.Req)
			return
		}
		q := &a.requests[act.Req]
		switch {
		case q.batch >= 0:
			a.fail("on %+v the policy ends request slot %d, which is in batch %d", *ev, act.Req, q.batch)
		case act.Kind == policy.Complete && !q.revealed:
			a.fail("on %+v the policy completes request slot %d, which has no answer", *ev, act.Req)
		case act.Kind == policy.Complete:
			a.Answered++
		case act.Reason == policy.ReasonNone || act.Reason.String() == "unknown":
			a.fail("on %+v the policy drops request slot %d without a reason", *ev, act.Req)
		default:
			a.Dropped++
		}
		a.settle(act.Req)
	case policy.Wake:
		if act.At < 0 {
			delete(a.wakes, act.Tag)
		} else {
			a.wakes[act.Tag] = max(act.At, a.now+100*time.Microsecond) // what comes at the very moment comes first
		}
	case policy.Abort:
		b := a.batchAt(act.Batch)
		if b == nil {
			a.fail("on %+v the policy aborts batch slot %d, which is free", *ev, act.Batch)
			return
		}
		b.live, a.batches[b.slot] = false, nil
		for _, r := range b.reqs {
			q := &a.requests[r]
			q.batch = -1
			if q.left {
				a.gone = append(a.gone, r)
			}
		}
	case policy.SwitchMode:
		if act.Tag < 0 || act.Tag >= a.Modes {
			a.fail("on %+v the policy takes mode %d", *ev, act.Tag)
		}
	default:
		a.fail("on %+v the policy asks for action %d", *ev, act.Kind)
	}
}

func (a *Adversary) batchAt(slot int32) *foeBatch {
	if slot < 0 || int(slot) >= len(a.batches) {
		return nil
	}
	return a.batches[slot]
}

func (a *Adversary) dispatch(act *policy.Action) {
	reqs, hops := a.out.Dispatched(act)
	t := a.Tables
	pl := &t.Pipelines[act.Pipeline]
	for int(act.Batch) >= len(a.batches) {
		a.batches = append(a.batches, nil)
	}
	switch {
	case a.batches[act.Batch] != nil:
		a.fail("the policy dispatches batch slot %d, which is under way", act.Batch)
	case a.reveals != nil && a.reveals.slot == act.Batch:
		a.fail("the policy dispatches batch slot %d, whose answers are being revealed", act.Batch)
	case act.Size < 1 || act.Size > pl.Batch || len(reqs) != int(act.Size):
		a.fail("the policy dispatches a batch of %d, expected 1 to %d", act.Size, pl.Batch)
	case pl.Model != act.Model || len(hops) != int(pl.NumStages):
		a.fail("the policy dispatches a batch of model %d along %d hops of pipeline %d", act.Model, len(hops), act.Pipeline)
	}
	if a.err != nil {
		return
	}
	b := &foeBatch{slot: act.Batch, model: act.Model, pipeline: act.Pipeline, reqs: slices.Clone(reqs), hops: slices.Clone(hops), live: true}
	for h := range hops {
		switch hop := &hops[h]; {
		case hop.Stage != pl.FirstStage+int32(h) || !slices.Contains(t.DevicesOf(hop.Stage), hop.Device):
			a.fail("hop %d of pipeline %d goes to device %d of stage %d, which is not on it", h, act.Pipeline, hop.Device, hop.Stage)
		case a.devices[hop.Device].down:
			a.fail("the policy sends a batch to device %d, which is lost", hop.Device)
		}
	}
	for _, r := range reqs {
		q := &a.requests[r]
		// In a cascade all models serve the one model of the plan's requests.
		if !q.known || q.batch >= 0 || q.model != act.Model {
			a.fail("the policy dispatches request slot %d of model %d, which is not a waiting request of it", r, act.Model)
			return
		}
		q.batch = act.Batch
	}
	a.batches[act.Batch] = b
	a.queue(b)
}
