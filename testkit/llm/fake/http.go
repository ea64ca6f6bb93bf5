package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /v1/models", s.list)
	mux.HandleFunc("GET /metrics", s.metrics)
	s.adapters.serve(mux)
	if s.opt.Sleeps != nil {
		s.opt.Sleeps.serve(s, mux)
	}
	if !s.opt.Loads {
		mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, map[string]any{"total_slots": s.opt.Slots, "chat_template": "plain"})
		})
	}
	mux.HandleFunc("POST /apply-template", func(w http.ResponseWriter, r *http.Request) {
		var q question
		if q.read(w, r) {
			reply(w, map[string]string{"prompt": q.chat()})
		}
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) })
	if s.opt.Embeds {
		mux.HandleFunc("POST /v1/embeddings", s.embed)
	}
	if s.opt.Responds {
		mux.HandleFunc("POST /v1/responses", s.respond)
	}
	if !s.opt.Plain {
		mux.HandleFunc("GET /models", s.list)
		mux.HandleFunc("POST /models/load", s.loadModel)
		mux.HandleFunc("POST /models/unload", s.unloadModel)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.still()
		mux.ServeHTTP(w, r)
	})
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": text, "type": "invalid_request_error"}})
}

// question is a request for a completion.
type question struct {
	Model     string `json:"model"`
	Prompt    string `json:"prompt"`
	MaxTokens int    `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Messages  []struct {
		Role, Content string
	} `json:"messages"`
	N        int               `json:"n"`
	Tools    []json.RawMessage `json:"tools"`
	Logprobs json.RawMessage   `json:"logprobs"`
	LoRA     []weight          `json:"lora"`
	writes   string            // the model, or its adapters
}

func (q *question) read(w http.ResponseWriter, r *http.Request) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(q); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

// chat renders messages as a prompt.
func (q *question) chat() string {
	var b strings.Builder
	for _, m := range q.Messages {
		fmt.Fprintf(&b, "<%s>%s\n", m.Role, m.Content)
	}
	return b.String() + "<assistant>"
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var data []any
	for _, m := range s.opt.Models {
		entry := map[string]any{"id": m, "object": "model", "owned_by": "fake"}
		if r.URL.Path == "/models" {
			value := "unloaded"
			if slices.Contains(s.loaded, m) {
				value = "loaded"
			}
			entry["status"] = map[string]any{"value": value}
		}
		data = append(data, entry)
	}
	reply(w, map[string]any{"object": "list", "data": append(data, s.adapters.listed()...)})
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	model := r.URL.Query().Get("model")
	if !s.opt.Plain && !slices.Contains(s.loaded, model) {
		refuse(w, http.StatusBadRequest, "model is not loaded")
		return
	}
	running := s.running[model]
	if s.opt.Plain {
		running = 0
		for _, n := range s.running {
			running += n
		}
	}
	if s.opt.Loads {
		fmt.Fprintf(w, "vllm:num_requests_running %d\nvllm:num_requests_waiting %d\n", running, s.waiting)
		return
	}
	fmt.Fprintf(w, "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing %d\nllamacpp:requests_deferred %d\n", running, s.waiting)
}

func (s *Server) loadModel(w http.ResponseWriter, r *http.Request) {
	var q question
	if !q.read(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !slices.Contains(s.opt.Models, q.Model):
		refuse(w, http.StatusBadRequest, "model not found")
	case slices.Contains(s.loaded, q.Model):
		refuse(w, http.StatusBadRequest, "model is already loaded")
	case len(s.loaded) >= s.opt.Most:
		refuse(w, http.StatusInternalServerError, "model limit reached, please try again later")
	default:
		s.bring(q.Model)
		reply(w, map[string]bool{"success": true})
	}
}

// bring loads a model. The lock is given up meanwhile.
func (s *Server) bring(model string) {
	s.counts.Loads = append(s.counts.Loads, model)
	if s.opt.Load > 0 {
		s.mu.Unlock()
		time.Sleep(s.opt.Load)
		s.mu.Lock()
	}
	s.loaded = append(s.loaded, model)
	s.changed.Broadcast()
}

func (s *Server) unloadModel(w http.ResponseWriter, r *http.Request) {
	var q question
	if !q.read(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.loaded, q.Model) {
		refuse(w, http.StatusBadRequest, "model is not running")
		return
	}
	s.counts.Unloads++
	s.loaded = slices.DeleteFunc(s.loaded, func(m string) bool { return m == q.Model })
	s.changed.Broadcast()
	reply(w, map[string]bool{"success": true})
}

// enter waits for a slot of a model, and has it loaded in the place of the one that
// was not used for longest, as llama-server's router does: once that is idle.
func (s *Server) enter(ctx context.Context, model string) bool {
	defer context.AfterFunc(ctx, s.changed.Broadcast)()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	defer func() { s.waiting-- }()
	for ctx.Err() == nil && s.listener != nil {
		switch {
		case slices.Contains(s.loaded, model):
			if s.running[model] < s.opt.Slots {
				s.running[model]++
				s.loaded = append(slices.DeleteFunc(s.loaded, func(m string) bool { return m == model }), model)
				return true
			}
		case len(s.loaded) < s.opt.Most:
			s.bring(model)
			continue
		case s.running[s.loaded[0]] == 0:
			s.loaded = s.loaded[1:]
			s.counts.Unloads++
			continue
		}
		s.changed.Wait()
	}
	return false
}

func (s *Server) leave(model string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[model]--
	s.changed.Broadcast()
}

// runs returns true if a model is loaded.
func (s *Server) runs(model string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.loaded, model)
}
