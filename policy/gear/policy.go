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

	stages         []gearStage // of all gears, gear by gear
	firstStage     []int32     // by gear: index of its first stage
	currentWeights []float64   // weights of the round robin, by stage and replica
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

// requestState is the state of a request. prevInQueue and nextInQueue link the requests of a queue.
type requestState struct {
	gear, stage              int32
	queue                    int32 // queue in which it waits, or noIndex if it is in a batch
	prevInQueue, nextInQueue int32
	workRow                  int32 // start of its work row, see refusalRule
	arrivedAt                time.Duration
	enqueuedAt               time.Duration // when it joined its queue
	hasAnswer                bool          // some model has answered: the request can be completed
	cancelled                bool
}

// New returns the policy of a gear plan: the state of its chains (devices of a replica), the gears over them, and
// the rule that switches between gears. It starts with gear 0, that of the lowest rates. It returns an error if the
// plan has no gears.
func New(t *policy.Tables, opt Options) (*Policy, error) {
	g := TablesOf(t)
	if g == nil || len(g.Gears) == 0 {
		return nil, errors.New("policy gear: the plan has no gears: it is for plans of kind gear")
	}
	if opt.Window <= 0 {
		return nil, errors.New("policy gear: the window must be positive")
	}
	pipelines := len(t.Pipelines)

	// Make the chains, and the stages of the gears over them.
	p := &Policy{
		fleet: chainFleet{tables: t, maxBatch: t.MaxBatch(), devices: make([]deviceState, len(t.Devices)), devicesWithQueue: make([]uint64, (len(t.Devices)+63)/64)},
		gears: g.Gears, options: opt, flushAt: -1, minQueue: make([]int32, pipelines),
	}
	shareCount, err := 0, error(nil)
	if p.firstStage, p.stages, shareCount, err = makeStages(p.gears, p.fleet.addChains()); err != nil {
		return nil, err
	}

	// Make the rule that switches between gears, and start with the first.
	p.currentWeights = make([]float64, shareCount)
	maxRates := make([]float64, len(p.gears))
	for g := range p.gears {
		maxRates[g] = p.gears[g].ToQPS
	}
	p.rule = NewSwitchRule(maxRates, opt)
	p.setGear(0)
	if opt.RefuseLate {
		p.refusals = newRefusalRule(p)
	}
	return p, nil
}

// makeStages returns the stages of all gears (one model of a cascade each) with the chains of their pipelines (the
// devices of each replica), the index of each gear's first stage, and the number of shares in all. It returns an
// error if a stage has not one share for each replica.
func makeStages(gears []Gear, chainsOf [][]int32) (firstStage []int32, stages []gearStage, shares int, err error) {
	// Count stages and shares.
	n := 0
	for g := range gears {
		n += len(gears[g].Stages)
		for k := range gears[g].Stages {
			shares += len(gears[g].Stages[k].ReplicaShares)
		}
	}

	// Concatenate the chains of each stage's pipelines.
	firstStage, stages = make([]int32, 0, len(gears)), make([]gearStage, 0, n)
	chains := make([]int32, 0, shares)
	for g := range gears {
		firstStage = append(firstStage, int32(len(stages)))
		for k := range gears[g].Stages {
			s, firstChain := &gears[g].Stages[k], len(chains)
			chains = append(chains, chainsOf[s.Pipeline]...)
			for _, m := range s.OtherPipelines {
				chains = append(chains, chainsOf[m]...)
			}
			replicas := chains[firstChain:len(chains):len(chains)]
			if len(replicas) != len(s.ReplicaShares) {
				return nil, nil, 0, fmt.Errorf("policy gear: gear %d, stage %d: %d shares for %d replicas", g, k, len(s.ReplicaShares), len(replicas))
			}
			stages = append(stages, gearStage{chains: replicas, forwardBelow: s.ForwardBelow, isLast: k == len(gears[g].Stages)-1, weights: s.ReplicaShares, weightIndex: int32(firstChain)})
		}
	}
	return firstStage, stages, shares, nil
}

// Gear returns the gear in force.
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
	slot := ev.Req
	for int(slot) >= len(p.requests) {
		p.requests = append(p.requests, requestState{})
	}

	// Count it, and start the windows if they rest.
	p.windowArrivals++
	p.openRequests++
	if !p.windowRunning {
		p.windowRunning = true
		p.windowEnd = now - now%p.options.Window + p.options.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: windowTag, At: p.windowEnd})
	}
	p.requests[slot] = requestState{gear: p.gear, queue: noIndex, arrivedAt: now}

	// Refuse it if it could not be in time.
	if p.refusals != nil {
		if lateness, refused := p.refusals.shouldRefuse(p, now, ev.Deadline); refused {
			p.openRequests--
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: slot, Reason: policy.ReasonDeadline, At: now + lateness})
			return
		}
	}

	// Queue it, and serve its device if that is idle.
	if d := p.enqueue(now, slot, out); d >= 0 && p.fleet.devices[d].activeBatches == 0 {
		p.serveDevice(now, d, out)
	}
}

// handleAnswer takes the answer of a model of a request's gear: it completes the request if the answer is certain
// enough (its level reaches the stage's) or the model is the last; otherwise the request goes on to the next model.
// What it queues is served once the whole batch is known, at BatchFinished.
func (p *Policy) handleAnswer(now time.Duration, ev *policy.Event, out *policy.Actions) {
	r := &p.requests[ev.Req]
	r.hasAnswer = true
	s := &p.stages[p.firstStage[r.gear]+r.stage]
	switch {
	case r.cancelled:
		p.dropRequest(ev.Req, policy.ReasonCancelled, out)
	case s.isLast || ev.Value >= int64(s.forwardBelow):
		p.completeRequest(ev.Req, out)
	default:
		r.stage++
		p.enqueue(now, ev.Req, out)
	}
}

// completeRequest answers a request with its last answer.
func (p *Policy) completeRequest(slot int32, out *policy.Actions) {
	p.closeRequest(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Complete, Req: slot})
}

// dropRequest drops a request.
func (p *Policy) dropRequest(slot int32, reason policy.DropReason, out *policy.Actions) {
	p.closeRequest(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: slot, Reason: reason})
}

// closeRequest counts a request as no longer open, and removes its work from the refusal rule. Without open
// requests that work is set to 0, because sums of fractions leave rounding errors.
func (p *Policy) closeRequest(slot int32) {
	p.openRequests--
	if p.refusals == nil {
		return
	}
	if p.refusals.removeRequest(&p.requests[slot]); p.openRequests == 0 {
		p.refusals.clearRounding()
	}
}

// cancelRequest drops a request whose client went away. If it is in a batch, it is dropped when that ends.
func (p *Policy) cancelRequest(slot int32, out *policy.Actions) {
	r := &p.requests[slot]
	if r.queue == noIndex {
		r.cancelled = true // it is in a batch, and is dropped when that ends
		return
	}
	p.removeFromQueue(slot)
	p.dropRequest(slot, policy.ReasonCancelled, out)
}
