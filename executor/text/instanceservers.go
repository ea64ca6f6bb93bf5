package text

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"inferplan/engine/llm"
	"inferplan/executor/turn"
)

// instanceServers are the servers that an instance has now, which this process calls. They change while the plan is
// served. They implement serverControl.
type instanceServers struct {
	current atomic.Pointer[boundServers]
}

// boundServers are the servers of an instance between two changes, or, if they cannot serve its models, the reason.
type boundServers struct {
	servers *localServers
	err     error
}

// bind makes the servers of the instance, in the list of all, ready to be called. If one of its models has none, the error
// says so, and so does every later call.
func (g *instanceAgent) bind(list []InstanceServer) *boundServers {
	instance := int(g.core.Tables.InstanceOf(g.device))
	r, err := NewLocalServers(list, g.options.Adapters, instance)
	if err != nil {
		return &boundServers{err: err}
	}
	for _, name := range g.modelNames() {
		if !r.hasServer(name) {
			return &boundServers{err: fmt.Errorf("instance %s has no server for %s (--server %d=URL)", g.name, name, instance)}
		}
	}
	r.tracer, r.name = g.core.Options.Tracer, g.name
	return &boundServers{servers: r}
}

// get returns the servers, or an error of the kind llm.ErrGone if there are none, or another process calls them.
func (s *instanceServers) get() (*localServers, error) {
	b := s.current.Load()
	switch {
	case b == nil:
		return nil, errServerUnseen
	case b.err != nil:
		return nil, &llm.Error{Kind: llm.ErrGone, Text: b.err.Error()}
	}
	return b.servers, nil
}

// Status implements serverControl.
func (s *instanceServers) Status(ctx context.Context, model string, ownRequests func() int) (serverStatus, error) {
	r, err := s.get()
	if err != nil {
		return serverStatus{}, err
	}
	return r.Status(ctx, model, ownRequests)
}

// Prepare implements serverControl.
func (s *instanceServers) Prepare(ctx context.Context, model string, otherModels []string) error {
	r, err := s.get()
	if err != nil {
		return err
	}
	return r.Prepare(ctx, model, otherModels)
}

// SetLoaded implements serverControl.
func (s *instanceServers) SetLoaded(ctx context.Context, model string, loaded bool) error {
	r, err := s.get()
	if err != nil {
		return err
	}
	return r.SetLoaded(ctx, model, loaded)
}

// writeAnswer implements serverControl.
func (s *instanceServers) writeAnswer(ctx context.Context, w *answerRun) *runResult {
	r, err := s.get()
	if err != nil {
		return &runResult{err: err}
	}
	return r.writeAnswer(ctx, w)
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
func (g *instanceAgent) changeServers(b *boundServers) {
	g.servers.current.Store(b)
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
	if b.err != nil {
		reason = b.err.Error()
	}
	g.handleLoss(reason)
	g.core.Flush()
}
