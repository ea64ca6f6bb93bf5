package gear

import (
	"errors"
	"fmt"
	"time"

	"inferplan/policy"
)

const (
	tickTag  = 0 // end of a window
	flushTag = 1 // the head of a queue has waited for the flush time
	none     = int32(-1)
)

// Policy is the state of the policy of gear plans. It implements policy.Policy.
type Policy struct {
	fleet
	gears []Gear
	opt   Options

	stages  []stage   // of all gears, gear by gear
	first   []int32   // by gear: index of its first stage
	current []float64 // weights of the round robin, by stage and replica
	minQ    []int32   // by pipeline: minimal queue length of the gear in force

	requests []request // by slot

	shed *shedder // nil if nothing is refused

	gone    int   // number of lost devices
	gear    int32 // the gear in force
	pending int   // number of requests that are not answered
	count   int64 // arrivals in this window
	rule    *Rule
	ticking bool          // a window is running
	tick    time.Duration // end of this window
	flushAt time.Duration // time of the pending flush wake; negative if there is none
}

// gearStage is a stage of a gear with its replicas and their weights.
type stage struct {
	chains  []int32 // by replica
	below   int32   // answers of a lower level are forwarded
	last    bool
	weights []float64
	current int32 // index of its first replica in Policy.currentWeights
}

// deviceState is the state of a device.
type device struct {
	work       int32 // batches that wait for it or run on it; it is idle without any
	down       bool
	slot, room int32   // its first slot of chainFleet.batches, and the number of its slots
	starts     []int32 // chains that start on it
}

// requestState is the state of a request. prevInQueue and nextInQueue link the requests of a queue.
type request struct {
	gear, stage int32
	queue       int32 // queue in which it waits, or noIndex if it is in a batch
	prev, next  int32
	work        int32 // start of its work row, see refusalRule
	arrived     time.Duration
	entered     time.Duration // when it joined its queue
	answered    bool          // some model has answered: the request can be completed
	cancelled   bool
}

// New returns the policy of a gear plan.
func New(t *policy.Tables, opt Options) (*Policy, error) {
	g := Of(t)
	if g == nil || len(g.Gears) == 0 {
		return nil, errors.New("policy gear: the plan has no gears: it is for plans of kind gear")
	}
	if opt.Window <= 0 {
		return nil, errors.New("policy gear: the window must be positive")
	}
	pipelines := len(t.Pipelines)

	// Make the chains, and the stages of the gears over them.
	p := &Policy{
		fleet: fleet{t: t, most: t.MaxBatch(), devices: make([]device, len(t.Devices)), queued: make([]uint64, (len(t.Devices)+63)/64)},
		gears: g.Gears, opt: opt, flushAt: -1, minQ: make([]int32, pipelines),
	}
	shares, err := 0, error(nil)
	if p.first, p.stages, shares, err = stagesOf(p.gears, p.addChains()); err != nil {
		return nil, err
	}

	// Make the rule that switches between gears, and start with the first.
	p.current = make([]float64, shares)
	to := make([]float64, len(p.gears))
	for g := range p.gears {
		to[g] = p.gears[g].ToQPS
	}
	p.rule = NewRule(to, opt)
	p.setGear(0)
	if opt.Shed {
		p.shed = newShedder(p)
	}
	return p, nil
}

// makeStages returns the stages of all gears with the chains of their pipelines, the index of each gear's first
// stage, and the number of shares in all.
func stagesOf(gears []Gear, of [][]int32) (first []int32, stages []stage, shares int, err error) {
	// Count stages and shares.
	n := 0
	for g := range gears {
		n += len(gears[g].Stages)
		for k := range gears[g].Stages {
			shares += len(gears[g].Stages[k].Split)
		}
	}

	// Concatenate the chains of each stage's pipelines.
	first, stages = make([]int32, 0, len(gears)), make([]stage, 0, n)
	chains := make([]int32, 0, shares)
	for g := range gears {
		first = append(first, int32(len(stages)))
		for k := range gears[g].Stages {
			s, from := &gears[g].Stages[k], len(chains)
			chains = append(chains, of[s.Pipeline]...)
			for _, m := range s.More {
				chains = append(chains, of[m]...)
			}
			replicas := chains[from:len(chains):len(chains)]
			if len(replicas) != len(s.Split) {
				return nil, nil, 0, fmt.Errorf("policy gear: gear %d, stage %d: %d shares for %d replicas", g, k, len(s.Split), len(replicas))
			}
			stages = append(stages, stage{chains: replicas, below: s.Below, last: k == len(gears[g].Stages)-1, weights: s.Split, current: int32(from)})
		}
	}
	return first, stages, shares, nil
}

