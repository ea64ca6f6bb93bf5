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

// adaptersOf returns the adapters by model. It returns an error if a model is named twice, or if a base is an
// adapter itself. An adapter is a small addition to a base model, which the server loads with it.
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
func (r *localServers) baseOf(model string) string {
	if a := r.adapters[model]; a != nil {
		return a.Base
	}
	return model
}

// sharesBase reports whether a model shares its weights with others: it is an adapter (a small addition to a base
// model), or the base of one.
func (r *localServers) sharesBase(model string) bool {
	base := r.baseOf(model)
	for _, a := range r.adapters {
		if a.Base == base {
			return true
		}
	}
	return false
}

// checkAdapterSupport checks the models that are adapters (LoRA: small additions to a base model). It returns
// llm.ErrNoAdapter if a server that has answered can neither offer nor load one of them, or lacks its base. Servers
// that have not answered yet are passed over.
func (r *localServers) checkAdapterSupport(ctx context.Context, models []string) error {
	for _, name := range models {
		a, s := r.adapters[name], r.serverOf(name)
		if a == nil || s == nil {
			continue
		}
		if err := s.Adapters().Offers(ctx, a.LLMAdapter()); err != nil {
			return err
		}
		if !slices.Contains(s.Abilities.Models, a.Base) {
			return &llm.Error{Kind: llm.ErrNoAdapter, Text: fmt.Sprintf("%s at %s: found the models %v, expected its base %s", name, s.Address(), s.Abilities.Models, a.Base)}
		}
	}
	return nil
}

// adaptersWithBase returns the adapters whose base a server here has, as far as the servers have answered.
func (r *localServers) adaptersWithBase() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.adapters)) {
		if s := r.serverOf(name); s != nil && slices.Contains(s.Abilities.Models, r.adapters[name].Base) {
			out = append(out, name)
		}
	}
	return out
}

// loadedModel is a model that shares its base, as it is loaded at its server.
type loadedModel struct {
	model  string  // empty if there is none
	use    llm.Use // how requests name it
	usable bool    // requests may use it
}

// setLastLoaded sets the model that was loaded last.
func (r *localServers) setLastLoaded(h loadedModel) {
	r.mu.Lock()
	r.lastLoaded = h
	r.mu.Unlock()
}

// getLastLoaded returns the model that was loaded last.
func (r *localServers) getLastLoaded() loadedModel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastLoaded
}

// loadModel loads a model at its server in place of the one that was loaded last. If the model shares its base with
// others (adapters are small additions to a base model), the base stays loaded and only the adapter changes.
func (r *localServers) loadModel(ctx context.Context, s *llm.Server, model string) error {
	baseLoaded, err := r.unloadPrevious(ctx, model)
	if err == nil && !baseLoaded {
		err = s.Load(ctx, r.baseOf(model))
	}
	if err != nil || !r.sharesBase(model) {
		return err
	}
	h := loadedModel{model: model} // recorded even if its adapter fails to load, because the base is there
	r.setLastLoaded(h)
	if h.use, err = r.loadAdapter(ctx, s, model); err == nil {
		h.usable = true
		r.setLastLoaded(h)
	}
	return err
}

// loadAdapter loads the adapter of a model, unless the server has it, and returns how requests name the model. If
// the model is no adapter (a small addition to a base model), it only returns the name. An adapter without a path,
// or at a server that loads none, must be there already.
func (r *localServers) loadAdapter(ctx context.Context, s *llm.Server, model string) (llm.Use, error) {
	a := r.adapters[model]
	if a == nil {
		return s.Adapters().RequestUse(ctx, model, nil)
	}
	adapter := a.LLMAdapter()
	isLoaded, err := s.Adapters().Has(ctx, adapter)
	switch {
	case err != nil || isLoaded:
	case a.Path != "" && s.Abilities.LoRA.CanLoad():
		err = s.Adapters().Load(ctx, adapter)
	default:
		err = s.Adapters().Offers(ctx, adapter) // returns an error that says what to do
	}
	if err != nil {
		return llm.Use{}, err
	}
	return s.Adapters().RequestUse(ctx, a.Base, &adapter)
}

// unloadAdapter unloads the adapter of a model, if there is something to unload. Adapters that the server was
// started with stay, because no path is known from which to load them again.
func (r *localServers) unloadAdapter(ctx context.Context, model string) error {
	a, s := r.adapters[model], r.serverOf(model)
	if a == nil || a.Path == "" || s == nil || !s.Abilities.LoRA.CanLoad() {
		return nil
	}
	if isLoaded, err := s.Adapters().Has(ctx, a.LLMAdapter()); err != nil || !isLoaded {
		return err
	}
	return s.Adapters().Unload(ctx, model)
}

// unloadPrevious unloads the model that was loaded last at these servers, to make room for nextModel. If the two are
// adapters of one base (the weights), the base stays. It returns true if the base of nextModel is still loaded. If none
// was loaded, it does nothing and returns false.
func (r *localServers) unloadPrevious(ctx context.Context, nextModel string) (baseLoaded bool, err error) {
	previous := r.getLastLoaded().model
	if previous == "" {
		return false, nil
	}
	s := r.serverOf(previous)
	if s == nil { // the servers are being prepared again
		return false, errServerUnseen
	}
	if previous != nextModel {
		err = r.unloadAdapter(ctx, previous)
	}
	if baseLoaded = r.baseOf(previous) == r.baseOf(nextModel); err == nil && !baseLoaded {
		err = unloadModel(ctx, s, r.baseOf(previous))
	}
	if err == nil {
		r.setLastLoaded(loadedModel{})
	}
	return baseLoaded, err
}

// unloadModel unloads a model. A server that keeps it in memory without cost to others is no error.
func unloadModel(ctx context.Context, s *llm.Server, model string) error {
	if err := s.Unload(ctx, model); !errors.Is(err, llm.ErrStays) {
		return err
	}
	return nil
}

// ServerAndUse returns the server of a model and how requests to it name the model. A model that shares its base with
// others must have been loaded last by this process, because another one would answer otherwise; if it was not, the
// error is llm.ErrUnknownModel. If the server has not answered so far, it is errServerUnseen.
func (r *localServers) ServerAndUse(model string) (*llm.Server, llm.Use, error) {
	s := r.serverOf(model)
	if s == nil {
		return nil, llm.Use{}, errServerUnseen
	}
	if !r.sharesBase(model) {
		return s, llm.Use{Model: model}, nil
	}
	if h := r.getLastLoaded(); h.model == model && h.usable {
		return s, h.use, nil
	}
	return nil, llm.Use{}, &llm.Error{Kind: llm.ErrUnknownModel, Text: model + " has not been loaded by this process"}
}
