package reserve

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/underway"
	"inferplan/policy/waiting"
)

// Name is the policy's name in plans.
const Name = "reserve"

// Options are the policy's parameters. The zero value is the paper's Algorithm
// 1; DefaultOptions is what plans get that name no parameters.
type Options struct {
	// Shed drops a head at once when, at its first look, no batch of at least
	// 95 % of the planned size meets its deadline. A head that passed its first
	// look is served in whatever batch it still can be. Without shedding an
	// overloaded model serves every head at the last moment in small batches.
	Shed bool
	// Eager sends what waits as soon as it can go through a pipeline without
	// waiting for a device or a link. Without it a head waits for a fuller batch
	// until the last moment of its SLO, as the paper's does.
	Eager bool
	// Ahead is how long before a device that models share becomes free an eager
	// policy decides what runs next on it: enough for the message to get there.
	Ahead time.Duration
	// QueueLimit bounds the requests that wait per model; further arrivals are
	// dropped. 0: no bound.
	QueueLimit int
	// GuardTime and GuardShare keep back a time, and a share of the batch's
	// device time, of every deadline against jitter and overheads, but never more
	// than half of what the SLO leaves beside the batch's least time: under an SLO
	// of few milliseconds nothing else would ever be in time. GuardTime is
	// also how much early a head that waits for a fuller batch is looked at
	// again: a wake on a real clock comes late.
	GuardTime  time.Duration
	GuardShare float64
}

// DefaultOptions are the options of a plan without parameters. Shedding is on:
// on 8 devices with planned batches of three (TestSheddingPays of package sim)
// it attains 0.992 against 0.855 at the planned load and 0.771 against 0.442 at
// 1.3 times it, where 1/1.3 is all there is; below the planned load there is no
// difference.
func DefaultOptions() Options { return Options{Shed: true, Eager: true, Ahead: time.Millisecond} }

// Bounds of parameters: past them they say nothing that the bound does not.
const (
	maxMicroseconds = 1e12
	maxQueueLimit   = 1e9
	maxGuardShare   = 10
)

// ParseOptions reads a plan's policy parameters: shed and eager (0 or 1), ahead_us, queue_limit,
// guard_us, guard_share.
func ParseOptions(params map[string]float64) (Options, error) {
	o := DefaultOptions()
	names := make([]string, 0, len(params))
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := params[name]
		ok := v >= 0
		expected := "a number in range"
		switch name {
		case "shed":
			o.Shed, ok, expected = v != 0, v == 0 || v == 1, "0 or 1"
		case "eager":
			o.Eager, ok, expected = v != 0, v == 0 || v == 1, "0 or 1"
		case "ahead_us":
			ok, expected = ok && v <= maxMicroseconds, "microseconds from 0 to 1e12"
			o.Ahead = time.Duration(v * float64(time.Microsecond))
		case "queue_limit":
			ok, expected = ok && v <= maxQueueLimit && v == math.Trunc(v), "a whole number from 0 to 1e9"
			o.QueueLimit = int(min(max(v, 0), maxQueueLimit))
		case "guard_us":
			ok, expected = ok && v <= maxMicroseconds, "microseconds from 0 to 1e12"
			o.GuardTime = time.Duration(v * float64(time.Microsecond))
		case "guard_share":
			ok, expected = ok && v <= maxGuardShare, "a share from 0 to 10"
			o.GuardShare = v
		default:
			return o, fmt.Errorf("policy %s: unknown parameter %q, expected shed, eager, ahead_us, queue_limit, guard_us or guard_share", Name, name)
		}
		if !ok {
			return o, fmt.Errorf("policy %s: parameter %s: found %v, expected %s", Name, name, v, expected)
		}
	}
	return o, nil
}

// finder finds ways through pipelines and reserves them.
type finder struct {
	t          *policy.Tables
	tl         timelines
	numDevices int32
	maxDepth   int32
	uplinks    []int32 // per device: resource of its node's links; -1: none
	downlinks  []int32
	gentle     bool  // paths move no reservation
	sameNode   bool  // some pipeline may stay within a node that has a NIC
	probes     int64 // so far
}

// chooser chooses a pipeline, a batch and a time for the head of a queue.
type chooser struct {
	finder
	opt      Options
	models   []model
	spending bool              // the guard is not kept back (spendGuard)
	least    [][]time.Duration // per pipeline and batch: path without waiting at best
	guard    [][]time.Duration // per pipeline and batch: kept back of a deadline
	pace     []time.Duration   // per model: between its requests with all devices at work
	monotone []bool            // per pipeline: no stage is faster at a larger batch
	paths    [2]path
	retry    path
	fuller   path
	other    path
}

// Policy is the state of reservation-based adaptive batching over one plan's
// tables. It implements policy.Policy.
type Policy struct {
	chooser
	batches underway.Table
	users   [][]int32 // per device: the models with a stage on it
	dirty   []int32   // models to decide about again
}

