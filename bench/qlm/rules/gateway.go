package rules

import (
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/policy/vqueue"
)

// The rule like an inference gateway, on instances of their own for models, is a policy of plans of queues by name. It takes
// the parameters of virtual queues.
func init() {
	const name = "gateway"
	policies.Register(formats.PlanQueue, name, func(t *policy.Tables, params map[string]float64) (policy.Policy, error) {
		opt, err := vqueue.Options{NewDispatcher: Gateway}.WithParameters(name, params)
		if err != nil {
			return nil, err
		}
		if vqueue.TablesOf(t) != nil {
			opt.AllowedDevices = Partition(t)
		}
		return vqueue.New(t, opt)
	})
}

// gateway is like the flow control of an inference gateway in front of servers: two
// bands by priority, the earliest deadline first in each, and a cap on how many
// requests of the second band run at once on an instance. The cap grows by one a
// tick and is halved when requests of the first band are late, or wait too long
// (additive increase, multiplicative decrease).
type gateway struct {
	*sharedList
	caps []int32 // by instance
	late bool    // since the last tick
}

// Gateway makes the rule like an inference gateway.
func Gateway(s *vqueue.InstanceControl) vqueue.Dispatcher {
	g := &gateway{sharedList: newSharedList(s), caps: slices.Repeat([]int32{1}, int(s.Len()))}
	g.bands = urgent(s.Tables())
	return g
}

// waited is the share of the time to its deadline after which a request of the
// first band that still waits counts as late.
const waited = 0.5

// RequestEnded hears of an answer.
func (g *gateway) RequestEnded(now time.Duration, req int32) {
	if r := g.Request(req); g.bands[r.Model] && now > r.Deadline {
		g.late = true
	}
}

// Tick sets the caps.
func (g *gateway) Tick(now time.Duration) {
	for n := range g.pool {
		if len(g.pool[n]) == 0 {
			continue
		}
		if r := g.Request(g.pool[n][0]); g.bands[r.Model] && float64(now-r.ArrivedAt) > waited*float64(r.Deadline-r.ArrivedAt) {
			g.late = true
		}
	}
	for i := range g.caps {
		in := g.Instance(int32(i))
		most, _ := g.Capacity(in, max(in.LoadedNetwork, 0))
		if g.late {
			g.caps[i] = max(1, g.caps[i]/2)
		} else {
			g.caps[i] = min(g.caps[i]+1, int32(min(most, mostCap)))
		}
	}
	g.late = false
}

// mostCap keeps a cap of a server without a limit in bounds.
const mostCap = 1 << 20

// AssignRequests has every instance take what it may and has room for.
func (g *gateway) AssignRequests(now time.Duration, out *policy.Actions) {
	for q := range g.Len() {
		for in := g.Instance(q); in.IsUp() && in.LoadingNetwork < 0 && !in.LoadFailed; {
			req := g.next(in, g.caps[q])
			if req < 0 {
				break
			}
			if network := g.network(g.Request(req).Model); in.LoadedNetwork != network {
				if len(in.RunningBatches) == 0 {
					g.ChangeNetwork(now, in, network, out)
				}
				break
			}
			if !g.CanTakeRequest(in, g.Request(req)) {
				break
			}
			g.send(q, req, out)
		}
	}
}

// next is the request that goes first among those that an instance may take with a
// cap on the second band; -1: none waits.
func (g *gateway) next(in *vqueue.Instance, most int32) int32 {
	best, full := int32(-1), g.second(in) >= most
	for n := range g.pool {
		if !g.CanServe(in, int32(n)) {
			continue
		}
		for _, req := range g.pool[n] {
			model := g.Request(req).Model
			if !g.bands[model] && full {
				break
			}
			if g.ServesModel(in, model) && !g.AtCap(in, model) {
				if best < 0 || g.before(req, best) < 0 {
					best = req
				}
				break
			}
		}
	}
	return best
}

// second is how many requests of the second band run on an instance.
func (g *gateway) second(in *vqueue.Instance) int32 {
	n := int32(0)
	for m, running := range in.RunningByModel {
		if !g.bands[m] {
			n += running
		}
	}
	return n
}
