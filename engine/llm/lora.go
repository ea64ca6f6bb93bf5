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
	NoLoRA          LoRA = iota
	LoRANamed            // vLLM: /v1/load_lora_adapter; requests name an adapter like a model
	LoRABesideModel      // SGLang: /load_lora_adapter; requests name an adapter beside the model
	LoRAWeighted         // llama-server: /lora-adapters; it has those it was started with, each with a weight
)

var loraNames = [...]string{"none", "named", "beside", "scaled"}

// endpoint returns the path to which an action (load or unload) on an adapter is posted.
func (l LoRA) endpoint(action string) string {
	if l == LoRABesideModel {
		return "/" + action + "_lora_adapter"
	}
	return "/v1/" + action + "_lora_adapter"
}

// CanLoad reports whether adapters can be loaded while the server runs.
func (l LoRA) CanLoad() bool { return l == LoRANamed || l == LoRABesideModel }

func (l LoRA) String() string { return loraNames[l] }

// Adapter is a LoRA adapter that a server has.
type Adapter struct {
	Name string // the name in requests, or the file's name without extension
	Path string // the path of its files, as the server sees them
	id   int    // number on the server, if adapters have weights
}

// findAdapters finds out, for Probe, whether a server has adapters that get their weight with each request, as
// llama-server does: it then lists them at /lora-adapters. It sets the server's ability LoRA. Only a server that does
// not answer is an error.
func (s *Server) findAdapters(ctx context.Context) error {
	if s.Abilities.LoRA != NoLoRA || s.Abilities.Switch == Router { // a router's adapters belong to its models
		return nil
	}
	list, err := s.Adapters().weightedAdapters(ctx)
	switch {
	case err == nil && len(list) > 0:
		s.Abilities.LoRA = LoRAWeighted
	case errors.Is(err, ErrGone) || ctx.Err() != nil:
		return err
	}
	return nil
}

// Adapters are the LoRA adapters of a server.
type Adapters struct{ server *Server }

// Adapters returns the adapters of the server.
func (s *Server) Adapters() Adapters { return Adapters{s} }

// List returns the LoRA adapters (small changes of a model's weights) that requests may ask the server for now.
func (a Adapters) List(ctx context.Context) ([]Adapter, error) {
	switch a.server.Abilities.LoRA {
	case LoRAWeighted:
		return a.weightedAdapters(ctx)
	case LoRANamed, LoRABesideModel:
		return a.namedAdapters(ctx)
	}
	return nil, nil
}

// weightedAdapters returns the adapters that llama-server was started with, from /lora-adapters. Requests state a
// weight for each of them by its number (id), so they have no names of their own: the name is that of the file.
func (a Adapters) weightedAdapters(ctx context.Context) ([]Adapter, error) {
	var list []struct {
		ID   int    `json:"id"`
		Path string `json:"path"`
	}
	if err := a.server.getJSON(ctx, "/lora-adapters", &list); err != nil {
		return nil, err
	}
	var out []Adapter
	for _, listed := range list {
		out = append(out, Adapter{Name: strings.TrimSuffix(path.Base(listed.Path), path.Ext(listed.Path)), Path: listed.Path, id: listed.ID})
	}
	return out, nil
}

