package llm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ErrStays is returned when the server cannot load or unload models.
var ErrStays = errors.New("the server has the models that it was started with")

// ErrCanary is returned when a model answers differently after it was woken.
var ErrCanary = errors.New("the model answers differently since it was woken")

// pollEvery is the pause between two looks at a model that is being loaded or unloaded.
const pollEvery = 20 * time.Millisecond

// Loaded returns the models that accept requests now.
func (s *Server) Loaded(ctx context.Context) ([]string, error) {
	switch s.Can.Switch {
	case Router:
		list, err := s.models(ctx, "/models")
		var out []string
		for _, m := range list {
			if m.Status != nil && m.Status.Value == "loaded" {
				out = append(out, m.ID)
			}
		}
		return out, err
	case Sleeper:
		if asleep, err := s.asleep(ctx); asleep || err != nil {
			return nil, err
		}
	case KeepAlive:
		var list struct {
			Models []struct {
				Name  string `json:"name"`
				Model string `json:"model"`
			} `json:"models"`
		}
		err := s.get(ctx, "/api/ps", &list)
		var out []string
		for _, m := range list.Models {
			out = append(out, strings.TrimSuffix(max(m.Model, m.Name), ":latest"))
		}
		return out, err
	case Swapper:
		var list struct {
			Running []struct{ Model, State string }
		}
		err := s.get(ctx, "/running", &list)
		var out []string
		for _, m := range list.Running {
			if m.State == "" || m.State == "ready" {
				out = append(out, m.Model)
			}
		}
		return out, err
	}
	return s.Can.Models, nil
}

// Load loads a model, and returns when it accepts requests.
func (s *Server) Load(ctx context.Context, model string) error {
	var err error
	switch s.Can.Switch {
	case Router:
		err = s.loadRouted(ctx, model)
	case Sleeper:
		err = s.wake(ctx, model, "/wake_up")
	case Releaser:
		err = s.wake(ctx, model, "/resume_memory_occupation")
	case KeepAlive:
		_, err = s.Call(ctx, http.MethodPost, "/api/generate", map[string]any{"model": model, "stream": false})
	case Swapper:
		_, err = s.Call(ctx, http.MethodGet, "/upstream/"+url.PathEscape(model)+"/health", nil)
	default:
		if !slices.Contains(s.Can.Models, model) {
			err = fmt.Errorf("%w: %w", ErrStays, ErrUnknownModel)
		}
	}
	if err != nil {
		return fmt.Errorf("loading %s at %s: %w", model, s.Address(), err)
	}
	return nil
}

// Unload unloads a model, and returns when its memory is free.
func (s *Server) Unload(ctx context.Context, model string) error {
	var err error
	switch s.Can.Switch {
	case Router:
		err = s.unloadRouted(ctx, model)
	case Sleeper:
		err = s.sleep(ctx, model, "/sleep?level=1")
	case Releaser:
		err = s.sleep(ctx, model, "/release_memory_occupation")
	case KeepAlive:
		if _, err = s.Call(ctx, http.MethodPost, "/api/generate", map[string]any{"model": model, "keep_alive": 0, "stream": false}); err == nil {
			err = s.until(ctx, model, false)
		}
	case Swapper:
		if _, err = s.Call(ctx, http.MethodPost, "/api/models/unload/"+url.PathEscape(model), nil); err == nil {
			err = s.until(ctx, model, false)
		}
	default:
		err = ErrStays
	}
	if err != nil {
		return fmt.Errorf("unloading %s at %s: %w", model, s.Address(), err)
	}
	return nil
}

// waitLoaded waits until a model is loaded or, if loaded is false, until it is not.
func (s *Server) until(ctx context.Context, model string, there bool) error {
	for {
		list, err := s.Loaded(ctx)
		if err != nil {
			return err
		}
		if slices.Contains(list, model) == there {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollEvery):
		return nil
	}
}