// model is what the policy keeps per model.
type model struct {
	queue  waiting.Queue
	armed  time.Duration // pending wake; never: none
	wake   time.Duration // decided
	held   bool          // its head waits for work that must go first
	dirty  bool
	shares []int32 // other models that share a device
	// The path that the head waits for, where it is the model's only pipeline
	// and holds nothing in gaps; none: empty.
	waits []int32
}

// New makes the policy for a plan's tables.
func New(t *policy.Tables, opt Options) *Policy {
	p := &Policy{batches: *underway.New(t)}
	p.finder = finder{t: t, numDevices: int32(len(t.Devices)), maxDepth: maxDepth}
	p.opt = opt
	p.tl.init(p.numDevices+int32(len(t.Links)), 0, t.MaxStages())
	p.tl.grow(p.batches.Len())
	p.uplinks, p.downlinks = make([]int32, p.numDevices), make([]int32, p.numDevices)
	for d := range t.Devices {
		p.uplinks[d], p.downlinks[d] = p.resource(t.Devices[d].Uplink), p.resource(t.Devices[d].Downlink)
	}
	for i := range p.paths {
		p.paths[i].hops = make([]policy.Hop, 0, t.MaxStages())
	}
	p.retry.hops = make([]policy.Hop, 0, t.MaxStages())
	p.fuller.hops = make([]policy.Hop, 0, t.MaxStages())
	p.other.hops = make([]policy.Hop, 0, t.MaxStages())
	p.models = make([]model, len(t.Models))
	for i := range p.models {
		p.models[i].armed = never
		p.models[i].queue.Grow()
		p.models[i].waits = make([]int32, 0, t.MaxStages())
	}
	p.dirty = make([]int32, 0, len(t.Models))
	p.indexPipelines()
	p.indexPace()
	p.indexUsers()
	return p
}

// resource is the place of a link among the resources; -1: none.
func (f *finder) resource(link int32) int32 {
	if link < 0 {
		return -1
	}
	return f.numDevices + link
}

// indexPipelines sums each pipeline's least path, and what is kept back of it.
func (c *chooser) indexPipelines() {
	for i := range c.t.Pipelines {
		pl := &c.t.Pipelines[i]
		work, least := make([]time.Duration, pl.Batch), make([]time.Duration, pl.Batch)
		stages := c.t.Stages[pl.FirstStage : pl.FirstStage+pl.NumStages]
		for s := range stages {
			for b := range work {
				work[b] += stages[s].Infer[b]
				least[b] += stages[s].Infer[b]
				if stages[s].Xfer != nil && !c.mayStay(pl.FirstStage+int32(s)) {
					least[b] += stages[s].Xfer[b]
				}
			}
		}
		monotone := true
		for s := range stages {
			monotone = monotone && slices.IsSorted(stages[s].Infer) && slices.IsSorted(stages[s].Xfer)
		}
		guard := make([]time.Duration, pl.Batch)
		for b := range guard {
			room := max(c.t.Models[pl.Model].SLO-least[b], 0)
			guard[b] = min(c.opt.GuardTime+time.Duration(c.opt.GuardShare*float64(work[b])), room/2)
		}
		c.least, c.guard, c.monotone = append(c.least, least), append(c.guard, guard), append(c.monotone, monotone)
	}
}

// indexPace sums the rates of each model's pipelines, which are those of their
// slowest stages with all of the stage's devices at their best batch.
func (c *chooser) indexPace() {
	c.pace = make([]time.Duration, len(c.t.Models))
	for m := range c.pace {
		rate := 0.0
		first, last := c.t.PipelinesOf(int32(m))
		for i := first; i < last; i++ {
			pl := &c.t.Pipelines[i]
			slowest := math.Inf(1)
			for _, st := range c.t.Stages[pl.FirstStage : pl.FirstStage+pl.NumStages] {
				best := 0.0
				for b := range pl.Batch {
					best = max(best, float64(b+1)/float64(max(st.Infer[b], 1)))
				}
				slowest = min(slowest, best*float64(st.NumDevices))
			}
			rate += slowest
		}
		if rate > 0 {
			c.pace[m] = time.Duration(1 / rate)
		}
	}
}

// mayStay tells whether the transfer into a stage may stay within a node.
func (f *finder) mayStay(stage int32) bool {
	for _, a := range f.t.DevicesOf(stage - 1) {
		if f.uplinks[a] < 0 {
			continue
		}
		for _, b := range f.t.DevicesOf(stage) {
			if f.t.Devices[a].Node == f.t.Devices[b].Node {
				f.sameNode = true
				return true
			}
		}
	}
	return false
}

