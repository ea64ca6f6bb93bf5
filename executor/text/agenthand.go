package text

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"inferplan/engine/llm"
)

// serverControl does at an instance's servers what its agent decides: in this process (localServers), or in that of
// plan agent (remoteServers).
type hand interface {
	// Status returns the state of the servers, given the model that should be loaded, or "" if there is none. ours
	// returns the number of our requests that the servers have.
	Look(ctx context.Context, model string, ours func() int) (sight, error)
	// Prepare makes the servers ready with a model, or with none if model is empty: it unloads the others that the
	// instance may run, and waits for a first token.
	Prepare(ctx context.Context, model string, others []string) error
	// SetLoaded loads a model, or unloads it.
	Change(ctx context.Context, model string, up bool) error
	// writeAnswer has a request answered, starting from the text that it has.
	write(ctx context.Context, w *writing) *streamEnd
}

// serverStatus is the observed state of an instance's servers. Its fields are also the spelling between processes.
type sight struct {
	Loaded bool // the servers have the model
	Room   int  // number of our requests that they can hold in all; -1 if unbounded, roomUnknown if it was not asked
}

// roomUnknown is the Room of servers whose limit is not known.
const roomUnseen = -2

// localServers are the servers of an instance that this process calls. They implement serverControl.
type reach struct {
	mu      sync.Mutex
	Servers map[string]*endpoint // by model; "" is the server of all other models
	// adapters are, by model, the models that are adapters and need their base at the same server.
	adapters map[string]*ModelAdapter
	// lastLoaded is the model that was loaded last, if it shares its base with another. The next load decides what of
	// it is unloaded, even if the policy has unloaded it.
	held heldModel
}

// endpoint is the address of a server. Server is nil until it has answered.
type endpoint struct {
	at     InstanceServer
	Server *llm.Server
}

// NewLocalServers returns the servers of one instance from a list. It returns an error for a wrong URL or for two
// servers of the same model.
func NewReach(list []InstanceServer, adapters []ModelAdapter, instance int) (*reach, error) {
	r := &reach{Servers: map[string]*endpoint{}}
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
			return nil, fmt.Errorf("instance %d: two servers for the same models: %s and %s", instance, r.Servers[s.Model].at.URL, s.URL)
		}
		r.Servers[s.Model] = &endpoint{at: s}
	}
	return r, nil
}

// hasServer reports whether there is a server for a model.
func (r *reach) has(model string) bool {
	return r.Servers[r.base(model)] != nil || r.Servers[""] != nil
}

// serverOf returns the server of a model. It is nil if the server has not answered yet.
func (r *reach) of(model string) *llm.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.Servers[r.base(model)]
	if f == nil {
		f = r.Servers[""]
	}
	if f == nil {
		return nil
	}
	return f.Server
}

// probeServers returns all servers. It asks those that have not answered yet what they can do, and returns an error
// if one does not answer.
func (r *reach) reached(ctx context.Context) ([]*llm.Server, error) {
	var out []*llm.Server
	for _, key := range slices.Sorted(maps.Keys(r.Servers)) {
		r.mu.Lock()
		f := *r.Servers[key]
		r.mu.Unlock()
		if f.Server == nil {
			s, err := llm.Probe(ctx, f.at.URL, llm.WithKey(f.at.Key))
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

// Status implements serverControl.
func (r *reach) Look(ctx context.Context, model string, ours func() int) (sight, error) {
	// Without an answer, or without a model, there is nothing more to see.
	if err := r.alive(ctx); err != nil {
		return sight{}, err
	}
	out := sight{Loaded: true, Room: roomUnseen}
	s := r.of(model)
	if model == "" || s == nil {
		return out, nil
	}

	// Ask whether the model is there.
	before := ours()
	there, err := r.there(ctx, s, model)
	if err != nil {
		return out, fmt.Errorf("%w: %w", errUnseen, err)
	}
	if out.Loaded = there; !there {
		return out, nil
	}

	// Ask how many requests the server can hold. It is the slots if it has no metrics.
	if !s.Can.Metrics {
		if s.Can.Slots > 0 {
			out.Room = s.Can.Slots
		}
		return out, nil
	}
	state, err := s.State(ctx, r.base(model))
	if errors.Is(err, llm.ErrGone) {
		return out, fmt.Errorf("%w: %w", errUnseen, err)
	}
	if err == nil { // requests that began or ended during the question are ours, too
		out.Room = state.Room(max(before, ours()))
	}
	return out, nil
}

// alive returns an error if one of the servers does not answer.
func (r *reach) alive(ctx context.Context) error {
	servers, err := r.reached(ctx)
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

// hasModel reports whether a server has a model, and its adapter if the model is one.
func (r *reach) there(ctx context.Context, s *llm.Server, model string) (bool, error) {
	list, err := s.Loaded(ctx)
	if err != nil || !slices.Contains(list, r.base(model)) {
		return false, err
	}
	if a := r.adapters[model]; a != nil {
		return s.Adapters().Has(ctx, a.Of())
	}
	return true, nil
}

// forgetServers makes the next probe ask all servers what they can do: after a restart they may be able to do more.
func (r *reach) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.Servers {
		f.Server = nil
	}
}

// errStatusUnknown is returned when the servers answer but their state could not be read. The next check decides.
var errUnseen = errors.New("the state of a server was not seen")

// Prepare implements serverControl.
func (r *reach) Prepare(ctx context.Context, model string, others []string) error {
	servers, err := r.reached(ctx)
	if err == nil {
		err = r.offered(ctx, others)
	}
	if errors.Is(err, llm.ErrNoAdapter) {
		r.forget()
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
	if err := r.clear(ctx, servers, model, others); err != nil {
		return err
	}

	// Load the model and make it write one token.
	s := r.of(model)
	if s == nil {
		return fmt.Errorf("there is no server for %s", model)
	}
	if err := r.bring(ctx, s, model); err != nil {
		return err
	}
	_, use, err := r.Use(model)
	if err == nil {
		_, err = s.Canary(ctx, use, 1)
	}
	return err
}

// unloadOthers unloads all of some models from the servers, except for one.
func (r *reach) clear(ctx context.Context, servers []*llm.Server, but string, models []string) error {
	r.hold(heldModel{})
	bases := make([]string, len(models))

	// Unload the adapters.
	for i, model := range models {
		if bases[i] = r.base(model); model != but {
			if err := r.drop(ctx, model); err != nil {
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
		for _, other := range list {
			if other != r.base(but) && r.of(other) == s && slices.Contains(bases, other) {
				if err := unload(ctx, s, other); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// SetLoaded implements serverControl. A model that shares its base stays until the next load, because the next model
// may share it, too.
func (r *reach) Change(ctx context.Context, model string, up bool) error {
	s := r.of(model)
	switch {
	case s == nil:
		return errors.New("its server has not answered yet")
	case up:
		return r.bring(ctx, s, model)
	case r.shares(model): // the next model may share it, too
		return nil
	}
	return unload(ctx, s, model)
}
