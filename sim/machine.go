package sim

import (
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/sim/kernel"
)

// machine is the state of a run: what the cluster does.
type machine struct {
	cfg     *Config
	t       *policy.Tables
	service Service
	clock   Clocked       // the service, where it wants to know the time
	first   time.Duration // arrival of the first request
	acc     *report.Accumulator
	trace   *chromeTrace

	heap    kernel.Queue[item]
	moved   ring // transfers that ended at once
	begun   ring // batches that started now
	crossed transferTimes
	now     time.Duration
	events  int64
	fatal   error

	next     arrivals.Request // pulled, not yet arrived
	due      time.Duration    // when it arrives
	ahead    bool             // whether there is one
	arrivals int64
	serial   int64 // batches dispatched so far
	sampled  int64 // requests that came
	gears    GearResult
	family   *gear.Tables // of a gear plan; nil: of another

	devices  []device
	links    []link
	batches  []batch // by the policy's slots
	requests []request
	free     []int32 // request slots
	timers   []kernel.Handle

	event   policy.Event
	actions policy.Actions

	stride int32 // longest pipeline
	most   int32 // largest batch
	hops   []policy.Hop
	reqs   []int32
}

type device struct {
	head, last int32 // batches that wait; -1: none
	current    int32 // batch that runs; -1: none, or one that was aborted
	epoch      int32 // counts losses
	busy       bool
	down       bool
	ranUntil   time.Duration
	running    time.Duration // counted busy time
}

type link struct {
	head, last int32 // batches whose transfer waits
	busy       bool
}

// place is where a live batch is.
type place uint8

const (
	nowhere place = iota
	waitsForDevice
	runs
	waitsForLinks
	crosses
)

type batch struct {
	serial   int64
	model    int32
	pipeline int32
	size     int32
	numHops  int16
	hop      int16         // of its hops
	first    int16         // stage of its first hop; hops before that were another batch's
	from     int32         // device that its tensors come from, where first > 0
	readyAt  time.Duration // when its tensors could first cross to its hop
	live     bool
	at       place
	nextRun  int32 // next in the device's queue
	nextUp   int32 // next in the links' queues
	nextDown int32
}

// state of a request slot.
type state uint8

const (
	unused state = iota
	waiting
	batched
)

type request struct {
	model    int32
	state    state
	arrived  time.Duration
	deadline time.Duration
	sample   int32 // of a gear plan
	answer   int32 // pipeline that answered last; -1: none
	stage    int32 // that it left last, where a batch ran a part of a pipeline; -1: none
	device   int32 // that holds its tensors then
}

func newMachine(cfg *Config) *machine {
	t := cfg.Tables
	s := &machine{cfg: cfg, t: t, family: gear.Of(t), service: cfg.Service, stride: t.MaxStages(), most: t.MaxBatch()}
	if s.service == nil {
		s.service = Exact(t)
	}
	s.clock, _ = s.service.(Clocked)
	s.acc = report.New(s.reportConfig())
	s.devices = make([]device, len(t.Devices))
	for i := range s.devices {
		s.devices[i] = device{head: -1, last: -1, current: -1}
	}
	s.links = make([]link, len(t.Links))
	for i := range s.links {
		s.links[i] = link{head: -1, last: -1}
	}
	s.growBatches(64 + 4*int32(len(t.Devices)))
	for i, f := range cfg.Faults {
		kind := policy.WorkerLost
		if f.Up {
			kind = policy.WorkerBack
		}
		s.heap.Push(f.At, uint8(kind), int64(i), item{device: f.Device})
	}
	if cfg.ChromeTrace != nil {
		s.trace = newChromeTrace(cfg.ChromeTrace, t)
	}
	return s
}

func (s *machine) growBatches(n int32) {
	batches := make([]batch, n)
	copy(batches, s.batches)
	hops := make([]policy.Hop, n*s.stride)
	copy(hops, s.hops)
	reqs := make([]int32, n*s.most)
	copy(reqs, s.reqs)
	s.batches, s.hops, s.reqs = batches, hops, reqs
}

func (s *machine) hop(b int32, h int16) *policy.Hop { return &s.hops[b*s.stride+int32(h)] }

