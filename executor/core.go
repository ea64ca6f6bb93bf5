package executor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
)

// core is one plan in execution: a goroutine around a policy, its workers and
// their supervisors.
type core struct {
	opt     *Options
	plan    *formats.Plan
	spec    formats.PolicySpec // of policy
	tables  *policy.Tables
	policy  policy.Policy
	models  []*model
	named   *formats.Classes // of models
	catalog *oip.Catalog
	stages  []stagePlan
	devices []*device
	cascade *cascade // of a gear plan; nil for others
	mix     *mix     // of a plan with several models; nil for others
	arrived []int64  // room for a count by model
	stats   *stats
	metrics *metrics
	log     *conform.Recorder // nil: no event log

	epoch     time.Time
	epochMono int64

	in      inbox
	alarm   *alarm
	copiers *copiers
	ctx     context.Context // of supervisors and workers
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	done    chan struct{} // closed when the loop has ended

	// What follows belongs to the loop's goroutine.
	last     time.Duration
	reqs     []request
	freeReqs []int32
	batches  []*batch
	spare    []*batch
	freeRuns []*run
	nextRun  uint64
	serial   uint64
	actions  policy.Actions
	events   []queued
	skips    []queued
	forsaken []int32 // slots of requests that nobody waits for
	wakes    []wakeup
	cmd      [1]worker.Run
	open     int // jobs without answer
	idle     []chan<- struct{}
	stopping bool
	watched  time.Duration // when workers were looked at last
	taken    inboxContent
}

type queued struct {
	ev     policy.Event
	batch  *batch
	serial uint64
}

type wakeup struct {
	tag int32
	at  time.Duration
}

// inbox is what others leave for the loop.
type inbox struct {
	mu     sync.Mutex
	closed bool
	signal chan struct{}
	inboxContent
}

type inboxContent struct {
	events   []deviceEvent
	arrivals []*job
	cancels  []*job
	calls    []func()
}

type deviceEventKind uint8

const (
	resultCame deviceEventKind = iota
	workerLost
	workerBack
)

// deviceEvent is news of a worker.
type deviceEvent struct {
	kind   deviceEventKind
	device int32
	gen    int
	proc   *worker.Process // workerBack
	result worker.Result
}

func (i *inbox) wake() {
	select {
	case i.signal <- struct{}{}:
	default:
	}
}

// submit hands a job over; false once the core takes no more.
func (c *core) submit(j *job) bool {
	c.in.mu.Lock()
	if c.in.closed {
		c.in.mu.Unlock()
		return false
	}
	c.in.arrivals = append(c.in.arrivals, j)
	c.in.mu.Unlock()
	c.in.wake()
	return true
}

// cancelJob tells that nobody waits for a job any more. The message holds the
// job: an answer may be quicker, and the job another client's by then.
func (c *core) cancelJob(j *job) {
	j.refs.Add(1)
	c.in.mu.Lock()
	c.in.cancels = append(c.in.cancels, j)
	c.in.mu.Unlock()
	c.in.wake()
}

func (c *core) post(events ...deviceEvent) {
	c.in.mu.Lock()
	c.in.events = append(c.in.events, events...)
	c.in.mu.Unlock()
	c.in.wake()
}

// call runs f on the loop's goroutine; false when the loop has ended.
func (c *core) call(f func()) bool {
	ran := make(chan struct{})
	c.in.mu.Lock()
	c.in.calls = append(c.in.calls, func() { f(); close(ran) })
	c.in.mu.Unlock()
	c.in.wake()
	select {
	case <-ran:
		return true
	case <-c.done:
		return false
	}
}

// closeInbox refuses further jobs.
func (c *core) closeInbox() {
	c.in.mu.Lock()
	c.in.closed = true
	c.in.mu.Unlock()
}

func (c *core) now() time.Duration { return time.Since(c.epoch) }

// tick is now for the policy: it never goes back.
func (c *core) tick() time.Duration {
	c.last = max(c.last, c.now())
	return c.last
}

