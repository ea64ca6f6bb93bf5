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

// Options are the policy's parameters. The zero value is the paper's Algorithm 1. Plans that name no parameters
// get DefaultOptions.
type Options struct {
	// DropHopeless drops a head at its first look if no batch of at least 95 % of the planned size meets its
	// deadline. After its first look a head is served in any batch that is still possible. Without this option an
	// overloaded model serves every head at the last moment in small batches.
	Shed bool
	// SendWhenFree sends the waiting requests as soon as they can go through a pipeline without waiting for a
	// device or a link. Without it a head waits for a fuller batch until the last moment of its SLO, as in the
	// paper.
	Eager bool
	// DecideAhead is how long before a shared device becomes free a policy with SendWhenFree decides what runs
	// next on it: long enough for the message to get there.
	Ahead time.Duration
	// QueueLimit is the most requests that wait per model; further arrivals are dropped. 0 is no limit.
	QueueLimit int
	// GuardTime and GuardShare are the guard of a deadline: a time, and a share of the batch's device time. The
	// guard is at most half of what the SLO leaves beside the batch's minimal time, because under an SLO of a few
	// milliseconds nothing would ever be in time otherwise. GuardTime is also how much earlier a head that waits
	// for a fuller batch is looked at again: a wake on a real clock comes late.
	GuardTime  time.Duration
	GuardShare float64
}

// DefaultOptions returns the options of a plan without parameters. DropHopeless is on: on 8 devices with planned
// batches of three (TestSheddingPays of package sim) it attains 0.992 instead of 0.855 at the planned load, and
// 0.771 instead of 0.442 at 1.3 times the load, where at most 1/1.3 is possible. Below the planned load there is
// no difference.
func DefaultOptions() Options { return Options{Shed: true, Eager: true, Ahead: time.Millisecond} }

const (
	// Bounds of parameters. Larger values have the same effect as the bound.
	maxMicroseconds = 1e12
	maxQueueLimit   = 1e9
	maxGuardShare   = 10
)

// ParseOptions returns the default options with a plan's parameters: shed and eager (0 or 1), ahead_us,
// queue_limit, guard_us, guard_share. It returns an error for an unknown parameter or a value outside its range.
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

// pathFinder finds paths through pipelines and reserves them.
type finder struct {
	t          *policy.Tables
	tl         timelines
	numDevices int32
	maxDepth   int32
	uplinks    []int32 // by device: resource of its node's uplink, or -1
	downlinks  []int32
	gentle     bool  // paths may move no reservation
	sameNode   bool  // some pipeline may stay on a node that has a NIC
	probes     int64 // number of paths sought so far
}

// batchChooser chooses a pipeline, a batch and a time for the head of a queue.
type chooser struct {
	finder
	opt      Options
	models   []model
	spending bool              // deadlines count without the guard, see spendGuard
	least    [][]time.Duration // by pipeline and batch: duration of a path without waiting
	guard    [][]time.Duration // by pipeline and batch: part of a deadline that is kept back
	pace     []time.Duration   // by model: mean time per request if all its devices are busy
	monotone []bool            // by pipeline: no stage is faster at a larger batch
	paths    [2]path
	retry    path
	fuller   path
	other    path
}

// Policy is the state of reservation-based adaptive batching over one plan's tables. It implements policy.Policy.
type Policy struct {
	chooser
	batches underway.Table
	users   [][]int32 // by device: the models with a stage on it
	dirty   []int32   // models that need a decision
}

// modelState is the policy's state of a model.
type model struct {
	queue  waiting.Queue
	armed  time.Duration // time of the pending wake; farFuture if there is none
	wake   time.Duration // time at which it is to be looked at again, as decided
	held   bool          // its head waits for other work that must go first
	dirty  bool          // it is in Policy.dirtyModels
	shares []int32       // other models that have stages on its devices
	// awaitedDevices has the devices of the path that the head waits for, if that is the model's only pipeline and
	// uses no gaps; else it is empty.
	waits []int32
}

