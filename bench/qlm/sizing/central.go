package sizing

import (
	"time"

	"inferplan/policy"
)

// central keeps the requests for the replicas of one model in one place, and sends
// the first of them to the replica with the fewest once one has room. A queue for
// each replica, with a guess where to join, does no better.
//
// As a gateway it has bands of priority, the interactive one first, and bounds the
// batch requests of every replica. The bound rises by one each second, and is halved
// where interactive requests come near their SLO (additive increase, multiplicative
// decrease).
type central struct {
	rule     rule
	t        *policy.Tables
	requests []waiting // by slot
	queues   [2][]int32
	batches  []running // by batch slot
	free     []int32
	servers  []replica
	urgent   time.Duration // SLO of the interactive band
	limit    float64
	near     bool // an interactive request came near its SLO in this second
	open     int
	ticking  bool
}

type waiting struct {
	model             int32
	arrived, deadline time.Duration
}

type running struct {
	req, device int32
	band        int8
}

type replica struct{ all, batch, most int32 }

// nearing is the part of the SLO from which on an interactive request slows batch
// requests down.
const nearing = 0.6

// rule is the order of the requests that wait.
type rule uint8

const (
	byArrival rule = iota // first come, first served
	byDeadline
	inBands // a gateway's: bands, each by deadline
)

// new makes the policy of the replicas of a pool.
func (r rule) new(t *policy.Tables) (policy.Policy, error) {
	g := &central{t: t, rule: r}
	for m := range t.Models {
		if g.urgent == 0 || t.Models[m].SLO < g.urgent {
			g.urgent = t.Models[m].SLO
		}
	}
	for d := range t.Devices {
		g.servers = append(g.servers, replica{most: t.Instances[d].Sequences})
	}
	g.limit = float64(g.servers[0].most)
	return g, nil
}

func (g *central) band(model int32) int8 {
	if g.rule == inBands && g.t.Models[model].SLO > g.urgent {
		return 1
	}
	return 0
}

// Handle implements policy.Policy.
func (g *central) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		for int(ev.Req) >= len(g.requests) {
			g.requests = append(g.requests, waiting{})
		}
		g.requests[ev.Req] = waiting{ev.Model, ev.Arrived, ev.Deadline}
		g.open++
		g.enqueue(ev.Req)
		if g.rule == inBands && !g.ticking {
			g.ticking = true
			out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + time.Second})
		}
	case policy.BatchFinished, policy.BatchReturned:
		b := g.batches[ev.Batch]
		g.servers[b.device].all--
		g.servers[b.device].batch -= int32(b.band)
		g.free = append(g.free, ev.Batch)
		if ev.Kind == policy.BatchReturned {
			g.enqueue(b.req)
			break
		}
		g.open--
		if r := &g.requests[b.req]; b.band == 0 && now-r.arrived > time.Duration(nearing*float64(g.urgent)) {
			g.near = true
		}
	case policy.Timer:
		if g.adapt(); g.ticking {
			out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + time.Second})
		}
	}
	g.send(out)
}

// adapt moves the bound of batch requests.
func (g *central) adapt() {
	if len(g.queues[0]) > 0 {
		g.near = true
	}
	if g.near {
		g.limit = max(1, g.limit/2)
	} else {
		g.limit = min(float64(g.servers[0].most), g.limit+1)
	}
	g.near = false
	g.ticking = g.open > 0
}

// before tells whether one request goes before another of its band.
func (g *central) before(a, b int32) bool {
	if g.rule == byArrival {
		return g.requests[a].arrived < g.requests[b].arrived
	}
	return g.requests[a].deadline < g.requests[b].deadline
}

// enqueue puts a request into its band, behind those that go first.
func (g *central) enqueue(req int32) {
	band := &g.queues[g.band(g.requests[req].model)]
	list := append(*band, req)
	for i := len(list) - 1; i > 0 && g.before(req, list[i-1]); i-- {
		list[i-1], list[i] = list[i], list[i-1]
	}
	*band = list
}

// send sends what the replicas have room for.
func (g *central) send(out *policy.Actions) {
	for band := range g.queues {
		for len(g.queues[band]) > 0 {
			best := -1
			for d := range g.servers {
				s := &g.servers[d]
				if s.all < s.most && (band == 0 || float64(s.batch) < g.limit) && (best < 0 || s.all < g.servers[best].all) {
					best = d
				}
			}
			if best < 0 {
				break
			}
			req := g.queues[band][0]
			g.queues[band] = g.queues[band][1:]
			g.dispatch(req, int32(best), int8(band), out)
		}
	}
}

func (g *central) dispatch(req, device int32, band int8, out *policy.Actions) {
	slot := int32(len(g.batches))
	if n := len(g.free); n > 0 {
		slot, g.free = g.free[n-1], g.free[:n-1]
	} else {
		g.batches = append(g.batches, running{})
	}
	g.batches[slot] = running{req, device, band}
	g.servers[device].all++
	g.servers[device].batch += int32(band)
	model := g.requests[req].model
	pipeline := g.t.Models[model].FirstPipeline
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: pipeline, Model: model, Batch: slot, Size: 1,
		TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Tasks = append(out.Tasks, req)
	out.Hops = append(out.Hops, policy.Hop{Stage: g.t.Pipelines[pipeline].FirstStage, Device: device, Uplink: -1, Downlink: -1})
}