func (c *core) since(mono int64) time.Duration { return time.Duration(mono - c.epochMono) }

// run is the loop.
func (c *core) run() {
	defer close(c.done)
	c.handle(policy.Event{Kind: policy.PlanInstalled})
	c.flush()
	for !c.stopping {
		c.take()
		t := &c.taken
		for i := range t.events {
			c.deviceEvent(&t.events[i])
			c.flush()
		}
		for _, j := range t.arrivals {
			// A wake-up that is due was so before the policy hears of this one.
			c.timers()
			c.arrive(j)
			c.flush()
		}
		for _, j := range t.cancels {
			c.clientGone(j)
			c.flush()
			j.release()
		}
		c.timers()
		c.refill()
		for _, f := range t.calls {
			f()
		}
		if c.open == 0 && len(c.idle) > 0 {
			for _, ch := range c.idle {
				close(ch)
			}
			c.idle = nil
		}
		c.sleep()
	}
	c.closeInbox()
	c.take() // what came in between is refused too
	for _, j := range c.taken.arrivals {
		c.open++
		j.open = 0
		c.refuse(j, policy.ReasonDraining)
		j.release()
	}
}

// take exchanges the inbox for the emptied one of the last round.
func (c *core) take() {
	t := &c.taken
	clear(t.arrivals)
	clear(t.cancels)
	clear(t.calls)
	t.events, t.arrivals, t.cancels, t.calls = t.events[:0], t.arrivals[:0], t.cancels[:0], t.calls[:0]
	c.in.mu.Lock()
	*t, c.in.inboxContent = c.in.inboxContent, *t
	c.in.mu.Unlock()
}

// sleep waits for the inbox or the next wake-up.
func (c *core) sleep() {
	if c.stopping {
		return
	}
	at := time.Duration(-1)
	for i := range c.wakes {
		if at < 0 || c.wakes[i].at < at {
			at = c.wakes[i].at
		}
	}
	if at >= 0 {
		c.alarm.before(max(1, c.epochMono+int64(at)), c.epochMono+int64(c.now()))
	}
	<-c.in.signal
}

// timers hands the wake-ups that are due now to the policy, earliest first.
// Those that it asks for meanwhile come in a later round, after news from
// workers and clients.
func (c *core) timers() {
	now := c.now()
	for {
		due := -1
		for i := range c.wakes {
			if c.wakes[i].at <= now && (due < 0 || c.wakes[i].at < c.wakes[due].at) {
				due = i
			}
		}
		if due < 0 {
			return
		}
		tag := c.wakes[due].tag
		c.wakes[due] = c.wakes[len(c.wakes)-1]
		c.wakes = c.wakes[:len(c.wakes)-1]
		if tag == watchTag {
			c.watch()
		} else {
			c.handle(policy.Event{Kind: policy.Timer, Value: int64(tag)})
		}
		c.flush()
	}
}

// emit queues an event that follows from an action.
func (c *core) emit(b *batch, ev policy.Event) {
	c.events = append(c.events, queued{ev, b, b.serial})
}

// flush hands over what actions brought about, until nothing more follows.
func (c *core) flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			if q.batch.live && q.batch.serial == q.serial {
				c.handle(q.ev)
			}
		case len(c.skips) > 0:
			q := c.skips[0]
			c.skips = c.skips[:copy(c.skips, c.skips[1:])]
			if q.batch.live && q.batch.serial == q.serial {
				now := c.now()
				c.finishHop(q.batch, q.batch.hops[q.batch.hop].Device, now, now)
			}
		case len(c.forsaken) > 0:
			slot := c.forsaken[len(c.forsaken)-1]
			c.forsaken = c.forsaken[:len(c.forsaken)-1]
			// Those in a batch run with it.
			if q := &c.reqs[slot]; q.job != nil && q.job.answered && q.batch < 0 {
				c.handle(policy.Event{Kind: policy.Cancel, Model: q.job.model.index, Req: slot})
			}
		default:
			return
		}
	}
}

