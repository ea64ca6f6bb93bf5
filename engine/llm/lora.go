package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
)

// LoRA is how a server's LoRA adapters come and go.
type LoRA uint8

// The ways. Named and Beside were read in documentation alone; Scaled was run against
// llama-server.
const (
	NoLoRA LoRA = iota
	Named       // vLLM: /v1/load_lora_adapter; requests name them like models
	Beside      // SGLang: /load_lora_adapter; requests name them beside the model
	Scaled      // llama-server: /lora-adapters; those it was started with, each with a weight
)

var loraNames = [...]string{"none", "named", "beside", "scaled"}

// path is where adapters are loaded and unloaded.
func (l LoRA) path(what string) string {
	if l == Beside {
		return "/" + what + "_lora_adapter"
	}
	return "/v1/" + what + "_lora_adapter"
}

// Loads tells whether adapters come and go while the server runs.
func (l LoRA) Loads() bool { return l == Named || l == Beside }

// ErrNoAdapter: the server does not have an adapter, and cannot load it.
var ErrNoAdapter = errors.New("the server has no such adapter")

func (l LoRA) String() string { return loraNames[l] }

// Adapter is a LoRA adapter that a server has.
type Adapter struct {
	Name  string // that requests use, or the file's without its ending
	Path  string // where the server told it
	Scale float64
	id    int
}

// adapters looks whether a server has adapters with weights.
func (s probe) adapters(ctx context.Context) error {
	if s.Can.LoRA != NoLoRA || s.Can.Switch == Router { // a router's are its models' own
		return nil
	}
	list, err := s.scaled(ctx)
	switch {
	case err == nil && len(list) > 0:
		s.Can.LoRA = Scaled
	case errors.Is(err, ErrGone) || ctx.Err() != nil:
		return err
	}
	return nil
}

// scaled lists llama-server's adapters.
func (s *Server) scaled(ctx context.Context) ([]Adapter, error) {
	var list []struct {
		ID    int     `json:"id"`
		Path  string  `json:"path"`
		Scale float64 `json:"scale"`
	}
	if err := s.get(ctx, "/lora-adapters", &list); err != nil {
		return nil, err
	}
	var out []Adapter
	for _, a := range list {
		out = append(out, Adapter{Name: strings.TrimSuffix(path.Base(a.Path), path.Ext(a.Path)), Path: a.Path, Scale: a.Scale, id: a.ID})
	}
	return out, nil
}

// Adapters lists the adapters that take effect, or may.
func (s *Server) Adapters(ctx context.Context) ([]Adapter, error) {
	switch s.Can.LoRA {
	case Scaled:
		return s.scaled(ctx)
	case Named, Beside:
		var list struct {
			Data []struct {
				ID     string  `json:"id"`
				Root   string  `json:"root"`
				Parent *string `json:"parent"`
			} `json:"data"`
		}
		err := s.get(ctx, "/v1/models", &list)
		var out []Adapter
		for _, m := range list.Data {
			if m.Parent != nil { // models have none
				out = append(out, Adapter{Name: m.ID, Path: m.Root, Scale: 1})
			}
		}
		return out, err
	}
	return nil, nil
}

// LoadAdapter brings an adapter. Where adapters have weights the server was started with
// it: path is not read, and its weight becomes 1.
func (s *Server) LoadAdapter(ctx context.Context, name, path string) error {
	var err error
	switch s.Can.LoRA {
	case Named, Beside:
		_, err = s.Call(ctx, http.MethodPost, s.Can.LoRA.path("load"), map[string]any{"lora_name": name, "lora_path": path})
		if aboutState(err, "already") {
			err = nil
		}
	default:
		err = s.ScaleAdapter(ctx, name, 1)
	}
	if err != nil {
		return fmt.Errorf("loading the adapter %s at %s: %w", name, s.Address(), err)
	}
	return nil
}

// UnloadAdapter takes an adapter away.
func (s *Server) UnloadAdapter(ctx context.Context, name string) error {
	var err error
	switch s.Can.LoRA {
	case Named, Beside:
		_, err = s.Call(ctx, http.MethodPost, s.Can.LoRA.path("unload"), map[string]any{"lora_name": name})
		if aboutState(err, "not found") || aboutState(err, "cannot be found") {
			err = nil
		}
	default:
		err = s.ScaleAdapter(ctx, name, 0)
	}
	if err != nil {
		return fmt.Errorf("unloading the adapter %s at %s: %w", name, s.Address(), err)
	}
	return nil
}

// weight is what llama-server gives an adapter.
type weight struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// ScaleAdapter gives an adapter a weight for all requests. The others keep theirs.
func (s *Server) ScaleAdapter(ctx context.Context, name string, scale float64) error {
	if s.Can.LoRA != Scaled {
		return fmt.Errorf("%w: its adapters have no weights", ErrStays)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.scaled(ctx)
	if err != nil {
		return err
	}
	// Those that are not named would get the weight 0.
	var all []weight
	found := false
	for _, a := range list {
		if a.Name == name {
			found, a.Scale = true, scale
		}
		all = append(all, weight{a.id, a.Scale})
	}
	if !found {
		return fmt.Errorf("%w: adapter %s: the server was not started with it", ErrUnknownModel, name)
	}
	_, err = s.Call(ctx, http.MethodPost, "/lora-adapters", all)
	return err
}
