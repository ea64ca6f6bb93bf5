package reserve

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/underway"
	"inferplan/policy/waiting"
)

// Name is the policy's name in plans.
const Name = "reserve"

// Options are the policy's parameters. The zero value is the paper's Algorithm 1. Plans that name no parameters get
// DefaultOptions. A head is the first request of a model's queue, the one with the earliest deadline.
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

// ParseOptions returns the default options, changed by the parameters of a plan: shed and eager (0 or 1: DropHopeless
// and SendWhenFree), ahead_us (DecideAhead), queue_limit (requests of a model, 0 for no limit), guard_us and guard_share
// (the part of deadlines in reserve, as a time and as a share of the work). It returns an error for an unknown parameter
// or a value outside its range. Names are read in sorted order, so that a plan with several mistakes always gets the
// same message.
func ParseOptions(params map[string]float64) (Options, error) {
	options := DefaultOptions()
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := params[name]
		inRange := value >= 0
		expected := "a number in range"
		switch name {
		case "shed":
			options.DropHopeless, inRange, expected = value != 0, value == 0 || value == 1, "0 or 1"
		case "eager":
			options.SendWhenFree, inRange, expected = value != 0, value == 0 || value == 1, "0 or 1"
		case "ahead_us":
			inRange, expected = inRange && value <= maxMicroseconds, "microseconds from 0 to 1e12"
			options.DecideAhead = time.Duration(value * float64(time.Microsecond))
		case "queue_limit":
			inRange, expected = inRange && value <= maxQueueLimit && value == math.Trunc(value), "a whole number from 0 to 1e9"
			options.QueueLimit = int(min(max(value, 0), maxQueueLimit))
		case "guard_us":
			inRange, expected = inRange && value <= maxMicroseconds, "microseconds from 0 to 1e12"
			options.GuardTime = time.Duration(value * float64(time.Microsecond))
		case "guard_share":
			inRange, expected = inRange && value <= maxGuardShare, "a share from 0 to 10"
			options.GuardShare = value
		default:
			return options, fmt.Errorf("policy %s: unknown parameter %q, expected shed, eager, ahead_us, queue_limit, guard_us or guard_share", Name, name)
		}
		if !inRange {
			return options, fmt.Errorf("policy %s: parameter %s: found %v, expected %s", Name, name, value, expected)
		}
	}
	return options, nil
}

// pathFinder finds paths through pipelines and reserves them. A path is a device for each stage, with the transfers
// between them. A resource is a device or one direction of a node's links: device d is resource d, and link l of
// Tables.Links is resource numDevices + l.
type pathFinder struct {
	tables                *policy.Tables
	timelines             *timelines
	lists                 *reservationLists // timelines.lists
	numDevices            int32
	maxDepth              int32   // the most reservations on a device, see atMaxDepth
	uplinks               []int32 // by device: resource of its node's uplink, or -1 without one
	downlinks             []int32 // by device: resource of its node's downlink, or -1 without one
	forbidsMoves          bool    // new paths may move no reservation of others
	hasNodeLocalTransfers bool    // some pipeline may stay on a node that has a NIC
	pathsSought           int64   // number of paths sought so far
}

// newPathFinder returns a pathFinder (the search for the devices of a batch) for a plan's tables. Its timelines, the
// lists of reservations of all devices and links, are empty, and have space for this many batches at a time
// (batchSlots). uplinks and downlinks have, by device, the resource number of its node's link, -1 for none.
func newPathFinder(tables *policy.Tables, batchSlots int32) *pathFinder {
	finder := &pathFinder{
		tables: tables, timelines: &timelines{}, numDevices: int32(len(tables.Devices)), maxDepth: maxDepth,
		uplinks: make([]int32, len(tables.Devices)), downlinks: make([]int32, len(tables.Devices)),
	}
	finder.lists = &finder.timelines.lists
	finder.timelines.initialize(finder.numDevices+int32(len(tables.Links)), batchSlots, tables.MaxStages())
	for device := range tables.Devices {
		finder.uplinks[device] = finder.resourceOfLink(tables.Devices[device].Uplink)
		finder.downlinks[device] = finder.resourceOfLink(tables.Devices[device].Downlink)
	}
	return finder
}

