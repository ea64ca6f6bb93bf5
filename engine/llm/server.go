package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Switch is the way in which a server loads and unloads models.
type Switch uint8

// The ways were tested with a real server (llama-server, Ollama), or implemented from documentation only (vLLM,
// SGLang, llama-swap).
const (
	FixedModels Switch = iota // it has the models that it was started with
	Router                    // llama-server without a model: /models/load, /models/unload
	Sleeper                   // vLLM in sleep mode: /sleep, /wake_up
	Releaser                  // SGLang with its memory saver: /release_memory_occupation, /resume_memory_occupation
	KeepAlive                 // Ollama: a keep_alive of 0 unloads
	Swapper                   // llama-swap: /upstream/MODEL/ loads, /api/models/unload/MODEL unloads
)

var switchNames = [...]string{"fixed", "router", "sleeper", "releaser", "keep-alive", "swapper"}

func (s Switch) String() string { return switchNames[s] }

// Abilities says what a server can do, as found by its answers.
type Abilities struct {
	Models   []string // the models that it lists
	Slots    int      // requests that run at once; 0 if it does not say
	Switch   Switch
	Metrics  bool // /metrics has the running and waiting requests
	LoRA     LoRA // the way in which adapters are loaded, if the server was started with them
	Template bool // it can render the messages of a chat as a prompt
	// ContinueChat says that it can continue the last message of a chat (continue_final_message).
	ContinueChat bool
}

// Server is a server with its abilities.
type Server struct {
	*Client
	Abilities Abilities

	mu           sync.Mutex
	canary       map[Adapter]string // the answer to the canary before the first sleep, by model or adapter
	canaryFailed bool               // the canary failed after the last wake
}

// Probe makes a client for a server, and finds out the server's abilities: how it loads models, whether it has
// metrics or adapters. It judges by the server's answers, not by its name.
func Probe(ctx context.Context, address string, options ...Option) (*Server, error) {
	c, err := New(address, options...)
	if err != nil {
		return nil, err
	}
	s := &Server{Client: c, canary: map[Adapter]string{}}
	models, err := s.listModels(ctx, "/v1/models")
	if err != nil {
		return nil, fmt.Errorf("asking %s for its models: %w", c.Address(), err)
	}
	for _, m := range models {
		s.Abilities.Models = append(s.Abilities.Models, m.ID)
	}
	for _, ask := range []func(context.Context) error{s.findLlamaServer, s.findVLLM, s.findSGLang, s.findOllama, s.findLlamaSwap, s.findMetrics, s.findAdapters} {
		if err := ask(ctx); err != nil {
			return nil, fmt.Errorf("asking %s what it can do: %w", c.Address(), err)
		}
	}
	return s, nil
}

// listedModel is a model in a server's list.
type listedModel struct {
	ID     string `json:"id"`
	Status *struct {
		Value  string `json:"value"`
		Failed bool   `json:"failed"`
	} `json:"status"`
}

// listModels returns the models in the list at a path (/v1/models, or a router's /models).
func (s *Server) listModels(ctx context.Context, path string) ([]listedModel, error) {
	var list struct {
		Data []listedModel `json:"data"`
	}
	return list.Data, s.getJSON(ctx, path, &list)
}

// getJSON reads the JSON answer at a path into result. An answer that is not JSON is ErrBroken.
func (s *Server) getJSON(ctx context.Context, path string, result any) error {
	data, err := s.Call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, result); err != nil {
		return &Error{Kind: ErrBroken, Status: http.StatusOK, Text: fmt.Sprintf("%s: %v", path, err)}
	}
	return nil
}

// getIfPresent reads JSON from a path that only some servers have, and reports whether it is there. An answer that is
// not JSON, such as a web page, means that it is not. A server that does not answer, or refuses the key, is an error.
func (s *Server) getIfPresent(ctx context.Context, path string, result any) (bool, error) {
	err := s.getJSON(ctx, path, result)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrGone) || errors.Is(err, ErrUnauthorized) || ctx.Err() != nil:
		return false, err
	}
	return false, nil
}

