package text

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"inferplan/engine/llm"
)

// CheckAdapters refuses adapters that contradict each other.
func CheckAdapters(list []ModelAdapter) error {
	_, err := adaptersOf(list)
	return err
}

// adaptersOf are adapters by model.
func adaptersOf(list []ModelAdapter) (map[string]*ModelAdapter, error) {
	out := map[string]*ModelAdapter{}
	for i := range list {
		a := &list[i]
		if out[a.Model] != nil {
			return nil, fmt.Errorf("adapter %s: found it twice, expected it once", a.Model)
		}
		out[a.Model] = a
	}
	for _, a := range list {
		if out[a.Base] != nil {
			return nil, fmt.Errorf("adapter %s: its base %s is an adapter, too, expected a model that the server has by itself", a.Model, a.Base)
		}
	}
	return out, nil
}

// base is the model that a server has in memory where it serves a model.
func (r *reach) base(model string) string {
	if a := r.adapters[model]; a != nil {
		return a.Base
	}
	return model
}

// shares tells whether a model is an adapter, or has some.
func (r *reach) shares(model string) bool {
	base := r.base(model)
	for _, a := range r.adapters {
		if a.Base == base {
			return true
		}
	}
	return false
}

// offered looks whether the servers that have answered have adapters among some models, or
// can load them. llm.ErrNoAdapter says what one lacks.
func (r *reach) offered(ctx context.Context, models []string) error {
	for _, name := range models {
		a, s := r.adapters[name], r.of(name)
		if a == nil || s == nil {
			continue
		}
		if err := s.Adapters().Offers(ctx, a.Of()); err != nil {
			return err
		}
		if !slices.Contains(s.Can.Models, a.Base) {
			return &llm.Error{Kind: llm.ErrNoAdapter, Text: fmt.Sprintf("%s at %s: found the models %v, expected its base %s", name, s.Address(), s.Can.Models, a.Base)}
		}
	}
	return nil
}

// fitting are the adapters whose base a server here has, as far as they have answered.
func (r *reach) fitting() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.adapters)) {
		if s := r.of(name); s != nil && slices.Contains(s.Can.Models, r.adapters[name].Base) {
			out = append(out, name)
		}
	}
	return out
}

// heldModel is one that shares its base, as its server has it.
type heldModel struct {
	model string  // empty: none
	use   llm.Use // how requests ask for it
	ready bool    // they may
}

func (r *reach) hold(h heldModel) {
	r.mu.Lock()
	r.held = h
	r.mu.Unlock()
}

func (r *reach) holds() heldModel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// bring has a model ready at its server, in the place of the one that is held.
func (r *reach) bring(ctx context.Context, s *llm.Server, model string) error {
	there, err := r.leave(ctx, model)
	if err == nil && !there {
		err = s.Load(ctx, r.base(model))
	}
	if err != nil || !r.shares(model) {
		return err
	}
	h := heldModel{model: model} // also where its adapter does not come: the base is there
	r.hold(h)
	if h.use, err = r.equip(ctx, s, model); err == nil {
		h.ready = true
		r.hold(h)
	}
	return err
}

// equip has the adapter of a model ready, where it is one, and tells how requests ask.
func (r *reach) equip(ctx context.Context, s *llm.Server, model string) (llm.Use, error) {
	a := r.adapters[model]
	if a == nil {
		return s.Adapters().Using(ctx, model, nil)
	}
	adapter := a.Of()
	has, err := s.Adapters().Has(ctx, adapter)
	switch {
	case err != nil || has:
	case a.Path != "" && s.Can.LoRA.Loads():
		err = s.Adapters().Load(ctx, adapter)
	default:
		err = s.Adapters().Offers(ctx, adapter) // says what to do
	}
	if err != nil {
		return llm.Use{}, err
	}
	return s.Adapters().Using(ctx, a.Base, &adapter)
}

// drop takes an adapter from its server. Those that the server was started with stay.
func (r *reach) drop(ctx context.Context, model string) error {
	a, s := r.adapters[model], r.of(model)
	if a == nil || a.Path == "" || s == nil || !s.Can.LoRA.Loads() {
		return nil
	}
	if has, err := s.Adapters().Has(ctx, a.Of()); err != nil || !has {
		return err
	}
	return s.Adapters().Unload(ctx, model)
}

// leave takes away what is held, now that next comes: all of it but what next shares. It
// tells whether the base of next is there.
func (r *reach) leave(ctx context.Context, next string) (there bool, err error) {
	held := r.holds().model
	if held == "" {
		return false, nil
	}
	s := r.of(held)
	if s == nil { // another prepares the servers anew
		return false, errUnreached
	}
	if held != next {
		err = r.drop(ctx, held)
	}
	if there = r.base(held) == r.base(next); err == nil && !there {
		err = unload(ctx, s, r.base(held))
	}
	if err == nil {
		r.hold(heldModel{})
	}
	return there, err
}

// unload takes a model away. One that may stay takes nothing from others.
func unload(ctx context.Context, s *llm.Server, model string) error {
	if err := s.Unload(ctx, model); !errors.Is(err, llm.ErrStays) {
		return err
	}
	return nil
}

// Use is the server of a model, and how requests ask it. A model that shares its base is
// asked for once it was brought: else another one would answer.
func (r *reach) Use(model string) (*llm.Server, llm.Use, error) {
	s := r.of(model)
	if s == nil {
		return nil, llm.Use{}, errUnreached
	}
	if !r.shares(model) {
		return s, llm.Use{Model: model}, nil
	}
	if h := r.holds(); h.model == model && h.ready {
		return s, h.use, nil
	}
	return nil, llm.Use{}, &llm.Error{Kind: llm.ErrUnknownModel, Text: model + " has not been loaded by this process"}
}
