package text

import (
	"fmt"
	"slices"

	"inferplan/executor/turn"
)

// control returns what the agent decides by at its servers: in this process, where they change while the plan is served,
// or in that of plan agent.
func (g *instanceAgent) control() serverControl {
	if g.remote != nil {
		return g.remote
	}
	return g.local.Load()
}

// bind makes the servers of the instance, in the list of all, ready to be called. If they cannot serve its models, unusable
// of the result says why, and so does every later call.
func (g *instanceAgent) bind(list []InstanceServer) *localServers {
	instance := int(g.core.Tables.InstanceOf(g.device))
	r, err := NewLocalServers(list, g.options.Adapters, instance)
	if err != nil {
		return &localServers{unusable: err}
	}
	for _, name := range g.modelNames() {
		if !r.hasServer(name) {
			return &localServers{unusable: fmt.Errorf("instance %s has no server for %s (--server %d=URL)", g.name, name, instance)}
		}
	}
	r.tracer, r.name = g.core.Options.Tracer, g.name
	return r
}

// followServers has each instance change its servers as the discovery finds them, by an event for each instance whose
// servers differ from before. current are the servers of all instances until then.
func (a *agentBackend) followServers(current []InstanceServer) {
	of := func(list []InstanceServer, instance int) []InstanceServer {
		return slices.DeleteFunc(slices.Clone(list), func(s InstanceServer) bool { return s.Instance != instance })
	}
	a.discovered.begin(func(list []InstanceServer) {
		for _, d := range a.devices {
			g, instance := a.byDevice[d], int(a.core.Tables.InstanceOf(d))
			if !slices.Equal(of(current, instance), of(list, instance)) {
				a.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventServersChanged, Device: d, Result: g.bind(list)})
			}
		}
		current = list
	})
}

// changeServers runs in a round of the core when an instance has other servers, or none. It counts as lost: its requests
// go elsewhere with what was written, and it works again when the new servers are ready.
func (g *instanceAgent) changeServers(r *localServers) {
	g.local.Store(r)
	if !g.watch.alive.Load() {
		// A preparation that has begun is about the servers of before: it ends, and its result does not count.
		g.watch.lossCount.Add(1)
		if cancel := g.cancelRevive.Load(); cancel != nil {
			(*cancel)()
		}
		g.watch.requestCheck()
		return
	}
	reason := "it has another server"
	if r.unusable != nil {
		reason = r.unusable.Error()
	}
	g.handleLoss(reason)
	g.core.Flush()
}
