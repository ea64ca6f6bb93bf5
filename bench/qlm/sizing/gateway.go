package sizing

import (
	"time"

	"inferplan/policy"
)

// gateway is like an inference gateway before the replicas of one model: it has
// bands of priority, the interactive one first, orders each by deadline, sends to the
// replica with the fewest requests, and bounds the batch requests of every replica. The bound rises by
// one each second, and is halved where interactive requests come near their SLO (additive increase, multiplicative decrease).
type gateway struct {
	t        *policy.Tables
	requests []waiting // by slot
	bands    [2][]int32
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

func newGateway(t *policy.Tables) (policy.Policy, error) {
	g := &gateway{t: t}
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

func (g *gateway) band(model int32) int8 {
	if g.t.Models[model].SLO > g.urgent {
		return 1
	}
	return 0
}

// Handle implements policy.Policy.
func (g *gateway) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		for int(ev.Req) >= len(g.requests) {
			g.requests = append(g.requests, waiting{})
		}
		g.requests[ev.Req] = waiting{ev.Model, ev.Arrived, ev.Deadline}
		g.open++
		g.enqueue(ev.Req)
		if !g.ticking {
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
		g.adapt(now, out)
	}
	g.send(out)
}

// adapt moves the bound of batch requests.
func (g *gateway) adapt(now time.Duration, out *policy.Actions) {
	if len(g.bands[0]) > 0 {
		g.near = true
	}
	if g.near {
		g.limit = max(1, g.limit/2)
	} else {
		g.limit = min(float64(g.servers[0].most), g.limit+1)
	}
	g.near = false
	if g.ticking = g.open > 0; g.ticking {
		out.List = append(out.List, policy.Action{Kind: policy.Wake, At: now + time.Second})
	}
}

// enqueue puts a request into its band, behind those with earlier deadlines.
func (g *gateway) enqueue(req int32) {
	band := &g.bands[g.band(g.requests[req].model)]
	list := append(*band, req)
	for i := len(list) - 1; i > 0 && g.requests[list[i-1]].deadline > g.requests[req].deadline; i-- {
		list[i-1], list[i] = list[i], list[i-1]
	}
	*band = list
}

// send sends what the replicas have room for.
func (g *gateway) send(out *policy.Actions) {
	for band := range g.bands {
		for len(g.bands[band]) > 0 {
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
			req := g.bands[band][0]
			g.bands[band] = g.bands[band][1:]
			g.dispatch(req, int32(best), int8(band), out)
		}
	}
}

func (g *gateway) dispatch(req, device int32, band int8, out *policy.Actions) {
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