func (p *Policy) indexUsers() {
	p.users = make([][]int32, p.numDevices)
	for s := range p.t.Stages {
		m := p.t.Pipelines[p.t.Stages[s].Pipeline].Model
		for _, d := range p.t.DevicesOf(int32(s)) {
			if !slices.Contains(p.users[d], m) {
				p.users[d] = append(p.users[d], m)
			}
		}
	}
	for _, users := range p.users {
		for _, m := range users {
			for _, o := range users {
				if o != m && !slices.Contains(p.models[m].shares, o) {
					p.models[m].shares = append(p.models[m].shares, o)
				}
			}
		}
	}
	for i := range p.models {
		slices.Sort(p.models[i].shares)
	}
}

// Handle decides what to do about one event.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		if p.arrival(now, ev, out) && ev.Value > 0 {
			return // samples of one request go together
		}
	case policy.Timer:
		m := int32(ev.Value)
		p.models[m].armed = never
		p.again(m)
		for _, o := range p.models[m].shares {
			if p.models[o].held {
				p.again(o) // it waits for the same device: the most urgent gets it
			}
		}
	case policy.BatchStarted:
		if b := p.batches.At(ev.Batch); b.Live && ev.Hop >= b.Done {
			n := p.tl.node(ev.Batch, ev.Hop, run)
			moved := p.tl.nodes[n].start != ev.Start
			p.tl.startedAt(n, ev.Start)
			p.feedback(ev.Device, moved)
		}
	case policy.TransferFinished:
		if b := p.batches.At(ev.Batch); b.Live && ev.Hop > b.Arrived {
			p.batches.Transferred(ev)
			n := p.tl.node(ev.Batch, ev.Hop, run)
			moved := p.tl.nodes[n].ready != ev.End
			p.tl.transferredAt(n, ev.End)
			p.feedback(b.Device[ev.Hop], moved)
		}
	case policy.BatchFinished:
		p.finished(ev)
	case policy.Cancel:
		if m := &p.models[ev.Model]; m.queue.Remove(ev.Req) {
			p.drop(ev.Model, ev.Req, policy.ReasonCancelled, out)
			p.again(ev.Model)
		}
	case policy.WorkerLost:
		p.lose(now, ev.Device, out)
	case policy.WorkerBack:
		p.regain(now, ev.Device)
	}
	p.decideDirty(now, out)
}

// arrival queues a request, or drops it where the queue is full. It is true where it is queued.
func (p *Policy) arrival(now time.Duration, ev *policy.Event, out *policy.Actions) bool {
	m := &p.models[ev.Model]
	if p.opt.QueueLimit > 0 && m.queue.Len >= p.opt.QueueLimit {
		p.drop(ev.Model, ev.Req, policy.ReasonQueueFull, out)
		return false
	}
	m.queue.Insert(waiting.Request{Deadline: ev.Deadline, Arrived: ev.Arrived, Req: ev.Req})
	p.mark(ev.Model)
	return true
}

func (p *Policy) finished(ev *policy.Event) {
	if b := p.batches.At(ev.Batch); !b.Live || ev.Hop < b.Done {
		return
	}
	n := p.tl.node(ev.Batch, ev.Hop, run)
	moved := p.tl.nodes[n].end() != ev.End
	p.tl.finishedAt(n, ev.End, p.batches.Finished(ev))
	p.feedback(ev.Device, moved)
}

// feedback asks for new decisions where an actual time differed from the
// reserved one, and for heads that wait for work to take its place.
func (p *Policy) feedback(device int32, moved bool) {
	for _, m := range p.users[device] {
		if mo := &p.models[m]; mo.queue.Len > 0 && (moved || mo.held) {
			p.again(m)
		}
	}
}

// again marks a model for a decision after something that may have freed a device
// or a link sooner than its head waits for.
func (p *Policy) again(m int32) {
	if p.opt.Eager {
		p.models[m].waits = p.models[m].waits[:0]
	}
	p.mark(m)
}

// mark marks a model for a decision at the end of this event.
func (p *Policy) mark(m int32) {
	if !p.models[m].dirty {
		p.models[m].dirty = true
		p.dirty = append(p.dirty, m)
	}
}

// urgency is the deadline of a model's head: of models that share devices the
// most urgent decides first.
func (p *Policy) urgency(m int32) time.Duration {
	if q := &p.models[m].queue; q.Len > 0 {
		return q.At(0).Deadline
	}
	return never
}

// decideDirty decides until no model's state has changed since its decision.
// Every further round follows a dispatch, so it ends.
func (p *Policy) decideDirty(now time.Duration, out *policy.Actions) {
	for len(p.dirty) > 0 {
		first, last := 0, len(p.dirty)-1
		for i := 1; i <= last; i++ {
			if p.urgency(p.dirty[i]) < p.urgency(p.dirty[first]) {
				first = i
			}
		}
		m := p.dirty[first]
		if first < last { // mostly there is one
			copy(p.dirty[first:], p.dirty[first+1:])
		}
		p.dirty = p.dirty[:last]
		p.models[m].dirty = false
		p.decide(m, now, out)
	}
}

func (p *Policy) drop(m, req int32, reason policy.Reason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: m, Req: req})
}