// Gear returns the gear in force.
func (p *Policy) Gear() int { return int(p.gear) }

// Handle decides what to do about one event.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.arrive(now, ev, out)
	case policy.ControlRevealed:
		p.revealed(now, ev, out)
	case policy.TransferFinished:
		p.reached(ev.Batch)
	case policy.BatchFinished:
		if p.shed != nil {
			p.shed.ran(p, ev)
		}
		p.left(ev.Batch)
		p.serveIdle(now, out)
	case policy.Timer:
		if ev.Value == tickTag {
			p.endWindow(now, out)
		} else {
			p.flushAt = -1
			p.serveIdle(now, out)
		}
	case policy.WorkerLost:
		p.lose(now, ev.Device, out)
	case policy.WorkerBack:
		p.regain(ev.Device)
		p.serveIdle(now, out)
	case policy.Cancel:
		p.cancel(ev.Req, out)
	}
}

// handleArrival adds a request, refuses it if it could not be in time, or queues it.
func (p *Policy) arrive(now time.Duration, ev *policy.Event, out *policy.Actions) {
	slot := ev.Req
	for int(slot) >= len(p.requests) {
		p.requests = append(p.requests, request{})
	}

	// Count it, and start the windows if they rest.
	p.count++
	p.pending++
	if !p.ticking {
		p.ticking = true
		p.tick = now - now%p.opt.Window + p.opt.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: tickTag, At: p.tick})
	}
	p.requests[slot] = request{gear: p.gear, queue: none, arrived: now}

	// Refuse it if it could not be in time.
	if p.shed != nil {
		if over, yes := p.shed.refuses(p, now, ev.Deadline); yes {
			p.pending--
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: slot, Reason: policy.ReasonDeadline, At: now + over})
			return
		}
	}

	// Queue it, and serve its device if that is idle.
	if d := p.send(now, slot, out); d >= 0 && p.devices[d].work == 0 {
		p.serve(now, d, out)
	}
}

// handleAnswer takes the answer of a model: it completes the request, or the request goes on to the next model.
// What it queues is served once the whole batch is known, at BatchFinished.
func (p *Policy) revealed(now time.Duration, ev *policy.Event, out *policy.Actions) {
	r := &p.requests[ev.Req]
	r.answered = true
	s := &p.stages[p.first[r.gear]+r.stage]
	switch {
	case r.cancelled:
		p.drop(ev.Req, policy.ReasonCancelled, out)
	case s.last || ev.Value >= int64(s.below):
		p.complete(ev.Req, out)
	default:
		r.stage++
		p.send(now, ev.Req, out)
	}
}

// completeRequest answers a request with its last answer.
func (p *Policy) complete(slot int32, out *policy.Actions) {
	p.ended(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Complete, Req: slot})
}

// dropRequest drops a request.
func (p *Policy) drop(slot int32, why policy.Reason, out *policy.Actions) {
	p.ended(slot)
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: slot, Reason: why})
}

// closeRequest counts a request as no longer open.
func (p *Policy) ended(slot int32) {
	p.pending--
	if p.shed == nil {
		return
	}
	if p.shed.ends(&p.requests[slot]); p.pending == 0 {
		p.shed.idle()
	}
}

// cancelRequest drops a request whose client went away. If it is in a batch, it is dropped when that ends.
func (p *Policy) cancel(slot int32, out *policy.Actions) {
	r := &p.requests[slot]
	if r.queue == none {
		r.cancelled = true // it is in a batch, and is dropped when that ends
		return
	}
	p.remove(slot)
	p.drop(slot, policy.ReasonCancelled, out)
}
