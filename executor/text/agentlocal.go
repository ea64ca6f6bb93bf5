package text

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"inferplan/engine/llm"
	"inferplan/executor/tracing"
)

// serverControl does at an instance's servers what its agent decides: in this process (localServers), or in that of
// plan agent (remoteServers).
type serverControl interface {
	// Status returns the state of the servers, given the model that should be loaded, or "" if there is none. ours
	// returns the number of our requests that the servers have.
	Status(ctx context.Context, model string, ours func() int) (serverStatus, error)
	// Prepare makes the servers ready with a model, or with none if model is empty: it unloads the others that the
	// instance may run, and waits for a first token.
	Prepare(ctx context.Context, model string, otherModels []string) error
	// SetLoaded loads a model, or unloads it.
	SetLoaded(ctx context.Context, model string, loaded bool) error
	// writeAnswer has a request answered, starting from the text that it has.
	writeAnswer(ctx context.Context, w *answerRun) *runResult
}

// serverStatus is the observed state of an instance's servers. Its fields are also the spelling between processes.
type serverStatus struct {
	Loaded bool // the servers have the model
	Room   int  // number of our requests that they can hold in all; -1 if unbounded, roomUnknown if it was not asked
}

// roomUnknown is the Room of servers whose limit is not known.
const roomUnknown = -2

// localServers are the servers of an instance that this process calls. They implement serverControl.
type localServers struct {
	unusable error // why they cannot serve the instance; nil if they can
	mu       sync.Mutex
	Servers  map[string]*endpoint // by model; "" is the server of all other models
	// adapters are, by model, the models that are adapters and need their base at the same server.
	adapters map[string]*ModelAdapter
	// lastLoaded is the model that was loaded last, if it shares its base with another. The next load decides what of
	// it is unloaded, even if the policy has unloaded it.
	lastLoaded loadedModel

	tracer *tracing.Tracer // nil if there is none
	name   string          // of the instance, in spans
}

// endpoint is the address of a server. Server is nil until it has answered.
type endpoint struct {
	address InstanceServer
	Server  *llm.Server
}

// NewLocalServers returns the servers of one instance out of the list of all. It calls none of them yet. It returns
// an error for a wrong URL, two servers of the same model, or an adapter (a small addition to a base model) with a
// server of its own.
func NewLocalServers(list []InstanceServer, adapters []ModelAdapter, instance int) (*localServers, error) {
	r := &localServers{Servers: map[string]*endpoint{}}
	var err error
	if r.adapters, err = adaptersOf(adapters); err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.Instance != instance {
			continue
		}
		if _, err := llm.New(s.URL); err != nil {
			return nil, fmt.Errorf("instance %d: %w", instance, err)
		}
		if a := r.adapters[s.Model]; a != nil {
			return nil, fmt.Errorf("instance %d: a server of its own for %s, which is an adapter: expected that of its base %s", instance, a.Model, a.Base)
		}
		if r.Servers[s.Model] != nil {
			return nil, fmt.Errorf("instance %d: two servers for the same models: %s and %s", instance, r.Servers[s.Model].address.URL, s.URL)
		}
		r.Servers[s.Model] = &endpoint{address: s}
	}
	return r, nil
}

// hasServer reports whether there is a server for a model.
func (r *localServers) hasServer(model string) bool {
	return r.Servers[r.baseOf(model)] != nil || r.Servers[""] != nil
}

// serverOf returns the server that runs a model: the one that the configuration names for the model (for an adapter, the
// one of its base model), or else the one under the empty name, which serves all models. If there is none, or it has not
// answered so far, it returns nil.
func (r *localServers) serverOf(model string) *llm.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.Servers[r.baseOf(model)]
	if f == nil {
		f = r.Servers[""]
	}
	if f == nil {
		return nil
	}
	return f.Server
}

// probeServers returns the agent's servers, in the order of their names. It asks those that have not answered so far
// what they can do, and remembers the answer. If one does not answer, it returns the error and no servers.
func (r *localServers) probeServers(ctx context.Context) ([]*llm.Server, error) {
	if r.unusable != nil {
		return nil, &llm.Error{Kind: llm.ErrGone, Text: r.unusable.Error()}
	}
	var out []*llm.Server
	for _, key := range slices.Sorted(maps.Keys(r.Servers)) {
		r.mu.Lock()
		f := *r.Servers[key]
		r.mu.Unlock()
		if f.Server == nil {
			s, err := llm.Probe(ctx, f.address.URL, llm.WithKey(f.address.Key))
			if err != nil {
				return nil, err
			}
			r.mu.Lock()
			r.Servers[key].Server = s
			r.mu.Unlock()
			f.Server = s
		}
		out = append(out, f.Server)
	}
	return out, nil
}

