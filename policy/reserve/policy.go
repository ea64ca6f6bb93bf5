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
	DropHopeless bool
	// SendWhenFree sends the waiting requests as soon as they can go through a pipeline without waiting for a
	// device or a link. Without it a head waits for a fuller batch until the last moment of its SLO, as in the
	// paper.
	SendWhenFree bool
	// DecideAhead is how long before a shared device becomes free a policy with SendWhenFree decides what runs
	// next on it: long enough for the message to get there.
	DecideAhead time.Duration
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
func DefaultOptions() Options {
	return Options{DropHopeless: true, SendWhenFree: true, DecideAhead: time.Millisecond}
}

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
			o.DropHopeless, ok, expected = v != 0, v == 0 || v == 1, "0 or 1"
		case "eager":
			o.SendWhenFree, ok, expected = v != 0, v == 0 || v == 1, "0 or 1"
		case "ahead_us":
			ok, expected = ok && v <= maxMicroseconds, "microseconds from 0 to 1e12"
			o.DecideAhead = time.Duration(v * float64(time.Microsecond))
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
type pathFinder struct {
	tables           *policy.Tables
	timelines        *timelines
	lists            *reservationLists // those of the timelines
	numDevices       int32
	maxDepth         int32
	uplinks          []int32 // by device: resource of its node's uplink, or -1
	downlinks        []int32
	keepReservations bool  // paths may move no reservation
	hasSameNodePath  bool  // some pipeline may stay on a node that has a NIC
	pathsSought      int64 // number of paths sought so far
}

// newPathFinder returns a finder of paths (a device for each stage) with empty timelines of all devices and links,
// for this many batch slots. Devices are the first resources, then the links.
func newPathFinder(t *policy.Tables, batches int32) *pathFinder {
	f := &pathFinder{tables: t, timelines: &timelines{}, numDevices: int32(len(t.Devices)), maxDepth: maxDepth, uplinks: make([]int32, len(t.Devices)), downlinks: make([]int32, len(t.Devices))}
	f.lists = &f.timelines.lists
	f.timelines.initialize(f.numDevices+int32(len(t.Links)), batches, t.MaxStages())
	for d := range t.Devices {
		f.uplinks[d], f.downlinks[d] = f.resourceOfLink(t.Devices[d].Uplink), f.resourceOfLink(t.Devices[d].Downlink)
	}
	return f
}

// batchChooser chooses a pipeline, a batch and a time for the head of a queue.
type batchChooser struct {
	tables          *policy.Tables
	finder          *pathFinder
	options         Options
	models          []modelState
	ignoreGuard     bool              // deadlines count without the guard, see fitHead
	minPathTime     [][]time.Duration // by pipeline and batch: duration of a path without waiting
	guard           [][]time.Duration // by pipeline and batch: part of a deadline that is kept back
	requestInterval []time.Duration   // by model: mean time per request if all its devices are busy
	batchMonotone   []bool            // by pipeline: no stage is faster at a larger batch
	pipelinePaths   [2]reservedPath
	retryPath       reservedPath
	largerBatchPath reservedPath
	otherModelPath  reservedPath
}

// Policy is the state of reservation-based adaptive batching over one plan's tables. It implements policy.Policy.
type Policy struct {
	tables         *policy.Tables
	timelines      *timelines
	lists          *reservationLists // those of the timelines
	finder         *pathFinder
	chooser        *batchChooser
	models         []modelState
	batches        underway.BatchTable
	modelsOfDevice [][]int32 // by device: the models with a stage on it
	dirtyModels    []int32   // models that need a decision
}

// modelState is the policy's state of a model.
type modelState struct {
	queue           waiting.Queue
	pendingWake     time.Duration // time of the pending wake; farFuture if there is none
	nextWake        time.Duration // time at which it is to be looked at again, as decided
	awaitsOtherWork bool          // its head waits for other work that must go first
	needsDecision   bool          // it is in Policy.dirtyModels
	sharingModels   []int32       // other models that have stages on its devices
	// awaitedDevices has the devices of the path that the head waits for, if that is the model's only pipeline and
	// uses no gaps; else it is empty.
	awaitedDevices []int32
}