// batchChooser chooses a pipeline, a batch and a time for the head of a model's queue (its request with the earliest
// deadline). The paths are buffers, because a decision must not allocate.
type batchChooser struct {
	tables             *policy.Tables
	finder             *pathFinder
	options            Options
	models             []modelState      // by model; the same states as Policy.models
	ignoreGuard        bool              // deadlines count without the guard, see findPathInTime
	minPathTime        [][]time.Duration // [pipeline][batch size - 1]: duration of a path that waits for nothing
	guard              [][]time.Duration // [pipeline][batch size - 1]: part of a deadline that is kept in reserve
	requestInterval    []time.Duration   // by model: mean time per request if all its devices are busy
	timeGrowsWithBatch []bool            // by pipeline: at no stage or transfer a larger batch takes less time
	pipelinePaths      [2]reservedPath   // the best path of choosePipeline, and the candidate that it is compared with
	waitingPath        reservedPath      // a path of all requests that wait
	otherPipelinePath  reservedPath      // a path on another pipeline than the first choice
	largerBatchPath    reservedPath      // a path of a batch of one request more than wait
	pathBehind         reservedPath      // a path of a model behind a batch of another one
	otherModelPath     reservedPath      // a path of the waiting requests of a colocated model
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
	markedModels   []int32   // models that need a decision
}

// modelState is the policy's state of a model.
type modelState struct {
	queue               waiting.Queue
	pendingWake         time.Duration // time of the pending wake; farFuture if there is none
	nextWake            time.Duration // time at which it is to be looked at again, as decided
	wakesOnDeviceEvents bool          // its head waits for work that must go first, so events of work on its devices make it decide again
	isMarked            bool          // it is in Policy.markedModels
	colocatedModels     []int32       // other models that have stages on its devices
	// awaitedDevices has the devices of the path that the head waits for, if that is the model's only pipeline and
	// uses no gaps; else it is empty.
	awaitedDevices []int32
}

// New returns the policy for a plan's tables, with all devices free and all queues empty.
func New(tables *policy.Tables, options Options) *Policy {
	batches := underway.New(tables)
	finder := newPathFinder(tables, batches.Len())
	chooser := newBatchChooser(finder, options)
	policyState := &Policy{tables: tables, timelines: finder.timelines, lists: finder.lists, finder: finder, chooser: chooser, models: chooser.models, batches: *batches}
	policyState.markedModels = make([]int32, 0, len(tables.Models))
	policyState.indexModels()
	return policyState
}

// newBatchChooser returns the part of the policy that decides about the heads of the queues. All queues are empty.
// The buffers of paths are made once here, because a decision must not allocate.
func newBatchChooser(finder *pathFinder, options Options) *batchChooser {
	tables := finder.tables
	chooser := &batchChooser{tables: tables, finder: finder, options: options, models: make([]modelState, len(tables.Models))}
	for i := range chooser.models {
		chooser.models[i].pendingWake = farFuture
		chooser.models[i].queue.Grow()
		chooser.models[i].awaitedDevices = make([]int32, 0, tables.MaxStages())
	}
	for _, path := range []*reservedPath{&chooser.pipelinePaths[0], &chooser.pipelinePaths[1], &chooser.waitingPath, &chooser.otherPipelinePath, &chooser.largerBatchPath, &chooser.pathBehind, &chooser.otherModelPath} {
		path.hops = make([]policy.Hop, 0, tables.MaxStages())
	}
	chooser.computePathTimes()
	chooser.computeIntervals()
	return chooser
}

// resourceOfLink returns the number that a link (an index in Tables.Links) has among the resources: devices come
// first, then links. If link is -1, it returns -1.
func (f *pathFinder) resourceOfLink(link int32) int32 {
	if link < 0 {
		return -1
	}
	return f.numDevices + link
}

