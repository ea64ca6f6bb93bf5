package text

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"inferplan/engine/llm"
)

// CheckAdapters returns an error if adapters contradict each other.
func CheckAdapters(list []ModelAdapter) error {
	_, err := adaptersOf(list)
	return err
}

// adaptersOf returns the adapters by model. It returns an error if a model is named twice, or if a base is an adapter
// itself.
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

// baseOf returns the model that a server has in memory to serve a model: the base of an adapter, else the model.
func (r *reach) base(model string) string {
	if a := r.adapters[model]; a != nil {
		return a.Base
	}
	return model
}

// sharesBase reports whether a model is an adapter or the base of one.
func (r *reach) shares(model string) bool {
	base := r.base(model)
	for _, a := range r.adapters {
		if a.Base == base {
			return true
		}
	}
	return false
}

// checkAdapterSupport returns llm.ErrNoAdapter if a server that has answered neither has an adapter among the models
// nor can load it, or lacks its base.
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

// adaptersWithBase returns the adapters whose base a server here has, as far as the servers have answered.
func (r *reach) fitting() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.adapters)) {
		if s := r.of(name); s != nil && slices.Contains(s.Can.Models, r.adapters[name].Base) {
			out = append(out, name)
		}
	}
	return out
}

// loadedModel is a model that shares its base, as it is loaded at its server.
type heldModel struct {
	model string  // empty if there is none
	use   llm.Use // how requests name it
	ready bool    // requests may use it
}

// setLastLoaded sets the model that was loaded last.
func (r *reach) hold(h heldModel) {
	r.mu.Lock()
	r.held = h
	r.mu.Unlock()
}

// getLastLoaded returns the model that was loaded last.
func (r *reach) holds() heldModel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// loadModel loads a model at its server in place of the one that was loaded last.
func (r *reach) bring(ctx context.Context, s *llm.Server, model string) error {
	there, err := r.leave(ctx, model)
	if err == nil && !there {
		err = s.Load(ctx, r.base(model))
	}
	if err != nil || !r.shares(model) {
		return err
	}
	h := heldModel{model: model} // recorded even if its adapter fails to load, because the base is there
	r.hold(h)
	if h.use, err = r.equip(ctx, s, model); err == nil {
		h.ready = true
		r.hold(h)
	}
	return err
}

// loadAdapter loads the adapter of a model, if the model is one, and returns how requests name the model.
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
		err = s.Adapters().Offers(ctx, adapter) // returns an error that says what to do
	}
	if err != nil {
		return llm.Use{}, err
	}
	return s.Adapters().Using(ctx, a.Base, &adapter)
}

// unloadAdapter unloads an adapter. Adapters that the server was started with stay.
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

// unloadPrevious unloads the model that was loaded last, except for what next shares with it. It reports whether the
// base of next is still loaded.
func (r *reach) leave(ctx context.Context, next string) (there bool, err error) {
	held := r.holds().model
	if held == "" {
		return false, nil
	}
	s := r.of(held)
	if s == nil { // the servers are being prepared again
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

// unloadModel unloads a model. A server that keeps it in memory without cost to others is no error.
func unload(ctx context.Context, s *llm.Server, model string) error {
	if err := s.Unload(ctx, model); !errors.Is(err, llm.ErrStays) {
		return err
	}
	return nil
}

// ServerAndUse returns the server of a model and how requests name the model. A model that shares its base must have
// been loaded by this process, because another one would answer otherwise.
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