// New returns the policy for a plan's tables.
func New(t *policy.Tables, opt Options) *Policy {
	batches := underway.New(t)
	finder := newPathFinder(t, batches.Len())
	chooser := newBatchChooser(finder, opt)
	p := &Policy{tables: t, timelines: finder.timelines, lists: finder.lists, finder: finder, chooser: chooser, models: chooser.models, batches: *batches}
	p.dirtyModels = make([]int32, 0, len(t.Models))
	p.indexModels()
	return p
}

// newBatchChooser returns the part that decides about the heads of the queues, for models with empty queues. The
// buffers of paths are made once here, because a decision must not allocate.
func newBatchChooser(f *pathFinder, opt Options) *batchChooser {
	t := f.tables
	c := &batchChooser{tables: t, finder: f, options: opt, models: make([]modelState, len(t.Models))}
	for i := range c.models {
		c.models[i].pendingWake = farFuture
		c.models[i].queue.Grow()
		c.models[i].awaitedDevices = make([]int32, 0, t.MaxStages())
	}
	for _, path := range []*reservedPath{&c.pipelinePaths[0], &c.pipelinePaths[1], &c.retryPath, &c.largerBatchPath, &c.otherModelPath} {
		path.hops = make([]policy.Hop, 0, t.MaxStages())
	}
	c.computePathTimes()
	c.computeIntervals()
	return c
}

// resourceOfLink returns the resource of a link. If link is -1, it returns -1.
func (f *pathFinder) resourceOfLink(link int32) int32 {
	if link < 0 {
		return -1
	}
	return f.numDevices + link
}

// computePathTimes computes the minimal path time and the guard of every pipeline and batch:
//
//	guard = min(GuardTime + GuardShare * work, (SLO - minTime) / 2)
//
// The guard is a part of each deadline that is kept back against jitter. It is at most half of the slack, so that a
// tight SLO stays possible.
func (c *batchChooser) computePathTimes() {
	for i := range c.tables.Pipelines {
		pipeline := &c.tables.Pipelines[i]
		work, minTime := make([]time.Duration, pipeline.Batch), make([]time.Duration, pipeline.Batch)
		stages := c.tables.Stages[pipeline.FirstStage : pipeline.FirstStage+pipeline.NumStages]
		for s := range stages {
			for b := range work {
				work[b] += stages[s].Infer[b]
				minTime[b] += stages[s].Infer[b]
				if stages[s].Xfer != nil && !c.finder.mayStayOnNode(pipeline.FirstStage+int32(s)) {
					minTime[b] += stages[s].Xfer[b]
				}
			}
		}

		// Note whether times grow with the batch.
		monotone := true
		for s := range stages {
			monotone = monotone && slices.IsSorted(stages[s].Infer) && slices.IsSorted(stages[s].Xfer)
		}

		// Compute the guard, at most half of the slack.
		guard := make([]time.Duration, pipeline.Batch)
		for b := range guard {
			slack := max(c.tables.Models[pipeline.Model].SLO-minTime[b], 0)
			guard[b] = min(c.options.GuardTime+time.Duration(c.options.GuardShare*float64(work[b])), slack/2)
		}
		c.minPathTime, c.guard, c.batchMonotone = append(c.minPathTime, minTime), append(c.guard, guard), append(c.batchMonotone, monotone)
	}
}