// Status asks the servers how they are: whether all answer, whether the one of the given model has it loaded, and
// for how many requests of ours it has room. An error of the kind errStatusUnknown means that the question failed
// while the server is alive. It implements serverControl.
func (r *localServers) Status(ctx context.Context, model string, ownRequests func() int) (serverStatus, error) {
	// Without an answer, or without a model, there is nothing more to see.
	if err := r.checkAlive(ctx); err != nil {
		return serverStatus{}, err
	}
	status := serverStatus{Loaded: true, Room: roomUnknown}
	s := r.serverOf(model)
	if model == "" || s == nil {
		return status, nil
	}

	// Ask whether the model is there.
	earlierRequests := ownRequests()
	isLoaded, err := r.hasModel(ctx, s, model)
	if err != nil {
		return status, fmt.Errorf("%w: %w", errStatusUnknown, err)
	}
	if status.Loaded = isLoaded; !isLoaded {
		return status, nil
	}

	// Ask how many requests the server can hold. It is the slots if it has no metrics.
	if !s.Abilities.Metrics {
		if s.Abilities.Slots > 0 {
			status.Room = s.Abilities.Slots
		}
		return status, nil
	}
	state, err := s.State(ctx, r.baseOf(model))
	if errors.Is(err, llm.ErrGone) {
		return status, fmt.Errorf("%w: %w", errStatusUnknown, err)
	}
	if err == nil { // requests that began or ended during the question are ours, too
		status.Room = state.MaxOwnRequests(max(earlierRequests, ownRequests()))
	}
	return status, nil
}

// checkAlive returns an error if one of the agent's servers does not answer now. A full server (llm.ErrFull) has
// answered, so it is alive.
func (r *localServers) checkAlive(ctx context.Context) error {
	servers, err := r.probeServers(ctx)
	for _, s := range servers {
		if err == nil {
			err = s.Alive(ctx)
		}
	}
	if errors.Is(err, llm.ErrFull) {
		return nil
	}
	return err
}

// hasModel returns true if server s has a model loaded: the model itself, or, if it is an adapter (small weights on top
// of a base model), its base and the adapter.
func (r *localServers) hasModel(ctx context.Context, s *llm.Server, model string) (bool, error) {
	list, err := s.Loaded(ctx)
	if err != nil || !slices.Contains(list, r.baseOf(model)) {
		return false, err
	}
	if a := r.adapters[model]; a != nil {
		return s.Adapters().Has(ctx, a.LLMAdapter())
	}
	return true, nil
}

// forgetServers makes the next probe ask all servers what they can do: after a restart they may be able to do more.
func (r *localServers) forgetServers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.Servers {
		f.Server = nil
	}
}

// errStatusUnknown is returned when the servers answer but their state could not be read. The next check decides.
var errStatusUnknown = errors.New("the state of a server was not seen")

// Prepare makes the servers ready for a model at the start or after a loss: it checks them and their adapters,
// unloads the other models, loads this one, and has it write one token as a test. Without a model it only checks.
// After a missing adapter the servers are asked again next time, because they may have been restarted with it. It
// implements serverControl.
func (r *localServers) Prepare(ctx context.Context, model string, otherModels []string) error {
	servers, err := r.probeServers(ctx)
	if err == nil {
		err = r.checkAdapterSupport(ctx, otherModels)
	}
	if errors.Is(err, llm.ErrNoAdapter) {
		r.forgetServers()
	}
	if err != nil || model == "" {
		return err
	}

	// Wait for the servers, and free them of other models.
	for _, s := range servers {
		if err := s.Alive(ctx); err != nil {
			return err
		}
	}
	if err := r.unloadOthers(ctx, servers, model, otherModels); err != nil {
		return err
	}

	// Load the model and make it write one token.
	s := r.serverOf(model)
	if s == nil {
		return fmt.Errorf("there is no server for %s", model)
	}
	if err := r.loadModel(ctx, s, model); err != nil {
		return err
	}
	_, use, err := r.ServerAndUse(model)
	if err == nil {
		_, err = s.Canary(ctx, use, 1)
	}
	return err
}

// unloadOthers unloads the given models from the servers, except for one, and its base. Adapters go first, because
// they need their base. Models that are not in the list are left alone: the server may hold them for others.
func (r *localServers) unloadOthers(ctx context.Context, servers []*llm.Server, exceptModel string, models []string) error {
	r.setLastLoaded(loadedModel{})
	bases := make([]string, len(models))

	// Unload the adapters.
	for i, model := range models {
		if bases[i] = r.baseOf(model); model != exceptModel {
			if err := r.unloadAdapter(ctx, model); err != nil {
				return err
			}
		}
	}

	// Unload the base models.
	for _, s := range servers {
		list, err := s.Loaded(ctx)
		if err != nil {
			return err
		}
		for _, name := range list {
			if name != r.baseOf(exceptModel) && r.serverOf(name) == s && slices.Contains(bases, name) {
				if err := unloadModel(ctx, s, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// SetLoaded loads a model at its server, or unloads it. A model that shares its base stays until the next load,
// because the next model may share it, too. It implements serverControl.
func (r *localServers) SetLoaded(ctx context.Context, model string, loaded bool) error {
	s := r.serverOf(model)
	switch {
	case s == nil:
		return errors.New("its server has not answered yet")
	case loaded:
		return r.loadModel(ctx, s, model)
	case r.sharesBase(model): // the next model may share it, too
		return nil
	}
	return unloadModel(ctx, s, model)
}
