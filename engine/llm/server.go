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
	Fixed     Switch = iota // it has the models that it was started with
	Router                  // llama-server without a model: /models/load, /models/unload
	Sleeper                 // vLLM in sleep mode: /sleep, /wake_up
	Releaser                // SGLang with its memory saver: /release_memory_occupation, /resume_memory_occupation
	KeepAlive               // Ollama: a keep_alive of 0 unloads
	Swapper                 // llama-swap: /upstream/MODEL/ loads, /api/models/unload/MODEL unloads
)

var switchNames = [...]string{"fixed", "router", "sleeper", "releaser", "keep-alive", "swapper"}

func (s Switch) String() string { return switchNames[s] }

// Abilities are what a server can do, as found by its answers.
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
	Can Abilities

	mu     sync.Mutex
	canary map[Adapter]string // the answer to the canary before the first sleep, by model or adapter
	wrong  bool               // the canary failed after the last wake
}

// Probe finds out the abilities of a server. It judges by the server's answers, not by its name.
func Probe(ctx context.Context, address string, options ...Option) (*Server, error) {
	c, err := New(address, options...)
	if err != nil {
		return nil, err
	}
	s := &Server{Client: c, canary: map[Adapter]string{}}
	models, err := s.models(ctx, "/v1/models")
	if err != nil {
		return nil, fmt.Errorf("asking %s for its models: %w", c.Address(), err)
	}
	for _, m := range models {
		s.Can.Models = append(s.Can.Models, m.ID)
	}
	p := probe{s}
	for _, ask := range []func(context.Context) error{p.llama, p.vLLM, p.sgLang, p.ollama, p.swap, p.metrics, p.adapters} {
		if err := ask(ctx); err != nil {
			return nil, fmt.Errorf("asking %s what it can do: %w", c.Address(), err)
		}
	}
	return s, nil
}

// probe finds out of which kind a server is.
type probe struct{ *Server }

// listed is a model in a server's list.
type listed struct {
	ID     string `json:"id"`
	Status *struct {
		Value  string `json:"value"`
		Failed bool   `json:"failed"`
	} `json:"status"`
}

// listModels returns the models listed at a path.
func (s *Server) models(ctx context.Context, path string) ([]listed, error) {
	var list struct {
		Data []listed `json:"data"`
	}
	return list.Data, s.get(ctx, path, &list)
}

// getJSON reads JSON from a path.
func (s *Server) get(ctx context.Context, path string, into any) error {
	data, err := s.Call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &Error{Kind: ErrBroken, Status: http.StatusOK, Text: fmt.Sprintf("%s: %v", path, err)}
	}
	return nil
}

// getIfPresent reads JSON from a path that only some servers have, and reports whether it is there. An answer that
// is not JSON, such as a web page, means that it is not.
func (s *Server) has(ctx context.Context, path string, into any) (bool, error) {
	err := s.get(ctx, path, into)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrGone) || errors.Is(err, ErrUnauthorized) || ctx.Err() != nil:
		return false, err
	}
	return false, nil
}

// findLlamaServer recognises llama-server, with a model of its own or as a router.
func (s probe) llama(ctx context.Context) error {
	var props struct {
		Slots    int    `json:"total_slots"`
		Template string `json:"chat_template"`
		Role     string `json:"role"`
	}
	ok, err := s.has(ctx, "/props", &props)
	if err != nil {
		return err
	}
	if ok && (props.Slots > 0 || props.Template != "" || props.Role != "") {
		s.Can.Slots, s.Can.Template = props.Slots, true
	}
	list, err := s.models(ctx, "/models")
	if err == nil && slices.ContainsFunc(list, func(m listed) bool { return m.Status != nil }) {
		s.Can.Switch, s.Can.Template = Router, true
	}
	if errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

func (s probe) vLLM(ctx context.Context) error {
	var sleep struct {
		Sleeping *bool `json:"is_sleeping"`
	}
	ok, err := s.has(ctx, "/is_sleeping", &sleep)
	if ok && sleep.Sleeping != nil {
		s.Can.Switch = Sleeper
	}
	return err
}

func (s probe) sgLang(ctx context.Context) error {
	var info struct {
		Most  int    `json:"max_running_requests"`
		Saver bool   `json:"enable_memory_saver"`
		Path  string `json:"model_path"`
		LoRA  bool   `json:"enable_lora"`
	}
	ok, err := s.has(ctx, "/get_server_info", &info)
	if !ok || info.Path == "" {
		return err
	}
	s.Can.Slots, s.Can.ContinueChat = info.Most, true
	if info.LoRA {
		s.Can.LoRA = Beside
	}
	if info.Saver {
		s.Can.Switch = Releaser
	}
	return nil
}

func (s probe) ollama(ctx context.Context) error {
	var running struct {
		Models *[]json.RawMessage `json:"models"`
	}
	ok, err := s.has(ctx, "/api/ps", &running)
	if ok && running.Models != nil {
		s.Can.Switch = KeepAlive
	}
	return err
}

func (s probe) swap(ctx context.Context) error {
	var running struct {
		Running *[]json.RawMessage `json:"running"`
	}
	ok, err := s.has(ctx, "/running", &running)
	if ok && running.Running != nil {
		s.Can.Switch = Swapper
	}
	return err
}

// findMetrics finds out whether the server has metrics that State can read.
func (s probe) metrics(ctx context.Context) error {
	if s.Can.Switch == Router { // a router's metrics are those of a loaded model
		s.Can.Metrics = true
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
	s.Can.Metrics = strings.Contains(text, "llamacpp:") || strings.Contains(text, "vllm:") || strings.Contains(text, "sglang:")
	if strings.Contains(text, "vllm:") {
		s.Can.LoRA, s.Can.ContinueChat = Named, true
	}
	return nil
}

// Alive returns nil if the server answers and accepts requests.
func (s *Server) Alive(ctx context.Context) error {
	_, err := s.Call(ctx, http.MethodGet, "/health", nil)
	if errors.Is(err, ErrNoSuchPath) || errors.Is(err, ErrUnknownModel) {
		_, err = s.Call(ctx, http.MethodGet, "/v1/models", nil)
	}
	return err
}

// inModel returns a path with the model as a query, which a router needs.
func (s *Server) inModel(path, model string) string {
	if s.Can.Switch != Router {
		return path
	}
	return path + "?model=" + url.QueryEscape(model) + "&autoload=false"
}