// computePathTimes computes, when the policy is made, for every pipeline and batch size the time of a path that waits
// for nothing (minPathTime) and the guard, the part of each deadline that is kept in reserve against jitter:
//
//	guard = min(GuardTime + GuardShare * workTime, (SLO - minTime) / 2)
//
// workTime is the sum of the run times of the stages, minTime that of the runs and of the transfers that cannot stay
// within a node. The guard is at most half of the slack, so that a tight SLO stays possible. It also notes which
// pipelines take longer with larger batches (timeGrowsWithBatch), and sets finder.hasNodeLocalTransfers.
func (c *batchChooser) computePathTimes() {
	for pipelineIndex := range c.tables.Pipelines {
		pipeline := &c.tables.Pipelines[pipelineIndex]
		workTime, minTime := make([]time.Duration, pipeline.Batch), make([]time.Duration, pipeline.Batch)
		stages := c.tables.Stages[pipeline.FirstStage : pipeline.FirstStage+pipeline.NumStages]
		for position := range stages {
			for sizeIndex := range workTime {
				workTime[sizeIndex] += stages[position].Infer[sizeIndex]
				minTime[sizeIndex] += stages[position].Infer[sizeIndex]
				if stages[position].Xfer == nil {
					continue
				}
				if c.finder.mayStayOnNode(pipeline.FirstStage + int32(position)) {
					c.finder.hasNodeLocalTransfers = true
				} else {
					minTime[sizeIndex] += stages[position].Xfer[sizeIndex]
				}
			}
		}

		// Note whether times grow with the batch: tables of times are by batch size, ascending.
		growsWithBatch := true
		for position := range stages {
			growsWithBatch = growsWithBatch && slices.IsSorted(stages[position].Infer) && slices.IsSorted(stages[position].Xfer)
		}

		// Compute the guard, at most half of the slack.
		guard := make([]time.Duration, pipeline.Batch)
		for sizeIndex := range guard {
			slack := max(c.tables.Models[pipeline.Model].SLO-minTime[sizeIndex], 0)
			guard[sizeIndex] = min(c.options.GuardTime+time.Duration(c.options.GuardShare*float64(workTime[sizeIndex])), slack/2)
		}
		c.minPathTime = append(c.minPathTime, minTime)
		c.guard = append(c.guard, guard)
		c.timeGrowsWithBatch = append(c.timeGrowsWithBatch, growsWithBatch)
	}
}

// computeIntervals computes, when the policy is made, each model's time between requests at its highest rate, the sum
// of the rates of its pipelines. The rate of a pipeline is that of its slowest stage with all of the stage's devices
// at their best batch size.
func (c *batchChooser) computeIntervals() {
	c.requestInterval = make([]time.Duration, len(c.tables.Models))
	for modelIndex := range c.requestInterval {
		rate := 0.0
		firstPipeline, endPipeline := c.tables.PipelinesOf(int32(modelIndex))
		for pipelineIndex := firstPipeline; pipelineIndex < endPipeline; pipelineIndex++ {
			pipeline := &c.tables.Pipelines[pipelineIndex]

			// The slowest stage limits a pipeline. Rates are in requests per nanosecond.
			slowestRate := math.Inf(1)
			for _, stage := range c.tables.Stages[pipeline.FirstStage : pipeline.FirstStage+pipeline.NumStages] {
				bestRate := 0.0
				for sizeIndex := range pipeline.Batch {
					bestRate = max(bestRate, float64(sizeIndex+1)/float64(max(stage.Infer[sizeIndex], 1)))
				}
				slowestRate = min(slowestRate, bestRate*float64(stage.NumDevices))
			}

			// The pipelines of a model add up.
			rate += slowestRate
		}
		if rate > 0 {
			c.requestInterval[modelIndex] = time.Duration(1 / rate)
		}
	}
}

// mayStayOnNode reports whether the transfer into a stage (an index in Tables.Stages) may stay within a node that has a
// NIC, because a device of the stage before is on the same node as one of this stage. Transfer times then depend on the
// chosen devices. (Without a NIC every transfer takes the plan's measured time.)
func (f *pathFinder) mayStayOnNode(stage int32) bool {
	for _, sourceDevice := range f.tables.DevicesOf(stage - 1) {
		if f.uplinks[sourceDevice] < 0 {
			continue
		}
		for _, targetDevice := range f.tables.DevicesOf(stage) {
			if f.tables.Devices[sourceDevice].Node == f.tables.Devices[targetDevice].Node {
				return true
			}
		}
	}
	return false
}

