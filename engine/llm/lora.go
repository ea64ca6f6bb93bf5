package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// LoRA is the way in which a server loads LoRA adapters.
type LoRA uint8

// LoRANamed and LoRABesideModel were implemented from documentation only. LoRAWeighted was tested with
// llama-server.
const (
	NoLoRA LoRA = iota
	Named       // vLLM: /v1/load_lora_adapter; requests name an adapter like a model
	Beside      // SGLang: /load_lora_adapter; requests name an adapter beside the model
	Scaled      // llama-server: /lora-adapters; it has those it was started with, each with a weight
)

var loraNames = [...]string{"none", "named", "beside", "scaled"}

// endpoint returns the path to which loading and unloading is posted.
func (l LoRA) path(what string) string {
	if l == Beside {
		return "/" + what + "_lora_adapter"
	}
	return "/v1/" + what + "_lora_adapter"
}

// CanLoad reports whether adapters can be loaded while the server runs.
func (l LoRA) Loads() bool { return l == Named || l == Beside }

func (l LoRA) String() string { return loraNames[l] }

// Adapter is a LoRA adapter that a server has.
type Adapter struct {
	Name string // the name in requests, or the file's name without extension
	Path string // the path of its files, as the server sees them
	id   int    // number on the server, if adapters have weights
}

// findAdapters finds out whether a server has weighted adapters.
func (s probe) adapters(ctx context.Context) error {
	if s.Can.LoRA != NoLoRA || s.Can.Switch == Router { // a router's adapters belong to its models
		return nil
	}
	list, err := s.Adapters().scaled(ctx)
	switch {
	case err == nil && len(list) > 0:
		s.Can.LoRA = Scaled
	case errors.Is(err, ErrGone) || ctx.Err() != nil:
		return err
	}
	return nil
}

// Adapters are the LoRA adapters of a server.
type Adapters struct{ server *Server }

// Adapters returns the adapters of the server.
func (s *Server) Adapters() Adapters { return Adapters{s} }

// List returns the adapters that requests may ask for.
func (a Adapters) List(ctx context.Context) ([]Adapter, error) {
	switch a.server.Can.LoRA {
	case Scaled:
		return a.scaled(ctx)
	case Named, Beside:
		return a.named(ctx)
	}
	return nil, nil
}

// weightedAdapters returns llama-server's adapters.
func (a Adapters) scaled(ctx context.Context) ([]Adapter, error) {
	var list []struct {
		ID   int    `json:"id"`
		Path string `json:"path"`
	}
	if err := a.server.get(ctx, "/lora-adapters", &list); err != nil {
		return nil, err
	}
	var out []Adapter
	for _, l := range list {
		out = append(out, Adapter{Name: strings.TrimSuffix(path.Base(l.Path), path.Ext(l.Path)), Path: l.Path, id: l.ID})
	}
	return out, nil
}

// namedAdapters returns the adapters among the models in the server's list. Models have no parent, adapters do.
func (a Adapters) named(ctx context.Context) ([]Adapter, error) {
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Root   string  `json:"root"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	err := a.server.get(ctx, "/v1/models", &list)
	var out []Adapter
	for _, m := range list.Data {
		if m.Parent != nil {
			out = append(out, Adapter{Name: m.ID, Path: m.Root})
		}
	}
	return out, err
}

// matches reports whether a listed adapter is the wanted one. Weighted adapters are compared by their files,
// because their names are made from these.
func (l LoRA) is(listed, meant Adapter) bool {
	if l == Scaled && meant.Path != "" {
		return listed.Path == meant.Path
	}
	return listed.Name == meant.Name
}

// Has reports whether requests may ask for an adapter now.
func (a Adapters) Has(ctx context.Context, meant Adapter) (bool, error) {
	list, err := a.List(ctx)
	return slices.ContainsFunc(list, func(l Adapter) bool { return a.server.Can.LoRA.is(l, meant) }), err
}

// Offers returns nil if the server has an adapter, or can load it. Otherwise it returns ErrNoAdapter, which says
// what the server has instead.
func (a Adapters) Offers(ctx context.Context, meant Adapter) error {
	can := a.server.Can.LoRA
	if can == NoLoRA {
		return a.lacks(meant, "it takes no adapters: start llama-server with --lora FILE and a model of its own, vLLM or SGLang with --enable-lora")
	}
	list, err := a.List(ctx)
	switch {
	case err != nil || slices.ContainsFunc(list, func(l Adapter) bool { return can.is(l, meant) }):
		return err
	case can == Scaled:
		return a.lacks(meant, "found %v, expected %s: start llama-server with --lora and its file", shown(list, meant.Path != ""), cmp.Or(meant.Path, meant.Name))
	case meant.Path == "":
		return a.lacks(meant, "found %v: say where its files are, or start the server with it", shown(list, false))
	}
	return a.loads(ctx, meant)
}

// canLoad finds out whether the server can load adapters while it runs. Loading is a POST, so a server that has
// the path refuses a GET of it.
func (a Adapters) loads(ctx context.Context, meant Adapter) error {
	can := a.server.Can.LoRA
	_, err := a.server.Call(ctx, http.MethodGet, can.path("load"), nil)
	var said *Error
	switch {
	case !errors.As(err, &said) || said.Status == 0:
		return err
	case said.Status != http.StatusNotFound:
		return nil
	case can == Beside:
		return a.lacks(meant, "it loads none while it runs: expected a version of SGLang that has %s", can.path("load"))
	}
	return a.lacks(meant, "it loads none while it runs: start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
}

// displayNames returns the names of adapters, or their files.
func shown(list []Adapter, files bool) []string {
	out := make([]string, len(list))
	for i, l := range list {
		if out[i] = l.Name; files {
			out[i] = l.Path
		}
	}
	return out
}

// adapterError returns ErrNoAdapter with a text that says what the server lacks.
func (a Adapters) lacks(meant Adapter, format string, args ...any) error {
	return &Error{Kind: ErrNoAdapter, Text: fmt.Sprintf("%s at %s: ", meant.Name, a.server.Address()) + fmt.Sprintf(format, args...)}
}

// Load loads an adapter from the path at which the server finds its files.
func (a Adapters) Load(ctx context.Context, meant Adapter) error {
	err := a.post(ctx, "load", map[string]any{"lora_name": meant.Name, "lora_path": meant.Path}, "already")
	var said *Error
	if errors.As(err, &said) && said.Status == http.StatusNotFound { // its files were not found, not the path
		said.Kind = ErrNoAdapter
	}
	if err != nil {
		return fmt.Errorf("loading the adapter %s at %s: %w", meant.Name, a.server.Address(), err)
	}
	return nil
}

// Unload unloads an adapter.
func (a Adapters) Unload(ctx context.Context, name string) error {
	err := a.post(ctx, "unload", map[string]any{"lora_name": name}, "not found", "cannot be found")
	if err != nil {
		return fmt.Errorf("unloading the adapter %s at %s: %w", name, a.server.Address(), err)
	}
	return nil
}

// postChange posts a change. A refusal that contains one of some words means that the change was made before.
func (a Adapters) post(ctx context.Context, what string, body map[string]any, done ...string) error {
	can := a.server.Can.LoRA
	if !can.Loads() {
		return fmt.Errorf("%w: and its adapters", ErrStays)
	}
	_, err := a.server.Call(ctx, http.MethodPost, can.path(what), body)
	if slices.ContainsFunc(done, func(word string) bool { return aboutState(err, word) }) {
		return nil
	}
	return err
}
