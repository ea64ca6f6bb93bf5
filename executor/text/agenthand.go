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

// hand does at an instance's servers what its agent is told: in this process (reach), or
// in that of plan agent (away).
type hand interface {
	// Look tells how the servers are, of which model is loaded (empty: none). ours is how
	// many requests of ours they have.
	Look(ctx context.Context, model string, ours func() int) (sight, error)
	// Prepare has the servers ready with a model (empty: none): none of the others that
	// the instance may run is loaded, and a first token comes.
	Prepare(ctx context.Context, model string, others []string) error
	// Change brings a model (up) or takes it away.
	Change(ctx context.Context, model string, up bool) error
	// write has a request answered, from where it is.
	write(ctx context.Context, w *writing) *streamEnd
}

// sight is what servers were seen to be like.
type sight struct {
	Loaded bool // they have the model
	Room   int  // for so many requests of ours in all; -1: no bound, roomUnseen: it was not asked
}

const roomUnseen = -2

// reach is a hand in this process.
type reach struct {
	mu      sync.Mutex
	Servers map[string]*endpoint // by model; "" is for all others
	// adapters are models that need their base at the same server; by model.
	adapters map[string]*ModelAdapter
	// held was brought last, and shares its base. What of it goes the next one tells, also
	// where it was taken away.
	held heldModel
}

// endpoint is a server, once it has answered.
type endpoint struct {
	at     InstanceServer
	Server *llm.Server
}

// NewReach takes the servers of an instance from a list.
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

// has tells whether there is a server for a model.
func (r *reach) has(model string) bool {
	return r.Servers[r.base(model)] != nil || r.Servers[""] != nil
}

// of is the server of a model; nil: it has not answered yet.
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

// reached are the servers, each of which has been asked what it can do.
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

func (r *reach) Look(ctx context.Context, model string, ours func() int) (sight, error) {
	if err := r.alive(ctx); err != nil {
		return sight{}, err
	}
	out := sight{Loaded: true, Room: roomUnseen}
	s := r.of(model)
	if model == "" || s == nil {
		return out, nil
	}
	before := ours()
	there, err := r.there(ctx, s, model)
	if err != nil {
		return out, fmt.Errorf("%w: %w", errUnseen, err)
	}
	if out.Loaded = there; !there {
		return out, nil
	}
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
	if err == nil { // what began or ended meanwhile is ours, too
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

// there tells whether a server has a model, and its adapter where it is one.
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

// forget has the servers asked anew what they can do: started anew they may do more.
func (r *reach) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.Servers {
		f.Server = nil
	}
}

// errUnseen: the servers answer, but how they are was not seen. The next look tells.
var errUnseen = errors.New("the state of a server was not seen")

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
	for _, s := range servers {
		if err := s.Alive(ctx); err != nil {
			return err
		}
	}
	if err := r.clear(ctx, servers, model, others); err != nil {
		return err
	}
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

// clear takes from the servers what is there of some models, but for one.
func (r *reach) clear(ctx context.Context, servers []*llm.Server, but string, models []string) error {
	r.hold(heldModel{})
	bases := make([]string, len(models))
	for i, model := range models {
		if bases[i] = r.base(model); model != but {
			if err := r.drop(ctx, model); err != nil {
				return err
			}
		}
	}
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

func (r *reach) Change(ctx context.Context, model string, up bool) error {
	s := r.of(model)
	switch {
	case s == nil:
		return errors.New("its server has not answered yet")
	case up:
		return r.bring(ctx, s, model)
	case r.shares(model): // perhaps the next one shares it, too
		return nil
	}
	return unload(ctx, s, model)
}
