package gear

import (
	"errors"
	"fmt"
	"time"

	"inferplan/policy"
)

const (
	tickTag  = 0 // end of a window
	flushTag = 1
	none     = int32(-1)
)

// Policy is the state machine. Batches are numbered by their device: a device
// has one at a time.
type Policy struct {
	t     *policy.Tables
	gears []policy.GearTable
	opt   Options

	stages  []stage // gear after gear
	first   []int32 // by gear: into stages
	current []float64
	minQ    []int32 // by pipeline, of the gear in force

	queues   []queue // by device and pipeline
	devices  []device
	requests []request
	running  []int32 // requests of the batch of each device
	most     int32   // largest batch

	gear    int32
	pending int   // requests not yet answered
	count   int64 // arrivals in this window
	rule    *Rule
	ticking bool
	tick    time.Duration // end of this window
	flushAt time.Duration // of the armed wake; negative: none
}

// stage is a stage of a gear with its place in the table of current weights.
type stage struct {
	devices   []int32 // by replica
	pipelines []int32 // that the replica runs: of its device's kind
	below     int32
	last      bool
	weights   []float64
	current   int32 // first of its replicas in Policy.current
}

type device struct {
	busy bool
	down bool
	size int32 // of the batch that runs
}

// request by its slot. prev and next chain the requests of a queue.
type request struct {
	gear, stage int32
	queue       int32 // none: in a batch
	prev, next  int32
	entered     time.Duration // into the queue
	answered    bool          // by some model: it can be completed
	cancelled   bool
}

// New makes the policy of a gear plan.
func New(t *policy.Tables, opt Options) (*Policy, error) {
	if t.Gears == nil || len(t.Gears.Gears) == 0 {
		return nil, errors.New("policy gear: the plan has no gears: it is for plans of kind gear")
	}
	if opt.Window <= 0 {
		return nil, errors.New("policy gear: the window must be positive")
	}
	pipelines := len(t.Pipelines)
	p := &Policy{
		t: t, gears: t.Gears.Gears, opt: opt, most: t.MaxBatch(), flushAt: -1,
		minQ:   make([]int32, pipelines),
		queues: make([]queue, len(t.Devices)*pipelines), devices: make([]device, len(t.Devices)),
	}
	p.running = make([]int32, int32(len(t.Devices))*p.most)
	for i := range p.queues {
		p.queues[i] = queue{head: none, tail: none}
	}
	for g := range p.gears {
		p.first = append(p.first, int32(len(p.stages)))
		for k := range p.gears[g].Stages {
			s := &p.gears[g].Stages[k]
			devices, replicas := t.ReplicasOf(s)
			if len(devices) != len(s.Split) {
				return nil, fmt.Errorf("policy gear: gear %d, stage %d: %d shares for %d replicas", g, k, len(s.Split), len(devices))
			}
			p.stages = append(p.stages, stage{devices: devices, pipelines: replicas, below: s.Below, last: k == len(p.gears[g].Stages)-1,
				weights: s.Split, current: int32(len(p.current))})
			p.current = append(p.current, make([]float64, len(s.Split))...)
		}
	}
	to := make([]float64, len(p.gears))
	for g := range p.gears {
		to[g] = p.gears[g].ToQPS
	}
	p.rule = NewRule(to, opt)
	p.setGear(0)
	return p, nil
}

// Gear is the gear in force.
func (p *Policy) Gear() int { return int(p.gear) }

// Handle decides.
func (p *Policy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		p.arrive(now, ev.Req, out)
	case policy.ControlRevealed:
		p.revealed(now, ev, out)
	case policy.BatchFinished:
		p.devices[ev.Device].busy = false
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
		p.devices[ev.Device].down = false
		p.serveIdle(now, out)
	case policy.Cancel:
		p.cancel(ev.Req, out)
	}
}

func (p *Policy) arrive(now time.Duration, slot int32, out *policy.Actions) {
	for int(slot) >= len(p.requests) {
		p.requests = append(p.requests, request{})
	}
	p.count++
	p.pending++
	if !p.ticking {
		p.ticking = true
		p.tick = now - now%p.opt.Window + p.opt.Window
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: tickTag, At: p.tick})
	}
	p.requests[slot] = request{gear: p.gear, queue: none}
	if d := p.send(now, slot, out); d >= 0 && !p.devices[d].busy {
		p.serve(now, d, out)
	}
}

// revealed takes the answer of a model: it is the request's, or the request
// goes on to the next model. What it queues is served once the whole batch is
// known, at BatchFinished.
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

func (p *Policy) complete(slot int32, out *policy.Actions) {
	p.pending--
	out.List = append(out.List, policy.Action{Kind: policy.Complete, Req: slot})
}

func (p *Policy) drop(slot int32, why policy.Reason, out *policy.Actions) {
	p.pending--
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: slot, Reason: why})
}

func (p *Policy) cancel(slot int32, out *policy.Actions) {
	r := &p.requests[slot]
	if r.queue == none {
		r.cancelled = true // it is in a batch; dropped when that ends
		return
	}
	p.remove(slot)
	p.drop(slot, policy.ReasonCancelled, out)
}

// lose moves what was on a device elsewhere.
func (p *Policy) lose(now time.Duration, d int32, out *policy.Actions) {
	dev := &p.devices[d]
	dev.down = true
	if dev.busy {
		dev.busy = false
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: d})
		for _, slot := range p.running[d*p.most : d*p.most+dev.size] {
			if p.requests[slot].cancelled {
				p.drop(slot, policy.ReasonCancelled, out)
				continue
			}
			p.send(now, slot, out)
		}
	}
	pipelines := int32(len(p.t.Pipelines))
	for m := range pipelines {
		for q := &p.queues[d*pipelines+m]; q.head != none; {
			slot := q.head
			p.remove(slot)
			p.send(now, slot, out)
		}
	}
	p.serveIdle(now, out)
}
