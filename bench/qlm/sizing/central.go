package sizing

import (
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// central keeps the requests for the replicas of one model in one place, and sends
// the first of them to the replica with the fewest once one has room. A queue for
// each replica, with a guess where to join, does no better. Replicas that serve some
// classes of a model alone have a place of their own.
//
// As a gateway it has bands of priority, the interactive one first, and bounds the
// batch requests of every replica. The bound rises by one each second, and is halved
// where interactive requests come near their SLO (additive increase, multiplicative
// decrease).
type central struct {
	rule     rule
	t        *policy.Tables
	requests []waiting // by slot
	batches  []running // by batch slot
	free     []int32
	servers  []replica // by device
	pools    []pool
	poolOf   []int         // by served model: its pool
	urgent   time.Duration // SLO of the interactive band
	open     int
	ticking  bool
}

// pool is replicas that serve the same.
type pool struct {
	devices []int32
	queues  [2][]int32
	limit   float64
	nearSLO bool // an interactive request came near its SLO in this second
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

// new makes the policy of a layout.
func (r rule) new(t *policy.Tables) (policy.Policy, error) {
	g := &central{t: t, rule: r}
	for d := range t.Devices {
		x := replica{}
		if i := t.InstanceOf(int32(d)); i >= 0 {
			x.most = t.Instances[i].MaxSequences
		}
		g.servers = append(g.servers, x)
	}
	for m := range t.Models {
		if g.urgent == 0 || t.Models[m].SLO < g.urgent {
			g.urgent = t.Models[m].SLO
		}
		devices := replicasOf(t, m)
		at := slices.IndexFunc(g.pools, func(p pool) bool { return slices.Equal(p.devices, devices) })
		if at < 0 {
			at = len(g.pools)
			g.pools = append(g.pools, pool{devices: devices, limit: float64(g.servers[devices[0]].most)})
		}
		g.poolOf = append(g.poolOf, at)
	}
	return g, nil
}

// replicasOf returns the devices that a served model may go to.
func replicasOf(t *policy.Tables, model int) []int32 {
	caps := vqueue.TablesOf(t).Caps
	return slices.DeleteFunc(slices.Clone(t.DevicesOf(t.Pipelines[t.Models[model].FirstPipeline].FirstStage)), func(d int32) bool {
		return caps != nil && caps[int(d)*len(t.Models)+model] == 0
	})
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
		g.requests[ev.Req] = waiting{ev.Model, ev.ArrivedAt, ev.Deadline}
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
		g.open--
		if ev.Kind == policy.BatchReturned { // it does not run there, and would come back for ever
			out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: b.req, Reason: policy.ReasonFailed})
			break
		}
		if r := &g.requests[b.req]; b.band == 0 && now-r.arrived > time.Duration(nearing*float64(g.urgent)) {
			g.pools[g.poolOf[r.model]].nearSLO = true
		}
	case policy.Timer:
		for i := range g.pools {
			g.pools[i].adapt(float64(g.servers[g.pools[i].devices[0]].most))
		}
		if g.ticking = g.open > 0; g.ticking {
			out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + time.Second})
		}
	}
	for i := range g.pools {
		g.send(&g.pools[i], out)
	}
}

// adapt moves the bound of batch requests.
func (p *pool) adapt(most float64) {
	if p.nearSLO || len(p.queues[0]) > 0 {
		p.limit = max(1, p.limit/2)
	} else {
		p.limit = min(most, p.limit+1)
	}
	p.nearSLO = false
}

// before returns whether one request goes before another of its band.
func (g *central) before(a, b int32) bool {
	if g.rule == byArrival {
		return g.requests[a].arrived < g.requests[b].arrived
	}
	return g.requests[a].deadline < g.requests[b].deadline
}

// enqueue puts a request into its band, behind those that go first.
func (g *central) enqueue(req int32) {
	model := g.requests[req].model
	band := &g.pools[g.poolOf[model]].queues[g.band(model)]
	list := append(*band, req)
	for i := len(list) - 1; i > 0 && g.before(req, list[i-1]); i-- {
		list[i-1], list[i] = list[i], list[i-1]
	}
	*band = list
}

// send sends what the replicas of a pool have room for.
func (g *central) send(p *pool, out *policy.Actions) {
	for band := range p.queues {
		for len(p.queues[band]) > 0 {
			best := int32(-1)
			for _, d := range p.devices {
				s := &g.servers[d]
				if s.all < s.most && (band == 0 || float64(s.batch) < p.limit) && (best < 0 || s.all < g.servers[best].all) {
					best = d
				}
			}
			if best < 0 {
				break
			}
			req := p.queues[band][0]
			p.queues[band] = p.queues[band][1:]
			g.dispatch(req, best, int8(band), out)
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
