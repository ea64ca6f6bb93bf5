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

// Loaded returns the models that accept requests now. Each kind of server is asked in its own way. One that cannot
// load or unload models has all that it lists. Abilities.Switch is the kind: Router is llama-server in front of
// servers of models, Sleeper a vLLM in sleep mode, KeepAlive Ollama, and Swapper llama-swap.
func (s *Server) Loaded(ctx context.Context) ([]string, error) {
	switch s.Abilities.Switch {
	case Router:
		list, err := s.listModels(ctx, "/models")
		var out []string
		for _, m := range list {
			if m.Status != nil && m.Status.Value == "loaded" {
				out = append(out, m.ID)
			}
		}
		return out, err
	case Sleeper:
		if asleep, err := s.isAsleep(ctx); asleep || err != nil {
			return nil, err
		}
	case KeepAlive:
		var list struct {
			Models []struct {
				Name  string `json:"name"`
				Model string `json:"model"`
			} `json:"models"`
		}
		err := s.getJSON(ctx, "/api/ps", &list)
		var out []string
		for _, m := range list.Models {
			name := max(m.Model, m.Name) // one of them may be empty
			out = append(out, strings.TrimSuffix(name, ":latest"))
		}
		return out, err
	case Swapper:
		var list struct {
			Running []struct{ Model, State string }
		}
		err := s.getJSON(ctx, "/running", &list)
		var out []string
		for _, m := range list.Running {
			if m.State == "" || m.State == "ready" {
				out = append(out, m.Model)
			}
		}
		return out, err
	}
	return s.Abilities.Models, nil
}

// Load has the server load a model, in the way of its kind, and returns when the model accepts requests. A server
// that cannot load models returns an error unless it has the model.
func (s *Server) Load(ctx context.Context, model string) error {
	var err error
	switch s.Abilities.Switch {
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
		if !slices.Contains(s.Abilities.Models, model) {
			err = fmt.Errorf("%w: %w", ErrStays, ErrUnknownModel)
		}
	}
	if err != nil {
		return fmt.Errorf("loading %s at %s: %w", model, s.Address(), err)
	}
	return nil
}

// Unload has the server unload a model, in the way of its kind, and returns when its memory is free. A server that
// cannot unload models returns ErrStays.
func (s *Server) Unload(ctx context.Context, model string) error {
	var err error
	switch s.Abilities.Switch {
	case Router:
		err = s.unloadRouted(ctx, model)
	case Sleeper:
		err = s.sleep(ctx, model, "/sleep?level=1")
	case Releaser:
		err = s.sleep(ctx, model, "/release_memory_occupation")
	case KeepAlive:
		if _, err = s.Call(ctx, http.MethodPost, "/api/generate", map[string]any{"model": model, "keep_alive": 0, "stream": false}); err == nil {
			err = s.waitUnloaded(ctx, model)
		}
	case Swapper:
		if _, err = s.Call(ctx, http.MethodPost, "/api/models/unload/"+url.PathEscape(model), nil); err == nil {
			err = s.waitUnloaded(ctx, model)
		}
	default:
		err = ErrStays
	}
	if err != nil {
		return fmt.Errorf("unloading %s at %s: %w", model, s.Address(), err)
	}
	return nil
}

// waitUnloaded asks the server again and again until a model is no longer loaded.
func (s *Server) waitUnloaded(ctx context.Context, model string) error {
	for {
		list, err := s.Loaded(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(list, model) {
			return nil
		}
		if err := waitPoll(ctx); err != nil {
			return err
		}
	}
}

// waitPoll waits between two looks at a server. It returns the context's error if that ends first.
func waitPoll(ctx context.Context) error {
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
		if err := waitPoll(ctx); err != nil {
			return err
		}
	}

	// Wait until the model's process accepts requests.
	for {
		m, err := s.routerModel(ctx, model)
		switch {
		case err != nil:
			return err
		case m.Status.Value == "loaded":
			return nil
		case m.Status.Failed || m.Status.Value == "failed":
			return &Error{Kind: ErrBroken, Text: "the model's process ended while it was loaded"}
		}
		if err := waitPoll(ctx); err != nil {
			return err
		}
	}
}

// unloadRouted asks a router to unload a model, and waits until the model's process has ended.
func (s *Server) unloadRouted(ctx context.Context, model string) error {
	if _, err := s.Call(ctx, http.MethodPost, "/models/unload", map[string]any{"model": model}); err != nil && !aboutState(err, "not") {
		return err
	}
	for {
		m, err := s.routerModel(ctx, model)
		if err != nil || m.Status.Value == "unloaded" || m.Status.Value == "failed" {
			return err
		}
		if err := waitPoll(ctx); err != nil {
			return err
		}
	}
}