// namedAdapters returns the adapters of vLLM or SGLang, which requests ask for by name. They are in the server's
// list of models (/v1/models): models have no parent there, adapters have the model that they change.
func (a Adapters) namedAdapters(ctx context.Context) ([]Adapter, error) {
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Root   string  `json:"root"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	err := a.server.getJSON(ctx, "/v1/models", &list)
	var out []Adapter
	for _, m := range list.Data {
		if m.Parent != nil {
			out = append(out, Adapter{Name: m.ID, Path: m.Root})
		}
	}
	return out, err
}

// matches reports whether an adapter that a server lists is the wanted one. Adapters of llama-server (weighted ones)
// are compared by their files, because their names are made from these.
func (l LoRA) matches(listed, wanted Adapter) bool {
	if l == LoRAWeighted && wanted.Path != "" {
		return listed.Path == wanted.Path
	}
	return listed.Name == wanted.Name
}

// Has reports whether requests may ask for an adapter now.
func (a Adapters) Has(ctx context.Context, wanted Adapter) (bool, error) {
	list, err := a.List(ctx)
	return slices.ContainsFunc(list, func(l Adapter) bool { return a.server.Abilities.LoRA.matches(l, wanted) }), err
}

// Offers returns nil if the server has an adapter, or can load it. Otherwise it returns ErrNoAdapter, which says
// what the server has instead.
func (a Adapters) Offers(ctx context.Context, wanted Adapter) error {
	ability := a.server.Abilities.LoRA
	if ability == NoLoRA {
		return a.adapterError(wanted, "it takes no adapters: start llama-server with --lora FILE and a model of its own, vLLM or SGLang with --enable-lora")
	}
	list, err := a.List(ctx)
	switch {
	case err != nil || slices.ContainsFunc(list, func(l Adapter) bool { return ability.matches(l, wanted) }):
		return err
	case ability == LoRAWeighted:
		return a.adapterError(wanted, "found %v, expected %s: start llama-server with --lora and its file", displayNames(list, wanted.Path != ""), cmp.Or(wanted.Path, wanted.Name))
	case wanted.Path == "":
		return a.adapterError(wanted, "found %v: say where its files are, or start the server with it", displayNames(list, false))
	}
	return a.canLoad(ctx, wanted)
}

// canLoad finds out whether the server can load adapters while it runs. Loading is a POST, so a server that has
// the path refuses a GET of it.
func (a Adapters) canLoad(ctx context.Context, wanted Adapter) error {
	ability := a.server.Abilities.LoRA
	_, err := a.server.Call(ctx, http.MethodGet, ability.endpoint("load"), nil)
	var refusal *Error
	switch {
	case !errors.As(err, &refusal) || refusal.Status == 0:
		return err
	case refusal.Status != http.StatusNotFound:
		return nil
	case ability == LoRABesideModel:
		return a.adapterError(wanted, "it loads none while it runs: expected a version of SGLang that has %s", ability.endpoint("load"))
	}
	return a.adapterError(wanted, "it loads none while it runs: start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
}

// displayNames returns the names of adapters for an error or, if files is set, the paths of their files.
func displayNames(list []Adapter, files bool) []string {
	out := make([]string, len(list))
	for i, l := range list {
		if out[i] = l.Name; files {
			out[i] = l.Path
		}
	}
	return out
}

// adapterError returns ErrNoAdapter with a text that says what the server lacks.
func (a Adapters) adapterError(wanted Adapter, format string, args ...any) error {
	return &Error{Kind: ErrNoAdapter, Text: fmt.Sprintf("%s at %s: ", wanted.Name, a.server.Address()) + fmt.Sprintf(format, args...)}
}

// Load loads an adapter from the path at which the server finds its files.
func (a Adapters) Load(ctx context.Context, wanted Adapter) error {
	err := a.postChange(ctx, "load", map[string]any{"lora_name": wanted.Name, "lora_path": wanted.Path}, "already")
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Status == http.StatusNotFound { // its files were not found, not the path
		refusal.Kind = ErrNoAdapter
	}
	if err != nil {
		return fmt.Errorf("loading the adapter %s at %s: %w", wanted.Name, a.server.Address(), err)
	}
	return nil
}

// Unload unloads an adapter.
func (a Adapters) Unload(ctx context.Context, name string) error {
	err := a.postChange(ctx, "unload", map[string]any{"lora_name": name}, "not found", "cannot be found")
	if err != nil {
		return fmt.Errorf("unloading the adapter %s at %s: %w", name, a.server.Address(), err)
	}
	return nil
}

// postChange posts an action (load or unload) on an adapter. A refusal that contains one of doneWords, such as
// "already", means that the change was made before, and is no error.
func (a Adapters) postChange(ctx context.Context, action string, body map[string]any, doneWords ...string) error {
	ability := a.server.Abilities.LoRA
	if !ability.CanLoad() {
		return fmt.Errorf("%w: and its adapters", ErrStays)
	}
	_, err := a.server.Call(ctx, http.MethodPost, ability.endpoint(action), body)
	if slices.ContainsFunc(doneWords, func(word string) bool { return aboutState(err, word) }) {
		return nil
	}
	return err
}