// indexModels lists, when the policy is made, the models that have stages on each device, and for each model its
// colocated models: the others that have stages on one of its devices.
func (p *Policy) indexModels() {
	p.modelsOfDevice = make([][]int32, p.finder.numDevices)

	// List the models of each device.
	for stageIndex := range p.tables.Stages {
		modelIndex := p.tables.Pipelines[p.tables.Stages[stageIndex].Pipeline].Model
		for _, device := range p.tables.DevicesOf(int32(stageIndex)) {
			if !slices.Contains(p.modelsOfDevice[device], modelIndex) {
				p.modelsOfDevice[device] = append(p.modelsOfDevice[device], modelIndex)
			}
		}
	}

	// Every other model on one of a model's devices is a colocated model.
	for _, models := range p.modelsOfDevice {
		for _, modelIndex := range models {
			for _, colocatedModel := range models {
				if colocatedModel != modelIndex && !slices.Contains(p.models[modelIndex].colocatedModels, colocatedModel) {
					p.models[modelIndex].colocatedModels = append(p.models[modelIndex].colocatedModels, colocatedModel)
				}
			}
		}
	}
	for i := range p.models {
		slices.Sort(p.models[i].colocatedModels)
	}
}

// Handle decides what to do about one event and appends the actions to out. It first brings the reservations in line
// with the actual times of the event, and marks the models whose decision may change; these then decide. It implements
// policy.Policy.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		if p.handleArrival(now, ev, out) && ev.Value > 0 {
			return // the samples of one request are decided together, with the last
		}
	case policy.Timer:
		p.handleWake(int32(ev.Value))

	// Actual times correct the reservations: the start of a run, the end of a transfer, the end of a run. Events that come
	// twice, or of batches that have ended, are ignored. Models that wait for the device decide again if its times changed.
	case policy.BatchStarted:
		if batch := p.batches.BatchAt(ev.Batch); batch.IsLive && ev.Hop >= batch.FinishedHops {
			index := p.lists.reservationOf(ev.Batch, ev.Hop, onDevice)
			timeChanged := p.lists.reservations[index].start != ev.Start
			p.timelines.recordStart(index, ev.Start)
			p.markWaitingModels(ev.Device, timeChanged)
		}
	case policy.TransferFinished:
		if batch := p.batches.BatchAt(ev.Batch); batch.IsLive && ev.Hop > batch.ReachedHops {
			p.batches.RecordArrival(ev)
			index := p.lists.reservationOf(ev.Batch, ev.Hop, onDevice)
			timeChanged := p.lists.reservations[index].readyAt != ev.End
			p.timelines.recordTransferEnd(index, ev.End)
			p.markWaitingModels(batch.Devices[ev.Hop], timeChanged)
		}
	case policy.BatchFinished:
		p.handleFinish(ev)
	case policy.Cancel:
		if model := &p.models[ev.Model]; model.queue.Remove(ev.Req) {
			dropRequest(ev.Model, ev.Req, policy.ReasonCancelled, out)
			p.markForNewSearch(ev.Model)
		}
	case policy.WorkerLost:
		p.loseDevice(now, ev.Device, out)
	case policy.WorkerBack:
		p.regainDevice(now, ev.Device)
	}
	p.decideMarkedModels(now, out)
}

// handleWake is called when the timer fires that underway.SetWake set for a model, to mark that model for a decision. Colocated
// models that wait for work on their devices may wait for the same device, so they decide, too, and the most urgent one
// gets it.
func (p *Policy) handleWake(modelIndex int32) {
	p.models[modelIndex].pendingWake = farFuture // none is pending now
	p.markForNewSearch(modelIndex)
	for _, colocatedModel := range p.models[modelIndex].colocatedModels {
		if p.models[colocatedModel].wakesOnDeviceEvents {
			p.markForNewSearch(colocatedModel)
		}
	}
}

// handleArrival adds the request of an Arrival event to its model's queue and marks the model for a decision. If the
// queue is full (Options.QueueLimit), it drops the request. It reports whether the request is queued.
func (p *Policy) handleArrival(now time.Duration, ev *policy.Event, out *policy.Actions) bool {
	model := &p.models[ev.Model]
	if p.chooser.options.QueueLimit > 0 && model.queue.Len >= p.chooser.options.QueueLimit {
		dropRequest(ev.Model, ev.Req, policy.ReasonQueueFull, out)
		return false
	}
	model.queue.Insert(waiting.Request{Deadline: ev.Deadline, ArrivedAt: ev.ArrivedAt, Req: ev.Req})
	p.markForDecision(ev.Model)
	return true
}