// computeIntervals computes each model's time between requests at its highest rate, the sum of the rates of its
// pipelines. The rate of a pipeline is that of its slowest stage with all of the stage's devices at their best
// batch.
func (c *batchChooser) computeIntervals() {
	c.requestInterval = make([]time.Duration, len(c.tables.Models))
	for m := range c.requestInterval {
		rate := 0.0
		firstPipeline, endPipeline := c.tables.PipelinesOf(int32(m))
		for i := firstPipeline; i < endPipeline; i++ {
			pl := &c.tables.Pipelines[i]
			slowestRate := math.Inf(1)
			for _, st := range c.tables.Stages[pl.FirstStage : pl.FirstStage+pl.NumStages] {
				bestRate := 0.0
				for b := range pl.Batch {
					bestRate = max(bestRate, float64(b+1)/float64(max(st.Infer[b], 1)))
				}
				slowestRate = min(slowestRate, bestRate*float64(st.NumDevices))
			}
			rate += slowestRate
		}
		if rate > 0 {
			c.requestInterval[m] = time.Duration(1 / rate)
		}
	}
}

// mayStayOnNode reports whether the transfer into a stage may stay on a node, because a device of the stage before
// is on the same node as one of this stage. It then notes in hasSameNodePath that transfer times depend on the
// chosen devices.
func (f *pathFinder) mayStayOnNode(stage int32) bool {
	for _, a := range f.tables.DevicesOf(stage - 1) {
		if f.uplinks[a] < 0 {
			continue
		}
		for _, b := range f.tables.DevicesOf(stage) {
			if f.tables.Devices[a].Node == f.tables.Devices[b].Node {
				f.hasSameNodePath = true
				return true
			}
		}
	}
	return false
}

// indexModels lists, when the policy is made, the models that have stages on each device, and for each model its
// sharing models: those that have stages on one of its devices.
func (p *Policy) indexModels() {
	p.modelsOfDevice = make([][]int32, p.finder.numDevices)
	for s := range p.tables.Stages {
		m := p.tables.Pipelines[p.tables.Stages[s].Pipeline].Model
		for _, d := range p.tables.DevicesOf(int32(s)) {
			if !slices.Contains(p.modelsOfDevice[d], m) {
				p.modelsOfDevice[d] = append(p.modelsOfDevice[d], m)
			}
		}
	}
	for _, users := range p.modelsOfDevice {
		for _, m := range users {
			for _, o := range users {
				if o != m && !slices.Contains(p.models[m].sharingModels, o) {
					p.models[m].sharingModels = append(p.models[m].sharingModels, o)
				}
			}
		}
	}
	for i := range p.models {
		slices.Sort(p.models[i].sharingModels)
	}
}

// Handle decides what to do about one event. It first brings the reservations in line with what really happened,
// and marks the models whose decision may change; these then decide. It implements policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		if p.handleArrival(now, ev, out) && ev.Value > 0 {
			return // the samples of one request are decided together, with the last
		}
	case policy.Timer:
		m := int32(ev.Value)
		p.models[m].pendingWake = farFuture
		p.markAfterChange(m)
		for _, o := range p.models[m].sharingModels {
			if p.models[o].awaitsOtherWork {
				p.markAfterChange(o) // it waits for the same device: the most urgent model gets it
			}
		}
	case policy.BatchStarted:
		if b := p.batches.BatchAt(ev.Batch); b.IsLive && ev.Hop >= b.FinishedHops {
			n := p.lists.reservationOf(ev.Batch, ev.Hop, onDevice)
			timeChanged := p.lists.reservations[n].start != ev.Start
			p.timelines.recordStart(n, ev.Start)
			p.markWaitingModels(ev.Device, timeChanged)
		}
	case policy.TransferFinished:
		if b := p.batches.BatchAt(ev.Batch); b.IsLive && ev.Hop > b.ReachedHops {
			p.batches.RecordArrival(ev)
			n := p.lists.reservationOf(ev.Batch, ev.Hop, onDevice)
			timeChanged := p.lists.reservations[n].readyAt != ev.End
			p.timelines.recordTransferEnd(n, ev.End)
			p.markWaitingModels(b.Devices[ev.Hop], timeChanged)
		}
	case policy.BatchFinished:
		p.handleFinish(ev)
	case policy.Cancel:
		if m := &p.models[ev.Model]; m.queue.Remove(ev.Req) {
			dropRequest(ev.Model, ev.Req, policy.ReasonCancelled, out)
			p.markAfterChange(ev.Model)
		}
	case policy.WorkerLost:
		p.loseDevice(now, ev.Device, out)
	case policy.WorkerBack:
		p.regainDevice(now, ev.Device)
	}
	p.decideDirty(now, out)
}