// routerModel returns a model's entry in the list of a router (llama-server in front of servers of models), or
// ErrUnknownModel.
func (s *Server) routerModel(ctx context.Context, model string) (*listedModel, error) {
	list, err := s.listModels(ctx, "/models")
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

// aboutState reports whether an error is a server's refusal that contains a word: "already" (loaded), "not"
// (loaded), or "limit" (of models reached).
func aboutState(err error, word string) bool {
	var e *Error
	return errors.As(err, &e) && e.Status > 0 && strings.Contains(strings.ToLower(e.Text), word)
}

// isAsleep asks vLLM whether it sleeps.
func (s *Server) isAsleep(ctx context.Context) (bool, error) {
	var sleep struct {
		Sleeping bool `json:"is_sleeping"`
	}
	err := s.getJSON(ctx, "/is_sleeping", &sleep)
	return sleep.Sleeping, err
}

// Canary returns the first tokens of the answer to a fixed prompt, with greedy decoding: the same model gives the
// same text. u names the model, or an adapter of it.
func (s *Server) Canary(ctx context.Context, u Use, tokens int) (string, error) {
	fields := map[string]any{"temperature": 0, "seed": 1}
	maps.Copy(fields, u.Fields)
	a, err := s.Complete(ctx, &Request{Model: u.Model, Prompt: "The quick brown fox jumps over the lazy", MaxTokens: tokens, Fields: fields}, nil)
	return a.Text, err
}

// canaryTokens is the length of the answers that are compared before and after a sleep.
const canaryTokens = 8

// canaryCheck is a model, or an adapter of it on the server, whose canary is compared after a sleep.
type canaryCheck struct {
	Adapter
	use Use
}

// canaryChecks returns the model and its adapters, each with the way in which requests ask for it.
func (s *Server) canaryChecks(ctx context.Context, model string) ([]canaryCheck, error) {
	out := []canaryCheck{{Adapter{Name: model}, Use{Model: model}}}
	list, err := s.Adapters().List(ctx)
	for _, a := range list {
		if err == nil {
			out = append(out, canaryCheck{Adapter: a})
			out[len(out)-1].use, err = s.Adapters().RequestUse(ctx, model, &a)
		}
	}
	return out, err
}

// sleep makes the server free the model's memory, by a POST to path. Before the first sleep it records the canaries
// (answers to a fixed prompt) of the model and of its adapters.
func (s *Server) sleep(ctx context.Context, model, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.canaryChecks(ctx, model)
	for _, check := range list {
		if _, ok := s.canary[check.Adapter]; !ok && err == nil {
			var text string
			if text, err = s.Canary(ctx, check.use, canaryTokens); err == nil {
				s.canary[check.Adapter] = text
			}
		}
	}
	if err == nil {
		_, err = s.Call(ctx, http.MethodPost, path, nil)
	}
	return err
}

// wake makes the server load the model's memory again, by a POST to path, and compares the canaries. Servers are
// known to write wrong text after a wake, or to ignore adapters. If the last comparison failed, it compares again,
// although the server is awake. The result of the comparison is kept in s.canaryFailed.
func (s *Server) wake(ctx context.Context, model, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	asleep := true
	if s.Abilities.Switch == Sleeper {
		var err error
		if asleep, err = s.isAsleep(ctx); err != nil || !asleep && !s.canaryFailed {
			return err
		}
	}
	if asleep {
		if _, err := s.Call(ctx, http.MethodPost, path, nil); err != nil {
			return err
		}
	}
	err := s.checkCanary(ctx, model)
	s.canaryFailed = errors.Is(err, ErrCanary)
	return err
}

// checkCanary asks a model and its adapters for their canaries (answers to a fixed prompt) and returns ErrCanary if
// one differs from that recorded before the sleep.
func (s *Server) checkCanary(ctx context.Context, model string) error {
	list, err := s.canaryChecks(ctx, model)
	if err != nil {
		return err
	}
	for i, check := range list {
		earlier, ok := s.canary[check.Adapter]
		if !ok && i > 0 { // an adapter that was loaded after the sleep
			continue
		}
		text, err := s.Canary(ctx, check.use, canaryTokens)
		if err != nil {
			return err
		}
		if ok && text != earlier {
			return fmt.Errorf("%w: %s writes %q, before it slept %q", ErrCanary, check.Name, excerpt(text), excerpt(earlier))
		}
	}
	return nil
}