func (s *machine) members(b int32) []int32 {
	return s.reqs[b*s.most : b*s.most+s.batches[b].size]
}

func (s *machine) fail(err error) {
	if s.fatal == nil {
		s.fatal = err
	}
}

func (s *machine) takeRequest() int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.requests = append(s.requests, request{})
	return int32(len(s.requests) - 1)
}

func (s *machine) freeRequest(slot int32) {
	s.requests[slot].state = unused
	s.free = append(s.free, slot)
}

// act does one action of the policy.
func (s *machine) act(a *policy.Action) {
	switch a.Kind {
	case policy.Dispatch:
		s.dispatch(a)
	case policy.Drop:
		r := &s.requests[a.Req]
		if r.state != waiting {
			s.fail(fmt.Errorf("the policy drops request slot %d, which does not wait", a.Req))
			return
		}
		s.acc.Drop(r.model, r.arrived, int(a.Reason))
		s.freeRequest(a.Req)
	case policy.Wake:
		s.wake(a.Tag, a.At)
	case policy.Abort:
		s.abort(a.Batch)
	case policy.Load:
		s.load(policy.NetworkLoaded, a)
	case policy.Unload:
		s.load(policy.NetworkUnloaded, a)
	case policy.Complete:
		s.answer(a.Req)
	case policy.SwitchMode:
		if s.family == nil || a.Tag < 0 || int(a.Tag) >= len(s.family.Gears) {
			s.fail(fmt.Errorf("the policy asks for action %d, gear %d, which the plan does not have", a.Kind, a.Tag))
			return
		}
		s.gears.Switches++
	default:
		s.fail(fmt.Errorf("the policy asks for action %d, which the plan does not have", a.Kind))
	}
}

func (s *machine) wake(tag int32, at time.Duration) {
	for int(tag) >= len(s.timers) {
		s.timers = append(s.timers, kernel.None)
	}
	h := &s.timers[tag]
	switch {
	case at < 0 && *h == kernel.None:
	case at < 0:
		s.heap.Remove(*h)
		*h = kernel.None
	case *h == kernel.None:
		*h = s.heap.Push(max(at, s.now), uint8(policy.Timer), int64(tag), item{batch: tag})
	default:
		s.heap.Move(*h, max(at, s.now))
	}
}

func (s *machine) load(done policy.EventKind, a *policy.Action) {
	took := time.Duration(0)
	if done == policy.NetworkLoaded && s.cfg.LoadTime != nil {
		took = s.cfg.LoadTime(a.Network, a.Device)
	}
	s.heap.Push(s.now+took, uint8(done), int64(a.Device), item{batch: a.Network, device: a.Device})
}

// dispatch takes a batch over from the policy and queues it at its first device.
func (s *machine) dispatch(a *policy.Action) {
	for a.Batch >= int32(len(s.batches)) {
		s.growBatches(2 * int32(len(s.batches)))
	}
	reqs, hops := s.actions.Dispatched(a)
	if s.cfg.Verify {
		if err := s.verifyDispatch(a, reqs, hops); err != nil {
			s.fail(err)
			return
		}
	}
	s.serial++
	b := &s.batches[a.Batch]
	*b = batch{serial: s.serial, model: a.Model, pipeline: a.Pipeline, size: a.Size, numHops: a.HopCount, live: true}
	copy(s.reqs[a.Batch*s.most:], reqs)
	copy(s.hops[a.Batch*s.stride:], hops)
	for _, r := range reqs {
		s.requests[r].state = batched
	}
	if b.first = s.t.Stages[hops[0].Stage].Hop; b.first == 0 {
		s.acc.Batch(a.Model, int(a.Size), s.now)
		s.queueRun(a.Batch)
		return
	}
	b.from = s.requests[reqs[len(reqs)-1]].device
	b.readyAt = s.now
	s.queueTransfer(a.Batch)
}