// handle asks the policy and does what it says.
func (c *core) handle(ev policy.Event) {
	now := c.tick()
	c.actions.Reset()
	c.policy.Handle(now, &ev, &c.actions)
	c.stats.events++
	for i := range c.actions.List {
		c.act(&c.actions.List[i])
	}
}

func (c *core) arrive(j *job) {
	c.open++
	c.stats.seen(j)
	if c.stopping {
		j.open = 0
		c.refuse(j, policy.ReasonDraining)
		j.release()
		return
	}
	if len(c.reqs)-len(c.freeReqs)+j.n > c.opt.MaxQueue {
		j.open = 0
		c.refuse(j, policy.ReasonQueueFull)
		j.release()
		return
	}
	m := j.model
	c.tick() // the policy's now is then no earlier than the arrival
	for k := range j.n {
		slot := c.newRequest(j, k)
		j.slots[k] = slot
		m.waiting.Add(1)
		if g := c.cascade; g != nil {
			c.reqs[slot].record = int32(g.arrived % int64(g.gears.Records.Samples))
			g.arrived++
		}
	}
	if g := c.cascade; g != nil {
		j.gear = g.gear
		g.counts.requests[j.gear] += int64(j.n)
	}
	// The core's hold on the job lasts until its last slot is settled, which is
	// not before the last round of this loop.
	for k, n := 0, j.n; k < n; k++ {
		if j.answered { // a sample before this one was dropped
			c.settle(j.slots[k])
			continue
		}
		c.handle(policy.Event{Kind: policy.Arrival, Model: m.index, Req: j.slots[k], Arrived: j.arrived, Deadline: j.deadline})
	}
}

func (c *core) newRequest(j *job, sample int) int32 {
	var slot int32
	if n := len(c.freeReqs); n > 0 {
		slot = c.freeReqs[n-1]
		c.freeReqs = c.freeReqs[:n-1]
	} else {
		slot = int32(len(c.reqs))
		c.reqs = append(c.reqs, request{})
	}
	c.reqs[slot] = request{job: j, sample: int32(sample), batch: -1, answer: -1}
	return slot
}

// settle ends a request slot: the policy no longer names it.
func (c *core) settle(slot int32) {
	q := &c.reqs[slot]
	j := q.job
	if j == nil {
		return
	}
	if q.batch >= 0 {
		j.model.running.Add(-1)
	} else {
		j.model.waiting.Add(-1)
	}
	j.slots[q.sample] = -1
	*q = request{batch: -1}
	c.freeReqs = append(c.freeReqs, slot)
	if j.open--; j.open == 0 {
		j.release()
	}
}

// refuse answers a job with a drop.
func (c *core) refuse(j *job, reason policy.Reason) {
	if j.answered {
		return
	}
	j.outcome, j.reason = dropped, reason
	c.answer(j)
	c.forsake(j)
}

// forsake tells the policy that nobody waits for what is left of a job.
func (c *core) forsake(j *job) {
	if j.open == 0 {
		return
	}
	for _, slot := range j.slots {
		if slot >= 0 {
			c.forsaken = append(c.forsaken, slot)
		}
	}
}

func (c *core) answer(j *job) {
	j.answered = true
	c.open--
	c.stats.answered(j, c.now())
	j.done <- struct{}{}
}

// clientGone: nobody waits for the job any more.
func (c *core) clientGone(j *job) {
	if j.answered {
		return
	}
	c.refuse(j, policy.ReasonCancelled)
}

func (c *core) deviceEvent(e *deviceEvent) {
	d := c.devices[e.device]
	switch e.kind {
	case resultCame:
		if e.gen == d.gen && d.proc != nil {
			c.result(d, &e.result)
		}
	case workerLost:
		if e.gen == d.gen && d.proc != nil {
			c.lost(d)
		}
	case workerBack:
		d.proc, d.gen, d.total, d.pinned = e.proc, e.gen, 0, e.proc.Pinned()
		c.setUp(d, true)
		c.handle(policy.Event{Kind: policy.WorkerBack, Device: d.index})
		c.flush()
		c.pump(d)
	}
}