// findLlamaServer sets the server's abilities if it is llama-server: either with a model of its own (/props then
// reports its slots, the sequences that it can run at once), or as a router in front of servers of models (the models
// in its list then have a status). Both can render chats as prompts. Other servers lack these paths, so only a server
// that does not answer is an error.
func (s *Server) findLlamaServer(ctx context.Context) error {
	var props struct {
		Slots    int    `json:"total_slots"`
		Template string `json:"chat_template"`
		Role     string `json:"role"`
	}
	ok, err := s.getIfPresent(ctx, "/props", &props)
	if err != nil {
		return err
	}
	if ok && (props.Slots > 0 || props.Template != "" || props.Role != "") {
		s.Abilities.Slots, s.Abilities.Template = props.Slots, true
	}
	list, err := s.listModels(ctx, "/models")
	if err == nil && slices.ContainsFunc(list, func(m listedModel) bool { return m.Status != nil }) {
		s.Abilities.Switch, s.Abilities.Template = Router, true
	}
	if errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// findVLLM sets the server's abilities if it is vLLM in sleep mode: it can free a model's memory and load it again
// (Sleeper). Only vLLM answers /is_sleeping.
func (s *Server) findVLLM(ctx context.Context) error {
	var sleep struct {
		Sleeping *bool `json:"is_sleeping"`
	}
	ok, err := s.getIfPresent(ctx, "/is_sleeping", &sleep)
	if ok && sleep.Sleeping != nil {
		s.Abilities.Switch = Sleeper
	}
	return err
}

// findSGLang sets the server's abilities if it is SGLang, by /get_server_info: its slots, and whether adapters can be
// loaded beside the model, and memory be released (Releaser). It can continue chats.
func (s *Server) findSGLang(ctx context.Context) error {
	var info struct {
		Most  int    `json:"max_running_requests"`
		Saver bool   `json:"enable_memory_saver"`
		Path  string `json:"model_path"`
		LoRA  bool   `json:"enable_lora"`
	}
	ok, err := s.getIfPresent(ctx, "/get_server_info", &info)
	if !ok || info.Path == "" {
		return err
	}
	s.Abilities.Slots, s.Abilities.ContinueChat = info.Most, true
	if info.LoRA {
		s.Abilities.LoRA = LoRABesideModel
	}
	if info.Saver {
		s.Abilities.Switch = Releaser
	}
	return nil
}

// findOllama sets the server's ability to load models on demand (KeepAlive) if it is Ollama, which lists loaded
// models at /api/ps.
func (s *Server) findOllama(ctx context.Context) error {
	var running struct {
		Models *[]json.RawMessage `json:"models"`
	}
	ok, err := s.getIfPresent(ctx, "/api/ps", &running)
	if ok && running.Models != nil {
		s.Abilities.Switch = KeepAlive
	}
	return err
}

// findLlamaSwap sets the server's ability to swap models (Swapper) if it is llama-swap, which lists loaded models at
// /running.
func (s *Server) findLlamaSwap(ctx context.Context) error {
	var running struct {
		Running *[]json.RawMessage `json:"running"`
	}
	ok, err := s.getIfPresent(ctx, "/running", &running)
	if ok && running.Running != nil {
		s.Abilities.Switch = Swapper
	}
	return err
}

// findMetrics finds out whether the server has metrics that State can read. vLLM's metrics also show that it is vLLM,
// which can load named adapters and continue chats. It sets these abilities. Only a server that does not answer is an
// error.
func (s *Server) findMetrics(ctx context.Context) error {
	if s.Abilities.Switch == Router { // a router's metrics are those of a loaded model
		s.Abilities.Metrics = true
		return nil
	}
	data, err := s.Call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		if errors.Is(err, ErrGone) {
			return err
		}
		return nil
	}
	text := string(data)
	s.Abilities.Metrics = strings.Contains(text, "llamacpp:") || strings.Contains(text, "vllm:") || strings.Contains(text, "sglang:")
	if strings.Contains(text, "vllm:") {
		s.Abilities.LoRA, s.Abilities.ContinueChat = LoRANamed, true
	}
	return nil
}

// Alive returns nil if the server answers and accepts requests, and otherwise why it does not. A server without
// /health is asked for its models.
func (s *Server) Alive(ctx context.Context) error {
	_, err := s.Call(ctx, http.MethodGet, "/health", nil)
	if errors.Is(err, ErrNoSuchPath) || errors.Is(err, ErrUnknownModel) {
		_, err = s.Call(ctx, http.MethodGet, "/v1/models", nil)
	}
	return err
}

// inModel returns a path with the model as a query, which a router needs to ask the server of that model. The router
// must not load the model for such a question.
func (s *Server) inModel(path, model string) string {
	if s.Abilities.Switch != Router {
		return path
	}
	return path + "?model=" + url.QueryEscape(model) + "&autoload=false"
}