// loadRouted asks a router to load a model. Right after an unload the router may say that the limit of models is
// reached, because the unloaded model's process has not ended yet. So it tries again.
func (s *Server) loadRouted(ctx context.Context, model string) error {
	for {
		_, err := s.Call(ctx, http.MethodPost, "/models/load", map[string]any{"model": model})
		if err == nil || aboutState(err, "already") {
			break
		}
		if !aboutState(err, "limit") {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	for {
		m, err := s.routed(ctx, model)
		switch {
		case err != nil:
			return err
		case m.Status.Value == "loaded":
			return nil
		case m.Status.Failed || m.Status.Value == "failed":
			return &Error{Kind: ErrBroken, Text: "the model's process ended while it was loaded"}
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func (s *Server) unloadRouted(ctx context.Context, model string) error {
	if _, err := s.Call(ctx, http.MethodPost, "/models/unload", map[string]any{"model": model}); err != nil && !aboutState(err, "not") {
		return err
	}
	for {
		m, err := s.routed(ctx, model)
		if err != nil || m.Status.Value == "unloaded" || m.Status.Value == "failed" {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// routerModel returns a model's entry in a router's list.
func (s *Server) routed(ctx context.Context, model string) (*listed, error) {
	list, err := s.models(ctx, "/models")
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].ID == model && list[i].Status != nil {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknownModel, model)
}

// aboutState reports whether a refusal mentions a state of the model: loaded already, not loaded, or the limit
// reached.
func aboutState(err error, word string) bool {
	var e *Error
	return errors.As(err, &e) && e.Status > 0 && strings.Contains(strings.ToLower(e.Text), word)
}

func (s *Server) asleep(ctx context.Context) (bool, error) {
	var sleep struct {
		Sleeping bool `json:"is_sleeping"`
	}
	err := s.get(ctx, "/is_sleeping", &sleep)
	return sleep.Sleeping, err
}

// Canary returns the answer to a fixed prompt, with greedy decoding.
func (s *Server) Canary(ctx context.Context, u Use, tokens int) (string, error) {
	fields := map[string]any{"temperature": 0, "seed": 1}
	maps.Copy(fields, u.Fields)
	a, err := s.Complete(ctx, &Request{Model: u.Model, Prompt: "The quick brown fox jumps over the lazy", MaxTokens: tokens, Fields: fields}, nil)
	return a.Text, err
}

const canaryTokens = 8

// canaryCheck is a model, or an adapter of it on the server, whose canary is compared after a sleep.
type witness struct {
	Adapter
	use Use
}

// canaryChecks returns the model and its adapters.
func (s *Server) witnesses(ctx context.Context, model string) ([]witness, error) {
	out := []witness{{Adapter{Name: model}, Use{Model: model}}}
	list, err := s.Adapters().List(ctx)
	for _, a := range list {
		if err == nil {
			out = append(out, witness{Adapter: a})
			out[len(out)-1].use, err = s.Adapters().Using(ctx, model, &a)
		}
	}
	return out, err
}

// sleep makes the server free the model's memory. Before the first sleep it records the canaries of the model and
// of its adapters.
func (s *Server) sleep(ctx context.Context, model, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.witnesses(ctx, model)
	for _, w := range list {
		if _, ok := s.canary[w.Adapter]; !ok && err == nil {
			var text string
			if text, err = s.Canary(ctx, w.use, canaryTokens); err == nil {
				s.canary[w.Adapter] = text
			}
		}
	}
	if err == nil {
		_, err = s.Call(ctx, http.MethodPost, path, nil)
	}
	return err
}

// wake loads the model's memory again and compares the canaries. Servers are known to write wrong text after a
// wake, or to ignore adapters.
func (s *Server) wake(ctx context.Context, model, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	asleep := true
	if s.Can.Switch == Sleeper {
		var err error
		if asleep, err = s.asleep(ctx); err != nil || !asleep && !s.wrong {
			return err
		}
	}
	if asleep {
		if _, err := s.Call(ctx, http.MethodPost, path, nil); err != nil {
			return err
		}
	}
	err := s.same(ctx, model)
	s.wrong = errors.Is(err, ErrCanary)
	return err
}

// checkCanary compares the canaries of a model and its adapters with the recorded ones.
func (s *Server) same(ctx context.Context, model string) error {
	list, err := s.witnesses(ctx, model)
	if err != nil {
		return err
	}
	for i, w := range list {
		before, ok := s.canary[w.Adapter]
		if !ok && i > 0 { // an adapter that was loaded after the sleep
			continue
		}
		text, err := s.Canary(ctx, w.use, canaryTokens)
		if err != nil {
			return err
		}
		if ok && text != before {
			return fmt.Errorf("%w: %s writes %q, before it slept %q", ErrCanary, w.Name, excerpt(text), excerpt(before))
		}
	}
	return nil
}