// result takes a finished run.
func (c *core) result(d *device, res *worker.Result) {
	if len(d.flight) == 0 || d.flight[0].id != res.ID {
		// Not what was asked: the worker cannot be trusted.
		c.opt.Log.Error("worker answered out of order", "device", d.index, "run", res.ID)
		d.proc.Kill()
		return
	}
	r := d.flight[0]
	d.flight = d.flight[:copy(d.flight, d.flight[1:])]
	c.stats.ran(d, r, res)
	if len(d.flight) > 0 {
		defer c.markStarted(d.flight[0])
	}
	defer c.pump(d)
	b := r.batch
	if b == nil {
		c.freeRun(r)
		return
	}
	b.run = nil
	start, end := c.since(res.Start), c.since(res.End)
	if b.hop == 0 {
		b.started = start
	}
	b.infer += end - start
	b.ready = res.End
	if res.Code != worker.OK {
		c.opt.Log.Error("run failed", "model", b.model.label, "stage", r.stage, "batch", r.size, "error", res.Text)
		c.failBatch(b, policy.ReasonFailed, errors.New(res.Text))
		c.freeRun(r)
		return
	}
	r.in.give()
	if b.hop == len(b.hops)-1 {
		c.complete(b, r)
	} else {
		b.in, b.inDevice, r.out = r.out, r.outDevice, slotRef{}
	}
	c.freeRun(r)
	c.finishHop(b, d.index, start, end)
}

// complete answers the requests of a batch that has run its last stage.
func (c *core) complete(b *batch, r *run) {
	begin := c.now()
	c.scatterOutputs(b, r)
	now := c.now()
	c.stats.batchDone(b, now-begin)
	if c.cascade != nil {
		// The policy decides which of them are answered.
		c.grade(b, r)
		c.cascade.metrics.ran(b.pipeline, len(b.reqs), b.infer)
		return
	}
	for _, req := range b.reqs {
		j := c.reqs[req].job
		if j == nil || j.answered {
			continue
		}
		if j.left--; j.left == 0 {
			j.outcome, j.late = served, now > j.deadline
			c.stats.served(j, b, now, now-begin)
			c.answer(j)
		}
	}
}

// finishHop tells the policy that a stage is done and sends the batch on.
func (c *core) finishHop(b *batch, dev int32, start, end time.Duration) {
	serial := b.serial
	ev := policy.Event{Kind: policy.BatchFinished, Hop: int16(b.hop), Model: b.model.index, Batch: b.slot, Device: dev, Start: start, End: end}
	if b.hop == len(b.hops)-1 {
		// The policy may use the batch's slot again in its very answer.
		c.batches[b.slot], b.live = nil, false
		if c.cascade != nil {
			c.reveal(b, dev)
			c.handle(ev)
			c.freed(b)
			c.spare = append(c.spare, b)
			return
		}
		c.handle(ev)
		for _, req := range b.reqs {
			c.settle(req)
		}
		c.spare = append(c.spare, b)
		return
	}
	c.handle(ev)
	if !b.live || b.serial != serial {
		return
	}
	b.hop++
	h := &b.hops[b.hop]
	now := c.now()
	if !b.failed {
		c.stats.moved(c.tables.Stages[h.Stage].CutBytes*int64(len(b.reqs)), c.devices[dev], c.devices[h.Device], b.inDevice, now-end)
	}
	c.handle(policy.Event{Kind: policy.TransferFinished, Hop: int16(b.hop), Model: b.model.index, Batch: b.slot, Device: h.Device, Start: end, End: now})
	if !b.live || b.serial != serial {
		return
	}
	if b.failed {
		c.skips = append(c.skips, queued{batch: b, serial: b.serial})
		return
	}
	c.enqueue(b)
}

// forget gives the batch's record back before its end.
func (c *core) forget(b *batch) {
	if b.run != nil {
		b.run.batch = nil // its result, or its turn in the queue, is ignored
		b.run = nil
	}
	b.in.give()
	c.batches[b.slot] = nil
	b.live = false
	c.spare = append(c.spare, b)
}

