package gear

import (
	"errors"
	"fmt"
	"time"

	"inferplan/policy"
)

const (
	windowTag = 0 // end of a window
	flushTag  = 1 // the head of a queue has waited for the flush time
	noIndex   = int32(-1)
)

// Policy is the state of the policy of gear plans. It implements policy.Policy.
type Policy struct {
	fleet   chainFleet
	gears   []Gear
	options Options

	gearStages     []gearStage // of all gears, gear by gear
	firstStage     []int32     // by gear: index of its first stage
	currentWeights []float64   // by stage and replica: state of the round robin, see nextReplica
	minQueue       []int32     // by pipeline: minimal queue length of the gear in force

	requests []requestState // by slot

	refusals *refusalRule // nil if nothing is refused

	lostDevices    int   // number of lost devices
	gear           int32 // the gear in force
	openRequests   int   // number of requests that are not answered
	windowArrivals int64 // arrivals in this window
	rule           *SwitchRule
	windowRunning  bool          // a window is running
	windowEnd      time.Duration // end of this window
	flushAt        time.Duration // time of the pending flush wake; negative if there is none
}

// gearStage is a stage of a gear with its replicas and their weights.
type gearStage struct {
	chains       []int32 // by replica
	forwardBelow int32   // answers of a lower level are forwarded
	isLast       bool
	weights      []float64
	weightIndex  int32 // index of its first replica in Policy.currentWeights
}

// deviceState is the state of a device.
type deviceState struct {
	activeBatches        int32 // batches that wait for it or run on it; it is idle without any
	isLost               bool
	firstSlot, slotCount int32   // its first slot of chainFleet.batches, and the number of its slots
	startingChains       []int32 // chains that start on it
}

// requestState is the state of a request.
type requestState struct {
	gear, stage int32
	queue       int32 // queue in which it waits, or noIndex if it is in a batch
	workRow     int32 // start of its work row, see refusalRule
	arrivedAt   time.Duration
	enqueuedAt  time.Duration // when it joined its queue
	hasAnswer   bool          // some model has answered: the request can be completed
	cancelled   bool
}

// New returns the policy of a gear plan: the state of its chains (devices of a replica), the gears over them, and
// the rule that switches between gears. It starts with gear 0, that of the lowest rates. It returns an error if the
// plan has no gears.
func New(tables *policy.Tables, options Options) (*Policy, error) {
	gearTables := TablesOf(tables)
	if gearTables == nil || len(gearTables.Gears) == 0 {
		return nil, errors.New("policy gear: the plan has no gears: it is for plans of kind gear")
	}
	if options.Window <= 0 {
		return nil, errors.New("policy gear: the window must be positive")
	}
	pipelines := len(tables.Pipelines)

	// Make the chains, and the stages of the gears over them.
	gearPolicy := &Policy{
		fleet: chainFleet{tables: tables, maxBatch: tables.MaxBatch(), devices: make([]deviceState, len(tables.Devices)), devicesWithQueue: make([]uint64, (len(tables.Devices)+63)/64)},
		gears: gearTables.Gears, options: options, flushAt: -1, minQueue: make([]int32, pipelines),
	}
	shareCount, err := 0, error(nil)
	if gearPolicy.firstStage, gearPolicy.gearStages, shareCount, err = makeStages(gearPolicy.gears, gearPolicy.fleet.makeChains()); err != nil {
		return nil, err
	}

	// Make the rule that switches between gears, and start with the first.
	gearPolicy.currentWeights = make([]float64, shareCount)
	maxRates := make([]float64, len(gearPolicy.gears))
	for gearIndex := range gearPolicy.gears {
		maxRates[gearIndex] = gearPolicy.gears[gearIndex].ToQPS
	}
	gearPolicy.rule = NewSwitchRule(maxRates, options)
	gearPolicy.setGear(0) // also sets the minimal queue lengths
	if options.RefuseLate {
		gearPolicy.refusals = newRefusalRule(gearPolicy)
	}
	return gearPolicy, nil
}

// makeStages is called when the policy is made. It returns the index of each gear's first stage, the stages of all gears
// (one model of a cascade each) with the chains of their pipelines (the devices of each replica), and the number of
// shares of all stages. chainsOf has the chains by pipeline. It returns an error if a stage has not one share for each
// replica.
func makeStages(gears []Gear, chainsOf [][]int32) (firstStage []int32, stages []gearStage, shares int, err error) {
	// Count stages and shares.
	stageCount := 0
	for gearIndex := range gears {
		stageCount += len(gears[gearIndex].Stages)
		for stageIndex := range gears[gearIndex].Stages {
			shares += len(gears[gearIndex].Stages[stageIndex].ReplicaShares)
		}
	}

	// Concatenate the chains of each stage's pipelines: its replicas, in the order of its shares. The index of its first
	// chain is also that of its first weight in currentWeights.
	firstStage, stages = make([]int32, 0, len(gears)), make([]gearStage, 0, stageCount)
	chains := make([]int32, 0, shares)
	for gearIndex := range gears {
		firstStage = append(firstStage, int32(len(stages)))
		for stageIndex := range gears[gearIndex].Stages {
			stage, firstChain := &gears[gearIndex].Stages[stageIndex], len(chains)
			chains = append(chains, chainsOf[stage.Pipeline]...)
			for _, pipeline := range stage.OtherPipelines {
				chains = append(chains, chainsOf[pipeline]...)
			}
			replicas := chains[firstChain:len(chains):len(chains)] // a slice that later appends cannot overwrite
			if len(replicas) != len(stage.ReplicaShares) {
				return nil, nil, 0, fmt.Errorf("policy gear: gear %d, stage %d: %d shares for %d replicas", gearIndex, stageIndex, len(stage.ReplicaShares), len(replicas))
			}
			stages = append(stages, gearStage{chains: replicas, forwardBelow: stage.ForwardBelow, isLast: stageIndex == len(gears[gearIndex].Stages)-1, weights: stage.ReplicaShares, weightIndex: int32(firstChain)})
		}
	}
	return firstStage, stages, shares, nil
}

