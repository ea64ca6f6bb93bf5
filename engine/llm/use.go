package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Use is how requests ask a server for a model, or for an adapter of it.
type Use struct {
	Model  string
	Fields map[string]any // of Request
}

// is tells whether a listed adapter is the one that is meant. Where adapters have
// weights, their files tell them apart; a name is made of the file's.
func (l LoRA) is(listed, meant Adapter) bool {
	if l == Scaled && meant.Path != "" {
		return listed.Path == meant.Path
	}
	return listed.Name == meant.Name
}

// HasAdapter looks whether an adapter takes effect, or may. ErrNoAdapter: it is not there.
func (s *Server) HasAdapter(ctx context.Context, a Adapter) error {
	list, err := s.Adapters(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, l := range list {
		if s.Can.LoRA.is(l, a) {
			return nil
		}
		names = append(names, l.Name)
	}
	return fmt.Errorf("%w: %s at %s: found %s", ErrNoAdapter, a.Name, s.Address(), "["+strings.Join(names, " ")+"]")
}

// OffersAdapter looks whether an adapter is there, or can be loaded. ErrNoAdapter says
// what the server lacks.
func (s *Server) OffersAdapter(ctx context.Context, a Adapter) error {
	if s.Can.LoRA == NoLoRA {
		return fmt.Errorf("%w: %s at %s: it takes no adapters: start llama-server with --lora FILE and a model of its own, vLLM or SGLang with --enable-lora", ErrNoAdapter, a.Name, s.Address())
	}
	err := s.HasAdapter(ctx, a)
	switch {
	case !errors.Is(err, ErrNoAdapter):
		return err
	case s.Can.LoRA == Scaled:
		return fmt.Errorf("%w: start llama-server with --lora and its file", err)
	case a.Path == "":
		return fmt.Errorf("%w: say where its files are, or start the server with it", err)
	}
	// Adapters are posted: where the path is there it refuses to be read.
	_, err = s.Call(ctx, http.MethodGet, s.Can.LoRA.path("load"), nil)
	var said *Error
	switch {
	case errors.As(err, &said) && said.Status == http.StatusNotFound:
		return fmt.Errorf("%w: %s at %s: it loads none while it runs: start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", ErrNoAdapter, a.Name, s.Address())
	case errors.As(err, &said) && said.Status > 0:
		return nil
	}
	return err
}

// Using is how requests ask for a model as it is (nil), or with an adapter. Where adapters
// have weights each request says them: those of the server are not relied on.
func (s *Server) Using(ctx context.Context, model string, a *Adapter) (Use, error) {
	switch {
	case s.Can.LoRA == Scaled:
		list, err := s.scaled(ctx)
		weights := make([]weight, 0, len(list))
		found := a == nil
		for _, l := range list {
			w := weight{ID: l.id}
			if a != nil && Scaled.is(l, *a) {
				found, w.Scale = true, 1
			}
			weights = append(weights, w)
		}
		if err == nil && !found {
			err = fmt.Errorf("%w: %s at %s", ErrNoAdapter, a.Name, s.Address())
		}
		return Use{model, map[string]any{"lora": weights}}, err
	case a == nil:
		return Use{Model: model}, nil
	case s.Can.LoRA == Beside:
		return Use{model, map[string]any{"lora_path": a.Name}}, nil
	}
	return Use{Model: a.Name}, nil
}

// Try has a token written.
func (s *Server) Try(ctx context.Context, u Use) error {
	_, err := s.canaryOf(ctx, u, 1)
	return err
}