// handleFinish is called for the event BatchFinished, the end of a batch's run on a device: it corrects the reservations,
// and frees the batch's slot after its last hop. If the run did not end when its reservation said, the models with
// requests for the device decide again.
func (p *Policy) handleFinish(ev *policy.Event) {
	if batch := p.batches.BatchAt(ev.Batch); !batch.IsLive || ev.Hop < batch.FinishedHops {
		return
	}
	index := p.lists.reservationOf(ev.Batch, ev.Hop, onDevice)
	timeChanged := p.lists.reservations[index].end() != ev.End
	isLastHop := p.batches.RecordFinish(ev)
	p.timelines.recordFinish(index, ev.End, isLastHop)
	p.markWaitingModels(ev.Device, timeChanged)
}

// markWaitingModels is called after an event of work on a device. It marks the models with stages there for a decision,
// if requests of them wait and either the actual time of the event differed from the reserved one (timeChanged) or
// their heads wait for other work to go first (wakesOnDeviceEvents).
func (p *Policy) markWaitingModels(device int32, timeChanged bool) {
	for _, modelIndex := range p.modelsOfDevice[device] {
		if model := &p.models[modelIndex]; model.queue.Len > 0 && (timeChanged || model.wakesOnDeviceEvents) {
			p.markForNewSearch(modelIndex)
		}
	}
}

// markForNewSearch marks a model for a decision after an event that may have freed a device or a link earlier than its
// head expects. With SendWhenFree the devices that the head waits for (awaitedDevices) are cleared, so that the decision
// searches for a new path. Without it, a head waits for its last moment, which such an event does not change.
func (p *Policy) markForNewSearch(modelIndex int32) {
	if p.chooser.options.SendWhenFree {
		p.models[modelIndex].awaitedDevices = p.models[modelIndex].awaitedDevices[:0]
	}
	p.markForDecision(modelIndex)
}

// markForDecision marks a model for a decision at the end of the event that is being handled, once however often it is called.
func (p *Policy) markForDecision(modelIndex int32) {
	if !p.models[modelIndex].isMarked {
		p.models[modelIndex].isMarked = true
		p.markedModels = append(p.markedModels, modelIndex)
	}
}

// Probes returns the number of paths sought so far. It implements policy.Prober.
func (p *Policy) Probes() int64 { return p.finder.pathsSought }

// headDeadline returns the deadline of the head, the first request of the model's queue; farFuture if the queue is
// empty. Among marked models the one with the earliest deadline decides first.
func (model *modelState) headDeadline() time.Duration {
	if model.queue.Len > 0 {
		return model.queue.At(0).Deadline
	}
	return farFuture
}

// decideMarkedModels is the last step of Handle: it lets the models that the event marked decide, the one with the most
// urgent head first, until none is marked. A decision marks others only after a dispatch, so it ends.
func (p *Policy) decideMarkedModels(now time.Duration, out *policy.Actions) {
	for len(p.markedModels) > 0 {
		// Take the most urgent model.
		mostUrgent, lastIndex := 0, len(p.markedModels)-1
		for i := 1; i <= lastIndex; i++ {
			if p.models[p.markedModels[i]].headDeadline() < p.models[p.markedModels[mostUrgent]].headDeadline() {
				mostUrgent = i
			}
		}
		modelIndex := p.markedModels[mostUrgent]

		// Remove its mark first, because its decision may mark it again. Usually it is the only one.
		if mostUrgent < lastIndex {
			copy(p.markedModels[mostUrgent:], p.markedModels[mostUrgent+1:])
		}
		p.markedModels = p.markedModels[:lastIndex]
		p.models[modelIndex].isMarked = false
		p.decideModel(modelIndex, now, out)
	}
}

// dropRequest appends the action that drops a request (by its slot) of a model for a reason.
func dropRequest(modelIndex, req int32, reason policy.DropReason, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Reason: reason, Model: modelIndex, Req: req})
}