// Gear returns the gear in force, by its index in the plan.
func (p *Policy) Gear() int { return int(p.gear) }

// Handle decides what to do about one event, and is called for each in order of time. Timers are of two kinds: the
// end of the window over which arrivals are counted, and the flush of a queue that has waited long enough.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.handleArrival(now, ev, out)
	case policy.ControlRevealed:
		p.handleAnswer(now, ev, out)
	case policy.TransferFinished:
		p.fleet.batchArrived(ev.Batch)
	case policy.BatchFinished:
		if p.refusals != nil {
			p.refusals.observeRun(p, ev)
		}
		p.fleet.finishHop(ev.Batch)
		p.serveIdle(now, out)
	case policy.Timer:
		if ev.Value == windowTag {
			p.handleWindowEnd(now, out)
		} else {
			p.flushAt = -1
			p.serveIdle(now, out)
		}
	case policy.WorkerLost:
		p.loseDevice(now, ev.Device, out)
	case policy.WorkerBack:
		p.regainDevice(ev.Device)
		p.serveIdle(now, out)
	case policy.Cancel:
		p.cancelRequest(ev.Req, out)
	}
}

// handleArrival handles a new request: it counts it for the window, by whose rate the gear is chosen, refuses it if
// it could not be in time, and otherwise queues it for the first model of the gear in force.
func (p *Policy) handleArrival(now time.Duration, ev *policy.Event, out *policy.Actions) {
	requestSlot := ev.Req
	for int(requestSlot) >= len(p.requests) {
		p.requests = append(p.requests, requestState{})
	}

	// Count it, and start the windows if they rest, with the one that contains now: they begin at multiples of their length.
	p.windowArrivals++
	p.openRequests++
	if !p.windowRunning {
		p.windowRunning = true
		p.windowEnd = now - now%p.options.Window + p.options.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: windowTag, At: p.windowEnd})
	}
	p.requests[requestSlot] = requestState{gear: p.gear, queue: noIndex, arrivedAt: now}

	// Refuse it if it could not be in time. The drop tells the client when a retry may help, once the excess has passed.
	if p.refusals != nil {
		if lateness, refused := p.refusals.shouldRefuse(p, now, ev.Deadline); refused {
			p.openRequests--
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: requestSlot, Reason: policy.ReasonDeadline, At: now + lateness})
			return
		}
	}

	// Queue it, and serve its device if that is idle.
	if device := p.enqueue(now, requestSlot, out); device >= 0 && p.fleet.devices[device].activeBatches == 0 {
		p.serveDevice(now, device, out)
	}
}

// handleAnswer takes the answer of a model of a request's gear: it completes the request if the answer is certain
// enough (its level reaches the stage's) or the model is the last; otherwise the request goes on to the next model.
// What it queues is served once the whole batch is known, at BatchFinished.
func (p *Policy) handleAnswer(now time.Duration, ev *policy.Event, out *policy.Actions) {
	request := &p.requests[ev.Req]
	request.hasAnswer = true
	stage := &p.gearStages[p.firstStage[request.gear]+request.stage]
	switch {
	case request.cancelled:
		p.dropRequest(ev.Req, policy.ReasonCancelled, out)
	case stage.isLast || ev.Value >= int64(stage.forwardBelow):
		p.completeRequest(ev.Req, out)
	default:
		request.stage++
		p.enqueue(now, ev.Req, out)
	}
}

// completeRequest closes a request, and orders that its client gets the last answer of a model.
func (p *Policy) completeRequest(requestSlot int32, out *policy.Actions) {
	p.closeRequest(requestSlot)
	out.List = append(out.List, policy.Action{Kind: policy.Complete, Req: requestSlot})
}

// dropRequest drops a request that is not answered, for a reason.
func (p *Policy) dropRequest(requestSlot int32, reason policy.DropReason, out *policy.Actions) {
	p.closeRequest(requestSlot)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: requestSlot, Reason: reason})
}

// closeRequest counts a request as no longer open, and removes its work from the refusal rule. Without open
// requests that work is set to 0, because sums of fractions leave rounding errors.
func (p *Policy) closeRequest(requestSlot int32) {
	p.openRequests--
	if p.refusals == nil {
		return
	}
	p.refusals.removeRequest(&p.requests[requestSlot])
	if p.openRequests == 0 {
		p.refusals.clearRounding()
	}
}

// cancelRequest drops a request whose client has gone away, or marks it, if it is in a batch, to be dropped when that ends.
func (p *Policy) cancelRequest(requestSlot int32, out *policy.Actions) {
	request := &p.requests[requestSlot]
	if isInBatch := request.queue == noIndex; isInBatch {
		request.cancelled = true
		return
	}
	p.removeFromQueue(requestSlot)
	p.dropRequest(requestSlot, policy.ReasonCancelled, out)
}