// queueRun puts a batch into the queue of the device of its hop.
func (s *machine) queueRun(slot int32) {
	b := &s.batches[slot]
	d := s.hop(slot, b.hop).Device
	dev := &s.devices[d]
	if dev.down {
		b.at = nowhere // lost with the device; the policy aborts it
		return
	}
	b.at, b.nextRun = waitsForDevice, -1
	if dev.last < 0 {
		dev.head = slot
	} else {
		s.batches[dev.last].nextRun = slot
	}
	dev.last = slot
	if !dev.busy {
		s.startRun(d)
	}
}

// startRun starts the first batch in a device's queue, if there is one.
func (s *machine) startRun(d int32) {
	dev := &s.devices[d]
	slot := dev.head
	if slot < 0 {
		return
	}
	b := &s.batches[slot]
	dev.head = b.nextRun
	if dev.head < 0 {
		dev.last = -1
	}
	if s.cfg.Verify && s.now < dev.ranUntil {
		s.fail(fmt.Errorf("device %d starts batch slot %d before it is free at %v", d, slot, dev.ranUntil))
	}
	dev.busy, dev.current = true, slot
	b.at = runs
	if s.clock != nil {
		s.clock.Tick(s.now - s.first)
	}
	took := s.service.Run(s.hop(slot, b.hop).Stage, b.size)
	it := item{start: s.now, serial: b.serial, batch: slot, device: d, epoch: dev.epoch, hop: b.hop}
	s.heap.Push(s.now+took, uint8(policy.BatchFinished), b.serial, it)
	s.begun.push(it)
}

// runFinished ends a run: the batch goes on or is complete, and the device
// takes the next one.
func (s *machine) runFinished(it item) {
	dev := &s.devices[it.device]
	if dev.epoch != it.epoch {
		return // lost meanwhile
	}
	s.countRun(dev, it.start, s.now)
	dev.busy = false
	dev.ranUntil = s.now
	aborted := dev.current < 0
	dev.current = -1
	if aborted {
		s.startRun(it.device)
		return
	}
	b := &s.batches[it.batch]
	if s.trace != nil {
		s.trace.run(it.device, b.model, b.size, it.start, s.now)
	}
	model, last, hop := b.model, b.hop+1 == b.numHops, b.first+it.hop
	switch {
	case last && s.family != nil:
		b.live, b.at = false, nowhere
	case last && int32(hop)+1 < s.t.Pipelines[b.pipeline].NumStages:
		s.handBack(it.batch, it.device)
	case last:
		s.complete(it.batch)
	default:
		b.hop++
		b.readyAt = s.now
		s.queueTransfer(it.batch)
	}
	s.startRun(it.device)
	if last && s.family != nil {
		s.reveal(it.batch, it.device)
	}
	s.tell(policy.Event{Kind: policy.BatchFinished, Model: model, Batch: it.batch, Hop: hop, Device: it.device, Start: it.start, End: s.now})
}

// countRun adds the part of a run that lies in the counted time.
func (s *machine) countRun(dev *device, from, to time.Duration) {
	from = max(from, s.cfg.Warmup)
	if s.cfg.Duration > 0 {
		to = min(to, s.cfg.Duration)
	}
	dev.running += max(0, to-from)
}

// complete answers the requests of a batch that left its last stage.
func (s *machine) complete(slot int32) {
	b := &s.batches[slot]
	answered := s.now + s.cfg.Egress
	for _, r := range s.members(slot) {
		q := &s.requests[r]
		s.acc.Complete(q.model, q.arrived, answered, q.deadline)
		s.freeRequest(r)
	}
	b.live, b.at = false, nowhere
}

// handBack ends a batch that ran a part of its pipeline: its requests wait for
// another to take them on from the device that they are on.
func (s *machine) handBack(slot, device int32) {
	b := &s.batches[slot]
	stage := s.hop(slot, b.hop).Stage
	for _, r := range s.members(slot) {
		q := &s.requests[r]
		q.state, q.stage, q.device = waiting, stage, device
	}
	b.live, b.at = false, nowhere
}