// handleArrival queues a request, or drops it if the queue is full. It reports whether the request is queued.
func (p *Policy) handleArrival(now time.Duration, ev *policy.Event, out *policy.Actions) bool {
	m := &p.models[ev.Model]
	if p.chooser.options.QueueLimit > 0 && m.queue.Len >= p.chooser.options.QueueLimit {
		dropRequest(ev.Model, ev.Req, policy.ReasonQueueFull, out)
		return false
	}
	m.queue.Insert(waiting.Request{Deadline: ev.Deadline, ArrivedAt: ev.ArrivedAt, Req: ev.Req})
	p.markDirty(ev.Model)
	return true
}

// handleFinish records the end of a batch's run on a device, which frees that. If it is not the reserved end,
// models that wait for the device decide again.
func (p *Policy) handleFinish(ev *policy.Event) {
	if b := p.batches.BatchAt(ev.Batch); !b.IsLive || ev.Hop < b.FinishedHops {
		return
	}
	n := p.lists.reservationOf(ev.Batch, ev.Hop, onDevice)
	timeChanged := p.lists.reservations[n].end() != ev.End
	p.timelines.recordFinish(n, ev.End, p.batches.RecordFinish(ev))
	p.markWaitingModels(ev.Device, timeChanged)
}

// markWaitingModels marks the models of a device for a decision, if an actual time differed from the reserved one
// or their heads wait for other work.
func (p *Policy) markWaitingModels(device int32, timeChanged bool) {
	for _, m := range p.modelsOfDevice[device] {
		if model := &p.models[m]; model.queue.Len > 0 && (timeChanged || model.awaitsOtherWork) {
			p.markAfterChange(m)
		}
	}
}

// markAfterChange marks a model for a decision after an event that may have freed a device or a link earlier than
// its head expects.
func (p *Policy) markAfterChange(m int32) {
	if p.chooser.options.SendWhenFree {
		p.models[m].awaitedDevices = p.models[m].awaitedDevices[:0]
	}
	p.markDirty(m)
}

// markDirty marks a model for a decision at the end of this event.
func (p *Policy) markDirty(m int32) {
	if !p.models[m].needsDecision {
		p.models[m].needsDecision = true
		p.dirtyModels = append(p.dirtyModels, m)
	}
}

// Probes returns the number of paths sought so far. It implements policy.Prober.
func (p *Policy) Probes() int64 { return p.finder.pathsSought }

// headDeadline returns the deadline of the head of the queue. Of the sharing models the one with the earliest decides
// first.
func (m *modelState) headDeadline() time.Duration {
	if m.queue.Len > 0 {
		return m.queue.At(0).Deadline
	}
	return farFuture
}

// decideDirty lets the marked models decide, the one with the most urgent head first, until no model's state has
// changed since its decision. A decision marks others only after a dispatch, so it ends.
func (p *Policy) decideDirty(now time.Duration, out *policy.Actions) {
	for len(p.dirtyModels) > 0 {
		// Take the most urgent model.
		mostUrgent, lastIndex := 0, len(p.dirtyModels)-1
		for i := 1; i <= lastIndex; i++ {
			if p.models[p.dirtyModels[i]].headDeadline() < p.models[p.dirtyModels[mostUrgent]].headDeadline() {
				mostUrgent = i
			}
		}
		m := p.dirtyModels[mostUrgent]
		if mostUrgent < lastIndex { // usually there is only one
			copy(p.dirtyModels[mostUrgent:], p.dirtyModels[mostUrgent+1:])
		}
		p.dirtyModels = p.dirtyModels[:lastIndex]
		p.models[m].needsDecision = false
		p.decideModel(m, now, out)
	}
}

// dropRequest appends a Drop action.
func dropRequest(m, req int32, reason policy.DropReason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: m, Req: req})
}
