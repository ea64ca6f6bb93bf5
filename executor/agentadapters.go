package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"inferplan/engine/llm"
)

// ModelAdapter says that a model of the plan is a LoRA adapter of another one, which the
// same server has.
type ModelAdapter struct {
	Model, Base string
	// Path is that of its files as the server sees them. Empty: the server was started
	// with the adapter, under the model's name.
	Path string
}

func (a *ModelAdapter) of() llm.Adapter { return llm.Adapter{Name: a.Model, Path: a.Path} }

// adaptersOf are adapters by model. Those that contradict each other are refused.
func adaptersOf(list []ModelAdapter) (map[string]*ModelAdapter, error) {
	out := map[string]*ModelAdapter{}
	for i := range list {
		a := &list[i]
		if out[a.Model] != nil {
			return nil, fmt.Errorf("adapter %s: it is named twice", a.Model)
		}
		out[a.Model] = a
	}
	for _, a := range list {
		if out[a.Base] != nil {
			return nil, fmt.Errorf("adapter %s: its base %s is an adapter, too: expected a model", a.Model, a.Base)
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

// offered looks whether the servers that have answered have the adapters, or can load
// them. llm.ErrNoAdapter says what one lacks.
func (r *reach) offered(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(r.adapters)) {
		if s := r.of(name); s != nil {
			if err := s.OffersAdapter(ctx, r.adapters[name].of()); err != nil {
				return err
			}
		}
	}
	return nil
}

// bring has a model ready at its server: loaded, unless it is there, with the adapter.
func (r *reach) bring(ctx context.Context, s *llm.Server, model string, there bool) error {
	base, a := r.base(model), r.adapters[model]
	if !there {
		if err := s.Load(ctx, base); err != nil {
			return err
		}
	}
	if !r.shares(model) {
		return nil
	}
	var with *llm.Adapter
	if a != nil {
		adapter := a.of()
		with = &adapter
		err := s.HasAdapter(ctx, adapter)
		if errors.Is(err, llm.ErrNoAdapter) && a.Path != "" && s.Can.LoRA.Loads() {
			err = s.LoadAdapter(ctx, a.Model, a.Path)
		}
		if err != nil {
			return err
		}
	}
	use, err := s.Using(ctx, base, with)
	if err == nil {
		r.mu.Lock()
		r.uses[model] = use
		r.mu.Unlock()
	}
	return err
}

// drop takes an adapter from its server. Those that the server was started with stay.
func (r *reach) drop(ctx context.Context, model string) error {
	a, s := r.adapters[model], r.of(model)
	if a == nil || a.Path == "" || s == nil || !s.Can.LoRA.Loads() {
		return nil
	}
	switch err := s.HasAdapter(ctx, a.of()); {
	case errors.Is(err, llm.ErrNoAdapter):
		return nil
	case err != nil:
		return err
	}
	return s.UnloadAdapter(ctx, model)
}

// leave takes away what was taken away last but kept, now that next comes. It tells
// whether the base of next is there.
func (r *reach) leave(ctx context.Context, next string) (there bool, err error) {
	r.mu.Lock()
	kept := r.kept
	r.mu.Unlock()
	if kept == "" {
		return false, nil
	}
	if kept != next {
		err = r.drop(ctx, kept)
	}
	if there = r.base(kept) == r.base(next); err == nil && !there {
		err = unload(ctx, r.of(kept), r.base(kept))
	}
	if err == nil {
		r.keep("")
	}
	return there, err
}

func (r *reach) keep(model string) {
	r.mu.Lock()
	r.kept = model
	r.mu.Unlock()
}

// unload takes a model away. One that may stay takes nothing from others.
func unload(ctx context.Context, s *llm.Server, model string) error {
	if err := s.Unload(ctx, model); !errors.Is(err, llm.ErrStays) {
		return err
	}
	return nil
}

// use is the server of a model, and how requests ask it. A model that shares its base is
// asked for once it was brought: else another one would answer.
func (r *reach) use(model string) (*llm.Server, llm.Use, error) {
	s := r.of(model)
	if s == nil {
		return nil, llm.Use{}, errUnreached
	}
	r.mu.Lock()
	use, ok := r.uses[model]
	r.mu.Unlock()
	switch {
	case ok:
		return s, use, nil
	case r.shares(model):
		return nil, llm.Use{}, &llm.Error{Kind: llm.ErrUnknownModel, Text: model + " has not been loaded by this process"}
	}
	return s, llm.Use{Model: model}, nil
}