// failBatch answers the requests of a batch that cannot run. The policy knows
// no failed batches: it hears that the remaining stages took no time.
func (c *core) failBatch(b *batch, reason policy.Reason, err error) {
	b.failed = true
	if b.run != nil {
		b.run.batch = nil
		b.run = nil
	}
	b.in.give()
	for _, req := range b.reqs {
		j := c.reqs[req].job
		if j == nil || j.answered {
			continue
		}
		if err != nil {
			j.outcome, j.reason, j.failure = failed, reason, err
			c.answer(j)
			c.forsake(j)
		} else {
			c.refuse(j, reason)
		}
	}
	c.skips = append(c.skips, queued{batch: b, serial: b.serial})
}

// lost: the worker of a device is gone, and what it ran.
func (c *core) lost(d *device) {
	d.proc = nil
	c.setUp(d, false)
	c.forgetMemory(d)
	flight := d.flight
	d.flight = nil
	c.handle(policy.Event{Kind: policy.WorkerLost, Device: d.index})
	for _, r := range flight {
		if r.batch != nil { // the policy did not abort it
			b := r.batch
			c.failBatch(b, policy.ReasonWorkerLost, nil)
		}
		c.freeRun(r)
	}
}

// soonest is the least time until a policy is woken: one that finds a run
// overdue may ask for the very next moment again and again, and the result that
// it waits for has to come through in between.
const soonest = 100 * time.Microsecond

// watchTag is the tag of the loop's own wake-up, which no policy uses.
const watchTag = -1 << 31

const watchEvery = time.Second

func (c *core) setUp(d *device, up bool) {
	d.up.Store(up)
	c.metrics.up(d.index, up)
}

// ready says whether some pipeline of a model has a worker at every stage.
func (c *core) ready(m *model) bool {
	first, last := c.tables.PipelinesOf(m.index)
	for p := first; p < last; p++ {
		pl := &c.tables.Pipelines[p]
		whole := true
		for s := pl.FirstStage; whole && s < pl.FirstStage+pl.NumStages; s++ {
			whole = slices.ContainsFunc(c.tables.DevicesOf(s), func(d int32) bool { return c.devices[d].up.Load() })
		}
		if whole {
			return true
		}
	}
	return false
}

// watch kills workers that hang. Time in which this loop did not run either, as
// on a machine that was paused, says nothing of workers.
func (c *core) watch() {
	now := c.now()
	paused := max(0, now-c.watched-2*watchEvery)
	c.watched = now
	for _, d := range c.devices {
		if d.proc == nil || len(d.flight) == 0 {
			continue
		}
		r := d.flight[0]
		r.started += paused
		planned := time.Duration(0)
		if infer := c.tables.Stages[r.stage].Infer; r.size <= len(infer) {
			planned = infer[r.size-1]
		}
		if now-r.started > c.opt.HangTimeout+10*planned {
			c.opt.Log.Error("worker hangs and is killed", "device", d.index, "kind", d.kind, "stage", r.stage, "for", now-r.started)
			d.proc.Kill()
		}
	}
	if c.mix != nil {
		for i, m := range c.models {
			m.stats.mu.Lock()
			c.arrived[i] = m.stats.requests
			m.stats.mu.Unlock()
		}
		c.mix.window(now, c.arrived, c.opt.Log)
	}
	if g := c.cascade; g != nil {
		g.drift.window(now, g.arrived, c.opt.Log)
	}
	c.setWake(watchTag, now+watchEvery)
}

func (c *core) setWake(tag int32, at time.Duration) {
	for i := range c.wakes {
		if c.wakes[i].tag == tag {
			if at < 0 {
				c.wakes[i] = c.wakes[len(c.wakes)-1]
				c.wakes = c.wakes[:len(c.wakes)-1]
			} else {
				c.wakes[i].at = at
			}
			return
		}
	}
	if at >= 0 {
		c.wakes = append(c.wakes, wakeup{tag, at})
	}
}