// queueTransfer sends a batch's tensors on to the device of its hop.
func (s *machine) queueTransfer(slot int32) {
	b := &s.batches[slot]
	hop := s.hop(slot, b.hop)
	if hop.Uplink < 0 && hop.Downlink < 0 {
		it := item{start: s.now, serial: b.serial, batch: slot, hop: b.hop, up: -1, down: -1}
		b.at = crosses
		if took := s.transferTime(slot); took > 0 {
			s.heap.Push(s.now+took, uint8(policy.TransferFinished), b.serial, it)
		} else {
			s.moved.push(it)
		}
		return
	}
	b.at, b.nextUp, b.nextDown = waitsForLinks, -1, -1
	if l := hop.Uplink; l >= 0 {
		if last := s.links[l].last; last >= 0 {
			s.batches[last].nextUp = slot
		} else {
			s.links[l].head = slot
		}
		s.links[l].last = slot
	}
	if l := hop.Downlink; l >= 0 {
		if last := s.links[l].last; last >= 0 {
			s.batches[last].nextDown = slot
		} else {
			s.links[l].head = slot
		}
		s.links[l].last = slot
	}
	s.startTransfer(slot)
}

func (s *machine) transferTime(slot int32) time.Duration {
	b := &s.batches[slot]
	stage, from := s.hop(slot, b.hop).Stage, b.from
	if b.hop > 0 {
		from = s.hop(slot, b.hop-1).Device
	}
	planned := s.t.TransferBetween(stage, b.size, from, s.hop(slot, b.hop).Device)
	if planned == 0 {
		return 0
	}
	return s.service.Transfer(stage, b.size, planned)
}

// startTransfer starts a batch's transfer if it is the first in both queues
// and both links are free.
func (s *machine) startTransfer(slot int32) {
	if slot < 0 {
		return
	}
	b := &s.batches[slot]
	hop := s.hop(slot, b.hop)
	if !s.linkReady(hop.Uplink, slot) || !s.linkReady(hop.Downlink, slot) {
		return
	}
	if l := hop.Uplink; l >= 0 {
		s.takeLink(l, b.nextUp)
	}
	if l := hop.Downlink; l >= 0 {
		s.takeLink(l, b.nextDown)
	}
	b.at = crosses
	it := item{start: s.now, serial: b.serial, batch: slot, hop: b.hop, up: hop.Uplink, down: hop.Downlink}
	s.heap.Push(s.now+s.transferTime(slot), uint8(policy.TransferFinished), b.serial, it)
}

func (s *machine) linkReady(l, slot int32) bool {
	return l < 0 || !s.links[l].busy && s.links[l].head == slot
}

func (s *machine) takeLink(l, next int32) {
	li := &s.links[l]
	li.busy, li.head = true, next
	if next < 0 {
		li.last = -1
	}
}

// transferFinished frees the links and queues the batch at its device.
func (s *machine) transferFinished(it item) {
	if it.up >= 0 {
		s.links[it.up].busy = false
	}
	if it.down >= 0 {
		s.links[it.down].busy = false
	}
	b := &s.batches[it.batch]
	valid := b.live && b.serial == it.serial
	if valid {
		s.crossed.add(s.now - b.readyAt)
		if s.trace != nil {
			s.trace.transfer(it.up, it.down, b.model, b.size, it.start, s.now)
		}
		s.queueRun(it.batch)
	}
	if it.up >= 0 {
		s.startTransfer(s.links[it.up].head)
	}
	if it.down >= 0 {
		s.startTransfer(s.links[it.down].head)
	}
	if valid {
		s.tell(policy.Event{Kind: policy.TransferFinished, Model: b.model, Batch: it.batch, Hop: b.first + it.hop,
			Device: s.hop(it.batch, it.hop).Device, Start: it.start, End: s.now})
	}
}

// ring is a first-in first-out queue of items.
type ring struct {
	items []item // length a power of two
	first int
	n     int
}

func (r *ring) push(it item) {
	if r.n == len(r.items) {
		bigger := make([]item, max(16, 2*len(r.items)))
		for i := range r.n {
			bigger[i] = r.items[(r.first+i)&(len(r.items)-1)]
		}
		r.items, r.first = bigger, 0
	}
	r.items[(r.first+r.n)&(len(r.items)-1)] = it
	r.n++
}

func (r *ring) front() *item { return &r.items[r.first] }

func (r *ring) pop() item {
	it := r.items[r.first]
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.n--
	return it
}