// New returns the policy for a plan's tables.
func New(t *policy.Tables, opt Options) *Policy {
	p := &Policy{batches: *underway.New(t)}
	p.finder = finder{t: t, numDevices: int32(len(t.Devices)), maxDepth: maxDepth}
	p.opt = opt

	// Make the timelines of all devices and links.
	p.tl.init(p.numDevices+int32(len(t.Links)), 0, t.MaxStages())
	p.tl.grow(p.batches.Len())
	p.uplinks, p.downlinks = make([]int32, p.numDevices), make([]int32, p.numDevices)
	for d := range t.Devices {
		p.uplinks[d], p.downlinks[d] = p.resource(t.Devices[d].Uplink), p.resource(t.Devices[d].Downlink)
	}

	// Make buffers for paths.
	for i := range p.paths {
		p.paths[i].hops = make([]policy.Hop, 0, t.MaxStages())
	}
	p.retry.hops = make([]policy.Hop, 0, t.MaxStages())
	p.fuller.hops = make([]policy.Hop, 0, t.MaxStages())
	p.other.hops = make([]policy.Hop, 0, t.MaxStages())

	// Make the models.
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

// resourceOfLink returns the resource of a link. If link is -1, it returns -1.
func (f *finder) resource(link int32) int32 {
	if link < 0 {
		return -1
	}
	return f.numDevices + link
}

// computePathTimes computes the minimal path time and the guard of every pipeline and batch:
//
//	guard = min(GuardTime + GuardShare * work, (SLO - minTime) / 2)
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

		// Note whether times grow with the batch.
		monotone := true
		for s := range stages {
			monotone = monotone && slices.IsSorted(stages[s].Infer) && slices.IsSorted(stages[s].Xfer)
		}

		// Compute the guard, at most half of the slack.
		guard := make([]time.Duration, pl.Batch)
		for b := range guard {
			room := max(c.t.Models[pl.Model].SLO-least[b], 0)
			guard[b] = min(c.opt.GuardTime+time.Duration(c.opt.GuardShare*float64(work[b])), room/2)
		}
		c.least, c.guard, c.monotone = append(c.least, least), append(c.guard, guard), append(c.monotone, monotone)
	}
}

// computeIntervals computes each model's time per request from the rates of its pipelines. The rate of a pipeline
// is that of its slowest stage with all of the stage's devices at their best batch.
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

// mayStayOnNode reports whether the transfer into a stage may stay on a node, and notes it in hasSameNodePath.
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

// indexModels lists the models of each device, and the sharing models of each model.
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
			return // the samples of one request are decided together, with the last
		}
	case policy.Timer:
		m := int32(ev.Value)
		p.models[m].armed = never
		p.again(m)
		for _, o := range p.models[m].shares {
			if p.models[o].held {
				p.again(o) // it waits for the same device: the most urgent model gets it
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

// handleArrival queues a request, or drops it if the queue is full. It reports whether the request is queued.
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

// handleFinish records the end of a batch's run on a device.
func (p *Policy) finished(ev *policy.Event) {
	if b := p.batches.At(ev.Batch); !b.Live || ev.Hop < b.Done {
		return
	}
	n := p.tl.node(ev.Batch, ev.Hop, run)
	moved := p.tl.nodes[n].end() != ev.End
	p.tl.finishedAt(n, ev.End, p.batches.Finished(ev))
	p.feedback(ev.Device, moved)
}

// markWaitingModels marks the models of a device for a decision, if an actual time differed from the reserved one
// or their heads wait for other work.
func (p *Policy) feedback(device int32, moved bool) {
	for _, m := range p.users[device] {
		if mo := &p.models[m]; mo.queue.Len > 0 && (moved || mo.held) {
			p.again(m)
		}
	}
}

// markAfterChange marks a model for a decision after an event that may have freed a device or a link earlier than
// its head expects.
func (p *Policy) again(m int32) {
	if p.opt.Eager {
		p.models[m].waits = p.models[m].waits[:0]
	}
	p.mark(m)
}

// markDirty marks a model for a decision at the end of this event.
func (p *Policy) mark(m int32) {
	if !p.models[m].dirty {
		p.models[m].dirty = true
		p.dirty = append(p.dirty, m)
	}
}

// headDeadline returns the deadline of a model's head. Of the sharing models the one with the earliest decides
// first.
func (p *Policy) urgency(m int32) time.Duration {
	if q := &p.models[m].queue; q.Len > 0 {
		return q.At(0).Deadline
	}
	return never
}

// decideDirty decides until no model's state has changed since its decision. Every further round follows a
// dispatch, so it ends.
func (p *Policy) decideDirty(now time.Duration, out *policy.Actions) {
	for len(p.dirty) > 0 {
		// Take the most urgent model.
		first, last := 0, len(p.dirty)-1
		for i := 1; i <= last; i++ {
			if p.urgency(p.dirty[i]) < p.urgency(p.dirty[first]) {
				first = i
			}
		}
		m := p.dirty[first]
		if first < last { // usually there is only one
			copy(p.dirty[first:], p.dirty[first+1:])
		}
		p.dirty = p.dirty[:last]
		p.models[m].dirty = false
		p.decide(m, now, out)
	}
}

// dropRequest appends a Drop action.
func (p *Policy) drop(m, req int32, reason policy.Reason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: m, Req: req})
}
